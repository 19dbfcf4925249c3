// Package absence makes endpoints look absent in every way that is no deletion: shards and the index of a plan are removed
// and damaged, the manager starts with a cold cache, the worker with a volume in which something is missing, a namespace is
// no longer admitted. Each time what waits must be held, nothing may become a dead letter, and once all is back each event
// must be delivered. Manager, worker and API server are real processes on 127.0.0.1.
package absence
