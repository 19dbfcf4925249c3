package standalone

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// arrival is one request as a receiver got it.
type arrival struct {
	path   string
	id     string
	header http.Header
	body   []byte
}

// receiver is a real receiver on loopback that notes what arrives.
type receiver struct {
	*httptest.Server
	// answer is called for each arrival that was noted; nil answers 204.
	answer func(w http.ResponseWriter, a arrival)
	status atomic.Int32

	mu       sync.Mutex
	arrivals []arrival
}

// newReceiver starts a receiver that answers with its status, 204 at first.
func newReceiver(t *testing.T) *receiver {
	r := &receiver{}
	r.status.Store(204)
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// ServeHTTP takes one delivery.
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return
	}
	a := arrival{path: q.URL.Path, id: q.Header.Get("webhook-id"), header: q.Header.Clone(), body: body}
	r.mu.Lock()
	r.arrivals = append(r.arrivals, a)
	answer := r.answer
	r.mu.Unlock()
	if answer != nil {
		answer(w, a)
		return
	}
	w.WriteHeader(int(r.status.Load()))
}

func (r *receiver) seen() []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]arrival(nil), r.arrivals...)
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.arrivals)
}

// await waits for n arrivals and gives all there are.
func (r *receiver) await(t *testing.T, n int) []arrival {
	t.Helper()
	await(t, "arrivals", func() bool { return r.count() >= n })
	return r.seen()
}

// byID counts arrivals.
func (r *receiver) byID() map[string]int {
	n := map[string]int{}
	for _, a := range r.seen() {
		n[a.id]++
	}
	return n
}

// verified checks a request with the Standard Webhooks project's own library.
func verified(secret string, a arrival) error {
	wh, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return err
	}
	return wh.Verify(a.body, a.header)
}
