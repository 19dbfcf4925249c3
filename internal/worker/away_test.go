package worker

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/doorstep-dev/doorstep/internal/engine"
	"github.com/doorstep-dev/doorstep/internal/queue/pebble"
)

// steady sends an event each ten seconds, and wants each delivered, once.
func (r *running) steady(name string, d time.Duration) {
	r.t.Helper()
	begun := time.Now()
	for n := 0; time.Since(begun) < d; n++ {
		r.delivered(fmt.Sprintf("evt_%s_%d", name, n))
		time.Sleep(9 * time.Second)
		select {
		case err := <-r.ended:
			r.t.Fatalf("the worker ended after %s: %v\n%s", time.Since(begun), err, r.log)
		default:
		}
	}
	r.ready()
}

// case UP231: the API server is away for 20 minutes.
func TestTheAPIServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.publish(planOf(1, "orders"))
		s.project()
		r := s.start()
		r.steady("before", 20*time.Second)
		s.api.leave()
		r.steady("away", 20*time.Minute)
		if r.log.count("\n") > 150 {
			t.Errorf("the log has %d lines about 20 minutes:\n%s", r.log.count("\n"), r.log)
		}
		s.api.comeBack()
		s.publish(planOf(2, "orders"))
		time.Sleep(time.Minute)
		if v := s.api.acknowledged(); v != 2 {
			t.Errorf("version %d is acknowledged a minute after it is back, want 2\n%s", v, r.log)
		}
		if at := s.api.lease().RenewTime; time.Since(at.Time) > renewInterval {
			t.Errorf("the Lease was renewed %s ago", time.Since(at.Time))
		}
		r.steady("after", 20*time.Second)
		r.stop()
	})
}

// case UP232: the API server answers three seconds late for 10 minutes.
func TestTheAPIServerIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.publish(planOf(1, "orders"))
		s.project()
		r := s.start()
		r.steady("before", 20*time.Second)
		s.api.slowBy(3 * time.Second)
		r.steady("slow", 10*time.Minute)
		s.api.slowBy(0)
		if at := s.api.lease().RenewTime; time.Since(at.Time) > 2*renewInterval {
			t.Errorf("the Lease was renewed %s ago", time.Since(at.Time))
		}
		r.stop()
	})
}

// case DD87: a worker whose Lease has run out goes on, and what keeps a second one from
// delivering the same is the store: whoever comes second ends, in words.
func TestTheStoreIsOneWorkersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.publish(planOf(1, "orders"))
		s.project()
		r := s.start()
		r.steady("before", 20*time.Second)
		s.api.leave()
		r.steady("expired", 10*time.Minute)

		second := run(t.Context(), Options{
			Pool: thePool, Pod: thePod, Data: s.data, PlanDir: s.plan, Version: "test", Log: r.log.logger(),
		}, outside{
			client: s.api, reviews: s.api,
			listen: func(string, string) (net.Listener, error) { return newPlace(), nil },
			engine: func(e *engine.Options) {
				e.Dir, e.Deliver = "queue", s.receiver
				e.Store = func(p *pebble.Options) { p.FS = s.disk }
			},
		})
		if second == nil || !strings.Contains(second.Error(), "in use by process") || !strings.Contains(second.Error(), "stop it first") {
			t.Fatalf("the second worker says %v", second)
		}
		r.steady("alone", time.Minute)
		r.stop()
	})
}

// What is opened for long is no fault of the process: it lives, and is not ready.
func TestProbesBeforeTheStoreIsOpen(t *testing.T) {
	p := newProbes(&worker{})
	for path, want := range map[string]string{"alive": "", "ready": "the store is being opened"} {
		got := p.alive()
		if path == "ready" {
			got = p.ready()
		}
		if got != want {
			t.Errorf("%s says %q, want %q", path, got, want)
		}
	}
}

// A port that is taken is told with the flag that chooses another.
func TestAPortThatIsTaken(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := listen(l.Addr().String(), "--probes"); err == nil || !strings.Contains(err.Error(), "--probes") {
		t.Errorf("it says %v", err)
	}
}

func (r *running) ready() {
	r.t.Helper()
	code, body := r.get("--probes", "/readyz")
	r.want(http.StatusOK, "ok", code, body)
	code, body = r.get("--probes", "/healthz")
	r.want(http.StatusOK, "ok", code, body)
}
