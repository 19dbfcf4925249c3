package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

// DefaultPool is the pool of endpoints that name none.
var DefaultPool = types.NamespacedName{Namespace: System, Name: v1alpha1.DefaultPoolName}

// LogsOfAFailure shows the end of both logs if the test fails. manager may be told later.
func LogsOfAFailure(t testing.TB, manager func() *Manager, pool *Pool) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the manager's log:\n%s\nthe worker's log:\n%s", manager().Log.Last(), pool.Log.Last())
		}
	})
}

// Last is the end of what was logged, as much as one wants to read.
func (l *Log) Last() string {
	text := l.String()
	return text[max(0, len(text)-8000):]
}

// Producer makes a ServiceAccount that may post events in a namespace and returns a token of it.
func (c *Cluster) Producer(t testing.TB, namespace string) string {
	t.Helper()
	if _, err := c.ServiceAccount(t.Context(), namespace, "producer"); err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(t.Context(), fmt.Sprintf(producer, namespace)); err != nil {
		t.Fatal(err)
	}
	token, err := c.Token(t.Context(), namespace, "producer", v1alpha1.TokenAudience)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

const producer = `apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: producer, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: doorstep-event-producer}
subjects: [{kind: ServiceAccount, name: producer, namespace: %[1]s}]
`

// NewAPIKey makes an API key of the rights that the arguments of `doorstep apikey new` give,
// and its entry in a Secret.
func NewAPIKey(t testing.TB, binary string, rights ...string) (key, entry string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	out, err := exec.CommandContext(t.Context(), binary, append([]string{"apikey", "new", "--key-file", file}, rights...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text)), string(out)
}

// Endpoint reads an endpoint.
func (c *Cluster) Endpoint(t testing.TB, key types.NamespacedName) (*v1alpha1.WebhookEndpoint, error) {
	var e v1alpha1.WebhookEndpoint
	return &e, c.Client.Get(t.Context(), key, &e)
}

// AwaitCondition waits until a condition of an endpoint has a status and reason for the endpoint
// as it is now, and returns it.
func (c *Cluster) AwaitCondition(t testing.TB, within time.Duration, key types.NamespacedName, condition string, status metav1.ConditionStatus, reason string) metav1.Condition {
	t.Helper()
	var found metav1.Condition
	Eventually(t, within, fmt.Sprintf("%s of endpoint %s to be %s, %s", condition, key, status, reason), func() error {
		e, err := c.Endpoint(t, key)
		if err != nil {
			return err
		}
		is := meta.FindStatusCondition(e.Status.Conditions, condition)
		if is == nil {
			return errors.New("it has no such condition")
		}
		if found = *is; is.Status != status || is.Reason != reason || is.ObservedGeneration != e.Generation {
			return fmt.Errorf("it is %s, %s of generation %d (not %d): %s", is.Status, is.Reason, is.ObservedGeneration, e.Generation, is.Message)
		}
		return nil
	})
	return found
}

// AwaitNothingWaiting waits until the status of an endpoint says that none of its deliveries
// wait, and none is a dead letter.
func (c *Cluster) AwaitNothingWaiting(t testing.TB, within time.Duration, key types.NamespacedName) {
	t.Helper()
	Eventually(t, within, "the counts of endpoint "+key.String()+" to be 0", func() error {
		e, err := c.Endpoint(t, key)
		if err != nil {
			return err
		}
		if d := e.Status.Deliveries; d == nil || d.Waiting == nil || *d.Waiting != 0 || d.DeadLettered == nil || *d.DeadLettered != 0 {
			return fmt.Errorf("deliveries are %+v", d)
		}
		return nil
	})
}
