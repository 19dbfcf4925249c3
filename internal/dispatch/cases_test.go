package dispatch

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/deliver"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

// case RT55: retries must not depend on the store. All tests of this package reach it
// through queue.Queue alone; what a store has to do for them is held by
// queue/queuetest, which every store passes. This is the retry itself, over each way in
// which the store may be asked for the delivery: kept in memory, read again, and read by
// the next process. case RT52 in virtual time.
func TestARetryComesWhereverTheDeliveryIsReadFrom(t *testing.T) {
	for name, between := range map[string]func(w *world){
		"the same process": func(*world) {},
		"after a restart":  func(w *world) { w.restart() },
		"after a new plan": func(w *world) {
			w.endpoint().Hash = "2"
			w.apply()
		},
		"behind a backlog": func(w *world) { w.send(10 * windowSize) },
	} {
		t.Run(name, func(t *testing.T) {
			var failed atomic.Bool
			inWorld(t, func(h hit) deliver.Result {
				if h.id == "evt_000001" && !failed.Swap(true) {
					return status(500)
				}
				return status(200)
			}, func(w *world) {
				w.send(1)
				w.after(10 * time.Second)
				between(w)
				w.after(2 * time.Minute)
				var of []hit
				for _, h := range w.seen() {
					if h.id == "evt_000001" {
						of = append(of, h)
					}
				}
				wantGaps(t, of, time.Minute)
				w.want(0, w.next, 0)
			})
		})
	}
}

// case DD77: an answer just before the timeout is one request, however long the timeout
// is: nothing hands out a delivery again that is in flight.
func TestAnAnswerJustBeforeTheTimeoutIsOneRequest(t *testing.T) {
	for _, limit := range []time.Duration{2 * time.Second, 15 * time.Second, time.Minute} {
		t.Run(limit.String(), func(t *testing.T) {
			inWorld(t, func(hit) deliver.Result {
				time.Sleep(limit - time.Second)
				return status(200)
			}, func(w *world) {
				w.endpoint().Timeout = limit
				w.apply()
				w.send(40)
				// What makes the lane read its store again, and look after what waits.
				for n := range 20 {
					w.endpoint().Hash = fmt.Sprint(n)
					w.endpoint().Retry.Backoff.Schedule = []time.Duration{time.Second, time.Duration(n+1) * time.Second}
					w.apply()
					w.after(limit / 3)
				}
				w.after(time.Hour)
				w.want(0, 40, 0)
				if n := len(w.seen()); n != 40 {
					t.Errorf("%d requests for 40 deliveries", n)
				}
			})
		})
	}
}

// case QD99: no wake-up is lost, after an hour of nothing or on the way to one.
func TestAnEventAfterAnIdleHourIsAttemptedAtOnce(t *testing.T) {
	inWorld(t, answers(200), func(w *world) {
		for n := range 50 {
			w.after(time.Hour + time.Duration(n)*time.Second)
			at := time.Now()
			w.forget()
			w.send(1)
			w.after(time.Second)
			if hits := w.seen(); len(hits) != 1 || !hits[0].at.Equal(at) {
				t.Fatalf("after idle time %d: %v, want one attempt at %v", n, hits, at)
			}
		}
	})
}

// case QD99: events that are accepted while a plan is being applied, which holds lanes,
// frees them and makes new ones.
func TestEventsAcceptedWhileAPlanIsAppliedAreDelivered(t *testing.T) {
	inWorld(t, answers(200), func(w *world) {
		const rounds, each = 300, 5
		suspended := *w.plan
		suspended.Endpoints = []plan.Endpoint{endpointNamed("orders")}
		suspended.Endpoints[0].Suspend = true
		absent := *w.plan
		absent.Endpoints = nil
		other := *w.plan
		other.Endpoints = []plan.Endpoint{endpointNamed("orders")}
		other.Endpoints[0].URL, other.Endpoints[0].Hash = "https://other.example.com/", "2"
		for n := range rounds {
			var both sync.WaitGroup
			both.Go(func() {
				for _, p := range []*plan.Plan{&suspended, &other, &absent, w.plan}[n%3:] {
					w.d.Apply(context.Background(), p)
				}
			})
			both.Go(func() {
				for range each {
					w.send(1)
				}
			})
			both.Wait()
			w.after(5 * time.Second)
			if got := w.count(queue.Delivered); got != (n+1)*each {
				t.Fatalf("round %d: %d delivered within 5 s, want %d", n, got, (n+1)*each)
			}
		}
	})
}

