package secrets

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/test/cluster"
	"github.com/doorstep-dev/doorstep/test/harness"
)

// binary is the doorstep binary under test.
var binary string

func TestMain(m *testing.M) {
	os.Exit(cluster.Main(func() int { return harness.RunWithBinary(m.Run, &binary) }))
}

// namespace is that of all endpoints.
const namespace = "shop"

// soon is how long the change of a Secret may take to be in force, and to show in conditions.
const soon = 5 * time.Second

// patience is how long is waited before a test gives up: what comes after soon has failed, and is measured.
const patience = time.Minute

// site is an installation at work.
type site struct {
	*cluster.Cluster
	manager *cluster.Manager
	pool    *cluster.Pool
	// token is of a ServiceAccount that may post events.
	token string

	mu sync.Mutex
	// confidential is every text that must show nowhere but in Secrets, by what it is.
	confidential map[string]string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{Cluster: cluster.Start(t), confidential: map[string]string{}}
	ctx := t.Context()
	if err := s.InstallDoorstep(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.EnsureNamespace(ctx, namespace, nil); err != nil {
		t.Fatal(err)
	}
	s.token = s.Producer(t, namespace)
	s.hide("the producer's token", s.token)
	if err := s.Apply(ctx, installation); err != nil {
		t.Fatal(err)
	}
	s.pool = s.RunPool(t, talkative(t), cluster.DefaultPool)
	s.manager = s.StartManager(t, binary, "--default-pool=none", "-vv")
	cluster.LogsOfAFailure(t, func() *cluster.Manager { return s.manager }, s.pool)
	s.pool.WaitReady(t, patience)
	return s
}

const installation = `apiVersion: doorstep.dev/v1alpha1
kind: DeliveryPool
metadata: {name: default, namespace: doorstep-system}
spec:
  egress: {allowHTTP: true, allow: [{cidr: 127.0.0.0/8}]}
`

// talkative is a program that is the binary under test and logs all it can: what a StatefulSet runs has no flag for that.
func talkative(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "doorstep")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nexec '"+binary+"' \"$@\" -vv\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// hide notes a text that must show nowhere but in Secrets.
func (s *site) hide(what, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.confidential[what] = text
}

// key is number n of an endpoint's signing keys, which are all different, and its text as a Secret holds it.
func (s *site) key(endpoint string, n int) (harness.Key, string) {
	key := harness.Key(fmt.Sprintf("%-12s key %015d", endpoint, n))
	text := "whsec_" + base64.StdEncoding.EncodeToString(key)
	s.hide(fmt.Sprintf("key %d of endpoint %s", n, endpoint), text)
	s.hide(fmt.Sprintf("key %d of endpoint %s, in its bytes", n, endpoint), string(key))
	return key, text
}

// apply makes or changes an endpoint that is sent the events of the type that has its name.
func (s *site) apply(t *testing.T, name, spec string) {
	t.Helper()
	manifest := "apiVersion: doorstep.dev/v1alpha1\nkind: WebhookEndpoint\nmetadata: {name: %s, namespace: %s}\nspec:\n  eventTypes: [%s]\n  %s\n"
	spec = strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  ")
	if err := s.Apply(t.Context(), fmt.Sprintf(manifest, name, namespace, name, spec)); err != nil {
		t.Fatal(err)
	}
}

// put creates or changes a Secret of the tenant and returns when the API server had answered.
func (s *site) put(t *testing.T, name string, data map[string]string, with ...func(*corev1.Secret)) time.Time {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, StringData: data}
	for _, change := range with {
		change(secret)
	}
	var former corev1.Secret
	err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(secret), &former)
	switch {
	case apierrors.IsNotFound(err):
		err = s.Client.Create(t.Context(), secret)
	case err == nil:
		err = s.Client.Update(t.Context(), secret) // without the former data
	}
	if err != nil {
		t.Fatal(err)
	}
	return time.Now()
}

// remove deletes a Secret of the tenant and returns when the API server had answered.
func (s *site) remove(t *testing.T, name string) time.Time {
	t.Helper()
	if err := s.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}); err != nil {
		t.Fatal(err)
	}
	return time.Now()
}

