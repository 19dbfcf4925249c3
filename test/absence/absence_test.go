package absence

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/test/cluster"
)

// Whatever makes an endpoint look absent: what waits for it stays, and is delivered in the end.
func TestAbsenceIsNotDeletion(t *testing.T) {
	s := newSite(t)
	all := slices.Sorted(maps.Keys(s.sent))
	s.post(t, "first", all...)
	s.post(t, "second", all...)
	s.kept(t, "at first")

	// Each begins where the one before has ended.
	for _, step := range []struct {
		name string
		run  func(*testing.T, []string)
	}{
		{"Secrets of the plan are mended", s.secretsAreMended},
		{"the worker starts by a volume with damaged shards", s.shardsAreMissing},
		{"the worker starts by a volume without an index", s.indexIsMissing},
		{"a namespace is no longer admitted", s.notAdmitted},
		{"an endpoint is made anew", s.madeAnew},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(t, all) }) {
			return
		}
	}
	s.post(t, "last", all...)
	s.kept(t, "at last")
	s.deliver(t, all)
	if errors := s.manager.Log.Lines("level=ERROR"); len(errors) > 0 {
		t.Errorf("the manager's log has errors:\n%s", strings.Join(errors, "\n"))
	}
}

// secretsAreMended: with the manager at work, a Secret that is removed or damaged is written anew, and the worker goes on
// with all that it has.
func (s *site) secretsAreMended(t *testing.T, all []string) {
	shards, _ := s.twoOf(t)
	for _, row := range []struct {
		name, secret string
		harm         func(*testing.T, string)
	}{
		{"a shard is removed", shards[0], s.remove},
		{"a shard is damaged", shards[1], s.damage},
		{"the index is removed", index, s.remove},
		{"the index is damaged", index, s.damage},
	} {
		before, err := s.secret(t, row.secret)
		if err != nil {
			t.Fatal(err)
		}
		since, err := s.Mark()
		if err != nil {
			t.Fatal(err)
		}
		row.harm(t, row.secret)
		s.mended(t, row.secret, before.Data[v1alpha1.PlanSecretKey])
		s.kept(t, row.name)
		s.writtenOnce(t, row.name, row.secret, since)
		for _, e := range all {
			if l, err := s.lane(t, e); err != nil || l.Lane.State == "NotInPlan" {
				t.Errorf("%s: the lane of %s is %s (%v)", row.name, e, l.Lane.State, err)
			}
		}
	}
}

// writtenOnce fails the test unless a Secret of the plan, and no other, was written by the manager, once.
func (s *site) writtenOnce(t *testing.T, when, secret string, since cluster.Mark) {
	t.Helper()
	writes, err := s.Writes(since)
	if err != nil {
		t.Fatal(err)
	}
	var secrets []string
	for _, w := range writes {
		if w.Resource == "secrets" && strings.HasSuffix(w.User, ":doorstep-manager") {
			secrets = append(secrets, w.Name)
		}
	}
	if !slices.Equal(secrets, []string{secret}) {
		t.Errorf("%s: the manager wrote %v, want %s once", when, secrets, secret)
	}
}

// shardsAreMissing: the worker restarts while nobody mends two shards, of which one is gone and one damaged. Their endpoints
// are held; all others go on. Then the manager starts with a cold cache.
func (s *site) shardsAreMissing(t *testing.T, all []string) {
	shards, lost := s.twoOf(t)
	s.manager.Kill()
	s.remove(t, shards[0])
	s.damage(t, shards[1])
	orphan := s.orphan(t)
	s.restartWorker(t, shards...)
	s.awaitLanes(t, lost, "NotInPlan")
	s.held(t, lost, "NotInPlan")
	s.kept(t, "with two shards missing")
	for _, e := range all {
		if l, err := s.lane(t, e); !slices.Contains(lost, e) && (err != nil || l.Lane.State == "NotInPlan") {
			t.Errorf("the lane of %s, whose shard is there, is %s (%v)", e, l.Lane.State, err)
		}
	}
	// Who of shop would take an event can't be told; for lab it can.
	s.refused(t, lost[0], http.StatusServiceUnavailable)
	s.post(t, "beside", lab+"/l00")

	s.manager.Restart(t)
	s.awaitLanes(t, lost, "Active", "BackingOff", "Suspended")
	s.kept(t, "with the shards mended")
	s.gone(t, orphan)
	s.postSoon(t, "mended", all...)
}

