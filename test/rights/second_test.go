package rights

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/doorstep-dev/doorstep/test/cluster"
)

// Of two installations that would look at the same namespaces, the second one does nothing and says why. It starts once the
// first is no more, and whoever is no installation stops none.
func TestASecondInstallation(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t)
	if err := c.InstallDoorstep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.EnsureNamespace(t.Context(), shop, nil); err != nil {
		t.Fatal(err)
	}
	// A tenant says to be an installation, even before the real one.
	if err := c.Client.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "doorstep-installation"},
		Data:       map[string]string{"account": "doorstep-manager", "namespaces": "*"},
	}); err != nil {
		t.Fatal(err)
	}
	first := c.StartManager(t, binary)
	endpoint(t, c, shop, "before", types.NamespacedName{}, "doorstep-system/default")
	awaitPolicies(t, c)

	// By its manifests, in another namespace.
	err := apply(t, c, overlay(t, map[string]string{"kustomization.yaml": "namespace: second\nresources: [CONFIG/default]\n"}))
	const words = "the Doorstep in namespace doorstep-system has these rights in all namespaces"
	for _, name := range []string{"doorstep-manager", "doorstep-viewer", "doorstep-operator"} {
		if err == nil || !strings.Contains(err.Error(), words) || !strings.Contains(err.Error(), "delete the ClusterRoleBinding "+name+" first") {
			t.Errorf("a second installation's binding %s: %v, want a refusal that says %q", name, err, words)
		}
	}
	if err := c.EnsureNamespace(t.Context(), "second", nil); err != nil {
		t.Fatal(err)
	}
	second := c.NewManager(t, binary, "second", "--default-pool=none")
	endsSaying(t, second, "lacks the rights of one")

	// By rights of another name, as when somebody renames what they apply.
	grant := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "second-manager"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "doorstep-manager"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "second", Name: "doorstep-manager"}},
	}
	if err := c.Client.Create(t.Context(), grant); err != nil {
		t.Fatal(err)
	}
	since, err := c.Mark()
	if err != nil {
		t.Fatal(err)
	}
	endsSaying(t, second, "the installation in namespace doorstep-system, which is older, looks at all namespaces")
	endsSaying(t, c.NewManager(t, binary, "second", "--watch-namespaces=shop"), "the installation in namespace doorstep-system, which is older, looks at namespace second")
	writes, err := c.Writes(since)
	if err != nil {
		t.Fatal(err)
	}
	writes = slices.DeleteFunc(writes, func(r cluster.Request) bool {
		return r.User != "system:serviceaccount:second:doorstep-manager" || r.Name == "doorstep-installation"
	})
	if len(writes) > 0 {
		t.Errorf("the second installation wrote: %v", cluster.Tally(writes, cluster.Request.String))
	}

	// The first one is not disturbed, nor by a restart.
	endpoint(t, c, shop, "after", types.NamespacedName{}, "doorstep-system/default")
	first.Restart(t)

	// Once it is removed, the way is free.
	first.Kill()
	if _, err := c.Kubectl(t.Context(), "delete", "clusterrolebinding", "doorstep-manager"); err != nil {
		t.Fatal(err)
	}
	second.Restart(t)
	endpoint(t, c, shop, "last", types.NamespacedName{}, "second/default")
}

// endsSaying starts a manager that ends by itself, with a word of why.
func endsSaying(t *testing.T, m *cluster.Manager, words string) {
	t.Helper()
	m.Launch(t)
	cluster.Eventually(t, patience, "the manager to end", func() error {
		if m.Running() {
			return fmt.Errorf("it runs; its last lines:\n%s", m.Tail())
		}
		return nil
	})
	if !strings.Contains(m.Tail(), words) {
		t.Errorf("the manager ended without %q; its last lines:\n%s", words, m.Tail())
	}
}
