package gitops

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/doorstep-dev/doorstep/test/cluster"
)

// case GO188, GO189: what would take users' objects, or the volumes of pools, along when an installation is removed or
// pruned bears the marks by which tools keep it.
func kept(t *testing.T, s *site) {
	seen := 0
	for _, o := range cluster.NewManifest(t, "config/default", s.kubectl(t, "", "kustomize", "config/default")).Objects {
		if o.GetKind() != "CustomResourceDefinition" && o.GetKind() != "Namespace" {
			continue
		}
		seen++
		marks := o.GetAnnotations()
		options := strings.Split(marks["argocd.argoproj.io/sync-options"], ",")
		for _, want := range []string{"Prune=false", "Delete=false"} {
			if !slices.Contains(options, want) {
				t.Errorf("%s %s has options %v for Argo CD, not %s", o.GetKind(), o.GetName(), options, want)
			}
		}
		if marks["kustomize.toolkit.fluxcd.io/prune"] != "disabled" || marks["helm.sh/resource-policy"] != "keep" {
			t.Errorf("%s %s has annotations %v", o.GetKind(), o.GetName(), marks)
		}
	}
	if seen != 4 {
		t.Errorf("%d kinds and namespaces were found, want 3 and 1", seen)
	}
}

// The health scripts are added to what Argo CD's ConfigMap has, as docs/gitops.md says.
func patched(t *testing.T, s *site) {
	if err := s.EnsureNamespace(t.Context(), "argocd", nil); err != nil {
		t.Fatal(err)
	}
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "argocd", Name: "argocd-cm"}, Data: map[string]string{"url": "https://argocd.example.com"}}
	if err := s.Client.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	s.kubectl(t, "", "-n", "argocd", "patch", "configmap", "argocd-cm", "--patch-file", "config/argocd/argocd-cm.yaml")
	if err := s.Client.Get(t.Context(), types.NamespacedName{Namespace: "argocd", Name: "argocd-cm"}, theirs); err != nil {
		t.Fatal(err)
	}
	if len(theirs.Data) != 4 || theirs.Data["url"] == "" {
		t.Errorf("afterwards it has %d entries, and url %q", len(theirs.Data), theirs.Data["url"])
	}
}