// indexIsMissing: the worker restarts while there is no index. It is not ready and takes no events until the manager, with a
// cold cache, has written one.
func (s *site) indexIsMissing(t *testing.T, all []string) {
	s.manager.Kill()
	s.remove(t, index)
	starts := s.restartWorker(t, index)
	s.refused(t, all[0], http.StatusServiceUnavailable)
	s.manager.Restart(t)
	s.pool.WaitReady(t, 30*time.Second)
	if s.pool.Starts() != starts {
		t.Errorf("the worker was started again while it waited for a plan")
	}
	s.awaitLanes(t, all, "Active", "BackingOff", "Suspended")
	s.kept(t, "with another index")
	s.postSoon(t, "again", all...)
	for _, e := range all {
		s.await(t, e, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	}
}

// notAdmitted: the pool admits shop no longer, first since the namespace lost its label, then since the pool's spec says so.
// Manager and worker start anew meanwhile.
func (s *site) notAdmitted(t *testing.T, all []string) {
	var ours []string
	for _, e := range all {
		if strings.HasPrefix(e, shop+"/") {
			ours = append(ours, e)
		}
	}
	shut := func(how string) {
		t.Helper()
		for _, e := range ours {
			s.await(t, e, metav1.ConditionFalse, v1alpha1.ReasonNamespaceNotAllowed)
		}
		s.awaitLanes(t, ours, "NotInPlan")
		s.held(t, ours, "NotInPlan")
		s.refused(t, ours[0], http.StatusForbidden)
		s.post(t, how, lab+"/l00", lab+"/l01")
		s.kept(t, how)
	}
	open := func(how string) {
		t.Helper()
		for _, e := range ours {
			s.await(t, e, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
		}
		s.awaitLanes(t, ours, "Active", "BackingOff", "Suspended")
		s.kept(t, how)
		s.postSoon(t, how, ours...)
	}
	s.label(t, `null`)
	shut("unlabelled")
	s.manager.Restart(t)
	s.restartWorker(t)
	shut("unlabelled, and started anew")
	s.label(t, `"yes"`)
	open("labelled")

	s.admit(t, `{"selector":{"matchLabels":{"webhooks":null,"kubernetes.io/metadata.name":"lab"}}}`)
	shut("others admitted by name")
	s.admit(t, `{"from":"All","selector":null}`)
	open("admitted from all")
}

// madeAnew: an endpoint is deleted, and another is moved to a pool that does not exist, which is to delete it and make it
// anew since poolRef can't be changed. What waits for them waits on, and is found by those that are made instead.
func (s *site) madeAnew(t *testing.T, all []string) {
	deleted, moved := shop+"/e02", shop+"/e04"
	s.delete(t, deleted)
	s.delete(t, moved)
	if err := s.Apply(t.Context(), "apiVersion: doorstep.dev/v1alpha1\nkind: WebhookEndpoint\nmetadata: {name: e04, namespace: shop}\n"+
		"spec: {url: \"https://hooks.example.com/\", poolRef: {name: other, namespace: lab}}\n"); err != nil {
		t.Fatal(err)
	}
	gone := []string{deleted, moved}
	s.awaitLanes(t, gone, "Missing")
	s.held(t, gone, "Missing")
	s.await(t, moved, metav1.ConditionFalse, v1alpha1.ReasonPoolNotFound)
	s.restartWorker(t)
	s.awaitLanes(t, gone, "Missing")
	s.kept(t, "with two endpoints deleted")
	for _, e := range gone {
		if status, answer, err := s.postOne(t, "deleted", e); err != nil || status != http.StatusAccepted || !strings.Contains(string(answer), `"endpoints":0`) {
			t.Errorf("an event of a type that only deleted endpoint %s took is answered %d (%v): %s", e, status, err, answer)
		}
	}

	s.delete(t, moved)
	for _, e := range gone {
		if err := s.Apply(t.Context(), s.manifest(keyOf(e).Namespace, keyOf(e).Name, false)); err != nil {
			t.Fatal(err)
		}
		s.await(t, e, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	}
	s.awaitLanes(t, gone, "Active", "BackingOff", "Draining")
	s.kept(t, "made anew")
}

// deliver opens the receiver, lets all go, and waits until each endpoint got all that was sent, once.
func (s *site) deliver(t *testing.T, all []string) {
	s.receiver.open.Store(true)
	for _, e := range all {
		key := keyOf(e)
		o := &v1alpha1.WebhookEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		if err := s.Client.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":false}}`))); err != nil {
			t.Fatal(err)
		}
	}
	s.awaitLanes(t, all, "Active", "BackingOff", "Draining")
	for _, e := range all {
		key := keyOf(e)
		for _, verb := range []string{"enable", "retry"} {
			if status, answer, err := s.call(t, http.MethodPost, key.Namespace+"/endpoints/"+key.Name+"/"+verb, ""); err != nil || status >= http.StatusBadRequest {
				t.Fatalf("%s of %s: %d, %v: %s", verb, e, status, err, answer)
			}
		}
	}
	cluster.Eventually(t, 90*time.Second, "all to be delivered", func() error {
		for _, e := range all {
			if got, _ := s.receiver.of(e); got != s.sent[e] {
				l, err := s.lane(t, e)
				return fmt.Errorf("%s got %d of %d; it is %+v (%w)", e, got, s.sent[e], l, err)
			}
		}
		return nil
	})
	for _, e := range all {
		if _, repeated := s.receiver.of(e); repeated > 0 {
			t.Errorf("%s got %d events more than once", e, repeated)
		}
		cluster.Eventually(t, 10*time.Second, "nothing to wait for "+e, func() error {
			l, err := s.lane(t, e)
			if err == nil && (l.Deliveries.Waiting != 0 || l.Deliveries.DeadLettered != 0) {
				err = fmt.Errorf("it has %+v", l.Deliveries)
			}
			return err
		})
	}
}

// restartWorker kills the worker once its volume is as the Secrets are, waits for another, and returns how many were
// started.
func (s *site) restartWorker(t *testing.T, secrets ...string) int {
	t.Helper()
	s.inVolume(t, secrets)
	starts := s.pool.Starts()
	s.pool.Kill(t)
	cluster.Eventually(t, time.Minute, "another worker to answer", func() error {
		if s.pool.Starts() == starts {
			return fmt.Errorf("%d were started", starts)
		}
		_, _, err := s.call(t, http.MethodGet, lab+"/endpoints", "")
		return err
	})
	return s.pool.Starts()
}

// refused fails the test unless an event for an endpoint is answered with a status, and told why.
func (s *site) refused(t *testing.T, endpoint string, want int) {
	t.Helper()
	status, answer, err := s.postOne(t, "refused", endpoint)
	if err != nil || status != want {
		t.Errorf("an event for %s is answered %d (%v), want %d: %s", endpoint, status, err, want, answer)
	}
	var problem struct{ Detail string }
	if err := json.Unmarshal(answer, &problem); err != nil || problem.Detail == "" {
		t.Errorf("the answer tells nothing: %s", answer)
	}
}

// postSoon posts once the worker takes events of the endpoints' namespaces.
func (s *site) postSoon(t *testing.T, run string, endpoints ...string) {
	t.Helper()
	cluster.Eventually(t, time.Minute, "events to be accepted", func() error {
		for _, probe := range []string{shop, lab} {
			status, answer, err := s.call(t, http.MethodPost, probe+"/events", fmt.Sprintf(`{"id":%q,"type":"nobody.takes.it","data":1}`, run))
			if err != nil || status >= http.StatusBadRequest {
				return fmt.Errorf("in namespace %s one is answered %d (%w): %s", probe, status, err, answer)
			}
		}
		return nil
	})
	s.post(t, run, endpoints...)
}

// label gives namespace shop's label a value, null to remove it.
func (s *site) label(t *testing.T, value string) {
	t.Helper()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}
	if err := s.Client.Patch(t.Context(), n, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"webhooks":`+value+`}}}`))); err != nil {
		t.Fatal(err)
	}
}

// admit changes the pool's allowedNamespaces.
func (s *site) admit(t *testing.T, allowed string) {
	t.Helper()
	p := &v1alpha1.DeliveryPool{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultPool.Namespace, Name: cluster.DefaultPool.Name}}
	if err := s.Client.Patch(t.Context(), p, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"allowedNamespaces":`+allowed+`}}`))); err != nil {
		t.Fatal(err)
	}
}

func (s *site) delete(t *testing.T, endpoint string) {
	t.Helper()
	key := keyOf(endpoint)
	if err := s.Client.Delete(t.Context(), &v1alpha1.WebhookEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}); err != nil {
		t.Fatal(err)
	}
}
