package dispatch

import (
	"testing"
	"time"
)

// case IN14: a dispatcher that is blocked shows in Health, while everything else works.
func TestABlockedDispatcherIsNotHealthy(t *testing.T) {
	inWorld(t, answers(200), func(w *world) {
		w.send(1)
		w.after(24 * time.Hour)
		if err := w.d.Health(); err != nil {
			t.Fatalf("idle for a day: %v, want healthy", err)
		}
		w.stop() // Run is what would hang at a lock that is never given back
		w.after(5 * time.Minute)
		if w.d.Health() == nil {
			t.Error("without a sign of life for five minutes, but healthy")
		}
	})
}

// case MA198: lanes are ready, there are workers to hire, and nobody looks.
func TestADispatcherThatLosesItsWorkersIsNotHealthy(t *testing.T) {
	inWorld(t, answers(200), func(w *world) {
		w.after(time.Second)
		w.d.mu.Lock()
		l := w.d.lanes[w.key()]
		l.ready = true
		w.d.ring = append(w.d.ring, l) // without hire
		w.d.mu.Unlock()
		w.after(5 * time.Minute)
		if w.d.Health() == nil {
			t.Error("nothing has been looked at for five minutes, but healthy")
		}
		w.send(1)
		w.after(time.Minute)
		if err := w.d.Health(); err != nil {
			t.Errorf("at work again: %v, want healthy", err)
		}
	})
}
