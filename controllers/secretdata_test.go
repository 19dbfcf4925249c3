package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/compile"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// secretsOfATest is a cluster's Secrets, of which it gives metadata and, live, everything.
type secretsOfATest struct {
	client.Reader
	secrets map[string]*corev1.Secret
	reads   int // live ones
	// broken are those that exist and can't be read, with the answer.
	broken map[string]error
}

func (s *secretsOfATest) put(name, version string, data map[string]string) {
	o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: version}, Data: map[string][]byte{}}
	for k, v := range data {
		o.Data[k] = []byte(v)
	}
	s.secrets[name] = o
}

func (s *secretsOfATest) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	o := s.secrets[key.Name]
	if o == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, key.Name)
	}
	switch into := into.(type) {
	case *metav1.PartialObjectMetadata:
		into.ObjectMeta = o.ObjectMeta
	case *corev1.Secret:
		s.reads++
		if err := s.broken[key.Name]; err != nil {
			return err
		}
		o.DeepCopyInto(into)
	default:
		return fmt.Errorf("a %T was asked for", into)
	}
	return nil
}

// Each version of a Secret is read once, of it only what is referred to is kept, and a
// reference to another of its keys finds that key.
func TestSecretData(t *testing.T) {
	all := &secretsOfATest{secrets: map[string]*corev1.Secret{}}
	data := newSecretData(all, all)
	data.made = &madeKeys{}
	for _, step := range []struct {
		name  string
		refer func(references)
		world func()
		want  map[string]string
		reads int
	}{
		{"it does not exist", func(r references) { r.secret("shop", "s", "a") }, func() {}, nil, 0},
		{"it is created", func(r references) { r.secret("shop", "s", "a") }, func() { all.put("s", "1", map[string]string{"a": "1", "b": "2"}) }, map[string]string{"a": "1"}, 1},
		{"nothing changed", func(r references) { r.secret("shop", "s", "a"); r.secret("shop", "s", "a") }, func() {}, map[string]string{"a": "1"}, 1},
		{"another key of it", func(r references) { r.secret("shop", "s", "b") }, func() {}, map[string]string{"b": "2"}, 2},
		{"a key that it lacks", func(r references) { r.secret("shop", "s", "b", "c") }, func() {}, map[string]string{"b": "2"}, 3},
		{"its value changes", func(r references) { r.secret("shop", "s", "b", "c") }, func() { all.put("s", "2", map[string]string{"b": "3", "c": "4", "d": "5"}) }, map[string]string{"b": "3", "c": "4"}, 4},
		{"all of it, and one key", func(r references) { r.secret("shop", "s", everyKey); r.secret("shop", "s", "b") }, func() {}, map[string]string{"b": "3", "c": "4", "d": "5"}, 5},
		{"it is deleted", func(r references) { r.secret("shop", "s", "b") }, func() { delete(all.secrets, "s") }, nil, 5},
		{"and created again", func(r references) { r.secret("shop", "s", "b") }, func() { all.put("s", "9", map[string]string{"b": "6"}) }, map[string]string{"b": "6"}, 6},
		{"the manager makes another", func(r references) { r.secret("shop", "s", "b") }, func() {
			all.put("s", "10", map[string]string{"b": "7"})
			data.made.add(all.secrets["s"], time.Now())
		}, map[string]string{"b": "7"}, 6},
	} {
		step.world()
		r := newReferences()
		step.refer(r)
		secrets, _, _, err := data.read(t.Context(), r)
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		var got map[string]string
		for i := range secrets {
			got = map[string]string{}
			for k, v := range secrets[i].Data {
				got[k] = string(v)
			}
		}
		if !maps.Equal(got, step.want) || (got == nil) != (step.want == nil) || all.reads != step.reads {
			t.Errorf("%s: it holds %v after %d live reads, want %v after %d", step.name, got, all.reads, step.want, step.reads)
		}
	}
}

