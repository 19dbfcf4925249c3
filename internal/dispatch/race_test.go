package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/deliver"
	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// slowReads is a store whose reads for a lane's window take their time, so that other
// things happen meanwhile. read is called before and after each; its error is the read's.
type slowReads struct {
	queue.Queue
	read func() error
}

func slowly[T any](q slowReads, f func() (T, error)) (v T, err error) {
	if err = q.read(); err != nil {
		return v, err
	}
	v, err = f()
	return v, errors.Join(err, q.read())
}

func (q slowReads) Fresh(ctx context.Context, k plan.EndpointKey, after queue.Seq, n int) ([]queue.Delivery, error) {
	if n >= settlePage {
		return q.Queue.Fresh(ctx, k, after, n) // upkeep's
	}
	return slowly(q, func() ([]queue.Delivery, error) { return q.Queue.Fresh(ctx, k, after, n) })
}

func (q slowReads) Retrying(ctx context.Context, k plan.EndpointKey, after queue.Seq, n int) ([]queue.Delivery, error) {
	if n >= settlePage {
		return q.Queue.Retrying(ctx, k, after, n) // upkeep's
	}
	return slowly(q, func() ([]queue.Delivery, error) { return q.Queue.Retrying(ctx, k, after, n) })
}

func (q slowReads) Due(ctx context.Context, k plan.EndpointKey, until time.Time, n int) (ds []queue.Delivery, next time.Time, err error) {
	ds, err = slowly(q, func() (ds []queue.Delivery, err error) {
		ds, next, err = q.Queue.Due(ctx, k, until, n)
		return ds, err
	})
	return ds, next, err
}

func (q slowReads) DueUnkeyed(ctx context.Context, k plan.EndpointKey, until time.Time, n int) (ds []queue.Delivery, next time.Time, err error) {
	ds, err = slowly(q, func() (ds []queue.Delivery, err error) {
		ds, next, err = q.Queue.DueUnkeyed(ctx, k, until, n)
		return ds, err
	})
	return ds, next, err
}

func (q slowReads) Head(ctx context.Context, k plan.EndpointKey, key uint64) (queue.Delivery, error) {
	return slowly(q, func() (queue.Delivery, error) { return q.Queue.Head(ctx, k, key) })
}

// readsTake makes a world's store slow: each read of a window takes twice the time.
func (w *world) readsTake(d time.Duration) {
	w.wrap = func(q queue.Queue) queue.Queue {
		return slowReads{q, func() error { time.Sleep(d); return nil }}
	}
	w.restart()
}

// Somebody asks for retries while the heads of keys are looked up: what was read counts no
// more, and is read again.
func TestRetryWhileALineIsRead(t *testing.T) {
	b := &book{}
	var up atomic.Bool
	inWorld(t, func(h hit) deliver.Result {
		if !up.Load() {
			return status(500)
		}
		b.take(h.id)
		return status(204)
	}, func(w *world) {
		ordered(w, plan.OrderingPerKey, slices.Repeat([]time.Duration{time.Minute}, 50)...)
		w.sendKeyed(6, func(i int) string { return fmt.Sprintf("k%d", i%3) })
		w.readsTake(2 * time.Second)
		w.after(3 * time.Minute)
		up.Store(true)
		for range 90 { // one of these comes while the store is read
			w.after(time.Second)
			if _, err := w.d.Retry(context.Background(), w.key()); err != nil {
				t.Fatal(err)
			}
		}
		w.after(time.Hour)
		w.want(0, 6, 0)
		b.inOrder(t, keyOfID)
	})
}

