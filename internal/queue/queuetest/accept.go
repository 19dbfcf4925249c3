package queuetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

func testAccept(t *testing.T, place func(*testing.T) Open) {
	t.Run("an event comes back as it was given, also after a restart", func(t *testing.T) {
		f := start(t, place)
		for i, n := range hostileEvents() {
			n.TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
			a := f.accept(n)[0]
			if a.Duplicate || a.Endpoints != 2 || int(a.Seq) != i+1 {
				t.Errorf("event %d: %+v", i, a)
			}
		}
		check := func() {
			t.Helper()
			for i, n := range hostileEvents() {
				got, err := f.queue.Event(t.Context(), queue.Seq(i+1))
				f.must(err)
				if !reflect.DeepEqual(got.Event, n.Event) {
					t.Errorf("event %d: got %+v, want %+v", i, got.Event, n.Event)
				}
				if !slices.Equal(got.Endpoints, n.Endpoints) || got.TraceParent == "" || got.Seq != queue.Seq(i+1) || got.AcceptedAt.IsZero() {
					t.Errorf("event %d: %+v", i, got)
				}
				found, err := f.queue.Find(t.Context(), n.Event.Namespace, n.Event.WebhookID)
				if err != nil || !reflect.DeepEqual(found, got) {
					t.Errorf("event %d by its webhook-id: %+v, %v", i, found, err)
				}
			}
		}
		check()
		f.reopen()
		check()
	})

	t.Run("one pending delivery for each endpoint", func(t *testing.T) {
		f := start(t, place)
		before := f.now()
		seq := f.accept(newEvent("shop", "", "1", "x", orders, billing))[0].Seq
		ds, err := f.queue.Deliveries(t.Context(), seq)
		f.must(err)
		if len(ds) != 2 || ds[0].Endpoint != billing || ds[1].Endpoint != orders {
			t.Fatalf("deliveries: %+v", ds)
		}
		for _, d := range ds {
			if d.State != queue.Pending || d.Attempts != 0 || d.Budget != 0 || d.Replays != 0 || d.Seq != seq ||
				d.QueuedAt.Before(before) || !d.DueAt.Equal(d.QueuedAt) {
				t.Errorf("%+v", d)
			}
		}
		f.wantCounts(orders, queue.Counts{Pending: 1})
		f.wantCounts(billing, queue.Counts{Pending: 1})
		f.wantCounts(foreign, queue.Counts{})
	})

	t.Run("an endpoint named twice gets one delivery", func(t *testing.T) {
		f := start(t, place)
		a := f.accept(newEvent("shop", "", "1", "x", orders, billing, orders))[0]
		if a.Endpoints != 2 {
			t.Errorf("%+v", a)
		}
		f.wantCounts(orders, queue.Counts{Pending: 1})
		f.must(f.record(delivered(orders, a.Seq)))
		f.wantCounts(orders, queue.Counts{})
	})

	t.Run("an event without endpoints is kept", func(t *testing.T) {
		f := start(t, place)
		a := f.accept(newEvent("shop", "", "1", "x"))[0]
		if a.Endpoints != 0 {
			t.Errorf("%+v", a)
		}
		f.reopen()
		if _, err := f.queue.Event(t.Context(), a.Seq); err != nil {
			t.Error(err)
		}
		ds, err := f.queue.Deliveries(t.Context(), a.Seq)
		if err != nil || len(ds) != 0 {
			t.Errorf("deliveries: %v, %v", ds, err)
		}
	})

	t.Run("no events is nothing", func(t *testing.T) {
		f := start(t, place)
		if acc, err := f.queue.Accept(t.Context(), nil); err != nil || len(acc) != 0 {
			t.Errorf("%v, %v", acc, err)
		}
	})

	t.Run("a cancelled call stores nothing", func(t *testing.T) {
		f := start(t, place)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := f.queue.Accept(ctx, []queue.NewEvent{newEvent("shop", "", "1", "x", orders)}); !errors.Is(err, context.Canceled) {
			t.Errorf("answer %v, want context.Canceled", err)
		}
		f.wantCounts(orders, queue.Counts{})
		if a := f.accept(newEvent("shop", "", "1", "x", orders))[0]; a.Duplicate {
			t.Error("the cancelled event is known")
		}
	})

	t.Run("a batch with a conflict stores nothing", func(t *testing.T) {
		f := start(t, place)
		f.accept(newEvent("shop", "", "known", "x", orders))
		_, err := f.queue.Accept(t.Context(), []queue.NewEvent{
			newEvent("shop", "", "new", "x", orders, billing), newEvent("shop", "", "known", "other", orders),
		})
		wantConflict(t, err, 1, "known")
		f.wantCounts(orders, queue.Counts{Pending: 1})
		f.wantCounts(billing, queue.Counts{})
		if _, err := f.queue.Find(t.Context(), "shop", "new"); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("the batch's other event: %v", err)
		}
		f.reopen()
		f.wantCounts(orders, queue.Counts{Pending: 1})
		if got := f.listener.seqs(); !slices.Equal(got, []queue.Seq{1}) {
			t.Errorf("the listener was told of %v", got)
		}
		if a := f.accept(newEvent("shop", "", "new", "x", orders))[0]; a.Duplicate {
			t.Error("the refused event is known")
		}
	})
}

