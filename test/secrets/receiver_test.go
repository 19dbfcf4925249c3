package secrets

import (
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/test/cluster"
	"github.com/doorstep-dev/doorstep/test/harness"
)

// receiver takes every request and notes by which of the keys that it knows it is signed.
type receiver struct {
	*httptest.Server

	mu       sync.Mutex
	keys     []harness.Key
	requests []request
}

// request is one delivery as it came.
type request struct {
	id     string
	at     time.Time
	by     []int // numbers of the keys that signed it
	header http.Header
	query  string
	client *x509.Certificate // nil for none
}

// newReceiver starts a receiver that knows no keys; change gives it certificates, and with them https.
func newReceiver(t *testing.T, change func(*httptest.Server)) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewUnstartedServer(r)
	if change != nil {
		change(r.Server)
		r.StartTLS()
	} else {
		r.Start()
	}
	t.Cleanup(r.Close)
	return r
}

// learn makes a key known, by the next number.
func (r *receiver) learn(key harness.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys = append(r.keys, key)
}

// ServeHTTP takes one delivery.
func (r *receiver) ServeHTTP(_ http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return // its sender has left
	}
	got := request{id: q.Header.Get("webhook-id"), at: time.Now(), header: q.Header, query: q.URL.RawQuery}
	if q.TLS != nil && len(q.TLS.PeerCertificates) > 0 {
		got.client = q.TLS.PeerCertificates[0]
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, key := range r.keys {
		if key.Verify(q.Header, body, got.at) == nil {
			got.by = append(got.by, n)
		}
	}
	r.requests = append(r.requests, got)
}

// seen are the requests that came.
func (r *receiver) seen() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// events is how many different events of a run came.
func (r *receiver) events(run string) int64 {
	ids := map[string]bool{}
	for _, q := range r.seen() {
		if strings.HasPrefix(q.id, run+"-") {
			ids[q.id] = true
		}
	}
	return int64(len(ids))
}

// first waits for the first request that is so, fails the test if it came late after a time, and returns it.
func (r *receiver) first(t *testing.T, what string, since time.Time, is func(request) bool) request {
	t.Helper()
	var found request
	cluster.Eventually(t, patience, "a request "+what, func() error {
		all := r.seen()
		i := slices.IndexFunc(all, is)
		if i < 0 {
			return fmt.Errorf("none of %d is", len(all))
		}
		found = all[i]
		return nil
	})
	d := found.at.Sub(since).Round(time.Millisecond)
	t.Logf("the first request %s came after %v", what, d)
	if d > soon {
		t.Errorf("the first request %s came after %v, which is more than %v", what, d, soon)
	}
	return found
}

// signedBy waits for the first request that key n has signed, and fails the test if it came late, or if other keys than
// those signed it as well.
func (r *receiver) signedBy(t *testing.T, since time.Time, n int, all ...int) {
	t.Helper()
	got := r.first(t, fmt.Sprintf("that key %d signed", n), since, func(q request) bool { return slices.Contains(q.by, n) })
	if want := append([]int{n}, all...); !sameNumbers(got.by, want) {
		t.Errorf("the first request that key %d signed is signed by keys %v, want %v", n, got.by, want)
	}
}

func sameNumbers(a, b []int) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}
