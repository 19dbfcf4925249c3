package rights

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/doorstep-dev/doorstep/test/cluster"
)

// overlay writes kustomizations, by their path in a folder of their own, and returns that folder. CONFIG in them is the
// module's config.
func overlay(t *testing.T, files map[string]string) string {
	t.Helper()
	root, err := cluster.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range files {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		config, err := filepath.Rel(filepath.Dir(path), filepath.Join(root, "config"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "CONFIG", config)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// apply applies a kustomization as an administrator.
func apply(t *testing.T, c *cluster.Cluster, dir string) error {
	t.Helper()
	_, err := c.Kubectl(t.Context(), "apply", "--server-side", "-k", dir)
	return err
}

// An installation in a namespace of another name: kustomize's own `namespace` is all that it takes.
func TestAnotherNamespace(t *testing.T) {
	t.Parallel()
	const home = "hooks"
	c := cluster.Start(t)
	if err := apply(t, c, overlay(t, map[string]string{"kustomization.yaml": "namespace: " + home + "\nresources: [CONFIG/default]\n"})); err != nil {
		t.Fatal(err)
	}
	if err := c.EnsureNamespace(t.Context(), shop, nil); err != nil {
		t.Fatal(err)
	}
	var namespace corev1.Namespace
	if err := c.Client.Get(t.Context(), types.NamespacedName{Name: home}, &namespace); err != nil || namespace.Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
		t.Errorf("the namespace has no Pod Security level: %v, labels %v", err, namespace.Labels)
	}
	c.NewManager(t, binary, home).Restart(t)
	ours := types.NamespacedName{Namespace: home, Name: "default"}
	awaitRights(t, c, ours)
	awaitPolicies(t, c)

	endpoint(t, c, shop, "ours", types.NamespacedName{}, "hooks/default")
	endpoint(t, c, shop, "theirs", types.NamespacedName{Namespace: cluster.System, Name: "default"}, "")
	worker := as(t, c, home, "default-worker")
	if err := write(t, worker, "WebhookEndpoint", shop, "ours", `"deliveries":{"waiting":1}`); err != nil {
		t.Errorf("its own entry: %v", err)
	}
	refused(t, "Ready", write(t, worker, "WebhookEndpoint", shop, "ours", condition("Ready")), "no conditions but its own")
	refused(t, "an endpoint of another pool", write(t, worker, "WebhookEndpoint", shop, "theirs", `"deliveries":{"waiting":1}`), "its own pool")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "mine"}}
	refused(t, "a Secret", as(t, c, home, "doorstep-manager").Create(t.Context(), secret), "the manager writes no Secrets but plans")

	text, err := c.Kubectl(t.Context(), "kustomize", overlay(t, map[string]string{"kustomization.yaml": "namespace: " + home + "\nresources: [CONFIG/rbac, CONFIG/manager, CONFIG/network-policy, CONFIG/policy]\n"}))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, "doorstep-system") {
		t.Errorf("something still speaks of doorstep-system:\n%s", text)
	}
}
