package controlplane

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
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

// Once a hundred idle endpoints are Ready, nothing is written but Leases.
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
