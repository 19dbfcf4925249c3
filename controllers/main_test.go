package controllers_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/controllers"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/planstore"
	"github.com/doorstep-dev/doorstep/test/cluster"
	"github.com/doorstep-dev/doorstep/test/harness"
)

// world is the cluster of all tests here, with a manager that has the rights of its
// ServiceAccount and nothing more, and a stand-in for the worker of the default pool.
var world struct {
	*cluster.Cluster
	log lines
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx, cancel := context.WithCancel(context.Background())
	c, err := cluster.New()
	if err == nil {
		err = install(ctx, c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		cancel()
		return 1
	}
	world.Cluster = c
	var work sync.WaitGroup
	defer func() {
		cancel()
		work.Wait()
		if err := c.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	options, err := managerOptions(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	work.Go(func() {
		if err := controllers.Run(ctx, options); err != nil {
			fmt.Fprintln(os.Stderr, "the manager ended:", err)
		}
	})
	work.Go(func() { standIn(ctx, defaultPool) })
	return m.Run()
}

// system is the installation's namespace, defaultPool its pool.
const system = "doorstep-system"

var defaultPool = types.NamespacedName{Namespace: system, Name: v1alpha1.DefaultPoolName}

// install applies what config/default does, but for the manager's Deployment, which no
// node would run.
func install(ctx context.Context, c *cluster.Cluster) error {
	if err := c.EnsureNamespace(ctx, system, nil); err != nil {
		return err
	}
	for _, folder := range []string{"config/rbac", "config/policy"} {
		if err := c.Install(ctx, folder); err != nil {
			return err
		}
	}
	return nil
}

func managerOptions(ctx context.Context) (controllers.Options, error) {
	config, err := world.ServiceAccount(ctx, system, "doorstep-manager")
	return controllers.Options{
		Config: config, Namespace: system, DefaultPool: true, Image: "registry.example.com/doorstep:v1",
		MetricsAddress: "0", ProbeAddress: "0", Concurrency: 4,
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryTime: 2 * time.Second,
		Log: logr.FromSlogHandler(slog.NewTextHandler(&world.log, nil)),
	}, err
}

// lines keeps a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// standIn does what a worker does with the control plane: it renews its Lease and
// acknowledges each plan.
func standIn(ctx context.Context, pool types.NamespacedName) {
	pod := v1alpha1.WorkerPodName(pool.Name, 0)
	var acked uint64
	_ = harness.Await(ctx, 200*time.Millisecond, "the end", func() (bool, error) {
		renew(ctx, pool, pod)
		if p := planNow(ctx, pool); p != nil && p.Version != acked {
			if planstore.Acknowledge(ctx, world.Client, pool, pod, p.Version) == nil {
				acked = p.Version
			}
		}
		return false, nil
	})
}

func renew(ctx context.Context, pool types.NamespacedName, pod string) {
	var l coordinationv1.Lease
	if world.Client.Get(ctx, types.NamespacedName{Namespace: pool.Namespace, Name: pod}, &l) != nil {
		return
	}
	now := metav1.NowMicro()
	if l.Spec.RenewTime != nil && now.Sub(l.Spec.RenewTime.Time) < 5*time.Second {
		return
	}
	l.Spec.RenewTime, l.Spec.HolderIdentity = &now, &pod
	_ = world.Client.Update(ctx, &l)
}

// planNow is what the Secrets hold; nil for nothing.
func planNow(ctx context.Context, pool types.NamespacedName) *plan.Plan {
	p, _, err := planstore.NewWriter(world.Client, world.Client, pool, "").Load(ctx)
	if err != nil {
		return nil
	}
	return p
}

// eventually waits for a condition for up to 30 s.
func eventually(t *testing.T, what string, ok func() (bool, string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	last := ""
	err := harness.Await(ctx, 50*time.Millisecond, what, func() (bool, error) {
		done, now := ok()
		last = now
		return done, nil
	})
	if err != nil {
		log := world.log.String()
		t.Fatalf("%s: it is %s\nthe manager's log ends:\n%s", what, last, log[max(0, len(log)-3000):])
	}
}

func apply(t *testing.T, manifests string) {
	t.Helper()
	if err := world.Apply(t.Context(), manifests); err != nil {
		t.Fatal(err)
	}
}

func namespace(t *testing.T, name string) {
	t.Helper()
	if err := world.EnsureNamespace(t.Context(), name, nil); err != nil {
		t.Fatal(err)
	}
}

func endpoint(t *testing.T, namespace, name string) *v1alpha1.WebhookEndpoint {
	t.Helper()
	var e v1alpha1.WebhookEndpoint
	if err := world.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, &e); err != nil {
		t.Fatal(err)
	}
	return &e
}

// ready waits until an endpoint's Ready has a status and reason, and gives it.
func ready(t *testing.T, namespace, name string, status metav1.ConditionStatus, reason string) metav1.Condition {
	t.Helper()
	var found metav1.Condition
	eventually(t, fmt.Sprintf("WebhookEndpoint %s/%s has Ready=%s, %s", namespace, name, status, reason), func() (bool, string) {
		e := endpoint(t, namespace, name)
		i := slices.IndexFunc(e.Status.Conditions, func(c metav1.Condition) bool { return c.Type == v1alpha1.ConditionReady })
		if i < 0 {
			return false, "without Ready"
		}
		found = e.Status.Conditions[i]
		return found.Status == status && found.Reason == reason && e.Status.ObservedGeneration == e.Generation,
			fmt.Sprintf("%s, %s: %s", found.Status, found.Reason, found.Message)
	})
	return found
}
