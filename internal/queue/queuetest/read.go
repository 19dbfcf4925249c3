package queuetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

func testRead(t *testing.T, place func(*testing.T) Open) {
	t.Run("what isn't there", func(t *testing.T) {
		f := start(t, place)
		f.one("1", orders)
		if _, err := f.queue.Event(t.Context(), 2); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("event: %v", err)
		}
		if _, err := f.queue.Find(t.Context(), "shop", "2"); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("find: %v", err)
		}
		if _, err := f.queue.Deliveries(t.Context(), 2); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("deliveries: %v", err)
		}
		for _, state := range allStates {
			f.wantSeqs("list", f.list(foreign, state, 10))
		}
		if ds, next, err := f.queue.Due(t.Context(), foreign, f.now(), 10); len(ds) != 0 || !next.IsZero() || err != nil {
			t.Errorf("due: %v, %s, %v", ds, next, err)
		}
	})
	t.Run("pages", func(t *testing.T) {
		f := start(t, place)
		seqs := f.many(7, orders)
		f.many(3, billing)
		f.one("1", foreign)
		for limit := 1; limit <= 8; limit++ {
			f.wantSeqs(fmt.Sprintf("pages of %d", limit), f.list(orders, queue.Pending, limit), seqs...)
		}
		ds, next, err := f.queue.List(t.Context(), orders, queue.Pending, 0, 7)
		if err != nil || len(ds) != 7 || next != 0 {
			t.Errorf("a page that is just full: %d, next %d, %v", len(ds), next, err)
		}
		fresh, err := f.queue.Fresh(t.Context(), orders, seqs[2], 3)
		f.must(err)
		f.wantSeqs("fresh after the third", fresh, seqs[3:6]...)
		if fresh, err = f.queue.Fresh(t.Context(), orders, seqs[6], 3); len(fresh) != 0 || err != nil {
			t.Errorf("fresh after the last: %v, %v", fresh, err)
		}
	})
	t.Run("retrying in order of acceptance, due in order of time", func(t *testing.T) {
		f := start(t, place)
		seqs := f.many(5, orders)
		base := f.now()
		order := []int{3, 0, 4, 1, 2} // the second is due first
		for i, minutes := range order {
			f.must(f.record(failed(orders, seqs[i], base.Add(time.Duration(minutes)*time.Minute), time.Minute)))
		}
		f.reopen()
		rs, err := f.queue.Retrying(t.Context(), orders, seqs[0], 3)
		f.must(err)
		f.wantSeqs("retrying", rs, seqs[1:4]...)
		f.wantSeqs("listed", f.list(orders, queue.Retrying, 2), seqs...)

		until := base.Add(3 * time.Minute)
		due, next, err := f.queue.Due(t.Context(), orders, until, 10)
		f.must(err)
		f.wantSeqs("due", due, seqs[1], seqs[3], seqs[4], seqs[0])
		if !next.Equal(base.Add(4 * time.Minute)) {
			t.Errorf("next %s", next)
		}
		due, next, err = f.queue.Due(t.Context(), orders, until, 2)
		f.must(err)
		f.wantSeqs("the first two due", due, seqs[1], seqs[3])
		if !next.Equal(base.Add(2 * time.Minute)) {
			t.Errorf("next %s", next)
		}
		due, next, err = f.queue.Due(t.Context(), orders, base.Add(-time.Nanosecond), 10)
		if len(due) != 0 || !next.Equal(base) || err != nil {
			t.Errorf("before the first: %v, %s, %v", due, next, err)
		}
		due, next, err = f.queue.Due(t.Context(), orders, base.Add(time.Hour), 10)
		if len(due) != 5 || !next.IsZero() || err != nil {
			t.Errorf("all: %v, %s, %v", seqsOf(due), next, err)
		}
	})
	t.Run("equal due times come in order of acceptance", func(t *testing.T) {
		f := start(t, place)
		seqs := f.many(3, orders)
		at := f.now()
		for _, i := range []int{2, 0, 1} {
			f.must(f.record(failed(orders, seqs[i], at, time.Second)))
		}
		due, _, err := f.queue.Due(t.Context(), orders, at, 10)
		f.must(err)
		f.wantSeqs("due", due, seqs...)
	})
	t.Run("events of a namespace, newest first", func(t *testing.T) {
		f := start(t, place)
		for i := range 4 {
			f.one(fmt.Sprint(i), orders)
			f.one(fmt.Sprint(i), foreign)
		}
		for limit := 1; limit <= 9; limit++ {
			var got []queue.Seq
			for before, calls := queue.Seq(0), 0; ; calls++ {
				page, next, err := f.queue.Events(t.Context(), "shop", before, limit)
				f.must(err)
				for _, e := range page {
					if e.Namespace != "shop" || e.WebhookID == "" || e.Body != nil || !slices.Equal(e.Endpoints, []plan.EndpointKey{orders}) {
						t.Errorf("%+v", e)
					}
					got = append(got, e.Seq)
				}
				if next == 0 || calls > 20 {
					break
				}
				before = next
			}
			if !slices.Equal(got, []queue.Seq{7, 5, 3, 1}) {
				t.Errorf("in pages of %d: %v", limit, got)
			}
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		f := start(t, place)
		f.one("1", orders)
		wantCancelled(t, func(ctx context.Context) error { _, err := f.queue.Event(ctx, 1); return err })
		wantCancelled(t, func(ctx context.Context) error { _, err := f.queue.Find(ctx, "shop", "1"); return err })
		wantCancelled(t, func(ctx context.Context) error { _, err := f.queue.Deliveries(ctx, 1); return err })
	})
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
					n, ended, err := f.queue.Prune(t.Context(), times[0], times[1], 10)
					f.must(err)
					if !ended || (n == 1) != want || n > 1 {
						t.Errorf("times %d: %d forgotten, ended %v; want forgotten: %v", i, n, ended, want)
					}
					f.reopen()
					_, err = f.queue.Event(t.Context(), seq)
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
		if n, _, err := f.queue.Prune(t.Context(), line, line, 10); n != 0 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if n, _, err := f.queue.Prune(t.Context(), f.wall.now().Add(time.Hour), never, 10); n != 1 || err != nil {
			t.Errorf("later: %d, %v", n, err)
		}
		wantForgotten(t, f, seq, "1")
		f.wantSeqs("delivered", f.list(orders, queue.Delivered, 10))
	})
	t.Run("in steps, around what waits", func(t *testing.T) {
		f := start(t, place)
		seqs := f.many(10, orders)
		for i, seq := range seqs {
			if i%3 != 0 {
				f.must(f.record(delivered(orders, seq)))
			}
		}
		line := age(f)
		total, steps := 0, 0
		for ended := false; !ended && steps < 20; steps++ {
			n, e, err := f.queue.Prune(t.Context(), line, line, 4)
			f.must(err)
			total, ended = total+n, e
		}
		if total != 6 || steps != 3 {
			t.Errorf("forgot %d in %d steps, want 6 in 3", total, steps)
		}
		f.wantSeqs("pending", f.list(orders, queue.Pending, 3), seqs[0], seqs[3], seqs[6], seqs[9])
		f.wantCounts(orders, queue.Counts{Pending: 4})
		// The next call begins at the beginning.
		f.must(f.record(delivered(orders, seqs[0])))
		far := f.wall.now().Add(time.Hour)
		if n, _, err := f.queue.Prune(t.Context(), far, far, 1); n != 1 || err != nil {
			t.Errorf("again: %d, %v", n, err)
		}
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
			if n, _, err := f.queue.Prune(t.Context(), far, far, 10); n != 1 || err != nil {
				t.Fatalf("%d, %v", n, err)
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
		wantCancelled(t, func(ctx context.Context) error { _, _, err := f.queue.Prune(ctx, never, never, 10); return err })
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
