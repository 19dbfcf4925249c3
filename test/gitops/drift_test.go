package gitops

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/test/cluster"
)

// written are manifests of the cases, beside those of the samples and the documentation.
var written = map[string]string{
	// case CR166
	"durations in their author's units": `apiVersion: doorstep.dev/v1alpha1
kind: WebhookEndpoint
metadata: {name: durations}
spec: {url: "https://hooks.example.com/", timeout: 00015s, signing: {rotationOverlap: 1h30m}, rateLimit: {requests: 5, interval: 1000ms}}
---
apiVersion: doorstep.dev/v1alpha1
kind: RetryPolicy
metadata: {name: durations}
spec: {backoff: {schedule: [90s, 24h, 1h30m]}, maxAge: 72h, retryAfter: {max: 360m}}
---
apiVersion: doorstep.dev/v1alpha1
kind: DeliveryPool
metadata: {name: durations}
spec: {ingest: {dedupeWindow: 1440m}, retention: {delivered: 168h}}
`,
	// case CR167
	"as little as is possible": `apiVersion: doorstep.dev/v1alpha1
kind: WebhookEndpoint
metadata: {name: minimal}
spec: {url: "https://hooks.example.com/"}
---
apiVersion: doorstep.dev/v1alpha1
kind: RetryPolicy
metadata: {name: minimal}
spec: {}
---
apiVersion: doorstep.dev/v1alpha1
kind: DeliveryPool
metadata: {name: minimal}
spec: {}
`,
	// case CR168: empty lists are refused, see emptyLists
	"defaults written out": `apiVersion: doorstep.dev/v1alpha1
kind: WebhookEndpoint
metadata: {name: defaults}
spec: {url: "https://hooks.example.com/", eventTypes: ["*"], body: Event, timeout: 15s, maxInFlight: 16, ordering: None, suspend: false, signing: {scheme: StandardWebhooks}}
---
apiVersion: doorstep.dev/v1alpha1
kind: RetryPolicy
metadata: {name: defaults}
spec: {jitter: {type: Proportional, percent: 10}, maxAge: 72h, onRecovery: Expedite}
---
apiVersion: doorstep.dev/v1alpha1
kind: DeliveryPool
metadata: {name: defaults}
spec: {suspend: false, replicas: 1, updatePolicy: Automatic, networkPolicy: Managed, allowedNamespaces: {from: All}, egress: {allowHTTP: false}}
`,
}

// Every manifest of the samples, the demo and the documentation, and those of the cases, is applied twice in both ways.
// After that, and again when manager and worker have written their statuses, nothing would change by applying it once
// more, and every spec is as it was written.
func applyTwice(t *testing.T, s *site) {
	manifests := append(cluster.Samples(t), cluster.Documented(t)...)
	for _, file := range []string{"pool.yaml", "retrypolicy.yaml", "orders.yaml", "billing.yaml"} {
		manifests = append(manifests, cluster.NewManifest(t, "config/demo/"+file, demo(t, file)))
	}
	for name, text := range written {
		manifests = append(manifests, cluster.NewManifest(t, name, text))
	}
	for mode, way := range map[string]string{"server-side": serverSide, "client-side": clientSide} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			var all []string
			var objects []*unstructured.Unstructured
			for n, m := range manifests {
				namespace := fmt.Sprintf("%s-%d", mode, n)
				if err := s.EnsureNamespace(t.Context(), namespace, nil); err != nil {
					t.Fatal(err)
				}
				moved := cluster.NewManifest(t, m.Name, into(t, m, namespace))
				all, objects = append(all, moved.Text), append(objects, moved.Objects...)
			}
			text := strings.Join(all, "\n---\n")
			s.kubectl(t, text, "apply", way, "-f", "-")
			s.noDiff(t, text, way, "at once")
			s.awaitStatuses(t, objects)
			s.noDiff(t, text, way, "with their statuses")
			s.kubectl(t, text, "apply", way, "-f", "-")
			s.noDiff(t, text, way, "applied again")
			for _, o := range objects {
				if o.GroupVersionKind().Group == v1alpha1.GroupVersion.Group {
					s.asWritten(t, o)
				}
			}
			if way == clientSide { // and whoever goes over to the other way finds no difference either
				s.kubectl(t, text, "apply", serverSide, "-f", "-")
				s.noDiff(t, text, serverSide, "applied server-side after all")
			}
		})
	}
}

// asWritten fails the test unless an object is stored with the spec that was applied, has not been changed since it was
// made, and is owned by who applied it.
func (s *site) asWritten(t *testing.T, applied *unstructured.Unstructured) {
	t.Helper()
	stored := object(applied.GetKind(), applied.GetNamespace(), applied.GetName())
	s.get(t, stored)
	want, err := json.Marshal(applied.Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(stored.Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) || stored.GetGeneration() != 1 {
		t.Errorf("%s %s/%s is stored, in generation %d, with spec\n%s, and was written\n%s", stored.GetKind(), stored.GetNamespace(), stored.GetName(), stored.GetGeneration(), got, want)
	}
	ownsItsOwn(t, stored)
}

// awaitStatuses waits until the manager, and of endpoints the worker too, has said something of every object.
func (s *site) awaitStatuses(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	ready := 0
	for _, o := range objects {
		if o.GroupVersionKind().Group != v1alpha1.GroupVersion.Group {
			continue
		}
		u := object(o.GetKind(), o.GetNamespace(), o.GetName())
		cluster.Eventually(t, time.Minute, fmt.Sprintf("%s %s/%s to have a status", u.GetKind(), u.GetNamespace(), u.GetName()), func() error {
			if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
				return err
			}
			if conditionOf(u, v1alpha1.ConditionReady) == nil || u.GetKind() == "WebhookEndpoint" && conditionOf(u, v1alpha1.ConditionDelivering) == nil {
				return fmt.Errorf("it is %v", u.Object["status"])
			}
			return nil
		})
		if conditionOf(u, v1alpha1.ConditionReady).Status == metav1.ConditionTrue {
			ready++
		}
	}
	if ready < 10 {
		t.Errorf("only %d of the objects are Ready: what is tested is how they come to stand, too", ready)
	}
}

