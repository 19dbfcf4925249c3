package queuetest

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// filtered is an event whose filter failed for orders and could not be asked for billing.
func filtered(id string) queue.NewEvent {
	n := newEvent("shop", "", id, "0123456789", orders, billing)
	n.FilterErrors, n.Undecided = []plan.EndpointKey{orders}, []plan.EndpointKey{billing}
	return n
}

func testFilter(t *testing.T, place func(*testing.T) Open) {
	t.Run("a failed filter is a state of its own, one that was not asked is told", func(t *testing.T) {
		f := start(t, place)
		seq := f.accept(filtered("1"))[0].Seq
		told := f.listener.accepted[0]
		for range 2 {
			d := f.wantState(orders, seq, queue.FilterError)
			if d.Reason != queue.ReasonFilterError || d.EndedAt.IsZero() || !d.DueAt.IsZero() || d.Undecided || !reflect.DeepEqual(d, told.New(orders)) {
				t.Errorf("%+v", d)
			}
			f.wantCounts(orders, queue.Counts{FilterError: 1})
			f.wantSeqs("filter errors", f.list(orders, queue.FilterError, 1), seq)
			if d = f.wantState(billing, seq, queue.Pending); !d.Undecided || !reflect.DeepEqual(d, told.New(billing)) {
				t.Errorf("%+v", d)
			}
			fresh, err := f.queue.Fresh(t.Context(), billing, 0, 10)
			if err != nil || len(fresh) != 1 || !fresh[0].Undecided {
				t.Errorf("fresh: %+v, %v", fresh, err)
			}
			f.reopen()
		}
		if ds, err := f.queue.Fresh(t.Context(), orders, 0, 10); len(ds) != 0 || err != nil {
			t.Errorf("waiting: %+v, %v", ds, err)
		}
		if err := f.record(delivered(orders, seq)); !errors.Is(err, queue.ErrNotWaiting) {
			t.Errorf("an outcome: %v", err)
		}
	})
	t.Run("the mended filter decides", func(t *testing.T) {
		f := start(t, place)
		seqs := []queue.Seq{f.accept(filtered("1"))[0].Seq, f.accept(filtered("2"))[0].Seq, f.accept(filtered("3"))[0].Seq}
		for _, seq := range seqs {
			d, err := f.queue.Replay(t.Context(), orders, seq, false)
			if err != nil || !d.Undecided || d.State != queue.Pending || d.Replays != 1 {
				t.Errorf("%+v, %v", d, err)
			}
		}
		f.reopen()
		due, err := f.queue.Retrying(t.Context(), orders, 0, 10)
		f.must(err)
		f.wantSeqs("replayed", due, seqs...)
		for _, d := range due {
			if !d.Undecided {
				t.Errorf("%+v", d)
			}
		}
		f.settle(orders, seqs[0], queue.FilterError, queue.ReasonFilterError)
		f.settle(orders, seqs[1], queue.Discarded, queue.ReasonFilterFalse)
		f.must(f.record(failed(orders, seqs[2], f.now().Add(time.Hour), time.Hour)))
		f.reopen()
		if d := f.wantState(orders, seqs[0], queue.FilterError); d.Undecided || d.Reason != queue.ReasonFilterError {
			t.Errorf("%+v", d)
		}
		if d := f.wantState(orders, seqs[1], queue.Discarded); d.Undecided || d.Reason != queue.ReasonFilterFalse || d.EndedAt.IsZero() {
			t.Errorf("%+v", d)
		}
		if d := f.wantState(orders, seqs[2], queue.Retrying); d.Undecided {
			t.Errorf("an attempt was made, so the filter was asked: %+v", d)
		}
		f.wantCounts(orders, queue.Counts{FilterError: 1, Retrying: 1})
		f.wantSeqs("discarded", f.list(orders, queue.Discarded, 1), seqs[1])
	})
	t.Run("a delivery can't be settled as made or waiting", func(t *testing.T) {
		f := start(t, place)
		seq := f.one("1", orders)
		for _, to := range []queue.State{0, queue.Pending, queue.Retrying, queue.Delivered, 9} {
			if _, err := f.queue.Settle(t.Context(), orders, []queue.Seq{seq}, to, "x"); err == nil {
				t.Errorf("settled to %d", to)
			}
		}
		f.wantState(orders, seq, queue.Pending)
	})
}

