package crash

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/test/harness"
)

// receiver logs all arrivals. It refuses some events for good, fails some once and is
// slow with some, each by the event's number, so that a run can be repeated.
type receiver struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex
	arrivals map[int][]arrival
	settled  int
}

// arrival is one request and what it was answered.
type arrival struct {
	at     time.Time
	status int
}

// settles reports whether the answer ends the delivery.
func (a arrival) settles() bool { return a.status != http.StatusInternalServerError }

func refused(n int) bool   { return n%211 == 7 }
func failsOnce(n int) bool { return n%101 == 3 }
func slow(n int) bool      { return n%7 == 5 }

func startReceiver(t *testing.T) *receiver {
	r := &receiver{t: t, arrivals: map[int][]arrival{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// ServeHTTP takes one delivery.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	at := time.Now()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the worker was killed while it sent
	}
	if err := signingKey.Verify(req.Header, body, at); err != nil {
		r.t.Errorf("a delivery's signature is wrong: %v", err)
	}
	number, ok := strings.CutPrefix(req.Header.Get("webhook-id"), idPrefix+"-")
	n, err := strconv.Atoi(number)
	if !ok || err != nil {
		r.t.Errorf("a delivery has the unknown id %q", req.Header.Get("webhook-id"))
		return
	}
	if slow(n) {
		time.Sleep(10 * time.Millisecond)
	}
	w.WriteHeader(r.note(n, at))
}

// note logs an arrival and decides its answer.
func (r *receiver) note(n int, at time.Time) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.arrivals[n]
	status := http.StatusNoContent
	switch {
	case refused(n):
		status = http.StatusUnprocessableEntity
	case failsOnce(n) && len(before) == 0:
		status = http.StatusInternalServerError
	}
	a := arrival{at, status}
	if a.settles() && !anySettles(before) {
		r.settled++
	}
	r.arrivals[n] = append(before, a)
	return status
}

func anySettles(list []arrival) bool {
	for _, a := range list {
		if a.settles() {
			return true
		}
	}
	return false
}

// settledCount is how many events have got an answer that ends their delivery.
func (r *receiver) settledCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.settled
}

// missing is the acknowledged events without such an answer.
func (r *receiver) missing(acked map[int]bool) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []int
	for n := range acked {
		if !anySettles(r.arrivals[n]) {
			out = append(out, n)
		}
	}
	return out
}

// repeated gives, for each event that was settled more than once, the first of those
// arrivals.
func (r *receiver) repeated() map[int]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[int]time.Time{}
	for n, list := range r.arrivals {
		var first time.Time
		for _, a := range list {
			switch {
			case !a.settles():
			case first.IsZero():
				first = a.at
			default:
				out[n] = first
			}
		}
	}
	return out
}

// endpoint is this receiver as a WebhookEndpoint.
func (r *receiver) endpoint() harness.Endpoint {
	return harness.Endpoint{Name: "orders", URL: r.URL + "/orders", Timeout: attemptTimeout.String(), MaxInFlight: 32, RetryPolicy: "quick"}
}
