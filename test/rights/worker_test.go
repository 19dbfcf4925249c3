package rights

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/test/cluster"
)

// refused wants a refusal that says so. Rights and policies answer alike: 403 (a policy's is 422 or 403).
func refused(t *testing.T, what string, err error, words string) {
	t.Helper()
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), words) {
		t.Errorf("%s: error %v, want a refusal that says %q", what, err, words)
	}
}

// endpoint applies an endpoint of a pool (none: it names none) and waits until the manager has noted whose it is.
func endpoint(t *testing.T, c *cluster.Cluster, namespace, name string, pool types.NamespacedName, home string) {
	t.Helper()
	ref := ""
	if pool.Name != "" {
		ref = fmt.Sprintf(", poolRef: {name: %s, namespace: %s}", pool.Name, pool.Namespace)
		home = pool.String()
	}
	if err := c.Apply(t.Context(), fmt.Sprintf("apiVersion: doorstep.dev/v1alpha1\nkind: WebhookEndpoint\nmetadata: {name: %s, namespace: %s}\nspec: {url: \"https://hooks.example.com/\"%s}\n", name, namespace, ref)); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, patience, "the manager to know "+name, func() error {
		var e v1alpha1.WebhookEndpoint
		if err := c.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, &e); err != nil {
			return err
		}
		if e.Status.Pool != home {
			return fmt.Errorf("its pool is %q, want %s", e.Status.Pool, home)
		}
		return nil
	})
}

// write applies a status with server-side apply, as anybody may who has the right.
func write(t *testing.T, cl client.Client, kind, namespace, name, fields string) error {
	t.Helper()
	text := fmt.Sprintf(`{"apiVersion":"doorstep.dev/v1alpha1","kind":%q,"metadata":{"name":%q,"namespace":%q},"status":{%s}}`, kind, name, namespace, fields)
	o := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "doorstep.dev/v1alpha1", Kind: kind}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	return cl.Status().Patch(t.Context(), o, client.RawPatch(types.ApplyPatchType, []byte(text)), client.FieldOwner("doorstep-worker"), client.ForceOwnership)
}

func condition(kind string) string {
	return `"conditions":[{"type":"` + kind + `","status":"True","reason":"Active","message":"","lastTransitionTime":"2026-12-01T00:00:00Z"}]`
}

// What a worker's rights let it touch, policies hold to its own entries of its own pool's endpoints.
func aWorkerWritesOnlyItsOwn(t *testing.T, c *cluster.Cluster) {
	endpoint(t, c, shop, "ours", types.NamespacedName{}, "doorstep-system/default")
	endpoint(t, c, shop, "theirs", team, "")
	byDefault, byTeam := as(t, c, cluster.System, "default-worker"), as(t, c, team.Namespace, v1alpha1.WorkerName(team.Name))

	const otherPool, conditions, entries = "its own pool", "no conditions but its own: Delivering, Healthy", "nothing of a status but conditions, health, deliveries"
	for _, row := range []struct {
		name                  string
		by                    client.Client
		kind, namespace, what string
		fields                string
		words                 string // of the refusal; empty: it is done
	}{
		{"deliveries", byDefault, "WebhookEndpoint", shop, "ours", `"deliveries":{"waiting":1}`, ""},
		{"health", byDefault, "WebhookEndpoint", shop, "ours", `"health":{"score":100},"deliveries":{"waiting":1}`, ""},
		{"Delivering", byDefault, "WebhookEndpoint", shop, "ours", condition("Delivering"), ""},
		{"Healthy", byDefault, "WebhookEndpoint", shop, "ours", condition("Healthy"), ""},
		{"of a pool whose name ends with -worker", byTeam, "WebhookEndpoint", shop, "theirs", `"deliveries":{"waiting":1}`, ""},
		{"of a pool elsewhere", byDefault, "WebhookEndpoint", shop, "theirs", `"deliveries":{"waiting":1}`, otherPool},
		{"of the default pool by another", byTeam, "WebhookEndpoint", shop, "ours", `"deliveries":{"waiting":1}`, otherPool},
		{"Ready", byDefault, "WebhookEndpoint", shop, "ours", condition("Ready"), conditions},
		{"Stalled", byDefault, "WebhookEndpoint", shop, "ours", condition("Stalled"), conditions},
		{"the host", byDefault, "WebhookEndpoint", shop, "ours", `"host":"evil.example.com"`, entries},
		{"whose it is", byDefault, "WebhookEndpoint", shop, "ours", `"pool":"platform/night-worker"`, entries},
		{"the generation", byDefault, "WebhookEndpoint", shop, "ours", `"observedGeneration":7`, entries},
		{"the keys", byDefault, "WebhookEndpoint", shop, "ours", `"signing":{"keys":[{"name":"x","fingerprint":"y"}]}`, entries},
		{"a retry policy", byDefault, "RetryPolicy", shop, "none", `"endpoints":1`, "cannot patch"},

		{"its pool's store", byDefault, "DeliveryPool", cluster.System, "default", `"store":{"usedBytes":1}`, ""},
		{"its pool's pressure", byDefault, "DeliveryPool", cluster.System, "default", condition("StorePressure"), ""},
		{"its pool's Ready", byDefault, "DeliveryPool", cluster.System, "default", condition("Ready"), "no conditions but its own: StorePressure"},
		{"its pool's address", byDefault, "DeliveryPool", cluster.System, "default", `"address":{"url":"http://evil.example.com"}`, "nothing of a status but conditions, store, queue"},
		{"another pool's store", byDefault, "DeliveryPool", team.Namespace, team.Name, `"store":{"usedBytes":1}`, "cannot patch"},
	} {
		err := write(t, row.by, row.kind, row.namespace, row.what, row.fields)
		if row.words != "" {
			refused(t, row.name, err, row.words)
		} else if err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
	}

	t.Run("metadata", func(t *testing.T) { workersChangeNoMetadata(t, c, byDefault) })
	t.Run("more rights", func(t *testing.T) { rightsByMistake(t, c, byDefault) })
	t.Run("a name alone", func(t *testing.T) { aNameAlone(t, c) })
}

