package queuetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// keyed is an event with an order key; "" is none.
func keyed(id, key string, eps ...plan.EndpointKey) queue.NewEvent {
	e := newEvent("shop", "", id, "body of "+id, eps...)
	if key != "" {
		e.Event.Attributes = []event.Attribute{{Name: "partitionkey", Value: key}}
	}
	return e
}

// testLine holds Head and DueUnkeyed to what Fresh, Retrying and Due say, through every
// change that makes a delivery wait or ends it.
func testLine(t *testing.T, place func(*testing.T) Open) {
	f := start(t, place)
	random := rand.New(rand.NewPCG(5, 8)) //nolint:gosec // a test
	names := []string{"", "a", "b", "c"}
	keys := map[string]uint64{}
	for _, n := range names {
		keys[n] = queue.OrderKey(keyed("x", n).Event)
	}
	if keys[""] != 0 || keys["a"] == 0 || keys["a"] == keys["b"] {
		t.Fatalf("order keys %v", keys)
	}
	check := func() {
		t.Helper()
		for _, ep := range []plan.EndpointKey{orders, billing} {
			fresh, err := f.queue.Fresh(f.ctx, ep, 0, 1000)
			f.must(err)
			retrying, err := f.queue.Retrying(f.ctx, ep, 0, 1000)
			f.must(err)
			waiting := slices.Concat(fresh, retrying)
			for _, name := range names {
				var want queue.Seq
				for _, d := range waiting {
					if (name == "" || d.Key == keys[name]) && (want == 0 || d.Seq < want) {
						want = d.Seq
					}
				}
				got, err := f.queue.Head(f.ctx, ep, keys[name])
				if want == 0 && !errors.Is(err, queue.ErrNotFound) || want != 0 && (err != nil || got.Seq != want || got != waiting[slices.IndexFunc(waiting, func(d queue.Delivery) bool { return d.Seq == want })]) {
					t.Fatalf("the head of key %q of %s is %+v (%v), want %d", name, ep, got, err, want)
				}
			}
			until := f.now().Add(30 * time.Minute)
			due, next, err := f.queue.Due(f.ctx, ep, until, 1000)
			f.must(err)
			unkeyed, unkeyedNext, err := f.queue.DueUnkeyed(f.ctx, ep, until, 1000)
			f.must(err)
			due = slices.DeleteFunc(due, func(d queue.Delivery) bool { return d.Key != 0 })
			if !slices.Equal(due, unkeyed) || !next.Equal(unkeyedNext) {
				t.Fatalf("due without a key: %+v until %s, want %+v until %s", unkeyed, unkeyedNext, due, next)
			}
		}
	}
	var last queue.Seq
	for i := range 400 {
		ep := []plan.EndpointKey{orders, billing}[random.IntN(2)]
		seq := queue.Seq(1 + random.IntN(int(last)+1))
		switch random.IntN(7) {
		case 0, 1:
			last = f.accept(keyed(fmt.Sprint(i), names[random.IntN(len(names))], orders, billing))[0].Seq
		case 2:
			_ = f.record(failed(ep, seq, f.now().Add(time.Duration(random.IntN(3600))*time.Second), time.Minute))
		case 3:
			_ = f.record(delivered(ep, seq))
		case 4:
			_ = f.record(dead(ep, seq))
		case 5:
			_, _ = f.queue.Replay(f.ctx, ep, seq, true)
		case 6:
			_, _ = f.queue.Settle(f.ctx, ep, []queue.Seq{seq}, queue.DeadLettered, queue.ReasonExpired)
		}
		if i%40 == 39 {
			f.reopen()
		}
		check()
	}
	if last < 50 {
		t.Fatalf("only %d events", last)
	}
}
