package away

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/test/cluster"
	"github.com/doorstep-dev/doorstep/test/harness"
)

// binary is the doorstep binary under test.
var binary string

func TestMain(m *testing.M) {
	os.Exit(cluster.Main(func() int { return harness.RunWithBinary(m.Run, &binary) }))
}

const namespace = "shop"

var defaultPool = types.NamespacedName{Namespace: cluster.System, Name: v1alpha1.DefaultPoolName}

// site is an installation at work, with a receiver that always takes events and one that does if the test wants.
type site struct {
	*cluster.Cluster
	manager *cluster.Manager
	pool    *cluster.Pool
	good    *receiver
	flaky   *receiver
	// token is of a ServiceAccount that may post events, key an API key that may.
	token, key string
}

// receiver counts the events that it took.
type receiver struct {
	*httptest.Server
	broken atomic.Bool

	mu  sync.Mutex
	got map[string]int
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{got: map[string]int{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if r.broken.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got[q.Header.Get("webhook-id")]++
	}))
	t.Cleanup(r.Close)
	return r
}

// of is how many events of a run it took.
func (r *receiver) of(run string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := int64(0)
	for id := range r.got {
		if strings.HasPrefix(id, run+"-") {
			n++
		}
	}
	return n
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{Cluster: cluster.Start(t), good: newReceiver(t), flaky: newReceiver(t)}
	ctx := t.Context()
	if err := s.InstallDoorstep(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.EnsureNamespace(ctx, namespace, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ServiceAccount(ctx, namespace, "producer"); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.token, err = s.Token(ctx, namespace, "producer", v1alpha1.TokenAudience); err != nil {
		t.Fatal(err)
	}
	entry := s.newKey(t)
	if err := s.Apply(ctx, fmt.Sprintf(manifests, entry, s.good.URL, s.flaky.URL)); err != nil {
		t.Fatal(err)
	}
	s.pool = s.RunPool(t, binary, defaultPool)
	s.manager = s.StartManager(t, binary, "--default-pool=none")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the manager's log:\n%s\nthe worker's log:\n%s", last(s.manager.Log), last(s.pool.Log))
		}
	})
	s.await(t, "good", time.Minute, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	s.await(t, "flaky", time.Minute, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	return s
}

const manifests = `apiVersion: doorstep.dev/v1alpha1
kind: DeliveryPool
metadata: {name: default, namespace: doorstep-system}
spec:
  ingest: {apiKeysSecretRef: {name: api-keys}}
  egress: {allowHTTP: true, allow: [{cidr: 127.0.0.0/8}]}
---
apiVersion: v1
kind: Secret
metadata: {name: api-keys, namespace: doorstep-system}
stringData:
%s
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: producer, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: doorstep-event-producer}
subjects: [{kind: ServiceAccount, name: producer, namespace: shop}]
---
apiVersion: doorstep.dev/v1alpha1
kind: WebhookEndpoint
metadata: {name: good, namespace: shop}
spec: {url: "%s/in", eventTypes: [good, both]}
---
apiVersion: doorstep.dev/v1alpha1
kind: WebhookEndpoint
metadata: {name: flaky, namespace: shop}
spec: {url: "%s/in", eventTypes: [flaky, both]}
`

// newKey makes an API key and returns its entry in a Secret.
func (s *site) newKey(t *testing.T) string {
	t.Helper()
	file := t.TempDir() + "/key"
	cmd := exec.CommandContext(t.Context(), binary, "apikey", "new", "--id", "producer", "--namespace", namespace, "--verb", "send", "--key-file", file)
	entry, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s.key = strings.TrimSpace(string(key))
	return string(entry)
}

func last(log *cluster.Log) string {
	text := log.String()
	return text[max(0, len(text)-5000):]
}

// endpoint reads an endpoint.
func (s *site) endpoint(t *testing.T, name string) (*v1alpha1.WebhookEndpoint, error) {
	var e v1alpha1.WebhookEndpoint
	return &e, s.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, &e)
}

// await waits until a condition of an endpoint has a status and reason for the endpoint as it is now.
func (s *site) await(t *testing.T, name string, within time.Duration, condition string, status metav1.ConditionStatus, reason string) metav1.Condition {
	t.Helper()
	var found metav1.Condition
	cluster.Eventually(t, within, fmt.Sprintf("%s of endpoint %s to be %s, %s", condition, name, status, reason), func() error {
		e, err := s.endpoint(t, name)
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(e.Status.Conditions, condition)
		if c == nil {
			return errors.New("it has no such condition")
		}
		if found = *c; c.Status != status || c.Reason != reason || c.ObservedGeneration != e.Generation {
			return fmt.Errorf("it is %s, %s of generation %d (not %d): %s", c.Status, c.Reason, c.ObservedGeneration, e.Generation, c.Message)
		}
		return nil
	})
	return found
}

// nothingWaits waits until the status of an endpoint says that none of its deliveries wait, and none is a dead letter.
func (s *site) nothingWaits(t *testing.T, name string) {
	t.Helper()
	cluster.Eventually(t, time.Minute, "the counts of endpoint "+name+" to be 0", func() error {
		e, err := s.endpoint(t, name)
		if err != nil {
			return err
		}
		if d := e.Status.Deliveries; d == nil || d.Waiting == nil || *d.Waiting != 0 || d.DeadLettered == nil || *d.DeadLettered != 0 {
			return fmt.Errorf("deliveries are %+v", d)
		}
		return nil
	})
}

// load posts events of a type at a rate for a time, with a bearer, and fails the test unless each one is accepted.
func (s *site) load(t *testing.T, run, typ, bearer string, rate float64, duration time.Duration) int64 {
	t.Helper()
	result, err := harness.Load{
		Addr: s.pool.Ingest(), Path: "/v1/namespaces/" + namespace + "/events", Key: bearer, Run: run,
		Types: []string{typ}, Size: 512, Conns: 2, Rate: rate, Count: 1 << 20, Duration: duration,
	}.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if result.Failed > 0 || result.Refused > 0 || result.Accepted < int64(rate*duration.Seconds()/2) {
		t.Errorf("%s: %d events were accepted, %d refused, %d failed: %s", run, result.Accepted, result.Refused, result.Failed, result.FirstError)
	}
	return result.Accepted
}

// delivered waits until a receiver took that many events of a run.
func delivered(t *testing.T, r *receiver, run string, want int64) {
	t.Helper()
	cluster.Eventually(t, 90*time.Second, fmt.Sprintf("%d events of %s to be delivered", want, run), func() error {
		if got := r.of(run); got != want {
			return fmt.Errorf("%d were", got)
		}
		return nil
	})
}
