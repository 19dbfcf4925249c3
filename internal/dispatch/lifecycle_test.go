package dispatch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/deliver"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

// withoutEndpoint takes the endpoint out of the plan.
func (w *world) withoutEndpoint(tombstone bool) plan.Endpoint {
	e := w.plan.Endpoints[0]
	p := *w.plan
	p.Endpoints = nil
	if tombstone {
		p.Tombstones = []plan.Tombstone{{EndpointKey: e.EndpointKey, DeletedAt: w.store.Clock().Now()}}
	}
	w.plan = &p
	w.apply()
	return e
}

func (w *world) withEndpoint(e plan.Endpoint) {
	p := *w.plan
	p.Endpoints, p.Tombstones = []plan.Endpoint{e}, nil
	w.plan = &p
	w.apply()
}

// cases RT53, RT54: a deleted endpoint is not called any more, and what waited for it
// is dead-lettered once.
func TestDeletionDeadLettersOnceAfterAQuarterOfAnHour(t *testing.T) {
	inWorld(t, answers(500), func(w *world) {
		w.send(500)
		w.after(10 * time.Second)
		w.withoutEndpoint(true)
		w.forget()
		w.after(14 * time.Minute)
		w.want(500, 0, 0)
		if w.state() != Missing {
			t.Errorf("%v, want Missing", w.state())
		}
		w.after(2 * time.Minute)
		w.want(0, 0, 500)
		if n := len(w.seen()); n != 0 {
			t.Errorf("%d attempts after the deletion", n)
		}
	})
}

func TestAnEndpointMadeAgainFindsItsDeliveries(t *testing.T) {
	var up atomic.Bool
	inWorld(t, func(hit) deliver.Result {
		if up.Load() {
			return status(200)
		}
		return status(500)
	}, func(w *world) {
		w.send(500)
		w.after(10 * time.Second)
		e := w.withoutEndpoint(true)
		w.after(14 * time.Minute)
		up.Store(true)
		w.withEndpoint(e)
		w.after(10 * time.Minute)
		w.want(0, 500, 0)
	})
}

func TestAbsenceIsNotDeletion(t *testing.T) {
	inWorld(t, answers(200), func(w *world) {
		e := w.withoutEndpoint(false)
		p := *w.plan
		w.plan.Endpoints = []plan.Endpoint{e} // events matched before the plan lost it
		w.send(100)
		w.plan = &p
		w.after(1000 * time.Hour)
		w.want(100, 0, 0)
		w.restart()
		w.after(time.Hour)
		w.want(100, 0, 0)
		if w.state() != NotInPlan {
			t.Errorf("%v, want NotInPlan", w.state())
		}
		w.withEndpoint(e)
		w.after(time.Minute)
		w.want(0, 100, 0)
	})
}

func TestSuspendedAndUnresolvedEndpointsHold(t *testing.T) {
	for name, hold := range map[string]func(*plan.Plan){
		"suspended": func(p *plan.Plan) { p.Endpoints[0].Suspend = true },
		"pool":      func(p *plan.Plan) { p.Pool.Suspend = true },
		"unresolved": func(p *plan.Plan) {
			p.Endpoints[0].Problem = &plan.Problem{Reason: "SecretNotFound", Message: "no such Secret"}
		},
		"no key":  func(p *plan.Plan) { p.Endpoints[0].Signing.Keys = nil },
		"bad key": func(p *plan.Plan) { p.Endpoints[0].Signing.Keys[0].Key = "whsec_" },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, answers(200), func(w *world) {
				good := *w.plan
				bad := good
				bad.Endpoints = []plan.Endpoint{endpointNamed("orders")}
				hold(&bad)
				w.plan = &bad
				w.apply()
				w.send(200)
				w.after(time.Hour)
				w.want(200, 0, 0)
				if n := len(w.seen()); n != 0 {
					t.Fatalf("%d attempts while held", n)
				}
				w.plan = &good
				w.apply()
				w.after(time.Minute)
				w.want(0, 200, 0)
			})
		})
	}
}

