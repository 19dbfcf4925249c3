package queuetest

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

func testErase(t *testing.T, place func(*testing.T) Open) {
	t.Run("payload and answers go, identity, hash and outcomes stay", func(t *testing.T) {
		f := start(t, place)
		audit := plan.EndpointKey{Namespace: "shop", Name: "audit"}
		n := newEvent("shop", "", "1", "a secret", orders, billing, audit)
		n.Event.Subject, n.Event.Attributes = "someone", []event.Attribute{{Name: "customer", Value: "7"}}
		seq := f.accept(n)[0].Seq
		f.must(f.record(failed(orders, seq, f.now().Add(time.Hour), time.Hour))) // with a body of 6 bytes
		f.must(f.record(delivered(billing, seq)))
		before, err := f.queue.Event(t.Context(), seq)
		f.must(err)

		done, err := f.queue.Erase(t.Context(), seq)
		if err != nil || done.At.IsZero() || done.Again || done.Bytes != 8+6 || done.DeadLettered != 2 {
			t.Fatalf("%+v, %v", done, err)
		}
		if len(f.listener.erased) != 1 || f.listener.erased[0].seq != seq || len(f.listener.erased[0].endpoints) != 2 || slices.Contains(f.listener.erased[0].endpoints, billing) {
			t.Errorf("the listener was told %+v", f.listener.erased)
		}
		for range 2 {
			ev, err := f.queue.Event(t.Context(), seq)
			if !errors.Is(err, queue.ErrErased) || ev == nil || ev.Body != nil || ev.Subject != "" || ev.Attributes != nil || !ev.Erased.Equal(done.At) {
				t.Fatalf("%+v, %v", ev, err)
			}
			if ev.ID != "1" || ev.Hash != before.Hash || ev.Type != before.Type || !ev.AcceptedAt.Equal(before.AcceptedAt) || !slices.Equal(ev.Endpoints, before.Endpoints) || ev.Size != 8 {
				t.Errorf("%+v", ev)
			}
			if found, err := f.queue.Find(t.Context(), "shop", "1"); !errors.Is(err, queue.ErrErased) || !reflect.DeepEqual(found, ev) {
				t.Errorf("found %+v, %v", found, err)
			}
			if list, _, err := f.queue.Events(t.Context(), "shop", queue.EventQuery{}, 10); err != nil || len(list) != 1 || !list[0].Erased.Equal(done.At) {
				t.Errorf("listed %+v, %v", list, err)
			}
			for _, ep := range []plan.EndpointKey{orders, audit} {
				if d := f.wantState(ep, seq, queue.DeadLettered); d.Reason != queue.ReasonErased || !d.EndedAt.Equal(done.At) {
					t.Errorf("%+v", d)
				}
			}
			f.wantState(billing, seq, queue.Delivered)
			as, err := f.queue.Attempts(t.Context(), seq, orders)
			if err != nil || len(as) != 1 || as[0].Response != nil || as[0].Status != 503 || as[0].Message == "" {
				t.Errorf("attempts %+v, %v", as, err)
			}
			f.wantCounts(orders, queue.Counts{DeadLettered: 1})
			f.reopen()
		}
		if n := f.queue.NamespaceWaiting("shop"); n != 0 {
			t.Errorf("%d bytes wait", n)
		}
		// Pruning gives the bytes back, and changes nothing else.
		f.prune(time.Time{}, time.Time{})
		f.wantState(orders, seq, queue.DeadLettered)
		if a := f.accept(n)[0]; !a.Duplicate {
			t.Error("its identity is not known any more")
		}
	})
	t.Run("nothing of it can be sent again", func(t *testing.T) {
		f := start(t, place)
		seq := f.accept(filtered("1"))[0].Seq
		f.must(f.record(delivered(billing, seq)))
		_, err := f.queue.Erase(t.Context(), seq)
		f.must(err)
		for range 2 {
			for _, ep := range []plan.EndpointKey{orders, billing} {
				if _, err := f.queue.Replay(t.Context(), ep, seq, true); !errors.Is(err, queue.ErrErased) {
					t.Errorf("replay to %s: %v", ep, err)
				}
			}
			f.reopen()
		}
		f.wantState(orders, seq, queue.FilterError)
		if err := f.record(delivered(billing, seq)); !errors.Is(err, queue.ErrNotWaiting) {
			t.Errorf("an attempt that was under way: %v", err)
		}
	})
	t.Run("again", func(t *testing.T) {
		f := start(t, place)
		seq := f.one("1", orders)
		first, err := f.queue.Erase(t.Context(), seq)
		f.must(err)
		if again, err := f.queue.Erase(t.Context(), seq); err != nil || again != (queue.Erased{At: first.At, Again: true}) {
			t.Errorf("%+v, %v; first at %s", again, err, first.At)
		}
		if len(f.listener.erased) != 1 {
			t.Errorf("the listener was told %+v", f.listener.erased)
		}
		if _, err := f.queue.Erase(t.Context(), 99); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("what isn't there: %v", err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		f := start(t, place)
		seq := f.one("1", orders)
		wantCancelled(t, func(ctx context.Context) error { _, err := f.queue.Erase(ctx, seq); return err })
		f.wantState(orders, seq, queue.Pending)
	})
}

func testAudit(t *testing.T, place func(*testing.T) Open) {
	f := start(t, place)
	var want []queue.AuditRecord
	for i := range 5 {
		r := queue.AuditRecord{Namespace: "shop", Caller: "ann@example.com", Action: "replay", Target: "orders", Detail: "all of yesterday", Count: i}
		f.must(f.queue.AddAudit(t.Context(), r))
		f.must(f.queue.AddAudit(t.Context(), queue.AuditRecord{Namespace: "bank", Action: "erase"}))
		want = slices.Insert(want, 0, r)
		if i == 2 {
			f.must(f.queue.Close())
			f.wall.step(time.Hour)
			f.start()
		}
	}
	read := func(limit int) (all []queue.AuditRecord) {
		t.Helper()
		for before, calls := uint64(0), 0; ; calls++ {
			page, next, err := f.queue.Audits(t.Context(), "shop", before, limit)
			f.must(err)
			if len(page) > limit || calls > 10 {
				t.Fatalf("a page of %d, call %d", len(page), calls)
			}
			if all = append(all, page...); next == 0 {
				return all
			}
			before = next
		}
	}
	for limit := 1; limit <= 6; limit++ {
		got := read(limit)
		for i := range got {
			if got[i].At.IsZero() || i > 0 && got[i].At.After(got[i-1].At) {
				t.Errorf("records at %s and then %s", got[max(i, 1)-1].At, got[i].At)
			}
		}
		for i := range got {
			got[i].At = time.Time{}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("in pages of %d: %+v\nwant %+v", limit, got, want)
		}
	}
	if page, next, err := f.queue.Audits(t.Context(), "nobody", 0, 10); len(page) != 0 || next != 0 || err != nil {
		t.Errorf("%+v, %d, %v", page, next, err)
	}
	// They are kept as long as dead letters.
	line := f.wall.now().Add(-30 * time.Minute)
	if n := f.prune(f.wall.now(), line); n.AuditRecords != 6 {
		t.Errorf("forgot %+v, want three of each namespace", n)
	}
	for range 2 {
		if got := read(10); len(got) != 2 || got[0].Count != 4 || got[1].Count != 3 {
			t.Errorf("left: %+v", got)
		}
		if n := f.prune(time.Time{}, line); n.AuditRecords != 0 {
			t.Errorf("forgot %+v again", n)
		}
		f.reopen()
	}
	if n := f.prune(time.Time{}, f.wall.now().Add(time.Hour)); n.AuditRecords != 4 || len(read(10)) != 0 {
		t.Errorf("forgot %+v", n)
	}
	wantCancelled(t, func(ctx context.Context) error {
		return f.queue.AddAudit(ctx, queue.AuditRecord{Namespace: "shop"})
	})
}
