package dispatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/deliver"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// Whatever receivers answer, whatever is edited, and however often the process stops
// and starts: every delivery ends delivered or dead-lettered, each attempt is counted
// once, and no endpoint has more in flight than it allows.
func TestNothingIsLostWhateverHappens(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { randomLife(t, seed) })
	}
}

func randomLife(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
	var mu sync.Mutex
	chance := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(n)
	}
	codes := []int{200, 200, 200, 200, 204, 500, 503, 429, 404, 400, 409, 302}
	receive := func(hit) deliver.Result {
		time.Sleep(time.Duration(chance(3000)) * time.Millisecond)
		switch n := chance(20); {
		case n == 0:
			return timeout()
		case n == 1:
			r := status(503)
			r.RetryAfter = []string{fmt.Sprint(chance(600))}
			return r
		case n == 2 && chance(20) == 0:
			return status(410)
		}
		return status(codes[chance(len(codes))])
	}
	inWorld(t, receive, func(w *world) {
		w.plan.Endpoints = nil
		for _, n := range []string{"a", "b", "c"} {
			w.plan.Endpoints = append(w.plan.Endpoints, endpointNamed(n))
		}
		w.apply()
		sent := 0
		for range 40 {
			switch e := chance(len(w.plan.Endpoints)); chance(12) {
			case 0:
				w.restart()
			case 1:
				w.change(func(p *plan.Plan) { p.Endpoints[e].Suspend = !p.Endpoints[e].Suspend })
			case 2:
				w.change(func(p *plan.Plan) { p.Endpoints[e].Hash = fmt.Sprint(chance(1000)) })
			case 3:
				w.change(func(p *plan.Plan) { p.Endpoints[e].MaxInFlight = 1 + chance(16) })
			case 4:
				w.change(func(p *plan.Plan) {
					p.Endpoints[e].Retry.Backoff.Schedule = []time.Duration{time.Duration(1+chance(100)) * time.Second, time.Minute, time.Hour}
				})
			default:
				n := chance(40)
				if n > 0 {
					w.send(n)
				}
				sent += n
			}
			w.after(time.Duration(chance(120_000)) * time.Millisecond)
		}
		w.change(func(p *plan.Plan) {
			for i := range p.Endpoints {
				p.Endpoints[i].Suspend = false
			}
		})
		for range 20 { // people who enable what a 410 disabled
			for _, e := range w.plan.Endpoints {
				if err := w.d.Enable(context.Background(), e.EndpointKey); err != nil {
					t.Fatal(err)
				}
			}
			w.after(5 * time.Hour)
		}
		delivered, dead := w.count(queue.Delivered), w.count(queue.DeadLettered)
		if delivered+dead != 3*sent {
			t.Errorf("%d delivered and %d dead-lettered of %d", delivered, dead, 3*sent)
		}
		w.checkAttempts()
		for host, most := range w.most {
			if most > 16 {
				t.Errorf("%d attempts in flight to %s", most, host)
			}
		}
	})
}

// change edits the plan as a new one.
func (w *world) change(f func(*plan.Plan)) {
	p := *w.plan
	p.Endpoints = append([]plan.Endpoint(nil), w.plan.Endpoints...)
	f(&p)
	w.plan = &p
	w.apply()
}

// checkAttempts compares what receivers saw with what was recorded.
func (w *world) checkAttempts() {
	w.t.Helper()
	ctx := context.Background()
	recorded := 0
	for _, k := range w.store.Endpoints() {
		for _, s := range []queue.State{queue.Delivered, queue.DeadLettered} {
			ds, _, err := w.store.List(ctx, k, s, 0, 100_000)
			if err != nil {
				w.t.Fatal(err)
			}
			for _, d := range ds {
				as, err := w.store.Attempts(ctx, d.Seq, k)
				if err != nil {
					w.t.Fatal(err)
				}
				for i, a := range as {
					if a.Number != i+1 {
						w.t.Fatalf("%s: attempt %d has number %d", k, i+1, a.Number)
					}
				}
				if len(as) != d.Attempts {
					w.t.Errorf("%s: %d attempts recorded, %d counted", k, len(as), d.Attempts)
				}
				recorded += len(as)
			}
		}
	}
	if seen := len(w.seen()); seen != recorded {
		w.t.Errorf("receivers saw %d attempts, %d are recorded", seen, recorded)
	}
}