func endpointKey(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// await waits until a condition of an endpoint has a status and reason for the endpoint as it is now.
func (s *site) await(t *testing.T, name, condition string, status metav1.ConditionStatus, reason string) metav1.Condition {
	t.Helper()
	return s.AwaitCondition(t, patience, endpointKey(name), condition, status, reason)
}

// says waits until Ready has a reason, and fails the test if that took too long since, if the message lacks a text, or if
// the conditions beside it are not those of kstatus.
func (s *site) says(t *testing.T, name string, since time.Time, reason, message string) {
	t.Helper()
	status, beside := metav1.ConditionFalse, v1alpha1.ConditionReconciling
	switch {
	case reason == v1alpha1.ReasonAccepted:
		status, beside = metav1.ConditionTrue, ""
	case v1alpha1.Stalls(reason):
		beside = v1alpha1.ConditionStalled
	}
	found := s.await(t, name, v1alpha1.ConditionReady, status, reason)
	took(t, name+" says "+reason, since)
	if !strings.Contains(found.Message, message) {
		t.Errorf("endpoint %s says %q, want %q in it", name, found.Message, message)
	}
	e, err := s.Endpoint(t, endpointKey(name))
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		if c := meta.FindStatusCondition(e.Status.Conditions, kind); (c != nil) != (kind == beside) || c != nil && c.Reason != reason {
			t.Errorf("endpoint %s, which says %s, has %s: %+v", name, reason, kind, c)
		}
	}
}

// took fails the test if something was late, and tells how long it took.
func took(t *testing.T, what string, since time.Time) {
	t.Helper()
	d := time.Since(since).Round(time.Millisecond)
	t.Logf("%s after %v", what, d)
	if d > soon {
		t.Errorf("%s after %v, which is more than %v", what, d, soon)
	}
}

// trickle posts ten events a second of an endpoint's type until stop is called, which gives how many were accepted. The
// endpoint must be in its worker's plan.
func (s *site) trickle(t *testing.T, name string) (stop func() int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var result harness.LoadResult
	var err error
	var work sync.WaitGroup
	work.Go(func() {
		result, err = harness.Load{
			Addr: s.pool.Ingest(), Path: "/v1/namespaces/" + namespace + "/events", Key: s.token, Run: name,
			Types: []string{name}, Size: 512, Conns: 1, Rate: 10, Count: 1 << 20, Duration: time.Hour,
		}.Do(ctx)
	})
	t.Cleanup(func() { cancel(); work.Wait() })
	return func() int64 {
		t.Helper()
		cancel()
		work.Wait()
		if err != nil || result.Failed > 0 || result.Refused > 0 {
			t.Errorf("%s: %v; %d events failed, %d were refused: %s", name, err, result.Failed, result.Refused, result.FirstError)
		}
		return result.Accepted
	}
}

// held waits until the worker holds an endpoint's deliveries, and fails the test if any comes from then on for a while, in
// which events go on coming.
func (s *site) held(t *testing.T, name string, r *receiver) {
	t.Helper()
	s.await(t, name, v1alpha1.ConditionDelivering, metav1.ConditionFalse, v1alpha1.ReasonUnresolved)
	before := len(r.seen())
	<-time.After(2 * time.Second)
	if after := len(r.seen()); after != before {
		t.Errorf("%d requests came while endpoint %s is held", after-before, name)
	}
}

// delivered waits until the receiver took that many events of an endpoint, none of which may have come unsigned, and until
// its status tells of no other.
func (s *site) delivered(t *testing.T, name string, r *receiver, want int64) {
	t.Helper()
	cluster.Eventually(t, patience, fmt.Sprintf("%d events to be delivered to endpoint %s", want, name), func() error {
		if got := r.events(name); got != want {
			return fmt.Errorf("%d were", got)
		}
		return nil
	})
	s.AwaitNothingWaiting(t, patience, endpointKey(name))
	for _, q := range r.seen() {
		if len(q.by) == 0 {
			t.Errorf("%s came to %s signed by no key that its endpoint had: %q", q.id, name, q.header.Get("webhook-signature"))
		}
	}
}

// inPlan waits until the worker takes events for an endpoint.
func (s *site) inPlan(t *testing.T, name string) {
	t.Helper()
	s.await(t, name, v1alpha1.ConditionDelivering, metav1.ConditionFalse, v1alpha1.ReasonUnresolved)
}
