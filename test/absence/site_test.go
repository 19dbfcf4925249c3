package absence

import (
	"encoding/json"
	"fmt"
	"io"
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

// The namespaces: most happens to shop, lab is beside it.
const (
	shop = "shop"
	lab  = "lab"
)

// site is an installation at work whose endpoints all have something waiting: those with an even number since their
// receiver refuses it, the others since they are suspended.
type site struct {
	*cluster.Cluster
	manager  *cluster.Manager
	pool     *cluster.Pool
	receiver *receiver
	key      string
	// sent is how many events each endpoint has to get, by namespace/name.
	sent map[string]int
}

// receiver notes what it took, by path and webhook-id.
type receiver struct {
	*httptest.Server
	open atomic.Bool

	mu   sync.Mutex
	took map[string]map[string]int
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{took: map[string]map[string]int{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if !r.open.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.took[q.URL.Path] == nil {
			r.took[q.URL.Path] = map[string]int{}
		}
		r.took[q.URL.Path][q.Header.Get("webhook-id")]++
	}))
	t.Cleanup(r.Close)
	return r
}

// of is how many events an endpoint got, and how many of them more than once.
func (r *receiver) of(endpoint string) (events, repeated int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.took["/"+endpoint] {
		events++
		if n > 1 {
			repeated++
		}
	}
	return events, repeated
}

const fixtures = `apiVersion: doorstep.dev/v1alpha1
kind: DeliveryPool
metadata: {name: default, namespace: doorstep-system}
spec:
  ingest: {apiKeysSecretRef: {name: api-keys}}
  egress: {allowHTTP: true, allow: [{cidr: 127.0.0.0/8}]}
  allowedNamespaces: {from: Selector, selector: {matchLabels: {webhooks: "yes"}}}
---
apiVersion: v1
kind: Secret
metadata: {name: api-keys, namespace: doorstep-system}
stringData:
%s
`

