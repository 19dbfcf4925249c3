package queuetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// prune forgets by two times; identities go with their events.
func (f *fixture) prune(delivered, deadLetters time.Time) queue.Pruned {
	f.Helper()
	n, err := f.queue.Prune(f.ctx, queue.Retention{Delivered: delivered, DeadLetters: deadLetters, Identities: f.wall.now().Add(24 * time.Hour)})
	f.must(err)
	return n
}

func testPrune(t *testing.T, place func(*testing.T) Open) {
	// age makes everything so far older than what is to come, and gives a time between.
	age := func(f *fixture) time.Time {
		f.must(f.queue.Close())
		f.wall.step(time.Hour)
		f.start()
		return f.wall.now().Add(-30 * time.Minute)
	}
	never := time.Time{}
	t.Run("by state and age", func(t *testing.T) {
		for _, c := range []struct {
			name           string
			states         []queue.State // of the deliveries to orders and billing
			byDelivered    bool          // forgotten when only the first time has come
			byDeadLetters  bool          // when only the second has
			byBothTogether bool
		}{
			{"delivered", []queue.State{queue.Delivered, queue.Delivered}, true, false, true},
			{"without deliveries", nil, true, false, true},
			{"one dead letter", []queue.State{queue.Delivered, queue.DeadLettered}, false, false, true},
			{"dead letters only", []queue.State{queue.DeadLettered, queue.DeadLettered}, false, true, true},
			{"one pending", []queue.State{queue.Delivered, queue.Pending}, false, false, false},
			{"one retrying", []queue.State{queue.Retrying, queue.DeadLettered}, false, false, false},
		} {
			t.Run(c.name, func(t *testing.T) {
				for i, want := range []bool{c.byDelivered, c.byDeadLetters, c.byBothTogether} {
					f := start(t, place)
					eps := []plan.EndpointKey{orders, billing}[:len(c.states)]
					seq := f.accept(newEvent("shop", "", "1", "x", eps...))[0].Seq
					for j, s := range c.states {
						f.bring(eps[j], seq, s)
					}
					line := age(f)
					young := f.accept(newEvent("shop", "", "2", "x", orders))[0].Seq
					f.must(f.record(delivered(orders, young)))
					before := [2]queue.Counts{f.queue.Counts(orders), f.queue.Counts(billing)}
					times := [][2]time.Time{{line, never}, {never, line}, {line, line}}[i]
					if n := f.prune(times[0], times[1]); (n.Events == 1) != want || n.Events > 1 {
						t.Errorf("times %d: %+v, want forgotten: %v", i, n, want)
					}
					f.reopen()
					_, err := f.queue.Event(t.Context(), seq)
					if gone := errors.Is(err, queue.ErrNotFound); gone != want {
						t.Errorf("times %d: event after it: %v", i, err)
					}
					if !want {
						f.wantCounts(orders, before[0])
						f.wantCounts(billing, before[1])
						continue
					}
					wantForgotten(t, f, seq, "1")
					f.wantCounts(billing, queue.Counts{})
					f.wantState(orders, young, queue.Delivered)
				}
			})
		}
	})
	t.Run("a replay makes it young again", func(t *testing.T) {
		f := start(t, place)
		seq := f.one("1", orders)
		f.bring(orders, seq, queue.DeadLettered)
		line := age(f)
		_, err := f.queue.Replay(t.Context(), orders, seq, false)
		f.must(err)
		f.must(f.record(delivered(orders, seq)))
		if n := f.prune(line, line); n.Events != 0 {
			t.Errorf("%+v", n)
		}
		if n := f.prune(f.wall.now().Add(time.Hour), never); n.Events != 1 {
			t.Errorf("later: %+v", n)
		}
		wantForgotten(t, f, seq, "1")
		f.wantSeqs("delivered", f.list(orders, queue.Delivered, 10))
	})
	t.Run("around what waits", func(t *testing.T) {
		f := start(t, place)
		seqs := f.many(10, orders)
		for i, seq := range seqs {
			if i%3 != 0 {
				f.must(f.record(delivered(orders, seq)))
			}
		}
		line := age(f)
		if n := f.prune(line, line); n.Events != 6 {
			t.Errorf("forgot %+v, want 6 events", n)
		}
		f.wantSeqs("pending", f.list(orders, queue.Pending, 3), seqs[0], seqs[3], seqs[6], seqs[9])
		f.wantCounts(orders, queue.Counts{Pending: 4})
		// What has ended since is forgotten by a later call.
		f.must(f.record(delivered(orders, seqs[0])))
		far := f.wall.now().Add(time.Hour)
		if n := f.prune(far, far); n.Events != 1 {
			t.Errorf("again: %+v", n)
		}
		f.wantSeqs("pending", f.list(orders, queue.Pending, 3), seqs[3], seqs[6], seqs[9])
	})
	t.Run("a number is never given again, an identity may be", func(t *testing.T) {
		f := start(t, place)
		for i := range 3 {
			seq := f.one("1", orders)
			if seq != queue.Seq(i+1) {
				t.Errorf("event %d got the number %d", i, seq)
			}
			f.must(f.record(delivered(orders, seq)))
			far := f.wall.now().Add(time.Hour)
			if n := f.prune(far, far); n.Events != 1 {
				t.Fatalf("%+v", n)
			}
			wantForgotten(t, f, seq, "1")
			if i > 0 {
				f.reopen()
			}
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		f := start(t, place)
		f.one("1", orders)
		wantCancelled(t, func(ctx context.Context) error { _, err := f.queue.Prune(ctx, queue.Retention{}); return err })
	})
}

func wantForgotten(t *testing.T, f *fixture, seq queue.Seq, id string) {
	t.Helper()
	if _, err := f.queue.Find(t.Context(), "shop", id); !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("its identity: %v", err)
	}
	if _, err := f.queue.Deliveries(t.Context(), seq); !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("its deliveries: %v", err)
	}
	for _, ep := range []plan.EndpointKey{orders, billing} {
		if as, err := f.queue.Attempts(t.Context(), seq, ep); err != nil || len(as) != 0 {
			t.Errorf("its attempts: %v, %v", as, err)
		}
		if _, err := f.queue.Replay(t.Context(), ep, seq, true); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("its replay: %v", err)
		}
	}
}
