package controllers

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/compile"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

const (
	keyOne = "whsec_oTsZLsC3r621tew5h3R+CNxfgEtDTLStoCLmKnW5A6Q="
	keyTwo = "whsec_3bNUN0RkK6xuVtQ3yJYkXNGoXH6ZL0wN1cHqJvT0cJc="
)

// manyThings are objects of which each has something to list, or several things wrong of which one is told.
func manyThings() compile.Objects {
	o := compile.Objects{Namespaces: []compile.Namespace{{Name: "shop", UID: "shop"}, {Name: "doorstep-system", UID: "system"}}}
	ref := func(i int) v1alpha1.SecretKeyReference {
		return v1alpha1.SecretKeyReference{Name: fmt.Sprintf("key-%d", i), Key: "key"}
	}
	endpoint := func(name string, change func(*v1alpha1.WebhookEndpointSpec)) {
		e := v1alpha1.WebhookEndpoint{ObjectMeta: metaOf(name), Spec: v1alpha1.WebhookEndpointSpec{URL: "https://hooks.example.com/"}}
		e.CreationTimestamp = metav1.NewTime(time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC))
		e.Spec.Signing = &v1alpha1.Signing{}
		for i := range 5 {
			e.Spec.Signing.Keys = append(e.Spec.Signing.Keys, v1alpha1.SigningKey{Name: fmt.Sprintf("k%d", i), SecretKeyRef: ref(i)})
		}
		change(&e.Spec)
		o.Endpoints = append(o.Endpoints, e)
	}
	endpoint("keys", func(*v1alpha1.WebhookEndpointSpec) {})
	endpoint("faults", func(s *v1alpha1.WebhookEndpointSpec) {
		s.RetryPolicyRef = &v1alpha1.RetryPolicyReference{Name: "nowhere"}
		s.Filter = "event.data.amount >="
		s.TLS = &v1alpha1.TLS{CACertificateRefs: []v1alpha1.CACertificateReference{{Name: "nowhere"}, {Name: "elsewhere"}}}
		for i := range 3 {
			s.Signing.Keys[i].SecretKeyRef.Name = fmt.Sprintf("nowhere-%d", i)
		}
	})
	for i := range 20 {
		endpoint(fmt.Sprintf("other-%d", i), func(s *v1alpha1.WebhookEndpointSpec) {
			s.RetryPolicyRef = &v1alpha1.RetryPolicyReference{Name: "patient"}
		})
	}
	o.RetryPolicies = []v1alpha1.RetryPolicy{{ObjectMeta: metaOf("patient")}, {ObjectMeta: metaOf("spare")}}
	pool := v1alpha1.DeliveryPool{ObjectMeta: metaOf("default")}
	pool.Namespace = "doorstep-system"
	pool.Spec.Ingest = &v1alpha1.Ingest{APIKeysSecretRef: &v1alpha1.SecretReference{Name: "nowhere"}}
	pool.Spec.Egress = &v1alpha1.Egress{
		Proxy:             &v1alpha1.EgressProxy{URL: "http://proxy.example.com:3128", CredentialsSecretRef: &v1alpha1.SecretReference{Name: "elsewhere"}},
		CACertificateRefs: []v1alpha1.CACertificateReference{{Name: "nowhere"}, {Name: "elsewhere"}},
	}
	o.Pools = []v1alpha1.DeliveryPool{pool}
	for i := range 5 {
		s := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: ref(i).Name}, Data: map[string][]byte{"key": []byte(keyOne)}}
		o.Secrets = append(o.Secrets, s)
	}
	return o
}

func shuffle[T any](r *rand.Rand, list []T) []T {
	out := slices.Clone(list)
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// case CS173: a hundred passes over the same objects, which informers list in any order, write each status once. Keys have
// former values, several faults are told of one at a time, and workers are listed.
func TestStatusesAreWrittenOnce(t *testing.T) {
	objects := manyThings()
	now := time.Date(2026, time.December, 1, 12, 0, 0, 0, time.UTC)
	options := compile.Options{Cluster: true, PoolName: "default"}
	previous := compile.Compile(objects, nil, now, options).Plan
	for i := range objects.Secrets {
		objects.Secrets[i].Data["key"] = []byte(keyTwo) // each key has a former value from here on
	}
	r := rand.New(rand.NewPCG(1, 2))
	poolKey := types.NamespacedName{Namespace: "doorstep-system", Name: "default"}
	writes := map[string]int{}
	for pass := range 100 {
		in := objects
		in.Endpoints, in.RetryPolicies, in.Secrets = shuffle(r, objects.Endpoints), shuffle(r, objects.RetryPolicies), shuffle(r, objects.Secrets)
		in.Namespaces = shuffle(r, objects.Namespaces)
		result := compile.Compile(in, previous, now.Add(time.Duration(pass)*time.Second), options)
		previous = result.Plan
		index := result.Plan.Index()
		state := PoolState{Live: []string{"default-worker-0", "default-worker-1", "default-worker-2"}}
		for i := range objects.Endpoints {
			e := &objects.Endpoints[i]
			k := plan.EndpointKey{Namespace: e.Namespace, Name: e.Name}
			status, ok := endpointStatus(&endpointInputs{
				endpoint: e, pool: poolKey, poolExists: true, seen: e.Generation, entry: index[k], problems: of(result, compile.KindEndpoint, e.Name),
				poolDefault: result.Plan.Pool, poolEndpoints: len(index), state: state, acknowledged: true,
			})
			if ok && !equality.Semantic.DeepEqual(managerPart(&e.Status), &status) {
				writes[e.Name]++
				e.Status = status
			}
		}
		for i := range objects.RetryPolicies {
			p := &objects.RetryPolicies[i]
			if status := policyStatus(p, 20); !equality.Semantic.DeepEqual(p.Status, status) {
				writes["policy "+p.Name]++
				p.Status = status
			}
		}
		p := &objects.Pools[0]
		status, _, ok := poolStatus(&poolInputs{pool: p, state: state, problems: of(result, compile.KindPool, p.Name), endpoints: len(index), now: now})
		if ok && !equality.Semantic.DeepEqual(p.Status, status) {
			writes["pool"]++
			p.Status = status
		}
	}
	if want := len(objects.Endpoints) + len(objects.RetryPolicies) + 1; len(writes) != want {
		t.Errorf("%d statuses were written, want %d", len(writes), want)
	}
	for name, n := range writes {
		if n != 1 {
			t.Errorf("the status of %s was written %d times", name, n)
		}
	}

	// That it is the lists that were looked at:
	keys := objects.Endpoints[0].Status.Signing.Keys
	if len(keys) != 10 {
		t.Errorf("%d keys are shown, want 5 and their former values: %+v", len(keys), keys)
	}
	if c := meta.FindStatusCondition(objects.Endpoints[1].Status.Conditions, v1alpha1.ConditionReady); c.Status != metav1.ConditionFalse {
		t.Errorf("of several faults none is told: %+v", c)
	}
	if c := meta.FindStatusCondition(objects.Pools[0].Status.Conditions, v1alpha1.ConditionReady); c.Status != metav1.ConditionFalse {
		t.Errorf("of the pool's several faults none is told: %+v", c)
	}
}

// of are the problems of one object.
func of(r compile.Result, kind, name string) []compile.Problem {
	var out []compile.Problem
	for _, p := range r.Problems {
		if p.Kind == kind && p.Name == name {
			out = append(out, p)
		}
	}
	return out
}
