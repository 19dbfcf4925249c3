package away

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/test/cluster"
)

// The manager is killed, then the worker, which starts again by the plan in its volume: events are taken and delivered all
// along. What was changed meanwhile comes into force with the manager; no status was lowered by its absence or by its cold
// start.
func TestManagerAway(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	delivered(t, s.good, "before", s.load(t, "before", "good", s.token, 20, 2*time.Second))
	former := s.await(t, "good", time.Minute, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAccepted)

	s.manager.Kill()
	delivered(t, s.good, "alone", s.load(t, "alone", "good", s.token, 20, 5*time.Second))
	starts := s.pool.Starts()
	s.pool.Kill(t)
	cluster.Eventually(t, time.Minute, "another worker", func() error {
		if s.pool.Starts() == starts {
			return fmt.Errorf("%d were started", starts)
		}
		return nil
	})
	s.pool.WaitReady(t, time.Minute)
	delivered(t, s.good, "restarted", s.load(t, "restarted", "good", s.token, 20, 5*time.Second))
	s.AwaitNothingWaiting(t, time.Minute, key("good"))

	moved := newReceiver(t)
	s.move(t, "good", moved.URL)
	s.manager.Restart(t)
	s.await(t, "good", 30*time.Second, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	delivered(t, moved, "moved", s.load(t, "moved", "good", s.token, 20, 2*time.Second))
	s.await(t, "good", time.Minute, v1alpha1.ConditionDelivering, metav1.ConditionTrue, v1alpha1.ReasonActive)
	s.AwaitNothingWaiting(t, time.Minute, key("good"))
	s.neverLowered(t, "flaky", former.LastTransitionTime)
}

// move gives an endpoint another URL.
func (s *site) move(t *testing.T, name, url string) {
	t.Helper()
	e := &v1alpha1.WebhookEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	patch := fmt.Sprintf(`{"spec":{"url":%q}}`, url+"/moved")
	if err := s.Client.Patch(t.Context(), e, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// neverLowered fails the test if Ready of an endpoint has changed since.
func (s *site) neverLowered(t *testing.T, name string, since metav1.Time) {
	t.Helper()
	e, err := s.Endpoint(t, key(name))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range e.Status.Conditions {
		if c.Type == v1alpha1.ConditionReady && (c.Status != metav1.ConditionTrue || c.LastTransitionTime.After(since.Time)) {
			t.Errorf("Ready of endpoint %s is %s, %s since %s; it was True at %s, and nothing has changed", name, c.Status, c.Reason, c.LastTransitionTime, since)
		}
	}
}

// outage is how long the API server is away.
const outage = 5 * time.Minute

// The API server is away for five minutes under a small load: a ServiceAccount's token goes on being good, a receiver that
// heals gets what waited, and a worker that is started meanwhile takes events with an API key and says to bearers of a token
// that it can't tell now. Afterwards all is as it was, and statuses are right.
func TestAPIServerAway(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	delivered(t, s.good, "before", s.load(t, "before", "good", s.token, 20, 2*time.Second))
	s.flaky.broken.Store(true)
	waiting := s.load(t, "waiting", "flaky", s.token, 20, 2*time.Second)
	s.await(t, "flaky", time.Minute, v1alpha1.ConditionDelivering, metav1.ConditionFalse, v1alpha1.ReasonBackingOff)
	since := s.await(t, "good", time.Minute, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAccepted).LastTransitionTime

	if err := s.StopAPI(); err != nil {
		t.Fatal(err)
	}
	back := time.NewTimer(outage)
	defer back.Stop()
	delivered(t, s.good, "away", s.load(t, "away", "good", s.token, 20, outage/2))
	s.flaky.broken.Store(false)
	delivered(t, s.flaky, "waiting", waiting)

	starts := s.pool.Starts()
	s.pool.Kill(t)
	cluster.Eventually(t, time.Minute, "another worker", func() error {
		if s.pool.Starts() == starts {
			return fmt.Errorf("%d were started", starts)
		}
		return nil
	})
	s.pool.WaitReady(t, time.Minute)
	s.refusedForNow(t)
	delivered(t, s.good, "restarted", s.load(t, "restarted", "both", s.key, 20, 30*time.Second))
	delivered(t, s.flaky, "restarted", s.good.of("restarted"))

	select {
	case <-back.C:
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
	if err := s.StartAPI(); err != nil {
		t.Fatal(err)
	}
	s.renewed(t, time.Now())
	s.await(t, "flaky", time.Minute, v1alpha1.ConditionDelivering, metav1.ConditionTrue, v1alpha1.ReasonActive)
	s.await(t, "good", time.Minute, v1alpha1.ConditionDelivering, metav1.ConditionTrue, v1alpha1.ReasonActive)
	s.AwaitNothingWaiting(t, time.Minute, key("flaky"))
	s.AwaitNothingWaiting(t, time.Minute, key("good"))
	delivered(t, s.good, "after", s.load(t, "after", "both", s.token, 20, 5*time.Second))

	moved := newReceiver(t)
	s.move(t, "flaky", moved.URL)
	// After so long, the client library looks for the API server once a minute.
	s.await(t, "flaky", 2*time.Minute, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	delivered(t, moved, "moved", s.load(t, "moved", "flaky", s.token, 20, 2*time.Second))
	s.neverLowered(t, "good", since)
}

// renewed waits until the worker's Lease was renewed after a time.
func (s *site) renewed(t *testing.T, after time.Time) {
	t.Helper()
	cluster.Eventually(t, 30*time.Second, "the worker's Lease to be renewed", func() error {
		var lease coordinationv1.Lease
		key := types.NamespacedName{Namespace: cluster.DefaultPool.Namespace, Name: v1alpha1.WorkerPodName(cluster.DefaultPool.Name, 0)}
		if err := s.Client.Get(t.Context(), key, &lease); err != nil {
			return err
		}
		if lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Before(&metav1.MicroTime{Time: after}) {
			return fmt.Errorf("it was renewed at %v", lease.Spec.RenewTime)
		}
		return nil
	})
}

// refusedForNow: who shows a token that can't be reviewed is told to come again, not that the token is no good.
func (s *site) refusedForNow(t *testing.T) {
	t.Helper()
	url := "http://" + s.pool.Ingest() + "/v1/namespaces/" + namespace + "/events"
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"id":"refused","type":"good","data":1}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+s.token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("a token that can't be reviewed is answered %s with Retry-After %q, want 503 and a time", resp.Status, resp.Header.Get("Retry-After"))
	}
}
