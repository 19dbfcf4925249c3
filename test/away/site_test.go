package away

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	s.token = s.Producer(t, namespace)
	var entry string
	s.key, entry = cluster.NewAPIKey(t, binary, "--id", "producer", "--namespace", namespace, "--verb", "send")
	if err := s.Apply(ctx, fmt.Sprintf(manifests, entry, s.good.URL, s.flaky.URL)); err != nil {
		t.Fatal(err)
	}
	s.pool = s.RunPool(t, binary, cluster.DefaultPool)
	s.manager = s.StartManager(t, binary, "--default-pool=none")
	cluster.LogsOfAFailure(t, func() *cluster.Manager { return s.manager }, s.pool)
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

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// await waits until a condition of an endpoint has a status and reason for the endpoint as it is now.
func (s *site) await(t *testing.T, name string, within time.Duration, condition string, status metav1.ConditionStatus, reason string) metav1.Condition {
	t.Helper()
	return s.AwaitCondition(t, within, key(name), condition, status, reason)
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