// case RTY-03
func TestGoneDisablesAndTheOthersAreHeldNotLost(t *testing.T) {
	code := atomic.Int32{}
	code.Store(410)
	inWorld(t, func(hit) deliver.Result { time.Sleep(time.Millisecond); return status(int(code.Load())) }, func(w *world) {
		w.endpoint().MaxInFlight = 1
		w.apply()
		w.send(50)
		w.after(time.Hour)
		w.want(49, 0, 1)
		if d := w.deadLetter(); d.Reason != queue.ReasonDisabled {
			t.Errorf("reason %q", d.Reason)
		}
		w.restart()
		w.after(time.Hour)
		if w.state() != Disabled {
			t.Fatalf("after a restart: %v, want Disabled", w.state())
		}
		w.want(49, 0, 1)
		code.Store(200)
		if err := w.d.Enable(context.Background(), w.key()); err != nil {
			t.Fatal(err)
		}
		w.after(time.Minute)
		w.want(0, 49, 1)
		w.restart()
		w.send(1)
		w.after(time.Minute)
		w.want(0, 50, 1)
	})
}

func TestAChangeOfSpecEnables(t *testing.T) {
	inWorld(t, func(h hit) deliver.Result {
		if h.host == "orders.example.com" {
			r := status(500)
			r.WebhookDelivery = deliver.DeliveryDisable
			return r
		}
		return status(200)
	}, func(w *world) {
		w.endpoint().MaxInFlight = 1
		w.apply()
		w.send(10)
		w.after(time.Minute)
		w.want(9, 0, 1)
		w.apply() // the same plan again changes nothing
		w.after(time.Minute)
		w.want(9, 0, 1)
		w.endpoint().URL, w.endpoint().Hash = "https://new.example.com/", "2"
		w.apply()
		w.after(time.Minute)
		w.want(0, 9, 1)
	})
}

func TestAbortMessageDeadLettersOne(t *testing.T) {
	var later atomic.Bool
	inWorld(t, func(hit) deliver.Result {
		if !later.Swap(true) {
			r := status(500)
			r.WebhookDelivery = deliver.DeliveryAbort
			return r
		}
		return status(200)
	}, func(w *world) {
		w.endpoint().MaxInFlight = 1
		w.apply()
		w.send(5)
		w.after(time.Minute)
		w.want(0, 4, 1)
		if d := w.deadLetter(); d.Reason != queue.ReasonAborted {
			t.Errorf("reason %q", d.Reason)
		}
	})
}

// case DD86 in small: waiting deliveries go to where the endpoint is now.
func TestAnEditAppliesToWaitingDeliveries(t *testing.T) {
	inWorld(t, func(h hit) deliver.Result {
		if h.host == "orders.example.com" {
			return timeout()
		}
		return status(200)
	}, func(w *world) {
		w.send(100)
		w.after(10 * time.Minute)
		w.endpoint().URL, w.endpoint().Hash = "https://new.example.com/", "2"
		w.apply()
		w.after(5 * time.Minute)
		w.want(0, 100, 0)
	})
}

func TestAChangedPolicyBringsRetriesForwardButNeverBack(t *testing.T) {
	inWorld(t, answers(409), func(w *world) {
		w.endpoint().Retry.Backoff.Schedule = []time.Duration{10 * time.Hour, 10 * time.Hour}
		w.apply()
		w.send(1)
		w.after(time.Minute)
		w.endpoint().Retry.Backoff.Schedule = []time.Duration{20 * time.Hour, 10 * time.Hour}
		w.apply()
		w.endpoint().Retry.Backoff.Schedule = []time.Duration{time.Hour, 3 * time.Hour}
		w.apply()
		w.after(71 * time.Hour)
		wantGaps(t, w.seen(), time.Hour, 3*time.Hour)
	})
}

