package v1alpha1_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/test/cluster"
	"github.com/doorstep-dev/doorstep/test/harness"
)

// What is applied is what is stored, whoever applies it and how: durations in the author's units (case CR166), defaults
// and falsehoods written out (case CR168). An empty list is refused in words (rows "no event types", "no keys" …), so that
// none can vanish.
func TestSpecIsStoredAsWritten(t *testing.T) {
	c := cluster.Shared(t)
	for kind, spec := range map[string]string{
		"WebhookEndpoint": "url: https://hooks.example.com/orders\ntimeout: 00015s\nmaxInFlight: 16\nsuspend: false\nordering: None\nbody: Event\n" +
			"signing: {scheme: StandardWebhooks, rotationOverlap: 1h30m}\nrateLimit: {requests: 100, interval: 1000ms, burst: 100}",
		"RetryPolicy": "backoff: {schedule: [90s, 24h, 1h30m]}\nmaxAge: 72h\njitter: {type: Proportional, percent: 10}\n" +
			"retryAfter: {policy: Honor, max: 360m}\nonRecovery: Expedite",
		"DeliveryPool": "store: {type: Embedded, embedded: {size: 10Gi, accessMode: ReadWriteOnce}}\nreplicas: 1\nupdatePolicy: Automatic\n" +
			"allowedNamespaces: {from: All}\ningest: {dedupeWindow: 1440m}\nretention: {delivered: 168h, deadLetters: 720h}",
	} {
		t.Run(kind, func(t *testing.T) {
			obj := object(t, kind, "as-written", spec)
			namespace := c.Namespace(t, "stored")
			obj["metadata"].(map[string]any)["namespace"] = namespace
			text, err := json.Marshal(obj)
			if err != nil {
				t.Fatal(err)
			}
			stored := &unstructured.Unstructured{}
			stored.SetAPIVersion("doorstep.dev/v1alpha1")
			stored.SetKind(kind)
			kubectl := c.As(c.AdminKubeconfig())
			kubectl.Stdin = string(text)
			for _, how := range []string{"--server-side=false", "--server-side"} {
				if _, err := kubectl.Run(t.Context(), "apply", how, "-f", "-"); err != nil {
					t.Fatal(err)
				}
				if err := c.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "as-written"}, stored); err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(stored.Object["spec"], obj["spec"]) {
					t.Errorf("%s: stored %v, want %v", how, stored.Object["spec"], obj["spec"])
				}
				if _, err := kubectl.Run(t.Context(), "diff", how, "-f", "-"); err != nil {
					t.Errorf("%s: a difference after it was applied: %v", how, err)
				}
			}
		})
	}
}