// workersChangeNoMetadata tries labels, finalizers and owners, by the object, where RBAC refuses, and by its status, where
// the API server takes nothing but the status.
func workersChangeNoMetadata(t *testing.T, c *cluster.Cluster, worker client.Client) {
	key := types.NamespacedName{Namespace: shop, Name: "ours"}
	var before, after v1alpha1.WebhookEndpoint
	if err := c.Client.Get(t.Context(), key, &before); err != nil {
		t.Fatal(err)
	}
	for _, fields := range []string{
		`"metadata":{"labels":{"a":"b"}}`, `"metadata":{"annotations":{"a":"b"}}`, `"metadata":{"finalizers":["example.com/stay"]}`,
		`"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"y"}]}`, `"spec":{"url":"https://evil.example.com/"}`,
	} {
		patch := client.RawPatch(types.MergePatchType, []byte("{"+fields+"}"))
		refused(t, fields, worker.Patch(t.Context(), before.DeepCopy(), patch), "cannot patch")
		if err := worker.Status().Patch(t.Context(), before.DeepCopy(), patch); err != nil {
			refused(t, fields+" by status", err, "")
		}
	}
	if err := c.Client.Get(t.Context(), key, &after); err != nil {
		t.Fatal(err)
	}
	if after.Generation != before.Generation || len(after.Labels)+len(after.Annotations)+len(after.Finalizers)+len(after.OwnerReferences) > 0 {
		t.Errorf("a worker changed more than status: %+v, spec %+v", after.ObjectMeta, after.Spec)
	}
}