// case QD102: what no plan should hold is survived, and touches nothing else.
func TestABadEndpointAffectsOnlyItself(t *testing.T) {
	bad := map[string]func(*plan.Endpoint){
		"url-parser":   func(e *plan.Endpoint) { e.URL = "http://[::1%25eth0]:x/%zz" },
		"url-none":     func(e *plan.Endpoint) { e.URL = "" },
		"url-control":  func(e *plan.Endpoint) { e.URL = "https://a\x00b/\r\n" },
		"nil-policy":   func(e *plan.Endpoint) { e.Retry = retry.Policy{} },
		"no-timeout":   func(e *plan.Endpoint) { e.Timeout = 0 },
		"no-in-flight": func(e *plan.Endpoint) { e.MaxInFlight = 0 },
		"no-keys":      func(e *plan.Endpoint) { e.Signing.Keys = nil },
		"bad-key":      func(e *plan.Endpoint) { e.Signing.Keys[0].Key = "whsk_" },
	}
	inWorld(t, func(h hit) deliver.Result {
		if h.host == "orders.example.com" {
			return status(200)
		}
		return status(500)
	}, func(w *world) {
		for name, spoil := range bad {
			e := endpointNamed(name)
			spoil(&e)
			w.plan.Endpoints = append(w.plan.Endpoints, e)
		}
		w.apply()
		w.send(20)
		w.after(time.Minute)
		w.restart()
		w.send(20)
		w.after(time.Minute)
		good := 0
		for _, h := range w.seen() {
			if h.host == "orders.example.com" {
				good++
			}
		}
		if good != 40 {
			t.Errorf("%d attempts of the good endpoint's 40 deliveries", good)
		}
		w.after(5 * time.Hour)
		for name := range bad {
			k := plan.EndpointKey{Namespace: "default", Name: name}
			c := w.store.Counts(k)
			if c.Waiting()+c.DeadLettered != 40 {
				t.Errorf("%s: %d waiting and %d dead-lettered of 40", name, c.Waiting(), c.DeadLettered)
			}
		}
	})
}

// case CLK-06: the clock steps back ten minutes in mid-schedule; the next attempt is
// neither earlier nor later. That webhook-timestamp is the wall clock's is held where
// the header is made (internal/deliver).
func TestAClockThatStepsBackMovesNoAttempt(t *testing.T) {
	var off atomic.Int64
	inWorld(t, answers(500), func(w *world) {
		w.end()
		w.wall = func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
		w.start()
		off.Store(0)
		w.send(1)
		for range 60 { // every minute of the first hour, back and back again
			w.after(time.Minute)
			off.Add(int64(-10 * time.Minute))
		}
		w.after(71 * time.Hour)
		wantGaps(t, w.seen(), time.Minute, 5*time.Minute, 30*time.Minute, 2*time.Hour, 10*time.Hour, 24*time.Hour)
	})
}

// case HD147: enabling begins afresh. Counts of before don't disable the endpoint again,
// nor let it back off sooner or longer.
func TestEnablingClearsTheCounts(t *testing.T) {
	var code atomic.Int32
	inWorld(t, func(hit) deliver.Result {
		if c := code.Load(); c > 0 {
			return status(int(c))
		}
		return timeout()
	}, func(w *world) {
		w.endpoint().MaxInFlight = 1
		w.apply()
		// Four rejections, then faults to the longest back-off, then gone.
		code.Store(404)
		w.send(4)
		w.after(time.Second)
		code.Store(0)
		w.send(20)
		w.after(20 * time.Minute)
		code.Store(410)
		w.after(2 * time.Minute)
		if w.state() != Disabled {
			t.Fatalf("%v, want Disabled", w.state())
		}
		code.Store(0)
		w.forget()
		if err := w.d.Enable(context.Background(), w.key()); err != nil {
			t.Fatal(err)
		}
		w.after(200 * time.Millisecond)
		if v, _ := w.d.View(w.key()); len(w.seen()) != 1 || v.State != BackingOff || v.RetryAt.Sub(w.store.Clock().Now()) > time.Second {
			t.Errorf("after the first failure: %+v and %d attempts; want one attempt and the shortest back-off", v, len(w.seen()))
		}
		code.Store(404)
		dead := w.count(queue.DeadLettered)
		w.after(5 * time.Second) // three rejections more: with those of before it would be Rejecting
		if v, _ := w.d.View(w.key()); v.Reason == ReasonRejecting || w.count(queue.DeadLettered) == dead {
			t.Errorf("after a few rejections: %+v and no dead letter, as if those of before counted", v)
		}
		code.Store(200)
		w.after(5 * time.Minute)
		if w.state() != Active || w.count(queue.Pending)+w.count(queue.Retrying) != 0 {
			t.Errorf("at the end: %v with %d waiting", w.state(), w.count(queue.Pending)+w.count(queue.Retrying))
		}
	})
}

// case HD138: what comes for a disabled endpoint is held, over restarts, and delivered
// in order of acceptance once it is enabled.
func TestEventsOfADisabledEndpointAreHeld(t *testing.T) {
	var gone atomic.Bool
	gone.Store(true)
	inWorld(t, func(hit) deliver.Result {
		if gone.Load() {
			return status(410)
		}
		return status(200)
	}, func(w *world) {
		w.endpoint().MaxInFlight = 1
		w.apply()
		w.send(1)
		w.after(time.Second)
		w.send(10)
		w.after(time.Hour)
		w.restart()
		w.send(10)
		w.after(time.Hour)
		w.want(20, 0, 1)
		if !w.state().Held() {
			t.Errorf("%v, want a state that holds", w.state())
		}
		gone.Store(false)
		w.forget()
		if err := w.d.Enable(context.Background(), w.key()); err != nil {
			t.Fatal(err)
		}
		w.after(time.Minute)
		w.want(0, 20, 1)
		checkOldestFirst(t, w.seen())
	})
}