// cases DD78, DD82, DL157
func TestReplayMakesOneChain(t *testing.T) {
	var code atomic.Int32
	code.Store(422)
	inWorld(t, func(hit) deliver.Result { return status(int(code.Load())) }, func(w *world) {
		w.send(1)
		w.after(time.Minute)
		w.want(0, 0, 1)
		ctx := context.Background()
		dead := w.deadLetter()
		code.Store(409)
		w.forget()
		if _, err := w.store.Replay(ctx, w.key(), dead.Seq, false); err != nil {
			t.Fatal(err)
		}
		if _, err := w.store.Replay(ctx, w.key(), dead.Seq, false); !errors.Is(err, queue.ErrAlreadyWaiting) {
			t.Errorf("a second replay: %v, want already waiting", err)
		}
		w.after(73 * time.Hour)
		hits := w.seen()
		if len(hits) != 7 {
			t.Fatalf("%d attempts after a replay, want a full schedule of 7", len(hits))
		}
		for i, h := range hits {
			if h.attempt != i+2 || !h.replay {
				t.Errorf("attempt %d of the replay: number %d, replay %v; want %d, true", i+1, h.attempt, h.replay, i+2)
			}
		}
		code.Store(200)
		if _, err := w.store.Replay(ctx, w.key(), dead.Seq, false); err != nil {
			t.Fatal(err)
		}
		w.after(time.Minute)
		w.want(0, 1, 0)
		if _, err := w.store.Replay(ctx, w.key(), dead.Seq, false); !errors.Is(err, queue.ErrDelivered) {
			t.Errorf("replay of a delivered one: %v", err)
		}
	})
}

// cases RT64, HD144: each endpoint of an event has its own fate.
func TestOneDeadEndpointDoesNotTouchTheOthers(t *testing.T) {
	inWorld(t, func(h hit) deliver.Result {
		if h.host == "c.example.com" {
			return timeout()
		}
		return status(200)
	}, func(w *world) {
		w.plan.Endpoints = nil
		for _, n := range []string{"a", "b", "c", "d", "e"} {
			w.plan.Endpoints = append(w.plan.Endpoints, endpointNamed(n))
		}
		w.apply()
		w.send(1)
		w.after(100 * time.Hour)
		n := map[string]int{}
		for _, h := range w.seen() {
			n[h.host]++
		}
		for _, e := range []string{"a", "b", "d", "e"} {
			if n[e+".example.com"] != 1 {
				t.Errorf("%s got %d attempts, want 1", e, n[e+".example.com"])
			}
		}
		w.want(0, 4, 1)
	})
}

func TestAddressNotAllowedDeadLettersAtOnce(t *testing.T) {
	inWorld(t, func(hit) deliver.Result {
		return deliver.Result{Reason: deliver.ReasonDenied, Message: "destination not allowed", Sent: queue.SentNo}
	}, func(w *world) {
		w.send(1)
		w.after(time.Minute)
		if d := w.deadLetter(); d.Reason != queue.ReasonNotAllowed || d.Attempts != 1 {
			t.Errorf("%q after %d attempts", d.Reason, d.Attempts)
		}
	})
}

// A stop lets attempts finish within its grace and gives the others back, unburnt.
func TestStopGivesBackWhatDoesNotFinish(t *testing.T) {
	var slow atomic.Bool
	slow.Store(true)
	inWorld(t, func(h hit) deliver.Result {
		if slow.Load() && h.id > "evt_000001" {
			time.Sleep(5 * time.Second)
		}
		return status(200)
	}, func(w *world) {
		w.send(3)
		w.after(time.Second)
		if err := w.d.Stop(2 * time.Second); err != nil {
			t.Error(err)
		}
		w.stop()
		<-w.done
		if err := w.store.Close(); err != nil {
			t.Fatal(err)
		}
		slow.Store(false)
		w.start()
		w.after(time.Minute)
		w.want(0, 3, 0)
		for _, h := range w.seen() {
			if h.attempt != 1 {
				t.Errorf("%s has attempt %d, want 1: a cut attempt is not burnt", h.id, h.attempt)
			}
		}
	})
}

