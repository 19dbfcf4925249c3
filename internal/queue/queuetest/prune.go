package queuetest

import (
	"context"
	"errors"
	"slices"
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
			{"discarded", []queue.State{queue.Discarded, queue.Delivered}, true, false, true},
			{"one whose filter failed", []queue.State{queue.FilterError, queue.Discarded}, false, false, true},
			{"filter errors only", []queue.State{queue.FilterError, queue.FilterError}, false, true, true},
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
	t.Run("an identity is remembered by its own time, also without its event", func(t *testing.T) {
		f := start(t, place)
		for _, id := range []string{"1", "2"} {
			f.must(f.record(delivered(orders, f.one(id, orders))))
		}
		line := age(f)
		f.must(f.record(delivered(orders, f.one("young", orders))))
		forget := func(deliveredBefore, identities time.Time) queue.Pruned {
			t.Helper()
			n, err := f.queue.Prune(t.Context(), queue.Retention{Delivered: deliveredBefore, Identities: identities})
			f.must(err)
			return n
		}
		if n := forget(f.wall.now().Add(time.Hour), never); n.Events != 3 || n.Identities != 0 {
			t.Errorf("%+v", n)
		}
		for range 2 {
			if _, err := f.queue.Event(t.Context(), 1); !errors.Is(err, queue.ErrNotFound) {
				t.Errorf("the event: %v", err)
			}
			if _, err := f.queue.Find(t.Context(), "shop", "1"); !errors.Is(err, queue.ErrNotFound) {
				t.Errorf("the event by its id: %v", err)
			}
			if a := f.accept(newEvent("shop", "", "1", "body of 1", orders))[0]; a != (queue.Accepted{Seq: 1, Duplicate: true, Endpoints: 1}) {
				t.Errorf("%+v", a)
			}
			_, err := f.queue.Accept(t.Context(), []queue.NewEvent{newEvent("shop", "", "1", "other", orders)})
			wantConflict(t, err, 0, "1")
			f.reopen()
		}
		if n := forget(never, line); n.Identities != 2 {
			t.Errorf("%+v, want the two old identities", n)
		}
		for i, id := range []string{"1", "2", "young"} {
			if a := f.accept(newEvent("shop", "", id, "body of "+id, orders))[0]; a.Duplicate != (id == "young") {
				t.Errorf("%d: %+v", i, a)
			}
		}
		if n := forget(never, line); n.Identities != 0 {
			t.Errorf("%+v again", n)
		}
		if a := f.accept(newEvent("shop", "", "1", "body of 1", orders))[0]; !a.Duplicate {
			t.Errorf("the event that has the identity now: %+v", a)
		}
	})
	t.Run("payloads go with the last delivery where they are to be dropped", func(t *testing.T) {
		f := start(t, place)
		drop := func() queue.Pruned {
			t.Helper()
			n, err := f.queue.Prune(t.Context(), queue.Retention{DropPayloads: true})
			f.must(err)
			return n
		}
		both := f.accept(newEvent("shop", "", "1", "0123456789", orders, billing))[0].Seq
		dead, none, empty := f.one("2", orders), f.accept(newEvent("shop", "", "3", "x"))[0].Seq, f.accept(newEvent("shop", "", "4", "", orders))[0].Seq
		f.bring(orders, both, queue.Delivered)
		f.bring(orders, dead, queue.DeadLettered)
		f.bring(orders, empty, queue.Delivered)
		if n := drop(); n.Payloads != 1 || n.Events != 0 {
			t.Errorf("%+v, want that of the event nobody took", n)
		}
		if ev, err := f.queue.Event(t.Context(), none); !errors.Is(err, queue.ErrPayloadMissing) || ev.Size != 1 {
			t.Errorf("%+v, %v", ev, err)
		}
		f.bring(billing, both, queue.Discarded)
		for i, want := range []int64{1, 0} {
			if n := drop(); n.Payloads != want {
				t.Errorf("call %d: %+v, want %d payloads", i, n, want)
			}
			f.reopen()
		}
		if _, err := f.queue.Replay(t.Context(), orders, both, true); !errors.Is(err, queue.ErrPayloadMissing) {
			t.Errorf("its replay: %v", err)
		}
		f.wantState(orders, both, queue.Delivered)
		if _, err := f.queue.Replay(t.Context(), orders, dead, false); err != nil {
			t.Errorf("a dead letter's payload is kept: %v", err)
		}
		f.must(f.record(delivered(orders, dead)))
		if n := drop(); n.Payloads != 1 {
			t.Errorf("%+v, want that of the dead letter that was delivered", n)
		}
	})
	t.Run("counted since the store was opened", func(t *testing.T) {
		f := start(t, place)
		for _, id := range []string{"1", "2"} {
			f.must(f.record(delivered(orders, f.one(id, orders))))
			f.prune(f.wall.now().Add(time.Hour), never)
		}
		if n := f.queue.Pruned(); n.Events != 2 || n.Bytes != 18 || n.ByBytes != 0 {
			t.Errorf("%+v", n)
		}
	})
	t.Run("many, with some between that are kept", func(t *testing.T) {
		f := start(t, place)
		seqs := f.many(5000, orders) // over several steps of a store
		var kept []queue.Seq
		for i, seq := range seqs {
			switch {
			case i%100 == 7:
				f.bring(orders, seq, queue.DeadLettered)
				kept = append(kept, seq)
			case i%1000 == 8:
				kept = append(kept, seq)
			default:
				f.queue.Record(delivered(orders, seq), func(err error) {
					if err != nil {
						t.Error(err)
					}
				})
			}
		}
		line := age(f)
		if n := f.prune(line, never); n.Events != int64(5000-len(kept)) {
			t.Errorf("%+v, want %d events", n, 5000-len(kept))
		}
		f.reopen()
		evs := f.pages(t, queue.EventQuery{Ascending: true}, 1000)
		if !slices.Equal(evs, kept) {
			t.Errorf("%d events are left, want %d", len(evs), len(kept))
		}
		for _, seq := range kept {
			if _, err := f.queue.Event(t.Context(), seq); err != nil {
				t.Errorf("event %d: %v", seq, err)
			}
		}
		f.wantSeqs("delivered", f.list(orders, queue.Delivered, 1000))
		f.wantCounts(orders, queue.Counts{DeadLettered: 50, Pending: 5})
		if n := f.prune(line, line); n.Events != 50 {
			t.Errorf("%+v, want the dead letters", n)
		}
		f.wantCounts(orders, queue.Counts{Pending: 5})
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
