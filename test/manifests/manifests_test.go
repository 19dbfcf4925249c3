package manifests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/test/cluster"
	"github.com/doorstep-dev/doorstep/test/harness"
)

// all are the manifests to try; few of them would mean that they are no longer found.
func all(t *testing.T) []cluster.Manifest {
	t.Helper()
	out := append(cluster.Samples(t), cluster.Documented(t)...)
	kinds := map[string]int{}
	for _, m := range out {
		for _, o := range m.Objects {
			kinds[o.GetKind()]++
		}
	}
	if len(out) < 12 || kinds["WebhookEndpoint"] < 10 || kinds["DeliveryPool"] < 4 || kinds["RetryPolicy"] < 4 {
		t.Fatalf("only %d manifests were found, with %v", len(out), kinds)
	}
	return out
}

// Every manifest with endpoints and policies works as written.
func TestEndpointManifests(t *testing.T) {
	t.Parallel()
	var some []cluster.Manifest
	for _, m := range all(t) {
		if !m.Has("DeliveryPool") {
			some = append(some, m)
		}
	}
	s := newSite(t, "apiVersion: doorstep.dev/v1alpha1\nkind: DeliveryPool\nmetadata: {name: default, namespace: doorstep-system}\nspec: {}\n")
	s.sendThroughWorld(t)
	for n, m := range some {
		t.Run(m.Name, func(t *testing.T) { s.try(t, m, fmt.Sprintf("reader-%d", n)) })
	}
}

// Every manifest of a pool works as written: its workers take an event and deliver it.
func TestPoolManifests(t *testing.T) {
	t.Parallel()
	for _, m := range all(t) {
		if !m.Has("DeliveryPool") {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			if len(m.Objects) != 1 || m.Objects[0].GetName() != cluster.DefaultPool.Name || m.Objects[0].GetNamespace() != cluster.DefaultPool.Namespace {
				t.Fatal("this test knows pool default alone; teach it others")
			}
			s := newSite(t, m.Text)
			s.awaitReady(t, m.Objects[0])
			s.sendThroughWorld(t)
			s.try(t, cluster.NewManifest(t, "an endpoint", "apiVersion: doorstep.dev/v1alpha1\nkind: WebhookEndpoint\n"+
				"metadata: {name: orders}\nspec: {url: https://hooks.example.com/orders}\n"), "tenant")
		})
	}
}