var (
	between  = regexp.MustCompile(`(?m)^---\n`)
	metadata = regexp.MustCompile(`(?m)^metadata:(\n  | \{)`)
)

// into is a manifest's text with all its objects in one namespace, so that those of the same name don't meet, and nothing
// else changed.
func into(t *testing.T, m cluster.Manifest, namespace string) string {
	t.Helper()
	var out []string
	for _, text := range between.Split(m.Text, -1) {
		document := cluster.NewManifest(t, m.Name, text)
		if len(document.Objects) == 0 {
			continue
		}
		if former := document.Objects[0].GetNamespace(); former != "" {
			text = regexp.MustCompile(`\bnamespace: `+former+`\b`).ReplaceAllString(text, "namespace: "+namespace)
		} else if at := metadata.FindStringSubmatchIndex(text); at != nil {
			entry := "\n  namespace: " + namespace + "\n  "
			if text[at[2]:at[3]] == " {" {
				entry = " {namespace: " + namespace + ", "
			}
			text = text[:at[2]] + entry + text[at[3]:]
		}
		for _, o := range cluster.NewManifest(t, m.Name, text).Objects {
			if o.GetNamespace() != namespace {
				t.Fatalf("%s: %s %s is not moved to namespace %s", m.Name, o.GetKind(), o.GetName(), namespace)
			}
		}
		out = append(out, text)
	}
	return strings.Join(out, "\n---\n")
}

// The demo's endpoints, whose receivers answer 410, are disabled by the worker. That is a matter of status alone: neither
// way of applying finds a difference, applying again enables nothing, and nothing waits for them to change.
func disabled(t *testing.T, s *site) {
	gone := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
	t.Cleanup(gone.Close)
	if err := s.EnsureNamespace(t.Context(), "demo", nil); err != nil {
		t.Fatal(err)
	}
	here := regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
	policy := demo(t, "retrypolicy.yaml")
	rows := []struct{ name, way, event string }{
		{"orders", serverSide, `{"id":"o1","type":"order.created","data":{}}`},
		{"billing", clientSide, `{"id":"p1","type":"payment.made","data":{}}`},
	}
	token := s.Producer(t, "demo")
	s.kubectl(t, policy, "apply", serverSide, "-f", "-")
	for _, row := range rows {
		text := here.ReplaceAllString(demo(t, row.name+".yaml"), gone.URL)
		if !strings.Contains(text, gone.URL) {
			t.Fatalf("the demo's %s has no address on this machine", row.name)
		}
		text += "---\n" + policy
		s.kubectl(t, text, "apply", row.way, "-f", "-")
		u := object("WebhookEndpoint", "demo", row.name)
		s.await(t, u, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
		s.post(t, "demo", token, row.event)
		s.await(t, u, v1alpha1.ConditionDelivering, metav1.ConditionFalse, v1alpha1.ReasonDisabled)
		s.noDiff(t, text, row.way, row.name+" disabled")
		s.kubectl(t, text, "apply", row.way, "-f", "-")
		s.noDiff(t, text, row.way, row.name+" disabled and applied again")
		s.asWritten(t, cluster.NewManifest(t, row.name, text).Objects[0])
		s.await(t, u, v1alpha1.ConditionDelivering, metav1.ConditionFalse, v1alpha1.ReasonDisabled)
		s.judged(t, u, "Current", "Healthy", "Disabled: The receiver answered 410 Gone")
	}
}

// case CR168: no list can vanish, since an empty one is refused in words wherever a spec has a list.
func emptyLists(t *testing.T, s *site) {
	namespace := s.Namespace(t, "empty")
	for _, row := range []struct{ kind, field, spec string }{
		{"WebhookEndpoint", "eventTypes", "{url: \"https://hooks.example.com/\", eventTypes: []}"},
		{"WebhookEndpoint", "matchAttributes", "{url: \"https://hooks.example.com/\", matchAttributes: []}"},
		{"WebhookEndpoint", "headers", "{url: \"https://hooks.example.com/\", headers: []}"},
		{"WebhookEndpoint", "keys", "{url: \"https://hooks.example.com/\", signing: {keys: []}}"},
		{"RetryPolicy", "schedule", "{backoff: {schedule: []}}"},
		{"DeliveryPool", "allow", "{egress: {allow: []}}"},
	} {
		err := s.Apply(t.Context(), fmt.Sprintf("apiVersion: doorstep.dev/v1alpha1\nkind: %s\nmetadata: {name: empty, namespace: %s}\nspec: %s\n", row.kind, namespace, row.spec))
		if err == nil || !strings.Contains(err.Error(), row.field) {
			t.Errorf("%s with an empty %s is answered %v, want a refusal that names it", row.kind, row.field, err)
		}
	}
}