func TestABacklogFarOverTheWindowIsDelivered(t *testing.T) {
	inWorld(t, answers(200), func(w *world) {
		w.plan.Pool.Suspend = true
		w.apply()
		for range 20 {
			w.send(500)
		}
		w.plan.Pool.Suspend = false
		w.apply()
		w.send(100)
		w.after(time.Minute)
		w.want(0, 10100, 0)
		if n := len(w.seen()); n != 10100 {
			t.Errorf("%d attempts for 10,100 deliveries", n)
		}
	})
}

// case HD140: the pool's attempts are shared: many hanging endpoints leave room for a good
// one.
func TestHangingEndpointsLeaveTheOthersTheirShare(t *testing.T) {
	inWorld(t, func(h hit) deliver.Result {
		if h.host != "good.example.com" {
			time.Sleep(15 * time.Second)
			return timeout()
		}
		return status(200)
	}, func(w *world) {
		w.plan.Endpoints = nil
		w.plan.Pool.MaxInFlight = 64
		for _, n := range []string{"h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8"} {
			w.plan.Endpoints = append(w.plan.Endpoints, endpointNamed(n))
		}
		w.apply()
		w.send(100)
		w.after(time.Second)
		w.plan.Endpoints = append(w.plan.Endpoints, endpointNamed("good"))
		w.apply()
		w.forget()
		w.send(100)
		w.after(time.Second)
		good := 0
		for _, h := range w.seen() {
			if h.host == "good.example.com" {
				good++
			}
		}
		if good != 100 {
			t.Errorf("%d of 100 deliveries to the good endpoint within a second", good)
		}
		w.mu.Lock()
		open := 0
		for _, n := range w.open {
			open += n
		}
		w.mu.Unlock()
		if open > 64 {
			t.Errorf("%d attempts in flight, want at most the pool's 64", open)
		}
	})
}

// A policy that stops at once, and a budget of one.
func TestASingleAttempt(t *testing.T) {
	inWorld(t, answers(500), func(w *world) {
		w.endpoint().Retry.Backoff = retry.Backoff{Exponential: &retry.Exponential{Initial: time.Second, Factor: 2, Max: time.Minute, MaxAttempts: 1}}
		w.apply()
		w.send(1)
		w.after(time.Minute)
		if d := w.deadLetter(); d.Attempts != 1 {
			t.Errorf("%d attempts, want 1", d.Attempts)
		}
	})
}

// An attempt that began under the former plan and is denied by the networks of a newer
// one says nothing: it is made again as the newer plan has it.
func TestADenialAcrossPlansIsNoDeadLetter(t *testing.T) {
	inWorld(t, func(h hit) deliver.Result {
		if h.host == "orders.example.com" {
			time.Sleep(time.Second)
			return deliver.Result{Reason: deliver.ReasonDenied, Message: "destination not allowed", Sent: queue.SentNo}
		}
		return status(200)
	}, func(w *world) {
		w.send(3)
		w.after(500 * time.Millisecond)
		w.endpoint().URL, w.endpoint().Hash = "https://new.example.com/", "2"
		w.apply()
		w.after(time.Minute)
		w.want(0, 3, 0)
	})
}

// An event that was matched before a deletion was seen, and accepted after it.
func TestAnEventAcceptedJustAfterADeletionIsDeadLettered(t *testing.T) {
	inWorld(t, answers(200), func(w *world) {
		e := w.withoutEndpoint(true)
		after := *w.plan
		w.plan.Endpoints = []plan.Endpoint{e}
		w.send(1)
		w.plan = &after
		w.after(20 * time.Minute)
		w.want(0, 0, 1)
	})
}