// hostileEvents have every field, and strings that a careless codec breaks.
func hostileEvents() []queue.NewEvent {
	plain := newEvent("shop", "", "ev_1", "{\"id\":\"ev_1\", \"n\":12345678901234567890}\n", billing, orders)
	bare := newEvent("shop", "src", "\x00\n\u2028", "", billing, orders)
	bare.Event.Body = []byte{}
	binary := newEvent("shop", "urn:x", "b", "\xff\xfe\x00", billing, orders)
	binary.Event.Mode = event.ModeBinary
	binary.Event.Subject, binary.Event.ContentType = "s\x00", ""
	binary.Event.Time = time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC)
	binary.Event.Headers = []event.Header{{Name: "ce-id", Value: "b"}, {Name: "ce-x", Value: ""}, {Name: "ce-y", Value: "\"%20"}}
	binary.Event.Attributes = []event.Attribute{{Name: "partitionkey", Value: "ä"}, {Name: "z", Value: ""}}
	future := newEvent("shop", "urn:x", "f", "x", billing, orders)
	future.Event.Mode, future.Event.Time = event.ModeStructured, time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)
	return []queue.NewEvent{plain, bare, binary, future}
}

func wantConflict(t *testing.T, err error, index int, webhookID string) {
	t.Helper()
	var c *queue.ConflictError
	if !errors.As(err, &c) {
		t.Fatalf("answer %v, want a conflict", err)
	}
	if c.Index != index || c.WebhookID != webhookID {
		t.Errorf("conflict %+v, want element %d, id %s", c, index, webhookID)
	}
}

func testDuplicates(t *testing.T, place func(*testing.T) Open) {
	t.Run("the same bytes again are a duplicate, also after a restart", func(t *testing.T) {
		f := start(t, place)
		first := f.accept(newEvent("shop", "", "1", "x", orders, billing))[0]
		for range 2 {
			// The endpoints are those of the first: fan-out is decided at acceptance.
			again := f.accept(newEvent("shop", "", "1", "x", orders))[0]
			if want := (queue.Accepted{Seq: first.Seq, Duplicate: true, Endpoints: 2}); again != want {
				t.Errorf("%+v, want %+v", again, want)
			}
			f.wantCounts(orders, queue.Counts{Pending: 1})
			f.reopen()
		}
	})
	t.Run("other bytes are a conflict, also after a restart", func(t *testing.T) {
		f := start(t, place)
		f.accept(newEvent("shop", "", "1", "x", orders))
		for range 2 {
			_, err := f.queue.Accept(t.Context(), []queue.NewEvent{newEvent("shop", "", "1", "y", orders)})
			wantConflict(t, err, 0, "1")
			f.reopen()
		}
	})
	t.Run("within one call", func(t *testing.T) {
		f := start(t, place)
		acc := f.accept(newEvent("shop", "", "1", "x", orders), newEvent("shop", "", "2", "y", orders), newEvent("shop", "", "1", "x", orders))
		want := []queue.Accepted{{Seq: 1, Endpoints: 1}, {Seq: 2, Endpoints: 1}, {Seq: 1, Duplicate: true, Endpoints: 1}}
		if !slices.Equal(acc, want) {
			t.Errorf("%+v, want %+v", acc, want)
		}
		f.wantCounts(orders, queue.Counts{Pending: 2})
	})
	t.Run("other bytes within one call", func(t *testing.T) {
		f := start(t, place)
		_, err := f.queue.Accept(t.Context(), []queue.NewEvent{newEvent("shop", "", "1", "x", orders), newEvent("shop", "", "1", "y", orders)})
		wantConflict(t, err, 1, "1")
		f.wantCounts(orders, queue.Counts{})
	})
	t.Run("from 100 goroutines one is stored", func(t *testing.T) {
		f := start(t, place)
		acc, errs := fromMany(f, 100, func(int) queue.NewEvent { return newEvent("shop", "", "1", "x", orders) })
		fresh := 0
		for i, a := range acc {
			if errs[i] != nil || a.Seq != 1 || a.Endpoints != 1 {
				t.Errorf("%+v, %v", a, errs[i])
			}
			if !a.Duplicate {
				fresh++
			}
		}
		if fresh != 1 {
			t.Errorf("%d of 100 were stored", fresh)
		}
		f.wantCounts(orders, queue.Counts{Pending: 1})
	})
	t.Run("from 100 goroutines with two contents one content is stored", func(t *testing.T) {
		f := start(t, place)
		acc, errs := fromMany(f, 100, func(i int) queue.NewEvent { return newEvent("shop", "", "1", fmt.Sprint(i%2), orders) })
		taken := [2]int{}
		for i := range acc {
			var c *queue.ConflictError
			switch {
			case errs[i] == nil:
				taken[i%2]++
			case !errors.As(errs[i], &c):
				t.Errorf("answer %v", errs[i])
			}
		}
		if taken != [2]int{50, 0} && taken != [2]int{0, 50} {
			t.Errorf("%v of each content were taken", taken)
		}
		f.wantCounts(orders, queue.Counts{Pending: 1})
	})
	t.Run("identity is scoped by namespace and source", func(t *testing.T) { // case SS129
		f := start(t, place)
		for _, n := range []queue.NewEvent{
			newEvent("shop", "", "1", "a", orders), newEvent("bank", "", "1", "b", foreign),
			newEvent("shop", "urn:a", "1", "c", orders), newEvent("shop", "urn:b", "1", "d", orders),
			newEvent("shop", "urn:a1", "", "e", orders), newEvent("shop", "urn:a", "11", "f", orders),
		} {
			if a := f.accept(n)[0]; a.Duplicate {
				t.Errorf("%s %q %q is taken for another", n.Event.Namespace, n.Event.Source, n.Event.ID)
			}
		}
		f.must(f.record(delivered(foreign, 2)))
		f.wantCounts(orders, queue.Counts{Pending: 5})
		f.wantCounts(foreign, queue.Counts{})
		if _, err := f.queue.Find(t.Context(), "bank", event.WebhookID("urn:a", "1")); !errors.Is(err, queue.ErrNotFound) {
			t.Errorf("another namespace's event: %v", err)
		}
		if err := f.record(delivered(foreign, 1)); !errors.Is(err, queue.ErrNotWaiting) {
			t.Errorf("an outcome for another namespace's delivery: %v", err)
		}
	})
}

