package cli

import (
	"os"
	"runtime/debug"
)

const (
	// gcPercent: the worker's live heap is small and its garbage short-lived, so a third
	// of Go's default number of collections costs little memory and a tenth less CPU per
	// event (docs/bench.md).
	gcPercent = 300
	// memoryLimit makes the collector work harder before memory grows past it.
	memoryLimit = 256 << 20
)

// tuneMemory sets the collector for a long-running worker, as far as the environment
// (GOGC, GOMEMLIMIT) doesn't.
func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
}
