package rights

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/controllers"
	"github.com/doorstep-dev/doorstep/test/cluster"
)

// shop is a tenant's namespace, and team a pool in a namespace of its own, beside the installation's default one. Its name
// is one that could be mistaken for that of a worker.
const shop = "shop"

var team = types.NamespacedName{Namespace: "platform", Name: "night-worker"}

// One installation, with a manager that runs and no workers: tests speak for them.
func TestInstallation(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t)
	if err := c.InstallDoorstep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, ns := range []string{shop, team.Namespace} {
		if err := c.EnsureNamespace(t.Context(), ns, nil); err != nil {
			t.Fatal(err)
		}
	}
	c.StartManager(t, binary)
	if err := c.Client.Create(t.Context(), poolNamed(team)); err != nil {
		t.Fatal(err)
	}
	for _, p := range []types.NamespacedName{{Namespace: cluster.System, Name: v1alpha1.DefaultPoolName}, team} {
		awaitRights(t, c, p)
	}
	awaitPolicies(t, c)
	t.Run("what each account can do", func(t *testing.T) { whatEachAccountCanDo(t, c) })
	t.Run("workers see no Secrets", func(t *testing.T) { workersSeeNoSecrets(t, c) })
	t.Run("a worker writes only its own", func(t *testing.T) { aWorkerWritesOnlyItsOwn(t, c) })
	t.Run("the manager writes only its own Secrets", func(t *testing.T) { theManagerWritesOnlyItsOwnSecrets(t, c) })
	t.Run("kinds go only forward", func(t *testing.T) { kindsGoOnlyForward(t, c) })
	t.Run("kinds are kept", func(t *testing.T) { kindsAreKept(t, c) }) // the last: it removes the rest
}

// awaitPolicies waits until admission policies are in force, which they are a moment after they were made.
func awaitPolicies(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	cluster.Eventually(t, patience, "the policies to be in force", func() error {
		_, err := c.Kubectl(t.Context(), "delete", "crd", "retrypolicies.doorstep.dev", "--dry-run=server")
		if err == nil {
			return errors.New("a kind could be deleted")
		}
		return nil
	})
}

// awaitRights waits until the manager has given a pool's worker its rights.
func awaitRights(t *testing.T, c *cluster.Cluster, p types.NamespacedName) {
	t.Helper()
	cluster.Eventually(t, patience, "the worker of "+p.String()+" to have its rights", func() error {
		worker := types.NamespacedName{Namespace: p.Namespace, Name: v1alpha1.WorkerName(p.Name)}
		if err := c.Client.Get(t.Context(), worker, &rbacv1.RoleBinding{}); err != nil {
			return err
		}
		return c.Client.Get(t.Context(), types.NamespacedName{Name: "doorstep-worker:" + p.Namespace + ":" + p.Name}, &rbacv1.ClusterRoleBinding{})
	})
}

func poolNamed(n types.NamespacedName) *v1alpha1.DeliveryPool {
	p := &v1alpha1.DeliveryPool{}
	p.Namespace, p.Name = n.Namespace, n.Name
	return p
}

// Every right of every account and role is written down: a new one shows in a review.
func whatEachAccountCanDo(t *testing.T, c *cluster.Cluster) {
	bind(t, c, "shop/producer", "doorstep-event-producer", shop)
	bind(t, c, "pools", "doorstep-pool-admin", team.Namespace)
	bind(t, c, "prometheus", "doorstep-metrics-reader", "")
	for _, role := range []string{"view", "edit", "admin"} {
		for _, part := range aggregated(t, c, role) {
			bind(t, c, who(role), part, shop)
		}
	}
	people := []struct {
		name string
		who  who
	}{
		{"ServiceAccount doorstep-manager", cluster.System + "/doorstep-manager"},
		{"ServiceAccount default-worker, of pool default in doorstep-system", cluster.System + "/default-worker"},
		{"ServiceAccount night-worker-worker, of pool night-worker in platform", "platform/night-worker-worker"},
		{"ServiceAccount doorstep-viewer", cluster.System + "/doorstep-viewer"},
		{"ServiceAccount doorstep-operator", cluster.System + "/doorstep-operator"},
		{"a ServiceAccount with doorstep-event-producer in a tenant's namespace", "shop/producer"},
		{"what view gains in a tenant's namespace", "view"},
		{"what edit gains in a tenant's namespace", "edit"},
		{"what admin gains in a tenant's namespace", "admin"},
		{"a person with doorstep-pool-admin in platform", "pools"},
		{"a person with doorstep-metrics-reader", "prometheus"},
	}
	places := []place{{"doorstep-system", cluster.System}, {"platform", team.Namespace}, {"a tenant's namespace", shop}, {"kube-system", "kube-system"}}
	golden(t, "rights.txt", listing(t, c, people, places))
}

// workersSeeNoSecrets asks once more, by the question that the API server itself asks, about what matters most.
func workersSeeNoSecrets(t *testing.T, c *cluster.Cluster) {
	asked := 0
	for _, worker := range []who{cluster.System + "/default-worker", "platform/night-worker-worker"} {
		cl := worker.client(t, c)
		for _, namespace := range []string{"", cluster.System, team.Namespace, shop, "kube-system"} {
			for _, name := range []string{"", "orders-signing", "default-planet", "night-planet"} {
				for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"} {
					r := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
						ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Resource: "secrets", Name: name},
					}}
					if err := cl.Create(t.Context(), r); err != nil {
						t.Fatal(err)
					}
					if r.Status.Allowed {
						t.Errorf("%s may %s Secret %q in namespace %q", worker, verb, name, namespace)
					}
					asked++
				}
			}
		}
		err := cl.Get(t.Context(), types.NamespacedName{Namespace: cluster.System, Name: "default-plan"}, &corev1.Secret{})
		if own := worker == cluster.System+"/default-worker"; own == apierrors.IsForbidden(err) {
			t.Errorf("%s reads the plan of pool default: %v", worker, err)
		}
	}
	if asked == 0 {
		t.Error("nothing was asked")
	}
}

// as is a client with the token of a ServiceAccount.
func as(t *testing.T, c *cluster.Cluster, namespace, account string) client.Client {
	t.Helper()
	cfg, err := c.ServiceAccount(t.Context(), namespace, account)
	if err != nil {
		t.Fatal(err)
	}
	cl, err := client.New(cfg, client.Options{Scheme: controllers.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return cl
}
