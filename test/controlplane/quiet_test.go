package controlplane

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	apply "github.com/doorstep-dev/doorstep/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/controllers"
	"github.com/doorstep-dev/doorstep/test/cluster"
)

var defaultPool = types.NamespacedName{Namespace: cluster.System, Name: v1alpha1.DefaultPoolName}

// manifestOf is an endpoint that nothing is sent to.
func manifestOf(namespace, name string) string {
	return fmt.Sprintf("---\napiVersion: doorstep.dev/v1alpha1\nkind: WebhookEndpoint\nmetadata: {name: %s, namespace: %s}\nspec: {url: \"https://hooks.example.com/\"}\n", name, namespace)
}

// notReady names an endpoint of a namespace that is not Ready.
func notReady(t *testing.T, c *cluster.Cluster, namespace string, want int) error {
	var list v1alpha1.WebhookEndpointList
	if err := c.Client.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
		return err
	}
	ready := 0
	var last error
	for i := range list.Items {
		e := &list.Items[i]
		for _, cond := range e.Status.Conditions {
			switch {
			case cond.Type != v1alpha1.ConditionReady:
			case cond.Status == metav1.ConditionTrue && e.Status.ObservedGeneration == e.Generation:
				ready++
			default:
				last = fmt.Errorf("%s: %s %s", e.Name, cond.Reason, cond.Message)
			}
		}
	}
	if ready == want {
		return nil
	}
	return fmt.Errorf("%d of %d are Ready: %w", ready, want, last)
}

// Once a hundred idle endpoints are Ready, nothing is written but Leases. And the worker, by
// its rights, touches nothing but its own.
func TestAQuietClusterSeesNoWrites(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t)
	if err := c.InstallDoorstep(t.Context()); err != nil {
		t.Fatal(err)
	}
	pool := c.RunPool(t, binary, defaultPool)
	c.StartManager(t, binary)
	pool.WaitReady(t, time.Minute)
	namespace := c.Namespace(t, "shop")
	var manifests strings.Builder
	for i := range 100 {
		manifests.WriteString(manifestOf(namespace, fmt.Sprintf("e%03d", i)))
	}
	if err := c.Apply(t.Context(), manifests.String()); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, 2*time.Minute, "a hundred endpoints to be Ready", func() error { return notReady(t, c, namespace, 100) })

	t.Run("rights", func(t *testing.T) { workersRights(t, c, namespace) })

	quiet := func(of time.Duration) []cluster.Request {
		t.Helper()
		since, err := c.Mark()
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(of)
		writes, err := c.Writes(since)
		if err != nil {
			t.Fatal(err)
		}
		return writes
	}
	quiet(time.Minute)
	var other []cluster.Request
	for _, w := range quiet(time.Minute) {
		if w.Resource != "leases" && strings.HasPrefix(w.User, "system:serviceaccount:"+cluster.System+":d") {
			other = append(other, w)
		}
	}
	if len(other) > 0 {
		t.Errorf("in a quiet minute were written: %v", cluster.Tally(other, cluster.Request.String))
	}
}

// workersRights shows what the ServiceAccount of a worker can't do.
func workersRights(t *testing.T, c *cluster.Cluster, namespace string) {
	config, err := c.ServiceAccount(t.Context(), cluster.System, v1alpha1.WorkerName(defaultPool.Name))
	if err != nil {
		t.Fatal(err)
	}
	worker, err := client.New(config, client.Options{Scheme: controllers.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	forbidden := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: error %v, want a refusal", what, err)
		}
	}
	forbidden("a tenant's Secret", worker.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "e000-signing"}, &corev1.Secret{}))
	forbidden("all Secrets of its namespace", worker.List(t.Context(), &corev1.SecretList{}, client.InNamespace(cluster.System)))
	forbidden("all endpoints", worker.List(t.Context(), &v1alpha1.WebhookEndpointList{}))
	write := func(s *apply.WebhookEndpointStatusApplyConfiguration, name string) error {
		return worker.Status().Apply(t.Context(), apply.WebhookEndpoint(name, namespace).WithStatus(s), client.FieldOwner("other"), client.ForceOwnership)
	}
	forbidden("the manager's host", write(apply.WebhookEndpointStatus().WithHost("evil.example.com"), "e000"))

	if err := c.Apply(t.Context(), "apiVersion: doorstep.dev/v1alpha1\nkind: WebhookEndpoint\nmetadata: {name: foreign, namespace: "+namespace+
		"}\nspec: {url: \"https://hooks.example.com/\", poolRef: {name: other, namespace: "+cluster.System+"}}\n"); err != nil {
		t.Fatal(err)
	}
	forbidden("an endpoint of another pool", write(apply.WebhookEndpointStatus().WithDeliveries(apply.EndpointDeliveries().WithWaiting(7)), "foreign"))
	if err := write(apply.WebhookEndpointStatus().WithDeliveries(apply.EndpointDeliveries().WithWaiting(0)), "e000"); err != nil {
		t.Errorf("its own entry of its own pool's endpoint: %v", err)
	}

	managerConfig, err := c.ServiceAccount(t.Context(), cluster.System, "doorstep-manager")
	if err != nil {
		t.Fatal(err)
	}
	manager, err := client.New(managerConfig, client.Options{Scheme: controllers.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	forbidden("any other Secret by the manager", manager.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mine"}}))
	if err := c.Client.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "theirs"}}); err != nil {
		t.Fatal(err)
	}
	forbidden("a foreign Secret removed by the manager", manager.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "theirs"}}))
}