// sendThroughWorld adds to the pool what leads to the test's proxy.
func (s *site) sendThroughWorld(t *testing.T) {
	t.Helper()
	pool := &unstructured.Unstructured{}
	pool.SetAPIVersion(v1alpha1.GroupVersion.String())
	pool.SetKind("DeliveryPool")
	pool.SetName(cluster.DefaultPool.Name)
	pool.SetNamespace(cluster.DefaultPool.Namespace)
	if err := s.Client.Patch(t.Context(), pool, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"egress":`+s.world.egress()+`}}`))); err != nil {
		t.Fatal(err)
	}
	s.awaitReady(t, pool)
}

// try applies a manifest, waits for all in it to be Ready, posts an event for each endpoint, and takes the manifest away.
func (s *site) try(t *testing.T, m cluster.Manifest, namespace string) {
	var into []string
	for _, o := range m.Objects {
		if o.GetNamespace() == "" {
			into = []string{"-n", namespace}
		}
	}
	for _, o := range m.Objects {
		if o.GetNamespace() == "" {
			o.SetNamespace(namespace)
		}
		s.tenant(t, o.GetNamespace())
	}
	s.kubectl(t, m.Text, append([]string{"apply", "-f", "-"}, into...)...)
	for _, o := range m.Objects {
		if o.GroupVersionKind().Group == v1alpha1.GroupVersion.Group {
			s.awaitReady(t, o)
		}
	}
	for n, o := range m.Objects {
		if o.GetKind() == "WebhookEndpoint" {
			var endpoint v1alpha1.WebhookEndpoint
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &endpoint); err != nil {
				t.Fatal(err)
			}
			s.deliver(t, &endpoint, fmt.Sprintf("%s-%d", namespace, n))
		}
	}
	s.kubectl(t, m.Text, append([]string{"delete", "-f", "-"}, into...)...)
}

// data is of an event that every filter of the documentation takes.
const data = `{"amount":2000,"items":[{"sku":"glass-1"}],"notes":"Fragile"}`

// deliver posts an event that the endpoint selects, and looks at what its receiver gets.
func (s *site) deliver(t *testing.T, e *v1alpha1.WebhookEndpoint, id string) {
	t.Helper()
	attributes := map[string]string{"partitionkey": "a"}
	for _, match := range e.Spec.MatchAttributes {
		attributes[match.Name] = match.Value
	}
	typ := "order.created"
	if len(e.Spec.EventTypes) > 0 {
		typ = strings.ReplaceAll(string(e.Spec.EventTypes[0]), "*", "created")
	}
	event, err := json.Marshal(map[string]any{"id": id, "type": typ, "attributes": attributes, "data": json.RawMessage(data)})
	if err != nil {
		t.Fatal(err)
	}
	s.post(t, e.Namespace, event)
	var got request
	cluster.Eventually(t, 30*time.Second, "the event at "+e.Spec.URL, func() error {
		for _, r := range s.world.received(id) {
			if r.url == e.Spec.URL {
				got = r
				return nil
			}
		}
		return fmt.Errorf("%d requests came with its id, none to there", len(s.world.received(id)))
	})

	body := event
	if e.Spec.Body == v1alpha1.RequestBodyData {
		body = []byte(data)
	}
	if !bytes.Equal(got.body, body) {
		t.Errorf("%s got body %s, want %s", e.Name, got.body, body)
	}
	s.checkSignature(t, e, got)
	for _, h := range e.Spec.Headers {
		if value := got.header.Get(h.Name); value == "" || (h.Value != "" && value != h.Value) {
			t.Errorf("%s got header %s: %q, want %q", e.Name, h.Name, value, h.Value)
		}
	}
	if e.Spec.Auth != nil && !strings.HasPrefix(got.header.Get("Authorization"), "B") {
		t.Errorf("%s got no credentials", e.Name)
	}
	if e.Spec.Auth != nil && e.Spec.Auth.OAuth2 != nil && got.header.Get("Authorization") != "Bearer "+accessToken {
		t.Errorf("%s did not get the token of its authorization server", e.Name)
	}
	if e.Spec.TLS != nil && e.Spec.TLS.ClientCertificateRef != nil && !got.client {
		t.Errorf("%s was shown no client certificate", e.Name)
	}
}

// checkSignature verifies a signature of Standard Webhooks with the keys that the endpoint names, or with the one that was
// made for it. Of other schemes it only sees that there is one; test/interop verifies those.
func (s *site) checkSignature(t *testing.T, e *v1alpha1.WebhookEndpoint, got request) {
	t.Helper()
	refs := []v1alpha1.SecretKeyReference{{Name: e.Name + "-signing", Key: "key"}}
	if e.Spec.Signing != nil {
		if e.Spec.Signing.HMAC != nil {
			if got.header.Get(e.Spec.Signing.HMAC.Header) == "" {
				t.Errorf("%s got no signature", e.Name)
			}
			return
		}
		if len(e.Spec.Signing.Keys) > 0 {
			refs = nil
			for _, key := range e.Spec.Signing.Keys {
				refs = append(refs, key.SecretKeyRef)
			}
		}
	}
	var failed error
	for _, ref := range refs {
		var secret corev1.Secret
		if err := s.Client.Get(t.Context(), types.NamespacedName{Namespace: e.Namespace, Name: ref.Name}, &secret); err != nil {
			t.Fatal(err)
		}
		key, err := harness.ParseKey(string(secret.Data[ref.Key]))
		if err != nil {
			t.Fatal(err)
		}
		if failed = key.Verify(got.header, got.body, time.Now()); failed == nil {
			return
		}
	}
	t.Errorf("%s: %v", e.Name, failed)
}
