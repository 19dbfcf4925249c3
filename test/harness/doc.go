// Package harness holds what the benchmark, the crash tests and the interop tests
// share: starting, measuring and ending processes; the manifests of a worker under
// test; a lean load generator; and a sink that counts, checks and times what
// arrives.
//
// It treats Doorstep as a stranger would: a binary, a folder of manifests and an
// HTTP API. It imports nothing of the code under test, so that it can't share a
// mistake with it, and it dials only 127.0.0.1. It ends only processes that it
// started, by their process id.
package harness