// settle ends one waiting delivery.
func (f *fixture) settle(ep plan.EndpointKey, seq queue.Seq, to queue.State, reason string) {
	f.Helper()
	if n, err := f.queue.Settle(f.ctx, ep, []queue.Seq{seq}, to, reason); n != 1 || err != nil {
		f.Fatalf("settled %d to %s, %v", n, to, err)
	}
}

func testSizes(t *testing.T, place func(*testing.T) Open) {
	t.Run("every delivery knows its order key, its size and its share", func(t *testing.T) {
		f := start(t, place)
		n := newEvent("shop", "", "1", "0123456789a", orders, billing)
		n.Event.Attributes = []event.Attribute{{Name: "a", Value: "b"}, {Name: "partitionkey", Value: "customer-7"}}
		alone := newEvent("shop", "", "2", "x", orders)
		alone.Event.Attributes = []event.Attribute{{Name: "partitionkey", Value: ""}}
		seq, other := f.accept(n)[0].Seq, f.accept(alone)[0].Seq
		key := queue.OrderKey(n.Event)
		if key == 0 || queue.OrderKey(alone.Event) == 0 || queue.OrderKey(alone.Event) == key || queue.OrderKey(newEvent("shop", "", "", "").Event) != 0 {
			t.Error("order keys are 0 without the attribute, and only then")
		}
		check := func(what string) {
			t.Helper()
			for _, ep := range []plan.EndpointKey{orders, billing} {
				if d := f.get(ep, seq); d.Key != key || d.Size != 11 || d.Share != 5 {
					t.Errorf("%s: %+v", what, d)
				}
			}
			if d := f.get(orders, other); d.Key != queue.OrderKey(alone.Event) || d.Size != 1 || d.Share != 1 {
				t.Errorf("%s: %+v", what, d)
			}
		}
		check("fresh")
		f.reopen()
		check("fresh, after a restart")
		for _, to := range []queue.State{queue.Retrying, queue.DeadLettered} {
			for _, ep := range []plan.EndpointKey{orders, billing} {
				f.bring(ep, seq, to)
			}
			f.bring(orders, other, to)
			f.reopen()
			check(to.String())
		}
		_, err := f.queue.Replay(t.Context(), orders, seq, false)
		f.must(err)
		check("replayed")
	})
	t.Run("what waits counts, of endpoints whole and of namespaces shared", func(t *testing.T) {
		f := start(t, place)
		seq := f.accept(newEvent("shop", "", "1", "0123456789", orders, billing))[0].Seq
		f.accept(newEvent("bank", "", "1", "012345678", foreign))
		bytes := func(ep plan.EndpointKey) int64 { return f.queue.Counts(ep).WaitingBytes }
		each := f.queue.NamespaceWaiting("bank") - 9 // what the store adds for a delivery
		if each <= 0 || each > 1000 {
			t.Errorf("a delivery of 9 bytes counts as %d", each+9)
		}
		want := func(what string, inOrders, inBilling, shop int64) {
			t.Helper()
			for range 2 {
				if bytes(orders) != inOrders || bytes(billing) != inBilling || bytes(foreign) != 9 || f.queue.NamespaceWaiting("shop") != shop || f.queue.NamespaceWaiting("bank") != 9+each {
					t.Errorf("%s: %d, %d and %d bytes wait, %d of shop, %d of bank", what, bytes(orders), bytes(billing), bytes(foreign),
						f.queue.NamespaceWaiting("shop"), f.queue.NamespaceWaiting("bank"))
				}
				f.reopen()
			}
		}
		want("pending", 10, 10, 10+2*each)
		f.bring(orders, seq, queue.Retrying)
		want("one retrying", 10, 10, 10+2*each)
		f.bring(billing, seq, queue.Delivered)
		want("one delivered", 10, 0, 5+each)
		f.bring(orders, seq, queue.DeadLettered)
		want("none waits", 0, 0, 0)
		_, err := f.queue.Replay(t.Context(), billing, seq, true)
		f.must(err)
		want("replayed", 0, 10, 5+each)
		if n := f.queue.NamespaceWaiting("nobody"); n != 0 {
			t.Errorf("%d bytes of an unknown namespace", n)
		}
	})
	t.Run("usage", func(t *testing.T) {
		f := start(t, place)
		f.many(10, orders)
		if u := f.queue.Usage(); u.UsedBytes <= 0 || u.CapacityBytes < 0 {
			t.Errorf("%+v", u)
		}
	})
}
