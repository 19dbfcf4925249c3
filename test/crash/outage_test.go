package crash

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/test/harness"
)

// doorman is a receiver that can be told to be down; it logs who knocked.
type doorman struct {
	mu      sync.Mutex
	down    bool
	refused int
	came    []int
}

func (d *doorman) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down {
		d.refused++
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	var n int
	if _, err := fmt.Sscanf(r.Header.Get("webhook-id"), "out-%d", &n); err == nil {
		d.came = append(d.came, n)
	}
	w.WriteHeader(http.StatusNoContent)
}

func (d *doorman) set(down bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.down = down
}

func (d *doorman) arrived() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]int(nil), d.came...)
}

// A receiver that is down is spared, and caught up with oldest first: the real process
// and real time, for twenty seconds. (internal/dispatch shows forty minutes in virtual
// time.)
func TestOutage(t *testing.T) {
	const seconds, perSecond, inFlight = 20, 50, 16
	door := &doorman{down: true}
	server := httptest.NewServer(door)
	t.Cleanup(server.Close)

	s := newSite(t)
	s.dir = t.TempDir()
	e := harness.Endpoint{Name: "orders", URL: server.URL + "/orders", MaxInFlight: inFlight}
	if err := harness.WriteManifests(s.manifests(), signingKey, e); err != nil {
		t.Fatal(err)
	}
	w := s.start()
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	for n := range seconds * perSecond {
		<-tick.C
		body := fmt.Appendf(nil, `{"id":"out-%d","type":"order.created","data":%d}`, n, n)
		if code, err := w.Call("POST", harness.Path("events"), http.Header{"Content-Type": {"application/json"}}, body, nil); err != nil || code != http.StatusAccepted {
			t.Fatalf("event %d: %d %v", n, code, err)
		}
	}
	door.mu.Lock()
	refused := door.refused
	door.mu.Unlock()
	// What was in flight when the fifth failed, and then 1 s, 2 s, 4 s, 8 s apart.
	if limit := 5 + inFlight + 5; refused > limit {
		t.Errorf("the receiver was asked %d times while it was down, want at most %d", refused, limit)
	}
	door.set(false)
	err := awaitUntil(t, 2*time.Minute, "all events", func() (bool, error) {
		return len(door.arrived()) >= seconds*perSecond, nil
	})
	if err != nil {
		t.Fatalf("%v; %d of %d arrived", err, len(door.arrived()), seconds*perSecond)
	}
	checkCatchUp(t, door.arrived(), seconds*perSecond)
	if err := w.Stop(10 * time.Second); err != nil {
		t.Error(err)
	}
}

// checkCatchUp wants each event once and by and large the oldest first: an attempt may
// take its time on a busy machine while others overtake it.
func checkCatchUp(t *testing.T, came []int, events int) {
	t.Helper()
	seen := map[int]bool{}
	newest := 0
	for i, n := range came {
		if seen[n] {
			t.Errorf("out-%d came twice", n)
		}
		seen[n] = true
		if i == 0 {
			continue // the one that found the receiver up
		}
		if newest-n > events/5 {
			t.Errorf("out-%d came after out-%d", n, newest)
		}
		newest = max(newest, n)
	}
	if len(seen) != events {
		t.Errorf("%d events came, want %d", len(seen), events)
	}
}
