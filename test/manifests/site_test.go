package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/test/cluster"
	"github.com/doorstep-dev/doorstep/test/harness"
)

// binary is the doorstep binary under test.
var binary string

func TestMain(m *testing.M) {
	os.Exit(cluster.Main(func() int { return harness.RunWithBinary(m.Run, &binary) }))
}

// site is an installation with one pool, default.
type site struct {
	*cluster.Cluster
	world   *world
	manager *cluster.Manager
	pool    *cluster.Pool
	tokens  map[string]string // by namespace
}

// newSite installs Doorstep, applies the pool's manifest, and starts a manager that makes no other and a worker.
func newSite(t *testing.T, pool string) *site {
	t.Helper()
	s := &site{Cluster: cluster.Start(t), world: newWorld(t), tokens: map[string]string{}}
	if err := s.InstallDoorstep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(t.Context(), s.world.poolFixtures()); err != nil {
		t.Fatal(err)
	}
	s.kubectl(t, pool, "apply", "-f", "-")
	s.pool = s.RunPool(t, binary, cluster.DefaultPool)
	s.manager = s.StartManager(t, binary, "--default-pool=none")
	cluster.LogsOfAFailure(t, func() *cluster.Manager { return s.manager }, s.pool)
	return s
}

func (s *site) kubectl(t *testing.T, stdin string, args ...string) {
	t.Helper()
	kubectl := s.As(s.AdminKubeconfig())
	kubectl.Stdin = stdin
	if _, err := kubectl.Run(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
}

// tenant makes a namespace with what manifests refer to, of which the last one may have taken something away, and a token
// of a producer.
func (s *site) tenant(t *testing.T, namespace string) {
	t.Helper()
	if err := s.EnsureNamespace(t.Context(), namespace, map[string]string{"team": "shop"}); err != nil {
		t.Fatal(err)
	}
	s.kubectl(t, s.world.tenantFixtures(t), "apply", "-n", namespace, "-f", "-")
	s.tokens[namespace] = s.Producer(t, namespace)
}

// awaitReady waits until an object of Doorstep is Ready as it is now.
func (s *site) awaitReady(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	what := fmt.Sprintf("%s %s/%s to be Ready", o.GetKind(), o.GetNamespace(), o.GetName())
	cluster.Eventually(t, time.Minute, what, func() error {
		if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
		if err != nil {
			return err
		}
		for _, c := range conditions {
			condition := c.(map[string]any)
			if condition["type"] != v1alpha1.ConditionReady {
				continue
			}
			if condition["status"] == "True" && condition["observedGeneration"] == o.GetGeneration() {
				return nil
			}
			return fmt.Errorf("Ready is %v (%v of generation %v, not %d): %v",
				condition["status"], condition["reason"], condition["observedGeneration"], o.GetGeneration(), condition["message"])
		}
		return errors.New("it has no condition Ready")
	})
}

// post posts an event until it is accepted for an endpoint or more.
func (s *site) post(t *testing.T, namespace string, event []byte) {
	t.Helper()
	cluster.Eventually(t, time.Minute, "the event to be accepted", func() error {
		url := "http://" + s.pool.Ingest() + "/v1/namespaces/" + namespace + "/events"
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(event))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+s.tokens[namespace])
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		var answer struct{ Endpoints int }
		if err := json.Unmarshal(body, &answer); err != nil || resp.StatusCode != http.StatusAccepted || answer.Endpoints < 1 {
			return fmt.Errorf("it is answered %s: %s", resp.Status, strings.TrimSpace(string(body)))
		}
		return nil
	})
}
