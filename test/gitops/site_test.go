package gitops

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// site is an installation at work, with pool default as config/demo has it.
type site struct {
	*cluster.Cluster
	pool *cluster.Pool
}

// TestGitOps shares one installation among all that is tested on it, each part in namespaces of its own.
func TestGitOps(t *testing.T) {
	s := newSite(t)
	for name, part := range map[string]func(*testing.T, *site){
		"every manifest applied twice":     applyTwice,
		"empty lists":                      emptyLists,
		"an endpoint that was disabled":    disabled,
		"what tools say of each state":     states,
		"two tools on one object":          twoTools,
		"a pool that the manager has made": adopted,
		"what is kept":                     kept,
		"Argo CD's ConfigMap":              patched,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			part(t, s)
		})
	}
}

// newSite installs Doorstep and brings up a manager and a worker. The pool is made by the manager, and becomes the
// property of whoever applies config/demo.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{Cluster: cluster.Start(t)}
	if err := s.InstallDoorstep(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.storeOldPolicy(t)
	s.pool = s.RunPool(t, binary, cluster.DefaultPool)
	manager := s.StartManager(t, binary)
	cluster.LogsOfAFailure(t, func() *cluster.Manager { return manager }, s.pool)
	pool := object("DeliveryPool", cluster.DefaultPool.Namespace, cluster.DefaultPool.Name)
	cluster.Eventually(t, 30*time.Second, "the manager to make pool default", func() error {
		return s.Client.Get(t.Context(), client.ObjectKeyFromObject(pool), pool)
	})
	s.kubectl(t, demo(t, "pool.yaml"), "apply", serverSide, "-f", "-")
	s.await(t, pool, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	return s
}

// demo is a file of config/demo.
func demo(t *testing.T, file string) string {
	t.Helper()
	root, err := cluster.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "config", "demo", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// object is one of Doorstep's by name, to be read.
func object(kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(v1alpha1.GroupVersion.String())
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// kubectl runs kubectl as an administrator.
func (s *site) kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	kubectl := s.As(s.AdminKubeconfig())
	kubectl.Stdin = stdin
	out, err := kubectl.Run(t.Context(), args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// serverSide and clientSide are the two ways in which kubectl, and every tool, applies and compares.
const serverSide, clientSide = "--server-side", "--server-side=false"

// noDiff fails the test if applying the text would change something, in either way. What was applied client-side is
// compared in that way only: kubectl itself would write its annotation on such an object in another form when it first
// applies it server-side.
func (s *site) noDiff(t *testing.T, text, applied, when string) {
	t.Helper()
	ways := []string{clientSide}
	if applied == serverSide {
		ways = append(ways, serverSide)
	}
	for _, way := range ways {
		kubectl := s.As(s.AdminKubeconfig())
		kubectl.Stdin = text
		if out, err := kubectl.Run(t.Context(), "diff", way, "-f", "-"); err != nil {
			t.Errorf("%s, compared %s: %v\n%s", when, way, err, out)
		}
	}
}

func (s *site) get(t *testing.T, u *unstructured.Unstructured) {
	t.Helper()
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
		t.Fatal(err)
	}
}

// conditionOf is a condition of an object as it is now; nil for none that speaks of its present generation.
func conditionOf(u *unstructured.Unstructured, kind string) *metav1.Condition {
	var status struct{ Conditions []metav1.Condition }
	b, err := json.Marshal(u.Object["status"])
	if err != nil || json.Unmarshal(b, &status) != nil {
		return nil
	}
	c := meta.FindStatusCondition(status.Conditions, kind)
	if c == nil || kind != v1alpha1.ConditionStorePressure && c.ObservedGeneration != u.GetGeneration() {
		return nil
	}
	return c
}

// await waits until a condition of an object, as it is now, has a status and reason.
func (s *site) await(t *testing.T, u *unstructured.Unstructured, kind string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	what := fmt.Sprintf("%s of %s %s/%s to be %s, %s", kind, u.GetKind(), u.GetNamespace(), u.GetName(), status, reason)
	cluster.Eventually(t, time.Minute, what, func() error {
		if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
			return err
		}
		c := conditionOf(u, kind)
		if c == nil {
			return errors.New("it has no such condition")
		}
		if c.Status != status || c.Reason != reason {
			return fmt.Errorf("it is %s, %s: %s", c.Status, c.Reason, c.Message)
		}
		return nil
	})
}

// ownsItsOwn fails the test if somebody but Doorstep owns something of an object's status, or Doorstep owns anything else
// of the object: two that write one field would fight over it for ever. case GO186
func ownsItsOwn(t *testing.T, u *unstructured.Unstructured) {
	t.Helper()
	writers := map[string]bool{}
	for _, entry := range u.GetManagedFields() {
		var fields map[string]any
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
			t.Fatal(err)
		}
		_, status := fields["f:status"]
		delete(fields, "f:status")
		ours := entry.Manager == v1alpha1.FieldOwnerManager || entry.Manager == v1alpha1.FieldOwnerWorker
		if ours != status || ours && (entry.Subresource != "status" || len(fields) > 0) {
			t.Errorf("%s %s/%s: %s owns, of status %t and beside it %v", u.GetKind(), u.GetNamespace(), u.GetName(), entry.Manager, status, fields)
		}
		writers[entry.Manager] = true
	}
	if !writers[v1alpha1.FieldOwnerManager] || u.GetKind() == "WebhookEndpoint" && !writers[v1alpha1.FieldOwnerWorker] {
		t.Errorf("%s %s/%s was written by %v alone", u.GetKind(), u.GetNamespace(), u.GetName(), writers)
	}
}

// post posts an event until it is accepted for an endpoint.
func (s *site) post(t *testing.T, namespace, token, event string) {
	t.Helper()
	cluster.Eventually(t, time.Minute, "the event to be accepted", func() error {
		url := "http://" + s.pool.Ingest() + "/v1/namespaces/" + namespace + "/events"
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(event))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusAccepted || !bytes.Contains(body, []byte(`"endpoints":1`)) {
			return fmt.Errorf("it is answered %s: %s", resp.Status, body)
		}
		return nil
	})
}
