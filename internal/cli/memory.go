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
	// endpointBytes is what an endpoint adds to the limit: what manifests, plan and lane
	// hold of it, and room to collect less often than always.
	endpointBytes = 8 << 10
	// manyEndpoints is how many leave enough behind, as they are read, to be given back.
	manyEndpoints = 1000
)

// tuneMemory sets the collector for a long-running worker, as far as the environment
// (GOGC, GOMEMLIMIT) doesn't. It returns a function to call whenever manifests have been
// read, with the number of endpoints in force.
func tuneMemory() (planned func(endpoints int)) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	follows := os.Getenv("GOMEMLIMIT") == ""
	if follows {
		debug.SetMemoryLimit(memoryLimit)
	}
	return func(endpoints int) {
		if follows {
			debug.SetMemoryLimit(memoryLimit + int64(endpoints)*endpointBytes)
		}
		if endpoints >= manyEndpoints {
			debug.FreeOSMemory()
		}
	}
}
