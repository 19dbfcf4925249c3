package rights

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/test/cluster"
)

const crd = "webhookendpoints.doorstep.dev"

// Nobody, not even an administrator, replaces kinds by older ones without meaning to.
func kindsGoOnlyForward(t *testing.T, c *cluster.Cluster) {
	var kind apiextensionsv1.CustomResourceDefinition
	if err := c.Client.Get(t.Context(), types.NamespacedName{Name: crd}, &kind); err != nil {
		t.Fatal(err)
	}
	annotate := func(value string) error {
		_, err := c.Kubectl(t.Context(), "annotate", "--overwrite", "crd", crd, "doorstep.dev/crd-revision"+value)
		return err
	}
	older := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "can't be replaced by older ones") {
			t.Errorf("%s: %v, want a refusal that says what to do", what, err)
		}
	}
	older("an older revision", annotate("=1"))
	older("none", annotate("-"))
	older("no number", annotate("=x"))
	older("the bare files", c.Install(t.Context(), "config/crd/doorstep.dev_webhookendpoints.yaml"))
	if err := annotate("=9999"); err != nil {
		t.Errorf("a later revision: %v", err)
	}
	older("this one after a later one", c.Install(t.Context(), "config/crd"))
}

// case GO189: removing one installation keeps the kinds, and so the endpoints of every other.
func kindsAreKept(t *testing.T, c *cluster.Cluster) {
	var kind apiextensionsv1.CustomResourceDefinition
	if err := c.Client.Get(t.Context(), types.NamespacedName{Name: crd}, &kind); err != nil {
		t.Fatal(err)
	}
	for annotation, value := range map[string]string{
		"helm.sh/resource-policy": "keep", "kustomize.toolkit.fluxcd.io/prune": "disabled", "argocd.argoproj.io/sync-options": "Prune=false,Delete=false,ServerSideApply=true",
	} {
		if kind.Annotations[annotation] != value {
			t.Errorf("annotation %s is %q, want %q", annotation, kind.Annotations[annotation], value)
		}
	}

	endpoint(t, c, shop, "kept", types.NamespacedName{}, "doorstep-system/default")
	_, err := c.Kubectl(t.Context(), "delete", "-k", "config/default", "--wait=false")
	if err == nil || !strings.Contains(err.Error(), "delete ValidatingAdmissionPolicyBinding doorstep-crd-keep first") {
		t.Errorf("removing an installation as a whole: %v, want that its kinds are kept", err)
	}
	if err := c.Client.Get(t.Context(), types.NamespacedName{Namespace: shop, Name: "kept"}, &v1alpha1.WebhookEndpoint{}); err != nil {
		t.Errorf("the endpoint went with an installation: %v", err)
	}
}
