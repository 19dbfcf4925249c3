// Package secrets tests what becomes of endpoints when the Secrets that they refer to come late, change, go and come back,
// and what Secrets that nobody refers to cost. Manager, worker and API server are real processes on 127.0.0.1.
package secrets
