package pebble_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/doorstep-dev/doorstep/internal/queue/pebble"
)

// case QD95: two hundred restarts under load, on a real folder: none fails to open, and
// nothing that was acknowledged is missing.
func TestTwoHundredRestartsUnderLoad(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "q")
	known := newLedger()
	for restart := range 200 {
		s := open(t, pebble.Options{Dir: dir})
		if restart%20 == 0 {
			known.verify(t, s)
		}
		var loads sync.WaitGroup
		for g := range 2 {
			loads.Go(func() { _ = known.load(t.Context(), s, fmt.Sprintf("%d-%d", restart, g), 1<<20) })
		}
		for after := known.acks.Load() + 3; known.acks.Load() < after; runtime.Gosched() {
		}
		if err := s.Close(); err != nil { // ends the loads: they are told that it is closed
			t.Fatalf("restart %d: %v", restart, err)
		}
		loads.Wait()
	}
	s := open(t, pebble.Options{Dir: dir})
	known.verify(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
