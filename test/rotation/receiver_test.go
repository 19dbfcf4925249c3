package rotation

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// receiver knows one key at a time. When it sees the first request that a newer key
// signed it gets to know that key lag later, as a receiver does whose operator copies it:
// until then it refuses what the key it knows did not sign.
type receiver struct {
	lag  time.Duration
	addr string
	http *http.Server

	mu       sync.Mutex
	known    int         // the number of the key it verifies with
	newest   int         // the highest number whose signature it has seen
	since    time.Time   // when it first saw newest
	learns   map[int]int // how often each key was learnt
	refused  []string
	unique   map[string]bool
	requests []request
}

// request is one delivery as it came.
type request struct {
	id         string
	at         time.Time
	signatures int
	by         []int // numbers of the keys that signed it
	header     http.Header
	body       []byte
}

// newReceiver starts a receiver that knows key number 0.
func newReceiver(t *testing.T, lag time.Duration) *receiver {
	t.Helper()
	r := &receiver{lag: lag, addr: "127.0.0.1:0", learns: map[int]int{}, unique: map[string]bool{}}
	r.start(t)
	t.Cleanup(func() { _ = r.http.Close() })
	return r
}

func (r *receiver) start(t *testing.T) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	r.addr = l.Addr().String()
	r.http = &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	go func(s *http.Server) { _ = s.Serve(l) }(r.http) // it says that it was closed
}

// restart is down for a second and comes back, at the same address, knowing key n.
func (r *receiver) restart(t *testing.T, n int) {
	t.Helper()
	_ = r.http.Close()
	<-time.After(time.Second)
	r.look(func() { r.known = n })
	r.start(t)
}

// ServeHTTP takes one delivery.
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return
	}
	now := time.Now()
	got := request{id: q.Header.Get("webhook-id"), at: now, signatures: len(strings.Fields(q.Header.Get("webhook-signature"))), header: q.Header, body: body}
	r.mu.Lock()
	defer r.mu.Unlock()
	for n := max(r.newest-6, 0); n <= r.newest+6; n++ {
		if keyNumber(n).Verify(q.Header, body, now) == nil {
			got.by = append(got.by, n)
			r.saw(n, now)
		}
	}
	r.requests = append(r.requests, got)
	if err := keyNumber(r.known).Verify(q.Header, body, now); err != nil {
		r.refused = append(r.refused, got.id)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	r.unique[got.id] = true
	w.WriteHeader(http.StatusNoContent)
}

// saw notes a signature by key n; a newer one is learnt lag later.
func (r *receiver) saw(n int, now time.Time) {
	if n <= r.newest {
		return
	}
	r.newest, r.since = n, now
	time.AfterFunc(r.lag, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.known = max(r.known, n)
		r.learns[n]++
	})
}

// look calls f with the receiver locked.
func (r *receiver) look(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// count is how many different events it has taken.
func (r *receiver) count() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return int64(len(r.unique))
}
