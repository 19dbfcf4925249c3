package busy

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/test/cluster"
)

const (
	busyEndpoints = 2000
	// failingEach: one in so many always fails.
	failingEach = 10
	// perSecond is the most status writes of a pool's worker, transitions among them.
	perSecond = 5
	window    = 10 * time.Second
)

// Two thousand endpoints get events all the time, and all have something new to say: more than the budget permits. It
// holds in every window of time, and the manager writes nothing at all, since nothing changes that is its to say.
func TestStatusWritesUnderTraffic(t *testing.T) { // case CS172
	s := newSite(t)
	s.crowd(t)
	var types []string
	for i := range busyEndpoints {
		types = append(types, typeOf(i))
	}
	since := s.mark(t)
	began := time.Now()
	s.load(t, "busy", types, 300, time.Minute)
	ended := time.Now()

	writes := s.statusWrites(t, workerUser, since)
	for at := began; at.Add(window).Before(ended.Add(time.Second)); at = at.Add(window / 10) {
		n := 0
		for _, w := range writes {
			if !w.At.Before(at) && w.At.Before(at.Add(window)) {
				n++
			}
		}
		// One more for where the window begins, and two that were on their way when it did.
		if most := int(window.Seconds())*perSecond + 3; n > most {
			t.Errorf("%d status writes in the %v from %v on, want at most %d: %v", n, window, at.Sub(began), most, cluster.Tally(writes, func(r cluster.Request) string { return r.Verb + " " + r.Resource }))
			break
		}
	}
	if least := int(ended.Sub(began).Seconds()) * perSecond / 2; len(writes) < least {
		t.Errorf("%d status writes in %v: with so much to say there should be %d at least", len(writes), ended.Sub(began), least)
	}
	if n := len(s.statusWrites(t, managerUser, since)); n > 0 {
		t.Errorf("the manager made %d status writes, though nothing changed: %v", n, cluster.Tally(s.statusWrites(t, managerUser, since), cluster.Request.String))
	}
	if s.receiver.took.Load() == 0 {
		t.Error("nothing was delivered")
	}
	s.noErrors(t)
	t.Logf("%d status writes in %v; %d events were delivered", len(writes), ended.Sub(began), s.receiver.took.Load())
}

// crowd makes the endpoints, each with an event type of its own, and waits until all are Ready.
func (s *site) crowd(t *testing.T) {
	t.Helper()
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(16)
	for i := range busyEndpoints {
		path := "ok"
		if i%failingEach == 0 {
			path = "fail"
		}
		e := &v1alpha1.WebhookEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: typeOf(i)}}
		e.Spec.URL = fmt.Sprintf("%s/%s/%d", s.receiver.URL, path, i)
		e.Spec.EventTypes = []v1alpha1.EventTypePattern{v1alpha1.EventTypePattern(typeOf(i))}
		e.Spec.Signing = &v1alpha1.Signing{Scheme: v1alpha1.SignatureSchemeNone} // no Secret each
		g.Go(func() error { return s.Client.Create(ctx, e) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, 3*time.Minute, "all endpoints to be Ready", func() error {
		var list v1alpha1.WebhookEndpointList
		if err := s.Client.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		ready := 0
		for i := range list.Items {
			if isTrue(&list.Items[i], v1alpha1.ConditionReady) {
				ready++
			}
		}
		if ready < busyEndpoints {
			return fmt.Errorf("%d of %d are", ready, busyEndpoints)
		}
		return nil
	})
}
