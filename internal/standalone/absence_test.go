package standalone

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/manifest"
)

func (r *running) awaitLane(name string, want ingest.LaneState) {
	r.t.Helper()
	await(r.t, name+" to be "+string(want), func() bool { return r.endpoint(name).Lane.State == want })
}

// waitsAlone checks that the endpoint's one event waits and is no dead letter.
func (r *running) waitsAlone(when string) {
	r.t.Helper()
	if d := r.endpoint("orders").Deliveries; d.Waiting != 1 || d.DeadLettered != 0 {
		r.t.Errorf("%s: %+v, want one delivery waiting", when, d)
	}
}

func TestTruncatedAndDeletedManifestsHold(t *testing.T) {
	for name, c := range map[string]struct {
		lose func(s *site)
		// running: the former version goes on in the process that saw it.
		running bool
	}{
		"truncated": {func(s *site) {
			if err := os.Truncate(filepath.Join(s.manifests, "orders.yaml"), 0); err != nil {
				s.t.Fatal(err)
			}
		}, true},
		"cut off in the middle": {func(s *site) {
			if err := os.Truncate(filepath.Join(s.manifests, "orders.yaml"), 60); err != nil {
				s.t.Fatal(err)
			}
		}, true},
		"deleted": {func(s *site) { s.remove("orders.yaml") }, false},
		"the folder is away": {func(s *site) {
			if err := os.Rename(s.manifests, s.manifests+".away"); err != nil {
				s.t.Fatal(err)
			}
			if err := os.Mkdir(s.manifests, 0o700); err != nil {
				s.t.Fatal(err)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, rec := newSite(t), newReceiver(t)
			rec.status.Store(500)
			s.usual(rec.URL)
			r := s.start()
			r.send("evt_1")
			rec.await(t, 1)
			await(t, "the failure to be recorded", func() bool { return r.delivery("evt_1").AttemptCount == 1 })
			problems := len(r.problems())
			c.lose(s)
			if c.running {
				await(t, "the report", func() bool { return len(r.problems()) > problems })
				if e := r.endpoint("orders"); !e.Ready || e.Lane.Held {
					t.Errorf("%+v, want the former version in force", e)
				}
			} else {
				r.awaitLane("orders", ingest.LaneNotInPlan)
			}
			r.waitsAlone("in the process that saw it")
			r.stop()
			r = s.start()
			r.awaitLane("orders", ingest.LaneNotInPlan)
			r.waitsAlone("after a restart")
			rec.status.Store(204)
			if err := os.MkdirAll(s.manifests, 0o700); err != nil {
				t.Fatal(err)
			}
			s.usual(rec.URL, "retryPolicyRef: {name: quick}")
			await(t, "the delivery", func() bool { return r.delivery("evt_1").State == ingest.StateDelivered })
			if n := rec.count(); n != 2 {
				t.Errorf("%d arrivals, want 2", n)
			}
		})
	}
}

// The planner's own timer makes a deletion of an absence that lasts: no file changes
// any more. The real clock runs here; the same in virtual time is TestADeletion….
func TestAnAbsenceThatLastsIsADeletion(t *testing.T) {
	t.Parallel()
	s, rec := newSite(t), newReceiver(t)
	rec.status.Store(500)
	s.usual(rec.URL)
	r := s.start()
	r.send("evt_1")
	rec.await(t, 1)
	began := time.Now()
	s.remove("orders.yaml")
	r.awaitLane("orders", ingest.LaneNotInPlan)
	r.awaitLane("orders", ingest.LaneMissing)
	if d := time.Since(began); d < 10*time.Second {
		t.Errorf("deleted after %v, want 10 s at the least", d)
	}
	r.waitsAlone("after the deletion")
	r.stop()
	// The deletion is remembered; made again, it finds its event.
	r = s.start()
	r.awaitLane("orders", ingest.LaneMissing)
	rec.status.Store(204)
	s.usual(rec.URL, "retryPolicyRef: {name: quick}")
	await(t, "the delivery", func() bool { return r.delivery("evt_1").State == ingest.StateDelivered })
}

// Absence is no deletion for new events either: they are kept for whoever asked for them.
func TestEventsForAnAbsentEndpointAreKept(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	s.usual(rec.URL)
	r := s.start()
	s.remove("orders.yaml")
	r.awaitLane("orders", ingest.LaneNotInPlan)
	r.send("evt_1")
	r.waitsAlone("while absent")
	if n := rec.count(); n != 0 {
		t.Errorf("%d arrivals at an endpoint that is absent", n)
	}
	s.usual(rec.URL)
	await(t, "the delivery", func() bool { return r.delivery("evt_1").State == ingest.StateDelivered })
}

// A generated key that is lost holds its endpoint, and no other key takes its place;
// put back, it is found though nobody watches the data folder.
func TestALostKeyHoldsUntilItIsBack(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	s.write("pool.yaml", poolYAML)
	s.write("orders.yaml", "apiVersion: doorstep.dev/v1alpha1\nkind: WebhookEndpoint\nmetadata: {name: orders, namespace: shop}\nspec: {url: "+rec.URL+"}\n")
	r := s.start()
	file := manifest.SigningKeyFile(s.data, "shop", "orders")
	r.stop()
	if err := os.Rename(file, file+".away"); err != nil {
		t.Fatal(err)
	}
	r = s.start()
	r.send("evt_1")
	if e := r.endpoint("orders"); e.Ready || !e.Lane.Held || e.Deliveries.Waiting != 1 {
		t.Errorf("without its key: %+v, want it held", e)
	}
	if err := os.Rename(file+".away", file); err != nil {
		t.Fatal(err)
	}
	rec.await(t, 1)
}

// A data folder within that of the manifests is no manifest: neither the queue's files
// nor the generated Secrets.
func TestTheDataFolderMayLieWithinTheManifests(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	s.data = filepath.Join(s.manifests, "data")
	s.write("pool.yaml", poolYAML)
	s.write("orders.yaml", "apiVersion: doorstep.dev/v1alpha1\nkind: WebhookEndpoint\nmetadata: {name: orders, namespace: shop}\nspec: {url: "+rec.URL+"}\n")
	for n := range 2 {
		r := s.start()
		r.send(fmt.Sprintf("evt_%d", n))
		rec.await(t, n+1)
		if p := r.problems(); len(p) != 0 {
			t.Errorf("problems: %q", p)
		}
		r.stop()
	}
	secrets, err := os.ReadDir(filepath.Join(s.data, "secrets", "shop"))
	if err != nil || len(secrets) != 1 {
		t.Errorf("generated Secrets: %v, %v; want one", secrets, err)
	}
}