// Ordering All is set while deliveries are being brought forward.
func TestOrderingAllWhileDraining(t *testing.T) {
	var up atomic.Bool
	inWorld(t, func(hit) deliver.Result {
		time.Sleep(time.Second)
		if !up.Load() {
			return status(500)
		}
		return status(204)
	}, func(w *world) {
		w.endpoint().Retry.Backoff.Schedule = slices.Repeat([]time.Duration{time.Hour}, 10)
		w.apply()
		w.send(400)
		w.after(10 * time.Minute)
		up.Store(true)
		for w.state() != Draining {
			w.after(time.Second)
		}
		ordered(w, plan.OrderingAll)
		w.after(2 * time.Hour)
		w.want(0, 400, 0)
	})
}

// A delivery is replayed before its lane knows of an older one of its key that waits.
func TestAReplayWaitsForAnOlderOneNotYetKnown(t *testing.T) {
	for _, ordering := range []string{plan.OrderingPerKey, plan.OrderingAll} {
		t.Run(ordering, func(t *testing.T) {
			b := &book{}
			inWorld(t, func(h hit) deliver.Result {
				time.Sleep(time.Second)
				b.take(h.id)
				return status(204)
			}, func(w *world) {
				w.endpoint().Suspend = true
				ordered(w, ordering)
				w.sendKeyed(1, func(int) string { return "k" })
				// The filter of the next one failed: it waits for nobody.
				ev := &event.Event{
					Namespace: "default", ID: "k-000002", WebhookID: "k-000002", Type: "order.created", Mode: event.ModePlain,
					ContentType: "application/json", Body: []byte(`{}`), Attributes: []event.Attribute{{Name: "partitionkey", Value: "k"}},
				}
				keys := []plan.EndpointKey{w.key()}
				got, err := w.store.Accept(context.Background(), []queue.NewEvent{{Event: ev, Endpoints: keys, FilterErrors: keys}})
				if err != nil {
					t.Fatal(err)
				}
				w.endpoint().Suspend = false
				w.readsTake(5 * time.Second)
				w.after(time.Second)
				if _, err := w.store.Replay(context.Background(), w.key(), got[0].Seq, false); err != nil {
					t.Fatal(err)
				}
				w.after(10 * time.Minute)
				w.want(0, 2, 0)
				b.inOrder(t, keyOfID)
			})
		})
	}
}

// A delivery is replayed while an attempt of a later one of its key is under way, which is
// then not made for want of a token.
func TestAReplayGoesBeforeWhatIsGivenBack(t *testing.T) {
	b := &book{}
	var token atomic.Bool
	inWorld(t, func(h hit) deliver.Result {
		switch {
		case token.Load():
			b.take(h.id)
			return status(204)
		case h.id == "k-000001":
			return status(400)
		}
		time.Sleep(10 * time.Second)
		return deliver.Result{Reason: deliver.ReasonAuth, Message: "no token"}
	}, func(w *world) {
		ordered(w, plan.OrderingPerKey)
		w.sendKeyed(2, func(int) string { return "k" })
		w.after(time.Second)
		if _, err := w.store.Replay(context.Background(), w.key(), w.deadLetter().Seq, false); err != nil {
			t.Fatal(err)
		}
		w.after(10 * time.Second)
		token.Store(true)
		w.after(10 * time.Minute)
		w.want(0, 2, 0)
		b.inOrder(t, keyOfID)
	})
}

// A line is made anew, and an attempt that was under way fails between the reading of the
// retrying deliveries and that of the fresh ones.
func TestAnAttemptFailsWhileALineIsMadeAnew(t *testing.T) {
	b := &book{}
	var failed atomic.Bool
	inWorld(t, func(h hit) deliver.Result {
		time.Sleep(20 * time.Second)
		if !failed.Swap(true) {
			return status(500)
		}
		b.take(h.id)
		return status(204)
	}, func(w *world) {
		ordered(w, plan.OrderingPerKey, slices.Repeat([]time.Duration{time.Hour}, 10)...)
		w.readsTake(4 * time.Second)
		w.after(time.Minute) // all is read
		w.sendKeyed(2, func(int) string { return "k" })
		w.after(time.Second)
		w.d.Erased(0, []plan.EndpointKey{w.key()})
		w.after(10 * time.Hour)
		w.want(0, 2, 0)
		b.inOrder(t, keyOfID)
	})
}

