// Package retry is the pure arithmetic of trying again: which answers are
// retried, how long to wait after the nth failure, and what a Retry-After header
// asks for. It has no clock, no randomness and no I/O of its own: callers pass
// the time and the random number in.
package retry