// A policy that can't be had ends nothing: how long deliveries may wait isn't known.
func TestWithoutAPolicyNothingExpires(t *testing.T) {
	inWorld(t, answers(200), func(w *world) {
		w.change(func(p *plan.Plan) {
			p.Endpoints[0].Problem = &plan.Problem{Reason: "RetryPolicyNotFound", Message: "no such policy"}
			p.Endpoints[0].Retry.MaxAge = 0
		})
		w.send(10)
		w.after(1000 * time.Hour)
		w.want(10, 0, 0)
	})
}

// A shorter policy applies after a 503 too, but not before its Retry-After.
func TestAChangedPolicyKeepsToRetryAfter(t *testing.T) {
	inWorld(t, func(h hit) deliver.Result {
		r := status(500)
		if h.id == "evt_000002" {
			r.RetryAfter = []string{"7200"}
		}
		return r
	}, func(w *world) {
		w.endpoint().Retry.Backoff.Schedule = []time.Duration{10 * time.Hour}
		w.apply()
		w.send(2)
		w.after(time.Minute)
		w.change(func(p *plan.Plan) { p.Endpoints[0].Retry.Backoff.Schedule = []time.Duration{time.Hour} })
		w.forget()
		start := time.Now()
		w.after(9 * time.Hour)
		for _, h := range w.seen() {
			want := map[string]time.Duration{"evt_000001": 59 * time.Minute, "evt_000002": 119 * time.Minute}[h.id]
			if got := h.at.Sub(start); got != want {
				t.Errorf("%s was retried %v after the change, want %v", h.id, got, want)
			}
		}
		if n := len(w.seen()); n != 2 {
			t.Errorf("%d attempts, want 2", n)
		}
	})
}

// forgetful fails to remember lanes while it is told to.
type forgetful struct {
	queue.Queue
	failing *atomic.Bool
}

func (f forgetful) SetLane(ctx context.Context, k plan.EndpointKey, l queue.Lane) error {
	if f.failing.Load() {
		return queue.ErrOverloaded
	}
	return f.Queue.SetLane(ctx, k, l)
}

func TestALaneStateThatCouldNotBeStoredIsStoredLater(t *testing.T) {
	var failing atomic.Bool
	inWorld(t, answers(410), func(w *world) {
		w.end()
		w.wrap = func(q queue.Queue) queue.Queue { return forgetful{q, &failing} }
		w.start()
		failing.Store(true)
		w.send(1)
		w.after(time.Minute)
		failing.Store(false)
		w.after(time.Minute)
		w.restart()
		if w.state() != Disabled {
			t.Errorf("after a restart: %v, want Disabled", w.state())
		}
	})
}

// Somebody who has mended a receiver need not wait for the next knock.
func TestEnableKnocksAtOnceWhereALaneBacksOff(t *testing.T) {
	var up atomic.Bool
	inWorld(t, func(hit) deliver.Result {
		if up.Load() {
			return status(200)
		}
		r := timeout()
		r.Message = "no answer came in time"
		return r
	}, func(w *world) {
		w.send(20)
		w.after(10 * time.Minute)
		if v, _ := w.d.View(w.key()); v.LastFailure == nil || v.LastFailure.Message != "no answer came in time" {
			t.Errorf("last failure %+v, want the time-out", v.LastFailure)
		}
		up.Store(true)
		if err := w.d.Enable(context.Background(), w.key()); err != nil {
			t.Fatal(err)
		}
		w.after(time.Second)
		w.want(0, 20, 0)
		if v, _ := w.d.View(w.key()); v.LastFailure != nil {
			t.Errorf("after a success the last failure is %+v, want none", v.LastFailure)
		}
	})
}

