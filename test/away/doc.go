// Package away takes the control plane away from a worker that is at work: the manager is killed, the API server is gone for
// five minutes. Ingest and deliveries must go on, a worker that is started meanwhile must do its work, and afterwards all
// statuses must be right. And it takes the worker away from the control plane, which must say so when it lasts and not
// before. Manager, worker and API server are real processes on 127.0.0.1.
package away