// case CR169: objects that were stored before the rules of today, and break them, can be labelled, freed of a finalizer
// and deleted; fields that break nothing can still be changed where no rule spans them.
func TestStoredObjectsOutliveNewRules(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t)
	ctx := t.Context()
	rows := []struct{ name, kind, object, spec, change string }{
		{"a URL of another scheme", "WebhookEndpoint", "orders", "url: ftp://user@hooks.example.com/#top", `{"spec":{"maxInFlight":3}}`},
		{"two addresses", "WebhookEndpoint", "two", "url: https://a.example\nurlFrom: {secretKeyRef: {name: a, key: b}}", ""},
		{"lists and texts out of bounds", "WebhookEndpoint", "bounds",
			"url: https://a.example\neventTypes: [" + strings.Join(numbered("t", 101), ", ") + "]\ntimeout: 90s\nordering: Sometimes", `{"spec":{"maxInFlight":3}}`},
		{"a name that is too long", "WebhookEndpoint", strings.Repeat("a", 64), "url: https://a.example", `{"spec":{"maxInFlight":3}}`},
		{"a schedule without end", "RetryPolicy", "patient", "backoff: {schedule: [" + strings.Repeat("1s, ", 100) + "1s]}\nmaxAge: 0s", `{"spec":{"onRecovery":"Wait"}}`},
		{"both kinds of back-off", "RetryPolicy", "both", "backoff: {schedule: [1s], exponential: {initial: 1s, factor: 2, max: 5s, maxAttempts: 3}}", `{"spec":{"onRecovery":"Wait"}}`},
		{"a pool with a dot and two workers", "DeliveryPool", "a.b", "replicas: 2\nstore: {type: Embedded, embedded: {size: 1Mi}}", `{"spec":{"networkPolicy":"None"}}`},
	}

	definitions := loosen(t, c)
	for _, row := range rows {
		obj := storedObject(t, row.kind, row.object, row.spec)
		obj.SetFinalizers([]string{"example.com/wait"})
		await(t, "an API server without rules", func() error { return c.Client.Create(ctx, obj) })
	}
	for _, definition := range definitions {
		current := &apiextensionsv1.CustomResourceDefinition{}
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(definition), current); err != nil {
			t.Fatal(err)
		}
		current.Spec = definition.Spec
		if err := c.Client.Update(ctx, current); err != nil {
			t.Fatal(err)
		}
		await(t, "an API server with the rules", func() error {
			probe := storedObject(t, definition.Spec.Names.Kind, strings.Repeat("p", 64), "{}")
			if err := c.Client.Create(ctx, probe, client.DryRunAll); !apierrors.IsInvalid(err) {
				return fmt.Errorf("a name of 64 characters is answered %v", err)
			}
			return nil
		})
	}

	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			obj := storedObject(t, row.kind, row.object, row.spec)
			patches := []string{`{"metadata":{"labels":{"team":"shop"}}}`, row.change, `{"metadata":{"finalizers":null}}`}
			for _, patch := range patches {
				if patch == "" {
					continue
				}
				if err := c.Client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
					t.Errorf("patch %s: %v", patch, err)
				}
			}
			if err := c.Client.Delete(ctx, obj); err != nil {
				t.Error(err)
			}
			if err := c.Client.Get(ctx, client.ObjectKeyFromObject(obj), obj); !apierrors.IsNotFound(err) {
				t.Errorf("after it was deleted: %v", err)
			}
		})
	}
}

func storedObject(t *testing.T, kind, name, spec string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{Object: object(t, kind, name, spec)}
	u.SetNamespace("default")
	return u
}

// await calls do until it has no error.
func await(t *testing.T, what string, do func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var last error
	err := harness.Await(ctx, 50*time.Millisecond, what, func() (bool, error) {
		last = do()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%v: %v", err, last)
	}
}

// loosen takes all rules out of the CRDs, as if an older release without any were installed, and returns the CRDs as they
// were.
func loosen(t *testing.T, c *cluster.Cluster) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	var list apiextensionsv1.CustomResourceDefinitionList
	if err := c.Client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 3 {
		t.Fatalf("%d CRDs are installed, want 3", len(list.Items))
	}
	var originals []*apiextensionsv1.CustomResourceDefinition
	for i := range list.Items {
		definition := &list.Items[i]
		originals = append(originals, definition.DeepCopy())
		loosenSchema(definition.Spec.Versions[0].Schema.OpenAPIV3Schema)
		if err := c.Client.Update(t.Context(), definition); err != nil {
			t.Fatal(err)
		}
	}
	return originals
}

// loosenSchema leaves a schema nothing but its types and what is required, which the keys of lists must be.
func loosenSchema(s *apiextensionsv1.JSONSchemaProps) {
	s.XValidations, s.Enum, s.Pattern, s.Format = nil, nil, "", ""
	s.MinLength, s.MaxLength, s.MinItems, s.MaxItems, s.MinProperties, s.MaxProperties = nil, nil, nil, nil, nil, nil
	s.Minimum, s.Maximum, s.OneOf, s.AnyOf, s.AllOf = nil, nil, nil, nil, nil
	for name, property := range s.Properties {
		loosenSchema(&property)
		s.Properties[name] = property
	}
	if s.Items != nil && s.Items.Schema != nil {
		loosenSchema(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		loosenSchema(s.AdditionalProperties.Schema)
	}
}