// A delivery is replayed whose key finds no room, and that lies before what is known: it is
// met once there is room.
func TestAReplayThatFindsNoRoom(t *testing.T) {
	var code atomic.Int32
	inWorld(t, func(hit) deliver.Result { return status(int(code.Load())) }, func(w *world) {
		ordered(w, plan.OrderingPerKey, slices.Repeat([]time.Duration{time.Hour}, 20)...)
		for i, c := range []int32{400, 500} {
			code.Store(c)
			w.sendKeyed(1, func(int) string { return fmt.Sprintf("k%d", i) })
			w.after(time.Second)
		}
		code.Store(204)
		w.restart()
		w.after(time.Second)
		w.d.mu.Lock()
		l := w.d.lanes[w.key()]
		others := map[uint64]*head{}
		for k := uint64(1); l.line.hasRoom(); k++ {
			others[k] = &head{key: k, state: headFlying}
			l.line.heads[k] = others[k]
		}
		w.d.mu.Unlock()
		if _, err := w.store.Replay(context.Background(), w.key(), w.deadLetter().Seq, false); err != nil {
			t.Fatal(err)
		}
		w.after(time.Second)
		w.want(2, 0, 0)
		w.d.mu.Lock()
		for k := range others {
			delete(l.line.heads, k)
		}
		w.d.mu.Unlock()
		w.d.wakeLocked(l)
		w.after(time.Minute)
		w.want(1, 1, 0)
	})
}

// The store takes its time to say that it can't be read, and meanwhile another delivery
// comes due: both are read later all the same.
func TestASlowFailingReadIsMadeAgain(t *testing.T) {
	var unreadable, up atomic.Bool
	inWorld(t, func(hit) deliver.Result {
		time.Sleep(700 * time.Millisecond)
		if !up.Load() {
			return status(500)
		}
		return status(204)
	}, func(w *world) {
		w.endpoint().Retry.Backoff.Schedule = slices.Repeat([]time.Duration{time.Second}, 100)
		w.wrap = func(q queue.Queue) queue.Queue {
			return slowReads{q, func() error {
				if !unreadable.Load() {
					return nil
				}
				time.Sleep(3 * time.Second)
				return errors.New("no such disk")
			}}
		}
		w.restart()
		w.send(1) // due at 1.7 s
		w.after(1200 * time.Millisecond)
		w.send(1) // due at 2.9 s
		unreadable.Store(true)
		w.after(3 * time.Second)
		unreadable.Store(false)
		up.Store(true)
		w.after(time.Minute)
		w.want(0, 2, 0)
	})
}

// Whatever happens to an ordered lane while its store is read slowly: everything ends, and
// no attempt is made of a delivery while one of its key waits that was accepted before.
func TestOrderInASlowStore(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { slowLife(t, seed) })
	}
}