// rightsByMistake gives a worker what no worker should have; the policy holds all the same.
func rightsByMistake(t *testing.T, c *cluster.Cluster, worker client.Client) {
	bind(t, c, cluster.System+"/default-worker", "doorstep-edit", shop)
	e := &v1alpha1.WebhookEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "ours"}}
	const words = "nothing but the status"
	cluster.Eventually(t, patience, "the policy to refuse, rather than RBAC", func() error {
		err := worker.Patch(t.Context(), e.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`)))
		if err == nil || !strings.Contains(err.Error(), words) {
			return fmt.Errorf("a label: error %w, want %s", err, words)
		}
		return nil
	})
	made := &v1alpha1.WebhookEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "made"}, Spec: v1alpha1.WebhookEndpointSpec{URL: "https://hooks.example.com/"}}
	refused(t, "an endpoint", worker.Create(t.Context(), made), words)
}

// aNameAlone makes nobody a worker: a ServiceAccount of a tenant that applies manifests may be called anything.
func aNameAlone(t *testing.T, c *cluster.Cluster) {
	deployer := as(t, c, shop, "deploy-worker")
	bind(t, c, who(shop+"/deploy-worker"), "doorstep-edit", shop)
	cluster.Eventually(t, patience, "it to apply an endpoint", func() error {
		e := &v1alpha1.WebhookEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "deployed"}, Spec: v1alpha1.WebhookEndpointSpec{URL: "https://hooks.example.com/"}}
		return deployer.Create(t.Context(), e)
	})
	refused(t, "a status", write(t, deployer, "WebhookEndpoint", shop, "deployed", `"deliveries":{"waiting":1}`), "cannot patch")
}

// The manager can read Secrets; which it may write is bounded by a policy.
func theManagerWritesOnlyItsOwnSecrets(t *testing.T, c *cluster.Cluster) {
	shop := c.Namespace(t, "secrets")
	manager := as(t, c, cluster.System, "doorstep-manager")
	secret := func(name string, kind corev1.SecretType, labels ...string) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name, Labels: map[string]string{}}, Type: kind}
		for i := 0; i < len(labels); i += 2 {
			s.Labels[labels[i]] = labels[i+1]
		}
		return s
	}
	managed := []string{v1alpha1.LabelManagedBy, v1alpha1.ManagedBy}
	ofPool := slices.Concat(managed, []string{v1alpha1.LabelPool, "p"})
	ofEndpoint := slices.Concat(managed, []string{v1alpha1.LabelEndpoint, "orders"})
	token := secret("orders-signing", corev1.SecretTypeServiceAccountToken, ofEndpoint...)
	token.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
	for _, row := range []struct {
		name string
		s    *corev1.Secret
		ok   bool
	}{
		{"any name", secret("mine", corev1.SecretTypeOpaque), false},
		{"any name, with our label", secret("mine", corev1.SecretTypeOpaque, managed...), false},
		{"a signing key without its endpoint", secret("orders-signing", corev1.SecretTypeOpaque, managed...), false},
		{"a signing key of another endpoint", secret("bills-signing", corev1.SecretTypeOpaque, ofEndpoint...), false},
		{"a ServiceAccount's token as a signing key", token, false},
		{"a signing key", secret("orders-signing", corev1.SecretTypeOpaque, ofEndpoint...), true},
		{"a plan of another type", secret("p-plan", corev1.SecretTypeOpaque, ofPool...), false},
		{"a plan without its pool", secret("p-plan", v1alpha1.PlanSecretType, managed...), false},
		{"a plan of another pool", secret("q-plan", v1alpha1.PlanSecretType, ofPool...), false},
		{"an index", secret("p-plan", v1alpha1.PlanSecretType, ofPool...), true},
		{"a shard", secret("p-plan-07", v1alpha1.PlanSecretType, ofPool...), true},
	} {
		err := manager.Create(t.Context(), row.s)
		if row.ok && err != nil {
			t.Errorf("%s: %v", row.name, err)
		} else if !row.ok {
			refused(t, row.name, err, "the manager writes no Secrets but plans")
		}
	}
	if err := c.Client.Create(t.Context(), secret("theirs", corev1.SecretTypeOpaque)); err != nil {
		t.Fatal(err)
	}
	touch := client.RawPatch(types.MergePatchType, []byte(`{"stringData":{"key":"x"},"metadata":{"labels":{"app.kubernetes.io/managed-by":"doorstep","doorstep.dev/endpoint":"theirs"}}}`))
	for name, ok := range map[string]bool{"theirs": false, "orders-signing": false, "p-plan": true} {
		changed, deleted := manager.Patch(t.Context(), secret(name, ""), touch), manager.Delete(t.Context(), secret(name, ""))
		if ok && (changed != nil || deleted != nil) {
			t.Errorf("%s: changing it: %v; deleting it: %v", name, changed, deleted)
		} else if !ok {
			refused(t, "changing "+name, changed, "the manager writes no Secrets")
			refused(t, "deleting "+name, deleted, "the manager writes no Secrets")
		}
	}
}
