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
				page, next, err := f.queue.Events(t.Context(), "shop", queue.EventQuery{Cursor: before}, limit)
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
