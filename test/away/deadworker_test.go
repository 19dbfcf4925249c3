package away

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/test/cluster"
)

const (
	// idle is how many endpoints there are beside good and flaky, which nothing is sent to.
	idle = 58
	// restart is a worker's absence that is no news of its endpoints, loss one that is.
	restart = 30 * time.Second
	loss    = 6 * time.Minute
	// paced is the most statuses of endpoints that the manager may write in paceTime. It is to write five in a second; a
	// machine that stands still for a second brings those of two together.
	paced    = 31
	paceTime = 5 * time.Second
)

// A worker that is dead for half a minute changes no endpoint's status. One that is dead for six minutes is said in the
// pool's status after a minute and in that of its endpoints after five, a few of them in a second; once it is started
// again, all is as it was, and what waited is delivered.
func TestADeadWorkerIsSeen(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var manifests strings.Builder
	for i := range idle {
		fmt.Fprintf(&manifests, "---\napiVersion: doorstep.dev/v1alpha1\nkind: WebhookEndpoint\nmetadata: {name: idle-%02d, namespace: %s}\nspec: {url: %q, eventTypes: [idle]}\n",
			i, namespace, s.good.URL+"/idle")
	}
	if err := s.Apply(t.Context(), manifests.String()); err != nil {
		t.Fatal(err)
	}
	s.all(t, time.Minute, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	delivered(t, s.good, "before", s.load(t, "before", "good", s.token, 20, 2*time.Second))
	s.flaky.broken.Store(true)
	waiting := s.load(t, "waiting", "flaky", s.token, 20, 2*time.Second)
	s.await(t, "flaky", time.Minute, v1alpha1.ConditionDelivering, metav1.ConditionFalse, v1alpha1.ReasonBackingOff)
	s.waits(t, "flaky", waiting)

	s.healthKept(t, time.Now())
	before := s.quiet(t, 35*time.Second) // what is no transition is told after 30 s
	s.pool.Hold(t)
	pause(t, restart)
	s.pool.Release()
	s.pool.WaitReady(t, time.Minute)
	s.renewed(t, time.Now())
	pause(t, 10*time.Second)
	for name, now := range s.statusOf(t) {
		// A retry that failed meanwhile is news of flaky, and the worker's to tell.
		if was := before[name]; now != was && name != "flaky" {
			t.Errorf("the status of endpoint %s has changed, though its worker was dead for no more than %v, from\n%s\nto\n%s", name, restart, was, now)
		}
	}

	s.quiet(t, 5*time.Second)
	since, err := s.Mark()
	if err != nil {
		t.Fatal(err)
	}
	dead := time.Now()
	s.pool.Hold(t)
	back := time.NewTimer(loss)
	defer back.Stop()
	s.poolIs(t, 90*time.Second, metav1.ConditionFalse, v1alpha1.ReasonWorkerUnavailable)
	if after := time.Since(dead); after < 50*time.Second {
		t.Errorf("the pool said that its worker is away after %v", after)
	}
	s.all(t, loss, metav1.ConditionUnknown, v1alpha1.ReasonPoolUnavailable)
	for _, w := range s.statuses(t, since) {
		if w.At.Sub(dead) < 290*time.Second {
			t.Errorf("%v after the worker's death: %s", w.At.Sub(dead), w)
		}
	}
	s.checkPace(t, "away", since, idle+2)
	moved := newReceiver(t)
	s.move(t, "good", moved.URL)
	select {
	case <-back.C:
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}

	if since, err = s.Mark(); err != nil {
		t.Fatal(err)
	}
	s.flaky.broken.Store(false)
	s.pool.Release()
	s.poolIs(t, time.Minute, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	s.all(t, time.Minute, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	s.checkPace(t, "back", since, idle+2)
	delivered(t, s.flaky, "waiting", waiting)
	delivered(t, moved, "after", s.load(t, "after", "good", s.token, 20, 2*time.Second))
	s.AwaitNothingWaiting(t, time.Minute, key("flaky"))
	s.AwaitNothingWaiting(t, time.Minute, key("good"))
}

func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

// list reads all endpoints.
func (s *site) list(t *testing.T) ([]v1alpha1.WebhookEndpoint, error) {
	var list v1alpha1.WebhookEndpointList
	return list.Items, s.Client.List(t.Context(), &list, client.InNamespace(namespace))
}

// all waits until Ready of every endpoint has a status and reason.
func (s *site) all(t *testing.T, within time.Duration, status metav1.ConditionStatus, reason string) {
	t.Helper()
	cluster.Eventually(t, within, fmt.Sprintf("Ready of all endpoints to be %s, %s", status, reason), func() error {
		list, err := s.list(t)
		if err != nil {
			return err
		}
		for i := range list {
			e := &list[i]
			c := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.ConditionReady)
			if c == nil || c.Status != status || c.Reason != reason || c.ObservedGeneration != e.Generation {
				return fmt.Errorf("that of %s is %+v", e.Name, c)
			}
		}
		return nil
	})
}

// poolIs waits until Ready of the pool has a status and reason.
func (s *site) poolIs(t *testing.T, within time.Duration, status metav1.ConditionStatus, reason string) {
	t.Helper()
	cluster.Eventually(t, within, fmt.Sprintf("Ready of the pool to be %s, %s", status, reason), func() error {
		var p v1alpha1.DeliveryPool
		if err := s.Client.Get(t.Context(), cluster.DefaultPool, &p); err != nil {
			return err
		}
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
		if c == nil || c.Status != status || c.Reason != reason {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
}

// waits waits until the status of an endpoint tells how many deliveries wait.
func (s *site) waits(t *testing.T, name string, want int64) {
	t.Helper()
	cluster.Eventually(t, time.Minute, fmt.Sprintf("endpoint %s to say that %d deliveries wait", name, want), func() error {
		e, err := s.Endpoint(t, key(name))
		if err != nil {
			return err
		}
		if d := e.Status.Deliveries; d == nil || d.Waiting == nil || *d.Waiting != want {
			return fmt.Errorf("deliveries are %+v", d)
		}
		return nil
	})
}

// statusOf are the endpoints' resource versions and statuses.
func (s *site) statusOf(t *testing.T) map[string]string {
	t.Helper()
	list, err := s.list(t)
	if err != nil {
		t.Fatal(err)
	}
	statuses := map[string]string{}
	for i := range list {
		status, err := json.Marshal(list[i].Status)
		if err != nil {
			t.Fatal(err)
		}
		statuses[list[i].Name] = list[i].ResourceVersion + " " + string(status)
	}
	return statuses
}

// healthKept waits until the worker has put on its volume what it counts of health, which it does once a minute: it starts
// with that.
func (s *site) healthKept(t *testing.T, after time.Time) {
	t.Helper()
	cluster.Eventually(t, 90*time.Second, "the health of endpoints to be kept", func() error {
		info, err := os.Stat(filepath.Join(s.pool.Data(), "health"))
		if err == nil && info.ModTime().Before(after) {
			err = fmt.Errorf("it was at %s", info.ModTime())
		}
		return err
	})
}

// quiet waits until no endpoint but flaky has changed for a time, and returns what there is then.
func (s *site) quiet(t *testing.T, long time.Duration) map[string]string {
	t.Helper()
	var last map[string]string
	since := time.Now()
	cluster.Eventually(t, 2*time.Minute, "endpoints to be quiet", func() error {
		now := s.statusOf(t)
		for name, status := range now {
			if name != "flaky" && status != last[name] {
				last, since = now, time.Now()
				return errors.New(name + " has just changed")
			}
		}
		if time.Since(since) < long {
			return errors.New("for too short a time")
		}
		return nil
	})
	return last
}

// statuses are the writes of endpoints' statuses by the manager.
func (s *site) statuses(t *testing.T, since cluster.Mark) []cluster.Request {
	t.Helper()
	writes, err := s.Writes(since)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(writes, func(r cluster.Request) bool {
		return r.Resource != "webhookendpoints" || r.Subresource != "status" || !strings.HasSuffix(r.User, ":doorstep-manager")
	})
}

// checkPace fails the test if the manager wrote other than that many statuses of endpoints, or too many at once.
func (s *site) checkPace(t *testing.T, when string, since cluster.Mark, want int) {
	t.Helper()
	writes := s.statuses(t, since)
	most := 0
	for i := range writes {
		n := 0
		for _, w := range writes[i:] {
			if w.At.Sub(writes[i].At) < paceTime {
				n++
			}
		}
		most = max(most, n)
	}
	if len(writes) < want || len(writes) > want+3 || most > paced {
		t.Errorf("%s: the manager wrote %d statuses of endpoints, at most %d in %v; want %d and at most %d", when, len(writes), most, paceTime, want, paced)
	}
}