// A Secret that exists and that the API server can't give holds back nobody but those that need it: they go on as
// they were. While the API server can't be asked, nothing is known of any.
func TestASecretThatCantBeRead(t *testing.T) {
	all := &secretsOfATest{secrets: map[string]*corev1.Secret{}, broken: map[string]error{}}
	for _, name := range []string{"good", "bad"} {
		all.put(name, "1", map[string]string{"key": "whsec_dG9wIHNlY3JldCBvZiBhIHRlc3Q="})
	}
	all.broken["bad"] = apierrors.NewInternalError(errors.New("no encryption key is known for it"))
	named := func(name string) v1alpha1.WebhookEndpoint {
		e := v1alpha1.WebhookEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Generation: 1}}
		e.Spec.Signing = &v1alpha1.Signing{Keys: []v1alpha1.SigningKey{{Name: "a", SecretKeyRef: v1alpha1.SecretKeyReference{Name: name, Key: "key"}}}}
		return e
	}
	look := func(pool *v1alpha1.DeliveryPool) (look, error) {
		l := look{objects: compile.Objects{Endpoints: []v1alpha1.WebhookEndpoint{named("good"), named("bad")}}}
		r := newReferences()
		r.pool(pool)
		for i := range l.objects.Endpoints {
			r.endpoint(&l.objects.Endpoints[i])
		}
		var unread map[dataKey]metav1.StatusReason
		var err error
		if l.objects.Secrets, _, unread, err = newSecretData(all, all).read(t.Context(), r); err != nil {
			return l, err
		}
		err = l.setAside(pool, unread)
		return l, err
	}

	l, err := look(&v1alpha1.DeliveryPool{})
	if err != nil {
		t.Fatal(err)
	}
	bad := plan.EndpointKey{Namespace: "shop", Name: "bad"}
	if len(l.objects.Endpoints) != 1 || l.objects.Endpoints[0].Name != "good" || !slices.Contains(l.objects.Refused, bad) || l.again == 0 {
		t.Errorf("taken are %d endpoints, refused %v, and it is looked at again after %s", len(l.objects.Endpoints), l.objects.Refused, l.again)
	}
	if said := l.unread[bad]; !strings.Contains(said, "Secret shop/bad") || !strings.Contains(said, "InternalError") {
		t.Errorf("it says %q", said)
	}
	in := endpointInputs{endpoint: new(named("bad")), poolExists: true, seen: 1, unread: l.unread[bad], entry: &plan.Endpoint{}}
	if v, ok := in.verdict(); !ok || v.reason != v1alpha1.ReasonSecretNotFound || !strings.Contains(v.message, "goes on as it was") {
		t.Errorf("Ready says %+v", v)
	}

	pool := &v1alpha1.DeliveryPool{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}
	pool.Spec.Ingest = &v1alpha1.Ingest{APIKeysSecretRef: &v1alpha1.SecretReference{Name: "bad"}}
	if _, err := look(pool); !errors.As(err, new(unreadError)) {
		t.Errorf("with the pool's own Secret unread: %v", err)
	}

	all.broken["bad"] = apierrors.NewTooManyRequestsError("busy")
	if _, err := look(&v1alpha1.DeliveryPool{}); !apierrors.IsTooManyRequests(err) {
		t.Errorf("while the API server is busy: %v", err)
	}
}

// A pool's Secret of API keys is read whole, also where it holds something else that the
// pool or an endpoint names.
func TestAllAPIKeysAreRead(t *testing.T) {
	pool := &v1alpha1.DeliveryPool{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}
	pool.Spec.Ingest = &v1alpha1.Ingest{APIKeysSecretRef: &v1alpha1.SecretReference{Name: "s"}}
	pool.Spec.Egress = &v1alpha1.Egress{Proxy: &v1alpha1.EgressProxy{CredentialsSecretRef: &v1alpha1.SecretReference{Name: "s"}}}
	r := newReferences()
	r.pool(pool)
	keys := r.secrets[types.NamespacedName{Namespace: "shop", Name: "s"}]
	if !keys[everyKey] {
		t.Errorf("of the Secret the keys %v are read", slices.Sorted(maps.Keys(keys)))
	}
}
