package crash

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/test/harness"
)

// ordersReceiver fails at random, and notes the order in which events of each key were
// taken for the first time.
type ordersReceiver struct {
	mu     sync.Mutex
	random *rand.Rand
	taken  map[string]bool
	byKey  map[string][]string
}

func (r *ordersReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	id := req.Header.Get("webhook-id") // key-number
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.random.IntN(20) == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if !r.taken[id] {
		r.taken[id] = true
		key, _, _ := strings.Cut(id, "-")
		r.byKey[key] = append(r.byKey[key], id)
	}
	w.WriteHeader(http.StatusNoContent)
}

func (r *ordersReceiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.taken)
}

// 10,000 events over 50 keys, a receiver that fails at random, and a process that is
// killed again and again: the events of each key are taken in order of acceptance, and
// none is lost.
func TestOrderOutlivesKills(t *testing.T) {
	const keys, perKey, producers, kills = 50, 200, 10, 8
	r := &ordersReceiver{random: rand.New(rand.NewPCG(1, 2)), taken: map[string]bool{}, byKey: map[string][]string{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)

	s := newSite(t)
	e := harness.Endpoint{Name: "ordered", URL: server.URL + "/", RetryPolicy: "steady"}
	manifest := e.Manifest() + "  ordering: PerKey\n"
	policy := harness.RetryManifest("steady", slices.Repeat([]string{"100ms"}, 100)...)
	s.dir = t.TempDir()
	if err := harness.WriteManifests(s.manifests(), signingKey); err != nil {
		t.Fatal(err)
	}
	if err := harness.WriteManifest(s.manifests(), "ordered.yaml", manifest, policy); err != nil {
		t.Fatal(err)
	}
	w := s.start()

	var posting sync.WaitGroup
	for p := range producers {
		posting.Go(func() { postInOrder(t, s.addr, w.Key, p, producers, keys, perKey) })
	}
	for k := range kills {
		want := (k + 1) * keys * perKey / (kills + 1)
		if err := awaitUntil(t, time.Minute, "events to arrive", func() (bool, error) { return r.count() >= want, nil }); err != nil {
			t.Fatalf("%v: %d of %d did; worker: %s", err, r.count(), want, w.Tail())
		}
		w.Kill()
		w = s.start()
	}
	posting.Wait()
	if err := awaitUntil(t, 2*time.Minute, "everything to arrive", func() (bool, error) { return r.count() == keys*perKey, nil }); err != nil {
		t.Errorf("%v: %d of %d did; worker: %s", err, r.count(), keys*perKey, w.Tail())
	}
	for key, ids := range r.byKey {
		if !slices.IsSorted(ids) {
			t.Errorf("key %s was taken as %v", key, ids)
		}
	}
	if err := w.Stop(30 * time.Second); err != nil {
		t.Error(err)
	}
}

// postInOrder posts the events of every producers-th key, one after another, each until
// it is acknowledged.
func postInOrder(t *testing.T, addr, apiKey string, first, producers, keys, perKey int) {
	c := harness.NewConn(addr, harness.EventsPath, apiKey)
	defer func() { c.Close() }()
	for n := range perKey {
		for k := first; k < keys; k += producers {
			body := fmt.Appendf(nil, `{"id":"k%02d-%04d","type":"order.created","attributes":{"partitionkey":"k%02d"},"data":{"n":%d}}`, k, n, k, n)
			what := fmt.Sprintf("event %d of key %d to be acknowledged", n, k)
			if err := awaitUntil(t, 2*time.Minute, what, func() (bool, error) {
				a, err := c.Post(body)
				if err == nil && (a.Status == http.StatusAccepted || a.Status == http.StatusOK) {
					return true, nil
				}
				c.Close() // the worker was killed; the next one listens at the same address
				c = harness.NewConn(addr, harness.EventsPath, apiKey)
				return false, nil
			}); err != nil {
				t.Error(err)
				return
			}
		}
	}
}
