package crash

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/test/harness"
)

// Each endpoint of this test is named for what becomes of its manifest.
var fates = []string{"kept", "truncated", "deleted", "broken", "half"}

// shutReceiver answers 503 until it is opened, and notes what it took.
type shutReceiver struct {
	open atomic.Bool
	mu   sync.Mutex
	took map[string]int // path and webhook-id
}

// ServeHTTP takes one delivery.
func (r *shutReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !r.open.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	r.mu.Lock()
	r.took[req.URL.Path+" "+req.Header.Get("webhook-id")]++
	r.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

func (r *shutReceiver) has(delivery string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.took[delivery] > 0
}

func (r *shutReceiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.took)
}

// endpointView is what the API says of an endpoint.
type endpointView struct {
	Name       string
	Lane       struct{ State string }
	Deliveries struct{ Waiting, DeadLettered int }
}

func views(w *harness.Worker) (map[string]endpointView, error) {
	var list struct{ Items []endpointView }
	if _, err := w.Call("GET", harness.Path("endpoints"), nil, nil, &list); err != nil {
		return nil, err
	}
	out := map[string]endpointView{}
	for _, e := range list.Items {
		out[e.Name] = e
	}
	return out, nil
}

// gone are the states of a lane whose manifest can't be seen.
var gone = []string{"NotInPlan", "Missing"}

// Manifests that are truncated, deleted or broken hold what waits for their
// endpoints, also across a restart: nothing is dead-lettered, and once they are back
// everything is delivered. (A real deletion dead-letters after 15 minutes; that is
// tested where time is virtual, in internal/dispatch.)
func TestAbsenceIsNotDeletion(t *testing.T) {
	const events = 20
	r := &shutReceiver{took: map[string]int{}}
	srv := httptest.NewServer(r)
	defer srv.Close()
	s := &site{t: t, dir: t.TempDir()}
	var err error
	if s.addr, err = harness.FreeAddr(); err != nil {
		t.Fatal(err)
	}
	restore := func() {
		t.Helper()
		var list []harness.Endpoint
		for _, f := range fates {
			list = append(list, harness.Endpoint{Name: f, URL: srv.URL + "/" + f, RetryPolicy: "patient"})
		}
		if err := harness.WriteManifests(s.manifests(), signingKey, list...); err != nil {
			t.Fatal(err)
		}
	}
	restore()
	patient := harness.RetryManifest("patient", slices.Repeat([]string{"1s"}, 100)...)
	if err := harness.WriteManifest(s.manifests(), "patient.yaml", patient); err != nil {
		t.Fatal(err)
	}
	w := s.start()
	postEvents(t, w, "before", events)
	if got := holds(t, w, "kept"); got.Deliveries.Waiting != events {
		t.Fatalf("%d deliveries wait for an endpoint of a receiver that is shut, want %d", got.Deliveries.Waiting, events)
	}

	s.harm("truncated", "deleted", "broken", "half")
	awaitGone(t, w, "deleted")
	checkHeld(t, w, events, "with one file of many broken")
	postEvents(t, w, "meanwhile", events)

	w.Kill()
	w = s.start()
	awaitGone(t, w, "deleted")
	checkHeld(t, w, events, "after a restart on broken manifests")

	// With every file in order again what is absent is really deleted, after 10 s. That
	// still only holds it, for 15 minutes.
	s.mend(srv.URL, "truncated", "broken", "half")
	if err := awaitUntil(t, 30*time.Second, "the deletion to be seen", func() (bool, error) {
		v, err := views(w)
		return v["deleted"].Lane.State == "Missing", err
	}); err != nil {
		t.Error(err)
	}
	checkHeld(t, w, events, "after the deletion was seen")

	restore()
	r.open.Store(true)
	// Every endpoint gets every event, also what came while it was not to be seen.
	want := 2 * len(fates) * events
	if err := awaitUntil(t, 90*time.Second, "everything to be delivered", func() (bool, error) { return r.count() >= want, nil }); err != nil {
		v, _ := views(w)
		t.Errorf("%v: %d of %d arrived; endpoints: %+v", err, r.count(), want, v)
	}
	for _, f := range fates {
		for i := range events {
			for _, when := range []string{"before", "meanwhile"} {
				if !r.has(fmt.Sprintf("/%s %s-%d", f, when, i)) {
					t.Errorf("endpoint %s did not get event %s-%d", f, when, i)
				}
			}
		}
	}
	checkHeld(t, w, 0, "at the end")
	if err := w.Stop(grace); err != nil {
		t.Error(err)
	}
}

// harm does to each manifest what its name says.
func (s *site) harm(truncated, deleted, broken, half string) {
	s.t.Helper()
	file := func(name string) string { return filepath.Join(s.manifests(), name+".yaml") }
	whole, err := os.ReadFile(file(half))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, err := range []error{
		os.WriteFile(file(broken), []byte("kind: [WebhookEndpoint\n\t}"), 0o600),
		os.WriteFile(file(half), whole[:len(whole)/2], 0o600),
		os.Truncate(file(truncated), 0),
		os.Remove(file(deleted)),
	} {
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// mend writes the named manifests anew.
func (s *site) mend(url string, names ...string) {
	s.t.Helper()
	for _, name := range names {
		e := harness.Endpoint{Name: name, URL: url + "/" + name, RetryPolicy: "patient"}
		if err := harness.WriteManifest(s.manifests(), name+".yaml", e.Manifest()); err != nil {
			s.t.Fatal(err)
		}
	}
}

func postEvents(t *testing.T, w *harness.Worker, prefix string, n int) {
	t.Helper()
	for i := range n {
		body := fmt.Sprintf(`{"id":"%s-%d","type":"order.created","data":{"n":%d}}`, prefix, i, i)
		if _, err := w.Call("POST", harness.EventsPath, nil, []byte(body), nil); err != nil {
			t.Fatal(err)
		}
	}
}

func holds(t *testing.T, w *harness.Worker, name string) endpointView {
	t.Helper()
	v, err := views(w)
	if err != nil {
		t.Fatal(err)
	}
	return v[name]
}

// awaitGone waits until the worker knows that the manifests are not to be seen.
func awaitGone(t *testing.T, w *harness.Worker, names ...string) {
	t.Helper()
	var v map[string]endpointView
	err := awaitUntil(t, 30*time.Second, "the manifests to be missed", func() (bool, error) {
		var err error
		v, err = views(w)
		for _, n := range names {
			if !slices.Contains(gone, v[n].Lane.State) {
				return false, err
			}
		}
		return true, err
	})
	if err != nil {
		t.Fatalf("%v: endpoints are %+v", err, v)
	}
}

// checkHeld checks that every endpoint has at least the given deliveries waiting and
// none has dead letters.
func checkHeld(t *testing.T, w *harness.Worker, least int, when string) {
	t.Helper()
	v, err := views(w)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fates {
		e, ok := v[f]
		if !ok || e.Deliveries.DeadLettered > 0 || e.Deliveries.Waiting < least {
			t.Errorf("%s: endpoint %s known %v, %d waiting, %d dead-lettered; want at least %d and 0",
				when, f, ok, e.Deliveries.Waiting, e.Deliveries.DeadLettered, least)
		}
	}
}