// manifest is one endpoint, of the event type that is called as it.
func (s *site) manifest(namespace, name string, suspended bool) string {
	return fmt.Sprintf("---\napiVersion: doorstep.dev/v1alpha1\nkind: WebhookEndpoint\nmetadata: {name: %s, namespace: %s}\n"+
		"spec: {url: %q, eventTypes: [%s], suspend: %v}\n", name, namespace, s.receiver.URL+"/"+namespace+"/"+name, name, suspended)
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{Cluster: cluster.Start(t), receiver: newReceiver(t), sent: map[string]int{}}
	ctx := t.Context()
	if err := s.InstallDoorstep(ctx); err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{shop, lab} {
		if err := s.EnsureNamespace(ctx, namespace, map[string]string{"webhooks": "yes"}); err != nil {
			t.Fatal(err)
		}
	}
	var entry string
	s.key, entry = cluster.NewAPIKey(t, binary, "--id", "test", "--namespace", "*", "--verb", "*")
	manifests := fmt.Sprintf(fixtures, entry)
	for i := range 16 {
		manifests += s.manifest(shop, fmt.Sprintf("e%02d", i), i%2 == 1)
	}
	for i := range 4 {
		manifests += s.manifest(lab, fmt.Sprintf("l%02d", i), i%2 == 1)
	}
	if err := s.Apply(ctx, manifests); err != nil {
		t.Fatal(err)
	}
	s.pool = s.RunPool(t, binary, cluster.DefaultPool)
	s.manager = s.StartManager(t, binary, "--default-pool=none")
	cluster.LogsOfAFailure(t, func() *cluster.Manager { return s.manager }, s.pool)
	for _, e := range s.endpoints(t) {
		s.sent[e] = 0
		s.await(t, e, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	}
	return s
}

// endpoints are namespace/name of all that there are.
func (s *site) endpoints(t *testing.T) []string {
	t.Helper()
	var list v1alpha1.WebhookEndpointList
	if err := s.Client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	var out []string
	for i := range list.Items {
		out = append(out, list.Items[i].Namespace+"/"+list.Items[i].Name)
	}
	return out
}

func keyOf(endpoint string) types.NamespacedName {
	namespace, name, _ := strings.Cut(endpoint, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// await waits until Ready of an endpoint has a status and reason for the endpoint as it is now.
func (s *site) await(t *testing.T, endpoint string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	s.AwaitCondition(t, time.Minute, keyOf(endpoint), v1alpha1.ConditionReady, status, reason)
}

// call asks the worker's API, and returns the status and what it answered.
func (s *site) call(t *testing.T, method, path, body string) (int, []byte, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.pool.Ingest()+"/v1/namespaces/"+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+s.key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// post posts an event for each of the endpoints. Each must be accepted, for that endpoint.
func (s *site) post(t *testing.T, run string, endpoints ...string) {
	t.Helper()
	for _, e := range endpoints {
		status, answer, err := s.postOne(t, run, e)
		if err != nil || status != http.StatusAccepted {
			t.Fatalf("%s: an event for %s is answered %d (%v): %s", run, e, status, err, answer)
		}
		var receipt struct{ Endpoints int }
		if err := json.Unmarshal(answer, &receipt); err != nil || receipt.Endpoints != 1 {
			t.Fatalf("%s: an event for %s was accepted for %d endpoints (%v)", run, e, receipt.Endpoints, err)
		}
		s.sent[e]++
	}
}

func (s *site) postOne(t *testing.T, run, endpoint string) (int, []byte, error) {
	t.Helper()
	key := keyOf(endpoint)
	return s.call(t, http.MethodPost, key.Namespace+"/events", fmt.Sprintf(`{"id":"%s-%s","type":%q,"data":1}`, run, key.Name, key.Name))
}

// lane is what the worker's API says of an endpoint.
type lane struct {
	Lane struct {
		State string
		Held  bool
	}
	Deliveries struct{ Waiting, DeadLettered int }
}

func (s *site) lane(t *testing.T, endpoint string) (lane, error) {
	t.Helper()
	key := keyOf(endpoint)
	var l lane
	status, answer, err := s.call(t, http.MethodGet, key.Namespace+"/endpoints/"+key.Name, "")
	if err != nil {
		return l, err
	}
	if status != http.StatusOK {
		return l, fmt.Errorf("the worker answers %d: %s", status, answer)
	}
	err = json.Unmarshal(answer, &l)
	return l, err
}

// awaitLanes waits until the lanes of endpoints are in one of some states.
func (s *site) awaitLanes(t *testing.T, endpoints []string, states ...string) {
	t.Helper()
	for _, e := range endpoints {
		cluster.Eventually(t, time.Minute, fmt.Sprintf("the lane of %s to be %v", e, states), func() error {
			l, err := s.lane(t, e)
			if err != nil {
				return err
			}
			for _, state := range states {
				if l.Lane.State == state {
					return nil
				}
			}
			return fmt.Errorf("it is %s", l.Lane.State)
		})
	}
}

// kept fails the test unless all that was sent waits, and nothing is a dead letter.
func (s *site) kept(t *testing.T, when string) {
	t.Helper()
	for e, n := range s.sent {
		l, err := s.lane(t, e)
		if err != nil {
			t.Fatalf("%s: %s: %v", when, e, err)
		}
		if l.Deliveries.Waiting != n || l.Deliveries.DeadLettered != 0 {
			t.Errorf("%s: %d deliveries wait for %s and %d are dead letters, want %d and 0", when, l.Deliveries.Waiting, e, l.Deliveries.DeadLettered, n)
		}
	}
}

// held fails the test unless each delivery that waits for the endpoints is held for a reason.
func (s *site) held(t *testing.T, endpoints []string, reason string) {
	t.Helper()
	for _, e := range endpoints {
		key := keyOf(e)
		status, answer, err := s.call(t, http.MethodGet, key.Namespace+"/endpoints/"+key.Name+"/deliveries?state=held", "")
		if err != nil || status != http.StatusOK {
			t.Fatalf("the deliveries of %s: %d, %v: %s", e, status, err, answer)
		}
		var list struct {
			Items []struct{ State, Reason string }
		}
		if err := json.Unmarshal(answer, &list); err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != s.sent[e] {
			t.Errorf("%d deliveries of %s are held, want %d", len(list.Items), e, s.sent[e])
		}
		for _, d := range list.Items {
			if d.State != "held" || d.Reason != reason {
				t.Errorf("a delivery of %s is %s for %s, want held for %s", e, d.State, d.Reason, reason)
			}
		}
	}
}
