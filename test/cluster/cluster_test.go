package cluster

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/test/harness"
)

func TestAssetsAreNamedOrTheRemedyIs(t *testing.T) {
	for _, row := range []struct{ name, value, want string }{
		{"unset", "", "KUBEBUILDER_ASSETS is not set, so there is no API server to test with: run make test, or set it first: export KUBEBUILDER_ASSETS=$(hack/envtest.sh)"},
		{"an empty folder", t.TempDir(), "where kube-apiserver is missing: run make test, or set it first"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Setenv(assetsVariable, row.value)
			if _, err := New(); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("error %v, want %q", err, row.want)
			}
		})
	}
}

// The API server knows the kinds, RBAC is on, kubectl works, and each request is in the record.
func TestControlPlane(t *testing.T) {
	c := Shared(t)
	ctx := t.Context()
	namespace := c.Namespace(t, "shop")
	mark, err := c.Mark()
	if err != nil {
		t.Fatal(err)
	}
	const manifest = "apiVersion: doorstep.dev/v1alpha1\nkind: WebhookEndpoint\nmetadata: {name: orders, namespace: %}\nspec: {url: https://hooks.example.com/orders}\n"
	if err := c.Apply(ctx, strings.ReplaceAll(manifest, "%", namespace)); err != nil {
		t.Fatal(err)
	}
	var endpoint v1alpha1.WebhookEndpoint
	key := client.ObjectKey{Namespace: namespace, Name: "orders"}
	if err := c.Client.Get(ctx, key, &endpoint); err != nil {
		t.Fatal(err)
	}

	writes, err := c.Writes(mark)
	if err != nil {
		t.Fatal(err)
	}
	want := "patch webhookendpoints " + namespace + "/orders by admin: 201"
	if got := Tally(writes, Request.String); len(got) != 1 || got[want] != 1 {
		t.Errorf("writes %v, want one: %s", got, want)
	}

	kubeconfig, err := c.ServiceAccountKubeconfig(ctx, namespace, "nobody")
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.As(kubeconfig).Run(ctx, "get", "webhookendpoints", "-n", namespace)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(err.Error(), "system:serviceaccount:"+namespace+":nobody\" cannot list") {
		t.Errorf("a ServiceAccount without rights got %v, want that it can't list", err)
	}
}

func TestInstall(t *testing.T) {
	t.Parallel()
	c := Start(t)
	if err := c.Install(t.Context(), "config/crd"); err != nil {
		t.Errorf("a kustomization: %v", err)
	}
	if err := c.EnsureNamespace(t.Context(), "doorstep-system", nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Install(t.Context(), "config/policy/nowhere"); err == nil {
		t.Error("a folder that is not there was installed")
	}
}

// The API server goes away, by request and by force, and comes back on its port with all that it knew; tokens and
// certificates are as good as before.
func TestAPIServerAway(t *testing.T) {
	t.Parallel()
	c := Start(t)
	ctx := t.Context()
	cfg, err := c.ServiceAccount(ctx, "default", "visitor")
	if err != nil {
		t.Fatal(err)
	}
	visitor, err := client.New(cfg, client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	for name, stop := range map[string]func() error{"stopped": c.StopAPI, "killed": c.KillAPI} {
		kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
		if err := c.Client.Create(ctx, kept); err != nil {
			t.Fatal(err)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(kept), kept); err == nil {
			t.Errorf("%s: it answers", name)
		}
		if err := c.StartAPI(); err != nil {
			t.Fatal(err)
		}
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(kept), kept); err != nil {
			t.Errorf("%s and started again: %v", name, err)
		}
		if err := visitor.List(ctx, &corev1.ConfigMapList{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s and started again: a ServiceAccount got %v, want forbidden", name, err)
		}
	}
}

// When the test program ends, however it does, nothing of a control plane stays.
func TestNothingStays(t *testing.T) {
	t.Parallel()
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := c.reaper.pid("etcd")
	if err != nil {
		t.Fatal(err)
	}
	c.reaper.process.CloseInput() // as the end of this program would
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err = harness.Await(ctx, 10*time.Millisecond, "etcd to end and the folder to go", func() (bool, error) {
		_, dirErr := os.Stat(c.Dir)
		_, procErr := harness.RSS(pid)
		return os.IsNotExist(dirErr) && procErr != nil, nil
	})
	if err != nil {
		t.Error(err)
	}
}
