// Package health keeps, for each endpoint, how its attempts went lately: rolling buckets,
// from which come the success of the last 5 minutes, hour and day, a score, latencies, and
// the last success, failure and event.
//
// Time is steady (package clock): a wall clock that steps and a restart bend nothing.
// Nothing is written for an attempt; Save writes everything at once, and what happened
// since is all that a crash loses. An endpoint that was never attempted takes no memory.
package health