// A token that can't be had burns no attempt, and what waits goes once there is one.
func TestNoTokenBurnsNoAttempt(t *testing.T) {
	var there atomic.Bool
	inWorld(t, func(hit) deliver.Result {
		if !there.Load() {
			return deliver.Result{Reason: deliver.ReasonAuth, Message: "no token can be had", Sent: queue.SentNo}
		}
		return status(204)
	}, func(w *world) {
		w.send(50)
		w.after(time.Hour)
		w.want(50, 0, 0)
		if v, _ := w.d.View(w.key()); v.State != BackingOff || v.Reason != ReasonAuthFailed || v.LastFailure == nil {
			t.Errorf("the lane is %+v, want BackingOff with AuthFailed", v)
		}
		if n := len(w.seen()); n > 16+8 {
			t.Errorf("the authorization server was asked %d times in an hour", n)
		}
		for _, d := range w.list(t) {
			if d.Attempts != 0 {
				t.Fatalf("an attempt was burnt: %+v", d)
			}
		}
		there.Store(true)
		w.after(16 * time.Minute)
		w.want(0, 50, 0)
	})
}

// The mended filter decides on what came while it could not be asked.
func TestTheMendedFilterDecides(t *testing.T) {
	inWorld(t, answers(204), func(w *world) {
		w.endpoint().Problem = &plan.Problem{Reason: "FilterInvalid", Message: "filter can't be compiled"}
		w.apply()
		w.undecided = true
		w.send(6)
		w.after(time.Minute)
		w.want(6, 0, 0)
		w.endpoint().Problem, w.endpoint().Filter = nil, `event.id == "evt_000001" || event.id == "evt_000002" && event.data.nothing`
		w.apply()
		w.after(time.Minute)
		// One matches, one can't be evaluated, and four don't match.
		w.want(0, 1, 0)
		if e, d := w.count(queue.FilterError), w.count(queue.Discarded); e != 1 || d != 4 {
			t.Errorf("%d filter errors and %d discarded, want 1 and 4", e, d)
		}
		ds, _, err := w.store.List(context.Background(), w.key(), queue.FilterError, 0, 10)
		if err != nil || len(ds) != 1 {
			t.Fatal(ds, err)
		}
		w.endpoint().Filter = `event.type == "order.created"`
		w.apply()
		if _, err := w.store.Replay(context.Background(), w.key(), ds[0].Seq, false); err != nil {
			t.Fatal(err)
		}
		w.after(time.Minute)
		w.want(0, 2, 0)
	})
}

// lossy is a store whose first event has no payload.
type lossy struct {
	queue.Queue
	reads int
}

func (l *lossy) Event(ctx context.Context, seq queue.Seq) (*queue.StoredEvent, error) {
	if seq == 1 {
		l.reads++
		return nil, queue.ErrPayloadMissing
	}
	return l.Queue.Event(ctx, seq)
}

// cases DL153, DL154: a delivery without payload is dead-lettered at once, with a reason of
// its own, and holds up no other, in whatever order they go.
func TestPayloadMissing(t *testing.T) {
	for _, ordering := range []string{"", plan.OrderingAll} {
		inWorld(t, answers(200), func(w *world) {
			store := &lossy{}
			w.wrap = func(q queue.Queue) queue.Queue { store.Queue = q; return store }
			w.endpoint().Ordering, w.endpoint().Suspend = ordering, true
			w.apply()
			w.send(20)
			w.restart() // nothing is in memory any more
			w.endpoint().Suspend = false
			w.apply()
			w.after(time.Second)
			w.want(0, 19, 1)
			if d := w.deadLetter(); d.Seq != 1 || d.Reason != queue.ReasonPayloadMissing || d.Attempts != 0 || store.reads != 1 {
				t.Errorf("ordering %q: after %d reads the dead letter is %+v", ordering, store.reads, d)
			}
		})
	}
}

// case SS134: bodies of answers are kept of failures only, and not at all where the pool
// says so.
func TestResponseBodies(t *testing.T) {
	inWorld(t, func(hit) deliver.Result {
		res := status(400)
		res.Response = []byte("internal state")
		return res
	}, func(w *world) {
		for _, drop := range []bool{false, true} {
			w.plan.Pool.Retention.DropResponses = drop
			w.apply()
			w.send(1)
			w.after(time.Second)
			as, err := w.store.Attempts(context.Background(), queue.Seq(w.next), w.key())
			if err != nil || len(as) != 1 || (len(as[0].Response) == 0) != drop {
				t.Errorf("with DropResponses %t the attempts are %+v (%v)", drop, as, err)
			}
		}
	})
}