func slowLife(t *testing.T, seed uint64) {
	random := newDice(seed)
	life := struct{ replays, changes bool }{seed%3 == 1, seed%3 == 2}
	ordering := []string{plan.OrderingPerKey, plan.OrderingAll}[seed/3%2]
	ctx := context.Background()
	var w *world
	var mu sync.Mutex
	var replayed time.Time // only a replay may put another one before what is given out
	var calm, outage bool
	inOrder := func(h hit) {
		key := uint64(0)
		if ordering == plan.OrderingPerKey {
			if strings.HasPrefix(h.id, "-") {
				return
			}
			key = queue.OrderKey(&event.Event{Attributes: []event.Attribute{{Name: "partitionkey", Value: keyOfID(h.id)}}})
		}
		first, err := w.store.Head(ctx, w.key(), key)
		if err != nil {
			t.Errorf("%s is attempted and nothing waits: %v", h.id, err)
			return
		}
		if ev, err := w.store.Event(ctx, first.Seq); err != nil || ev.WebhookID != h.id {
			t.Errorf("%s is attempted while event %d waits, %s (%v)", h.id, first.Seq, ev.WebhookID, err)
		}
	}
	inWorld(t, func(h hit) deliver.Result {
		mu.Lock()
		check, calm, outage := !life.changes && time.Since(replayed) > 5*time.Second, calm, outage
		mu.Unlock()
		if check {
			inOrder(h)
		}
		time.Sleep(time.Duration(1+random.IntN(2000)) * time.Millisecond)
		switch n := random.IntN(40); {
		case calm:
		case outage && n < 38, n < 6:
			return status(500)
		case n == 7:
			r := status(503)
			r.RetryAfter = []string{fmt.Sprint(random.IntN(100))}
			return r
		case n == 8:
			return status(400)
		case n == 9:
			return status(404)
		case n == 10 && random.IntN(10) == 0:
			return status(410)
		case n == 11:
			return deliver.Result{Reason: deliver.ReasonAuth, Message: "no token"}
		}
		return status(204)
	}, func(world *world) {
		w = world
		w.wrap = func(q queue.Queue) queue.Queue {
			return slowReads{q, func() error {
				time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				if !calm && random.IntN(100) == 0 {
					return errors.New("no such disk")
				}
				return nil
			}}
		}
		w.restart()
		w.endpoint().MaxInFlight = 1 + random.IntN(16)
		ordered(w, ordering, slices.Repeat([]time.Duration{20 * time.Second}, 100)...)
		sent := 0
		for range 60 {
			switch random.IntN(15) {
			case 0:
				w.restart()
			case 1:
				w.endpoint().Suspend = !w.endpoint().Suspend
				w.apply()
			case 2:
				if _, err := w.d.Retry(ctx, w.key()); err != nil {
					t.Fatal(err)
				}
			case 3:
				if err := w.d.Enable(ctx, w.key()); err != nil {
					t.Fatal(err)
				}
			case 4, 5:
				w.d.Erased(0, []plan.EndpointKey{w.key()}) // all is read anew
			case 6:
				mu.Lock()
				outage = !outage
				mu.Unlock()
			case 7:
				if life.replays {
					ds, _, err := w.store.List(ctx, w.key(), queue.DeadLettered, 0, 100)
					if err != nil {
						t.Fatal(err)
					}
					mu.Lock()
					replayed = time.Now()
					mu.Unlock()
					for _, d := range ds {
						if random.IntN(2) == 0 {
							_, _ = w.store.Replay(ctx, w.key(), d.Seq, false)
						}
					}
				}
			case 8:
				ordered(w, ordering, slices.Repeat([]time.Duration{time.Duration(1+random.IntN(60)) * time.Second}, 100)...)
			case 9:
				if life.changes {
					ordering = []string{plan.OrderingPerKey, plan.OrderingAll, ""}[random.IntN(3)]
					ordered(w, ordering)
				}
			default:
				n, keys := 1+random.IntN(40), 1+random.IntN(20)
				w.sendKeyed(n, func(int) string {
					if random.IntN(10) > 0 {
						return fmt.Sprintf("k%02d", random.IntN(keys))
					}
					return ""
				})
				sent += n
			}
			w.after(time.Duration(random.IntN(20_000)) * time.Millisecond)
		}
		w.endpoint().Suspend = false
		w.apply()
		mu.Lock()
		calm = true
		mu.Unlock()
		for range 2 { // what a 410 disabled meanwhile
			if err := w.d.Enable(ctx, w.key()); err != nil {
				t.Fatal(err)
			}
			w.after(10 * time.Hour)
		}
		if waiting, ended := w.count(queue.Pending)+w.count(queue.Retrying), w.count(queue.Delivered)+w.count(queue.DeadLettered); waiting > 0 || ended != sent {
			t.Errorf("%d still wait, %d of %d have ended", waiting, ended, sent)
		}
	})
}

