package controllers_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

func TestAnEndpointBecomesReady(t *testing.T) {
	namespace(t, "first")
	apply(t, `
apiVersion: doorstep.dev/v1alpha1
kind: WebhookEndpoint
metadata: {name: orders, namespace: first}
spec: {url: "https://hooks.example.com/orders?token=s3cret"}
`)
	ready(t, "first", "orders", metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	e := endpoint(t, "first", "orders")
	if e.Status.Host != "hooks.example.com" || e.Status.Pool != "doorstep-system/default" {
		t.Errorf("host %q, pool %q", e.Status.Host, e.Status.Pool)
	}
	if r := e.Status.EffectiveRetry; r == nil || r.Policy != "BuiltIn" || r.Attempts != 7 || r.Span != "36h36m" {
		t.Errorf("effectiveRetry %+v", r)
	}
	var s corev1.Secret
	if err := world.Client.Get(t.Context(), types.NamespacedName{Namespace: "first", Name: "orders-signing"}, &s); err != nil {
		t.Fatal(err)
	}
	if len(s.OwnerReferences) != 0 || !strings.HasPrefix(string(s.Data["key"]), "whsec_") {
		t.Errorf("the Secret has owners %v", s.OwnerReferences)
	}
	keys := e.Status.Signing.Keys
	if len(keys) != 1 || keys[0].Origin != v1alpha1.SigningKeyGenerated || keys[0].SecretName != "orders-signing" || keys[0].Fingerprint == "" {
		t.Errorf("keys %+v", keys)
	}
}

// Where the signing key can't be made, the status says what is missing, an Event says why,
// and both end when it can.
func TestASigningKeyThatCantBeMade(t *testing.T) {
	namespace(t, "full")
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "full", Name: "no-secrets"}}
	quota.Spec.Hard = corev1.ResourceList{corev1.ResourceSecrets: resource.MustParse("0")}
	if err := world.Client.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, quota.Spec.Hard // as Kubernetes counts
	if err := world.Client.Status().Update(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	apply(t, `
apiVersion: doorstep.dev/v1alpha1
kind: WebhookEndpoint
metadata: {name: orders, namespace: full}
spec: {url: "https://hooks.example.com/orders"}
`)
	c := ready(t, "full", "orders", metav1.ConditionFalse, v1alpha1.ReasonSecretNotFound)
	if want := "Secret orders-signing does not exist in namespace full; it is made with a signing key under key"; !strings.Contains(c.Message, want) {
		t.Errorf("message %q, want %q", c.Message, want)
	}
	eventually(t, "an Event says why", func() (bool, string) {
		var list eventsv1.EventList
		if err := world.Client.List(t.Context(), &list, client.InNamespace("full")); err != nil {
			return false, err.Error()
		}
		for i := range list.Items {
			if e := &list.Items[i]; e.Reason == "SigningKeyNotMade" && strings.Contains(e.Note, "exceeded quota: no-secrets") {
				return true, ""
			}
		}
		return false, fmt.Sprintf("none of %d", len(list.Items))
	})
	if err := world.Client.Delete(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	ready(t, "full", "orders", metav1.ConditionTrue, v1alpha1.ReasonAccepted)
}
