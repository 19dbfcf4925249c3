package gitops

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/test/cluster"
)

// case GO186: two GitOps tools that apply one object, and Doorstep that writes its status, get along without forcing
// anything: each tool's next pass is no conflict and no change.
func twoTools(t *testing.T, s *site) {
	namespace := s.Namespace(t, "two-tools")
	text := fmt.Sprintf("apiVersion: doorstep.dev/v1alpha1\nkind: WebhookEndpoint\nmetadata: {name: orders, namespace: %s, labels: {team: shop}}\n"+
		"spec: {url: \"https://hooks.example.com/\", eventTypes: [order.*], maxInFlight: 4}\n", namespace)
	tools := []string{"argocd-controller", "kustomize-controller"}
	u := object("WebhookEndpoint", namespace, "orders")
	pass := func() {
		for _, tool := range tools {
			s.kubectl(t, text, "apply", serverSide, "--field-manager="+tool, "-f", "-")
		}
	}
	pass()
	s.await(t, u, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	s.await(t, u, v1alpha1.ConditionDelivering, metav1.ConditionTrue, v1alpha1.ReasonActive)
	pass()
	s.get(t, u)
	if u.GetGeneration() != 1 {
		t.Errorf("its generation is %d after nothing was changed", u.GetGeneration())
	}
	ownsItsOwn(t, u)
	for _, entry := range u.GetManagedFields() {
		if entry.Subresource == "" && !slices.Contains(tools, entry.Manager) {
			t.Errorf("%s owns %s, which only the tools applied", entry.Manager, entry.FieldsV1.GetRawString())
		}
	}
	s.noDiff(t, text, serverSide, "after two passes of each tool")
}

// case GO186: the pool that the manager has made for an installation becomes its owner's by being applied, in either way and
// without force, and stays as it was applied.
func adopted(t *testing.T, s *site) {
	text := demo(t, "pool.yaml")
	s.noDiff(t, text, serverSide, "after it was adopted")
	s.kubectl(t, text, "apply", serverSide, "-f", "-")
	u := object("DeliveryPool", cluster.DefaultPool.Namespace, cluster.DefaultPool.Name)
	s.await(t, u, v1alpha1.ConditionStorePressure, metav1.ConditionFalse, v1alpha1.ReasonEnoughSpace)
	s.noDiff(t, text, serverSide, "with the worker's part of its status")
	s.judged(t, u, "Current", "Healthy", "Accepted: ")
	for _, entry := range u.GetManagedFields() {
		// The manager has made an empty spec, and owns that there is one, but no field of it.
		if entry.Subresource == "" && entry.Manager == v1alpha1.FieldOwnerManager && entry.FieldsV1.GetRawString() != `{"f:spec":{}}` {
			t.Errorf("the manager owns %s", entry.FieldsV1.GetRawString())
		}
	}
}
