package controllers_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