// countingDues counts the searches for due deliveries that stand in no line.
type countingDues struct {
	queue.Queue
	n *atomic.Int32
}

func (q countingDues) DueUnkeyed(ctx context.Context, k plan.EndpointKey, until time.Time, n int) ([]queue.Delivery, time.Time, error) {
	q.n.Add(1)
	return q.Queue.DueUnkeyed(ctx, k, until, n)
}

// While keys wait for retries at many times, a lane does not search all that is due for
// deliveries without a key again and again: after a bulk replay that is a lot to read past.
func TestKeyedDueTimesCostNoSearches(t *testing.T) {
	random := newDice(5)
	var refuse atomic.Bool
	refuse.Store(true)
	var searches atomic.Int32
	inWorld(t, func(hit) deliver.Result {
		time.Sleep(time.Duration(20+random.IntN(10)) * time.Millisecond)
		switch {
		case refuse.Load():
			return status(400)
		case random.IntN(4) == 0:
			return status(500)
		}
		return status(204)
	}, func(w *world) {
		w.wrap = func(q queue.Queue) queue.Queue { return countingDues{q, &searches} }
		w.restart()
		ordered(w, plan.OrderingPerKey, slices.Repeat([]time.Duration{3 * time.Second}, 100)...)
		w.sendKeyed(4000, func(i int) string { return fmt.Sprintf("k%d", i%400) })
		w.after(time.Minute)
		refuse.Store(false)
		ds, _, err := w.store.List(context.Background(), w.key(), queue.DeadLettered, 0, 4000)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range ds {
			if _, err := w.store.Replay(context.Background(), w.key(), d.Seq, false); err != nil {
				t.Fatal(err)
			}
		}
		searches.Store(0)
		w.d.Erased(0, []plan.EndpointKey{w.key()}) // all is read anew
		seconds := int32(0)
		for w.count(queue.Delivered) < 4000 && seconds < 1000 {
			w.after(time.Second)
			seconds++
		}
		w.want(0, 4000, 0)
		if n := searches.Load(); n > seconds+5 {
			t.Errorf("%d searches in %d seconds, want one a second at most", n, seconds)
		}
	})
}

// slowLanes is a store whose disk takes its time to remember a lane.
type slowLanes struct{ queue.Queue }

func (q slowLanes) SetLane(ctx context.Context, k plan.EndpointKey, l queue.Lane) error {
	time.Sleep(5 * time.Millisecond)
	return q.Queue.SetLane(ctx, k, l)
}

// A policy that many endpoints have is changed: the next plan need not wait for one disk
// write after another.
func TestAPolicyOfManyEndpointsIsChanged(t *testing.T) {
	inWorld(t, answers(500), func(w *world) {
		w.wrap = func(q queue.Queue) queue.Queue { return slowLanes{q} }
		w.restart()
		w.plan.Endpoints = nil
		for i := range 1000 {
			e := endpointNamed(fmt.Sprintf("e%d", i))
			e.Retry.Backoff.Schedule = slices.Repeat([]time.Duration{2 * time.Hour}, 10)
			w.plan.Endpoints = append(w.plan.Endpoints, e)
		}
		w.apply()
		w.send(1)
		w.after(time.Minute)
		begun := time.Now()
		w.change(func(p *plan.Plan) {
			for i := range p.Endpoints {
				p.Endpoints[i].Retry.Backoff.Schedule = slices.Repeat([]time.Duration{time.Hour}, 10)
			}
		})
		if took := time.Since(begun); took > time.Second {
			t.Errorf("the plan was applied in %s", took)
		}
		w.forget()
		w.after(time.Hour)
		if n := len(w.seen()); n != 1000 {
			t.Errorf("%d attempts in the hour after, want 1000", n)
		}
	})
}
