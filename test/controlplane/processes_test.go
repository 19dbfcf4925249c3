package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/pool"
	"github.com/doorstep-dev/doorstep/test/cluster"
	"github.com/doorstep-dev/doorstep/test/harness"
)

// defaultPool is the installation's own pool.
var defaultPool = types.NamespacedName{Namespace: system, Name: v1alpha1.DefaultPoolName}

// site is an installation: a control plane with a manager, and a place for its worker.
type site struct {
	t       *testing.T
	c       *cluster.Cluster
	manager *harness.Process
	worker  *harness.Process
	// api is the worker's address; data its volume, plan the folder of its plan.
	api, probes, data, plan string
	managerLog, workerLog   *output
}

// output keeps what a process writes.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// newSite starts a control plane of its own and the manager.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, c: cluster.Start(t), data: t.TempDir(), plan: t.TempDir(), managerLog: &output{}, workerLog: &output{}}
	if err := install(t.Context(), s.c); err != nil {
		t.Fatal(err)
	}
	s.startManager()
	t.Cleanup(func() {
		for _, p := range []*harness.Process{s.worker, s.manager} {
			if p != nil {
				p.Kill()
			}
		}
		if t.Failed() {
			t.Logf("manager:\n%s\nworker:\n%s", end(s.managerLog.String()), end(s.workerLog.String()))
		}
	})
	return s
}

func end(s string) string { return s[max(0, len(s)-6000):] }

// startManager starts the manager with the rights of its ServiceAccount.
func (s *site) startManager(args ...string) {
	s.t.Helper()
	kubeconfig, err := s.c.ServiceAccountKubeconfig(s.t.Context(), system, "doorstep-manager")
	if err != nil {
		s.t.Fatal(err)
	}
	s.manager, err = harness.Start(harness.Command{
		Name: "manager", Path: binary, Log: s.managerLog, Env: []string{"DOORSTEP_IMAGE=registry.example.com/doorstep:v1"},
		Args: append([]string{"manager", "--kubeconfig", kubeconfig, "--namespace", system, "--metrics", "0", "--probes", "0"}, args...),
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// startWorker does what the StatefulSet controller and the kubelet would: it starts a
// worker as the StatefulSet says, with the plan in a folder.
func (s *site) startWorker() {
	s.t.Helper()
	var set appsv1.StatefulSet
	s.eventually("the StatefulSet to be there", func() (bool, string) {
		err := s.c.Client.Get(s.t.Context(), types.NamespacedName{Namespace: system, Name: v1alpha1.WorkerName(defaultPool.Name)}, &set)
		return err == nil, fmt.Sprint(err)
	})
	s.project()
	kubeconfig, err := s.c.ServiceAccountKubeconfig(s.t.Context(), system, set.Spec.Template.Spec.ServiceAccountName)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.api == "" {
		s.api, s.probes = freeAddr(s.t), freeAddr(s.t)
	}
	var args []string
	for _, a := range set.Spec.Template.Spec.Containers[0].Args {
		switch name, _, _ := strings.Cut(a, "="); name {
		case "--data":
			a = "--data=" + s.data
		case "--plan":
			a = "--plan=" + s.plan
		case "--listen":
			a = "--listen=" + s.api
		case "--probes":
			a = "--probes=" + s.probes
		case "--metrics":
			a = "--metrics=127.0.0.1:0"
		}
		args = append(args, a)
	}
	s.worker, err = harness.Start(harness.Command{
		Name: "worker", Path: binary, Log: s.workerLog, Args: append(args, "--kubeconfig="+kubeconfig),
		Env: []string{"POD_NAMESPACE=" + system, "POD_NAME=" + v1alpha1.WorkerPodName(defaultPool.Name, 0)},
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

func freeAddr(t *testing.T) string {
	t.Helper()
	a, err := harness.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// project writes the plan's Secrets into the folder, as the kubelet does at a pod's start.
func (s *site) project() {
	s.t.Helper()
	put := func(secret, file string) {
		var o corev1.Secret
		if s.c.Client.Get(s.t.Context(), types.NamespacedName{Namespace: system, Name: secret}, &o) != nil {
			return
		}
		if err := os.WriteFile(filepath.Join(s.plan, file), o.Data[v1alpha1.PlanSecretKey], 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	for n := range v1alpha1.PlanShards {
		put(v1alpha1.PlanShardName(defaultPool.Name, n), pool.PlanShardFile(n))
	}
	put(v1alpha1.PlanIndexName(defaultPool.Name), pool.PlanIndexFile)
}

// eventually waits for a condition for up to a minute.
func (s *site) eventually(what string, ok func() (bool, string)) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	last := ""
	if err := harness.Await(ctx, 100*time.Millisecond, what, func() (bool, error) {
		done, now := ok()
		last = now
		return done, nil
	}); err != nil {
		s.t.Fatalf("%s: at the end it is %s", what, last)
	}
}

// ready waits until an endpoint's present generation has Ready=status for a reason.
func (s *site) ready(namespace, name, status, reason string) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("WebhookEndpoint %s/%s to have Ready=%s, %s", namespace, name, status, reason), func() (bool, string) {
		var e v1alpha1.WebhookEndpoint
		if err := s.c.Client.Get(s.t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, &e); err != nil {
			return false, err.Error()
		}
		for _, c := range e.Status.Conditions {
			if c.Type == v1alpha1.ConditionReady {
				return string(c.Status) == status && c.Reason == reason && c.ObservedGeneration == e.Generation, string(c.Status) + " " + c.Reason + ": " + c.Message
			}
		}
		return false, "without Ready"
	})
}

// producer gives a token of a ServiceAccount that may send events of a namespace.
func (s *site) producer(namespace string) string {
	s.t.Helper()
	if _, err := s.c.ServiceAccount(s.t.Context(), namespace, "producer"); err != nil {
		s.t.Fatal(err)
	}
	if err := s.c.Apply(s.t.Context(), `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: producer, namespace: `+namespace+`}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: doorstep-event-producer}
subjects: [{kind: ServiceAccount, name: producer, namespace: `+namespace+`}]
`); err != nil {
		s.t.Fatal(err)
	}
	token, err := s.c.Token(s.t.Context(), namespace, "producer", v1alpha1.TokenAudience)
	if err != nil {
		s.t.Fatal(err)
	}
	return token
}

// send posts an event and gives the answer's code and body.
func (s *site) send(token, namespace, id string) (int, string) {
	body, _ := json.Marshal(map[string]any{"id": id, "type": "order.created", "data": map[string]int{"n": 1}})
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://"+s.api+"/v1/namespaces/"+namespace+"/events", bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	c := http.Client{Timeout: 10 * time.Second}
	resp, err := c.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}
