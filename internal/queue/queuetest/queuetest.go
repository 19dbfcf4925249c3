package queuetest

import (
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// Options are what a test asks of the store that it opens.
type Options struct {
	// Wall is the wall clock; nil is time.Now.
	Wall func() time.Time
	// Listener may be nil.
	Listener queue.Listener
}

// Open opens the store over one set of data: empty at first, later whatever the store
// before it, which has been closed, left there.
type Open func(Options) (queue.Queue, error)

// Run holds a store to the whole suite. place makes a new, empty set of data and gives
// the function that opens it; what must be cleaned up goes to t.Cleanup.
func Run(t *testing.T, place func(t *testing.T) Open) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, func(*testing.T) Open)
	}{
		{"Accept", testAccept},
		{"Duplicates", testDuplicates},
		{"Listener", testListener},
		{"Record", testRecord},
		{"Settle", testSettle},
		{"Reschedule", testReschedule},
		{"Replay", testReplay},
		{"Line", testLine},
		{"Lane", testLane},
		{"Filter", testFilter},
		{"Sizes", testSizes},
		{"Erase", testErase},
		{"Audit", testAudit},
		{"Namespace", testNamespace},
		{"Read", testRead},
		{"Events", testEvents},
		{"Prune", testPrune},
		{"Time", testTime},
		{"Close", testClose},
		{"Model", testModel},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, place) })
	}
}
