// Package crash holds the tests that treat the real binary badly: killed at any
// moment under load, stopped while busy, its manifests truncated, deleted and broken.
// They check by ids that every acknowledged event is delivered or dead-lettered, and
// that absence is never taken for deletion.
//
// The size of the kill test is set by DOORSTEP_CRASH_KILLS (50), DOORSTEP_CRASH_EVENTS
// (100000) and DOORSTEP_CRASH_SEED (random, printed). DOORSTEP_BIN names a binary to
// test instead of building one.
package crash