// A 410 speaks for the address that was asked, not for the one that took its place.
func TestALate410OfTheFormerURLDisablesNothing(t *testing.T) {
	inWorld(t, func(h hit) deliver.Result {
		if h.host == "orders.example.com" {
			time.Sleep(4 * time.Second)
			return status(410)
		}
		return status(200)
	}, func(w *world) {
		w.send(1)
		w.after(time.Second)
		w.change(func(p *plan.Plan) { p.Endpoints[0].URL, p.Endpoints[0].Hash = "https://new.example.com/", "2" })
		w.after(time.Minute)
		w.send(3)
		w.after(10 * time.Minute)
		w.want(0, 4, 0)
		if w.state() == Disabled {
			t.Error("the new endpoint is Disabled by the former one's 410")
		}
	})
}

func TestADisabledEndpointThatIsMadeAnewIsEnabled(t *testing.T) {
	var up atomic.Bool
	inWorld(t, func(hit) deliver.Result {
		if up.Load() {
			return status(200)
		}
		return status(410)
	}, func(w *world) {
		w.send(1)
		w.after(time.Minute)
		e := w.withoutEndpoint(true)
		w.after(time.Hour)
		up.Store(true)
		e.FirstSeen = w.store.Clock().Now()
		w.withEndpoint(e)
		w.send(1)
		w.after(time.Minute)
		w.want(0, 1, 1)
	})
}

// stuck is a store whose outcomes don't get to the disk.
type stuck struct {
	queue.Queue
	mu      sync.Mutex
	hanging bool
	held    []func()
}

func (s *stuck) Record(o queue.Outcome, done func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hanging {
		s.held = append(s.held, func() { s.Queue.Record(o, done) })
		return
	}
	s.Queue.Record(o, done)
}

// What is not recorded is what a crash repeats: a store that hangs stops the lane.
func TestAStoreThatHangsStopsAttempts(t *testing.T) {
	var s *stuck
	inWorld(t, answers(200), func(w *world) {
		w.end()
		w.wrap = func(q queue.Queue) queue.Queue { s = &stuck{Queue: q, hanging: true}; return s }
		w.start()
		w.send(1000)
		w.after(time.Minute)
		if n := len(w.seen()); n > 64+16 {
			t.Errorf("%d attempts while no outcome was written", n)
		}
		s.mu.Lock()
		s.hanging = false
		held := s.held
		s.mu.Unlock()
		for _, record := range held {
			record()
		}
		w.after(time.Minute)
		w.want(0, 1000, 0)
	})
}

// A pause that a receiver asked for outlives restarts.
func TestRetryAfterOutlivesARestart(t *testing.T) {
	inWorld(t, func(hit) deliver.Result {
		r := status(503)
		r.RetryAfter = []string{"3600"}
		return r
	}, func(w *world) {
		w.send(20)
		w.after(time.Second)
		w.forget()
		for range 5 {
			w.restart()
			w.after(5 * time.Minute)
		}
		if n := len(w.seen()); n != 0 {
			t.Errorf("%d attempts within the hour that the receiver asked for", n)
		}
	})
}

func TestAStopDoesNotWaitForeverForAStoreThatHangs(t *testing.T) {
	inWorld(t, answers(200), func(w *world) {
		release := make(chan struct{}) // made in the bubble
		w.end()
		w.wrap = func(q queue.Queue) queue.Queue { return deaf{q, release} }
		w.start()
		w.send(1)
		w.after(time.Second)
		begun := time.Now()
		if err := w.d.Stop(20 * time.Second); !errors.Is(err, ErrStuck) {
			t.Errorf("stop: %v, want ErrStuck", err)
		}
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("the stop took %v", took)
		}
		close(release)
		w.after(time.Second)
		w.want(0, 1, 0)
	})
}

// deaf is a store that takes no outcome until it is released.
type deaf struct {
	queue.Queue
	release chan struct{}
}

func (d deaf) Record(o queue.Outcome, done func(error)) {
	<-d.release
	d.Queue.Record(o, done)
}
