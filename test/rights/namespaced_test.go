package rights

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/test/cluster"
)

// An installation that looks at namespaces a and b, from one called hooks, as docs/install.md has it; and at no c.
var namespaced = map[string]string{
	"kustomization.yaml": `resources: [installation, a, b]
components: [CONFIG/namespaced/elsewhere]
patches:
- target: {kind: Deployment, name: doorstep-manager}
  patch: |-
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: "--watch-namespaces=a,b"}
`,
	"installation/kustomization.yaml": "namespace: hooks\nresources: [CONFIG/namespaced]\n",
	"a/kustomization.yaml":            "namespace: a\nresources: [CONFIG/namespaced/watched]\n",
	"b/kustomization.yaml":            "namespace: b\nresources: [CONFIG/namespaced/watched]\n",
}

func TestNamespacesOfItsOwn(t *testing.T) {
	t.Parallel()
	const home = "hooks"
	c := cluster.Start(t)
	for _, ns := range []string{"a", "b", "c"} {
		if err := c.EnsureNamespace(t.Context(), ns, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := apply(t, c, overlay(t, namespaced)); err != nil {
		t.Fatal(err)
	}
	pool := c.RunPool(t, binary, types.NamespacedName{Namespace: home, Name: "default"})
	manager := c.NewManager(t, binary, home, "--watch-namespaces=a,b")
	manager.Restart(t)

	const text = "---\napiVersion: doorstep.dev/v1alpha1\nkind: WebhookEndpoint\nmetadata: {name: %s, namespace: %s}\nspec: {%s}\n"
	const url = `url: "https://hooks.example.com/"`
	if err := c.Apply(t.Context(), fmt.Sprintf(text, "orders", "a", url)+fmt.Sprintf(text, "orders", "b", url)+fmt.Sprintf(text, "orders", "c", url)+
		// What lies where it can't look is as good as not there, and hinders nothing else.
		fmt.Sprintf(text, "service", "a", "serviceRef: {name: receiver, namespace: c, port: 80}")+
		fmt.Sprintf(text, "pool", "b", url+", poolRef: {name: default, namespace: c}")); err != nil {
		t.Fatal(err)
	}
	pool.WaitReady(t, patience)
	for _, ns := range []string{"a", "b"} {
		awaitReady(t, c, ns, "orders", metav1.ConditionTrue)
	}
	awaitReady(t, c, "a", "service", metav1.ConditionFalse)
	awaitReady(t, c, "b", "pool", metav1.ConditionFalse)

	t.Run("rights", func(t *testing.T) {
		people := []struct {
			name string
			who  who
		}{
			{"ServiceAccount doorstep-manager", home + "/doorstep-manager"},
			{"ServiceAccount default-worker", home + "/default-worker"},
			{"ServiceAccount doorstep-viewer", home + "/doorstep-viewer"},
			{"ServiceAccount doorstep-operator", home + "/doorstep-operator"},
		}
		golden(t, "rights-namespaced.txt", listing(t, c, people, []place{{"its own namespace", home}, {"a namespace that is watched", "a"}, {"one that is not", "c"}}))
		by := as(t, c, home, "doorstep-manager")
		if err := by.List(t.Context(), &corev1.SecretList{}); !apierrors.IsForbidden(err) {
			t.Errorf("the manager lists all Secrets: %v", err)
		}
	})
	t.Run("ingest asks who calls", func(t *testing.T) {
		bind(t, c, "a/producer", "doorstep-event-producer", "a")
		if _, err := c.ServiceAccount(t.Context(), "a", "producer"); err != nil {
			t.Fatal(err)
		}
		token, err := c.Token(t.Context(), "a", "producer", v1alpha1.TokenAudience)
		if err != nil {
			t.Fatal(err)
		}
		cluster.Eventually(t, patience, "an event to be taken", func() error { return post(t, pool.Ingest(), "a", token, http.StatusAccepted) })
		if err := post(t, pool.Ingest(), "b", token, http.StatusForbidden); err != nil {
			t.Error(err)
		}
	})

	var ignored v1alpha1.WebhookEndpoint
	if err := c.Client.Get(t.Context(), types.NamespacedName{Namespace: "c", Name: "orders"}, &ignored); err != nil {
		t.Fatal(err)
	}
	if ignored.Status.ObservedGeneration > 0 || ignored.Status.Pool != "" {
		t.Errorf("the endpoint in c has status %+v", ignored.Status)
	}
	writes, err := c.Writes(0)
	if err != nil {
		t.Fatal(err)
	}
	writes = slices.DeleteFunc(writes, func(r cluster.Request) bool {
		return r.Namespace != "c" || !strings.HasPrefix(r.User, "system:serviceaccount:"+home+":")
	})
	if len(writes) > 0 {
		t.Errorf("in c was written: %v", cluster.Tally(writes, cluster.Request.String))
	}
	if lines := manager.Log.Lines("level=ERROR"); len(lines) > 0 {
		t.Errorf("the manager complains: %s", strings.Join(lines, "\n"))
	}
	t.Run("another one", func(t *testing.T) { anotherOfItsOwn(t, c) })
}

// anotherOfItsOwn is a second such installation. It can have c, and not what the first one has.
func anotherOfItsOwn(t *testing.T, c *cluster.Cluster) {
	files := map[string]string{
		"kustomization.yaml":              "resources: [installation, a]\ncomponents: [CONFIG/namespaced/elsewhere]\n",
		"installation/kustomization.yaml": "namespace: other\nresources: [CONFIG/namespaced]\n",
		"a/kustomization.yaml":            "namespace: a\nresources: [CONFIG/namespaced/watched]\n",
	}
	awaitPolicies(t, c)
	const words = "the Doorstep in namespace hooks has these rights here"
	if err := apply(t, c, overlay(t, files)); err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "ClusterRoleBinding") {
		t.Errorf("rights in a: %v, want a refusal that says %q, and none for the cluster", err, words)
	}
	files["a/kustomization.yaml"] = "namespace: c\nresources: [CONFIG/namespaced/watched]\n"
	if err := apply(t, c, overlay(t, files)); err != nil {
		t.Fatal(err)
	}
	endsSaying(t, c.NewManager(t, binary, "other", "--watch-namespaces=b,c"), "the installation in namespace hooks, which is older, looks at namespace b")
	c.NewManager(t, binary, "other", "--watch-namespaces=c").Restart(t)
}

// awaitReady waits for an endpoint's Ready.
func awaitReady(t *testing.T, c *cluster.Cluster, namespace, name string, want metav1.ConditionStatus) {
	t.Helper()
	cluster.Eventually(t, patience, namespace+"/"+name+" to be Ready="+string(want), func() error {
		var e v1alpha1.WebhookEndpoint
		if err := c.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, &e); err != nil {
			return err
		}
		for _, cond := range e.Status.Conditions {
			if cond.Type == v1alpha1.ConditionReady {
				if cond.Status == want {
					return nil
				}
				return fmt.Errorf("it is %s, %s: %s", cond.Status, cond.Reason, cond.Message)
			}
		}
		return errors.New("it has no Ready")
	})
}

// post sends an event with a token.
func post(t *testing.T, ingest, namespace, token string, want int) error {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+ingest+"/v1/namespaces/"+namespace+"/events", strings.NewReader(`{"id":"evt_1","type":"order.created","data":{}}`))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != want {
		return fmt.Errorf("an event of namespace %s is answered %s, want %d", namespace, resp.Status, want)
	}
	return nil
}