// fromMany accepts n events at once, each in its own call.
func fromMany(f *fixture, n int, make1 func(int) queue.NewEvent) ([]queue.Accepted, []error) {
	acc, errs := make([]queue.Accepted, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			a, err := f.queue.Accept(f.ctx, []queue.NewEvent{make1(i)})
			if errs[i] = err; err == nil {
				acc[i] = a[0]
			}
		})
	}
	wg.Wait()
	return acc, errs
}

func testListener(t *testing.T, place func(*testing.T) Open) {
	t.Run("is told of every event once, in order, before the answer", func(t *testing.T) {
		f := start(t, place)
		var wg sync.WaitGroup
		for g := range 20 {
			wg.Go(func() {
				for i := range 10 {
					id := fmt.Sprintf("%d-%d", g, i)
					acc, err := f.queue.Accept(f.ctx, []queue.NewEvent{newEvent("shop", "", id, "x", orders), newEvent("shop", "", id+"b", "y", billing)})
					if err != nil {
						t.Error(err)
						return
					}
					if told := f.listener.seqs(); !slices.Contains(told, acc[0].Seq) || !slices.Contains(told, acc[1].Seq) {
						t.Errorf("events %d and %d are answered before the listener is told", acc[0].Seq, acc[1].Seq)
					}
				}
			})
		}
		wg.Wait()
		told := f.listener.seqs()
		for i, seq := range told {
			if seq != queue.Seq(i+1) {
				t.Fatalf("the listener was told of %v", told)
			}
		}
		if len(told) != 400 {
			t.Errorf("told of %d, want 400", len(told))
		}
	})
	t.Run("gets events whole, duplicates not at all", func(t *testing.T) {
		f := start(t, place)
		f.accept(newEvent("shop", "", "1", "x", orders, billing))
		f.accept(newEvent("shop", "", "1", "x", orders))
		got, err := f.queue.Event(t.Context(), 1)
		f.must(err)
		if len(f.listener.accepted) != 1 {
			t.Fatalf("told of %v", f.listener.seqs())
		}
		told := f.listener.accepted[0]
		if !reflect.DeepEqual(told.Event, got.Event) || !told.AcceptedAt.Equal(got.AcceptedAt) || !slices.Equal(told.Endpoints, []plan.EndpointKey{orders, billing}) {
			t.Errorf("told of %+v, stored %+v", told, got)
		}
	})
	t.Run("is not told of what an earlier run accepted", func(t *testing.T) {
		f := start(t, place)
		f.one("1", orders)
		f.listener = &recorder{}
		f.reopen()
		f.one("2", orders)
		if got := f.listener.seqs(); !slices.Equal(got, []queue.Seq{2}) {
			t.Errorf("told of %v", got)
		}
	})
}
