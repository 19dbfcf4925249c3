package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

// secretsOfATest is a cluster's Secrets, of which it gives metadata and, live, everything.
type secretsOfATest struct {
	client.Reader
	secrets map[string]*corev1.Secret
	reads   int // live ones
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
	} {
		step.world()
		r := newReferences()
		step.refer(r)
		secrets, _, err := data.read(t.Context(), r)
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
