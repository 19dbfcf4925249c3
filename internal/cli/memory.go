package cli

import (
	"os"
	"runtime/debug"
)

const (
	// gcPercent and memoryLimit: without cgo pebble's memtables and cache lie in Go's heap
	// and hold no pointers, so that Go's default collects often for little. Fewer
	// collections cost a tenth less CPU per event, and the limit keeps the peak under 200
	// MiB (docs/decisions/0042).
	gcPercent   = 200
	memoryLimit = 160 << 20
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
