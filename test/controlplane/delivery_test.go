package controlplane

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// receiver counts the webhook-ids that it got.
type receiver struct {
	*httptest.Server
	mu  sync.Mutex
	got map[string]int
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{got: map[string]int{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got[q.Header.Get("webhook-id")]++
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got)
}

// openPool lets the default pool deliver to this machine.
const openPool = `
apiVersion: doorstep.dev/v1alpha1
kind: DeliveryPool
metadata: {name: default, namespace: doorstep-system}
spec:
  egress: {allowHTTP: true, allow: [{cidr: 127.0.0.0/8}]}
`

func endpointTo(namespace, name, url string) string {
	return fmt.Sprintf(`
apiVersion: doorstep.dev/v1alpha1
kind: WebhookEndpoint
metadata: {name: %s, namespace: %s}
spec: {url: %q}
`, name, namespace, url)
}

func (s *site) apply(manifests string) {
	s.t.Helper()
	if err := s.c.Apply(s.t.Context(), manifests); err != nil {
		s.t.Fatal(err)
	}
}

// From manifests to a delivery: manager and worker are processes with the rights of their
// ServiceAccounts, and the producer has a token of its own.
func TestAnEventIsDelivered(t *testing.T) {
	s, r := newSite(t), newReceiver(t)
	if err := s.c.EnsureNamespace(t.Context(), "shop", nil); err != nil {
		t.Fatal(err)
	}
	s.apply(openPool + "---" + endpointTo("shop", "orders", r.URL+"/in"))
	s.ready("shop", "orders", "False", "PoolNotReady")
	s.startWorker()
	s.ready("shop", "orders", "True", "Accepted")

	token := s.producer("shop")
	s.eventually("the event to be taken", func() (bool, string) {
		code, body := s.send(token, "shop", "evt_1")
		return code == 202 || code == 200, fmt.Sprint(code, body)
	})
	s.eventually("the event to be delivered", func() (bool, string) { return r.count() == 1, fmt.Sprint(r.count()) })

	// Nobody else gets in, and the producer not elsewhere.
	if code, body := s.send("", "shop", "evt_2"); code != 401 || !strings.Contains(body, "audience doorstep") {
		t.Errorf("without a token: %d %s", code, body)
	}
	if code, body := s.send(token, "billing", "evt_2"); code != 403 || !strings.Contains(body, "doorstep-event-producer") {
		t.Errorf("in another namespace: %d %s", code, body)
	}
	other, err := s.c.Token(t.Context(), "shop", "producer")
	if err != nil {
		t.Fatal(err)
	}
	if code, body := s.send(other, "shop", "evt_2"); code != 401 || !strings.Contains(body, "--audience doorstep") {
		t.Errorf("with a token for another audience: %d %s", code, body)
	}
}
