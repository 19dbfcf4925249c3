package standalone

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/doorstep-dev/doorstep/internal/ingest"
)

// patience is how long a test waits for what must come. It is long, since it only
// matters when something is wrong.
const patience = 20 * time.Second

// site is what outlives a process: its folders.
type site struct {
	t               *testing.T
	manifests, data string
	client          *http.Client
}

func newSite(t *testing.T) *site {
	dir := t.TempDir()
	s := &site{t: t, manifests: filepath.Join(dir, "manifests"), data: filepath.Join(dir, "data"),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	if err := os.Mkdir(s.manifests, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

// write puts a manifest into place by a rename, so that no reader sees half of it.
func (s *site) write(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.manifests, name)
	temp := filepath.Join(s.manifests, "."+name+".new")
	if err := os.WriteFile(temp, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(temp, path); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) remove(name string) {
	s.t.Helper()
	if err := os.Remove(filepath.Join(s.manifests, name)); err != nil {
		s.t.Fatal(err)
	}
}

// Manifests.

const (
	keyA = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	keyB = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
)

const poolYAML = `apiVersion: doorstep.dev/v1alpha1
kind: DeliveryPool
metadata: {name: default, namespace: doorstep-system}
spec:
  egress: {allowHTTP: true, allow: [{cidr: 127.0.0.0/8}]}
`

func secretYAML(name, key string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: shop}\nstringData: {key: %q}\n", name, key)
}

// quickYAML is a retry policy that fails fast.
const quickYAML = `apiVersion: doorstep.dev/v1alpha1
kind: RetryPolicy
metadata: {name: quick, namespace: shop}
spec: {backoff: {schedule: [50ms, 50ms, 50ms, 50ms, 50ms, 50ms]}, jitter: {type: None}}
`

// endpointYAML is an endpoint of namespace shop that signs with the Secret <name>-key.
// more are further lines of its spec.
func endpointYAML(name, url string, more ...string) string {
	spec := append([]string{"url: " + url, "signing: {keys: [{name: a, secretKeyRef: {name: " + name + "-key, key: key}}]}"}, more...)
	return "apiVersion: doorstep.dev/v1alpha1\nkind: WebhookEndpoint\nmetadata: {name: " + name + ", namespace: shop}\nspec:\n  " +
		strings.Join(spec, "\n  ") + "\n"
}

// usual writes the pool, a quick policy, and an endpoint orders with its key.
func (s *site) usual(url string, more ...string) {
	s.write("pool.yaml", poolYAML)
	s.write("quick.yaml", quickYAML)
	s.write("orders-key.yaml", secretYAML("orders-key", keyA))
	s.write("orders.yaml", endpointYAML("orders", url, more...))
}

// running is one run of Run.
type running struct {
	*site
	url      string
	key      string
	out, log *lockedBuffer
	cancel   context.CancelFunc
	ended    chan error
}

func (s *site) options(change ...func(*Options)) Options {
	o := Options{Dir: s.manifests, Data: s.data, Listen: "127.0.0.1:0", Grace: 5 * time.Second, Version: "test"}
	for _, c := range change {
		c(&o)
	}
	return o
}

func dev(o *Options) { o.Dev = true }

func forwardTo(url string) func(*Options) {
	return func(o *Options) { o.Dev, o.ForwardTo = true, url }
}

// start starts a process and waits until it serves; it is stopped at the test's end at
// the latest.
func (s *site) start(change ...func(*Options)) *running {
	s.t.Helper()
	r := &running{site: s, out: &lockedBuffer{}, log: &lockedBuffer{}, ended: make(chan error, 1)}
	o := s.options(change...)
	o.Out = r.out
	o.Log = funcr.New(func(prefix, args string) { _, _ = fmt.Fprintln(r.log, prefix, args) }, funcr.Options{Verbosity: 1})
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.ended <- Run(ctx, o) }()
	await(s.t, "the process to serve", func() bool {
		if m := servesAt.FindString(r.out.String()); m != "" {
			r.url = m
			return true
		}
		select {
		case err := <-r.ended:
			s.t.Fatalf("Run ended: %v\n%s", err, r.log)
		default:
		}
		return false
	})
	s.t.Cleanup(func() { r.stop() })
	if b, err := os.ReadFile(APIKeyFile(s.data)); err == nil {
		r.key = strings.TrimSpace(string(b))
	}
	return r
}

var servesAt = regexp.MustCompile(`http://[0-9.:]+`)

// stop stops the process, as SIGTERM does, and wants no error.
func (r *running) stop() {
	r.t.Helper()
	if r.ended == nil {
		return
	}
	r.cancel()
	select {
	case err := <-r.ended:
		if err != nil {
			r.t.Errorf("Run ended with: %v", err)
		}
	case <-time.After(patience):
		r.t.Fatalf("Run does not end\n%s", r.log)
	}
	r.ended = nil
}

// call makes a request of the API and reads the answer. It reports a transport error
// as status 0.
func (r *running) call(method, path string, body []byte, change ...func(*http.Request)) (int, []byte) {
	q, err := http.NewRequest(method, r.url+path, bytes.NewReader(body))
	if err != nil {
		r.t.Error(err)
		return 0, nil
	}
	if r.key != "" {
		q.Header.Set("Authorization", "Bearer "+r.key)
	}
	if body != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	for _, c := range change {
		c(q)
	}
	res, err := r.client.Do(q)
	if err != nil {
		return 0, nil
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, nil
	}
	return res.StatusCode, answer
}

const eventsPath = "/v1/namespaces/shop/events"

// send posts a plain event of type order.created and wants it accepted.
func (r *running) send(id string) {
	r.t.Helper()
	r.post([]byte(`{"id":"`+id+`","type":"order.created","data":{"n":1}}`), nil)
}

// post posts an event and wants it accepted.
func (r *running) post(body []byte, header http.Header) ingest.Receipt {
	r.t.Helper()
	status, answer := r.call("POST", eventsPath, body, func(q *http.Request) {
		for name, values := range header {
			q.Header[name] = values
		}
	})
	if status != 202 {
		r.t.Fatalf("an event is answered %d: %s", status, answer)
	}
	return decode[ingest.Receipt](r.t, answer)
}

// offer posts an event, from any goroutine, and reports whether it was accepted.
func (r *running) offer(body []byte) bool {
	status, answer := r.call("POST", eventsPath, body)
	if status != 202 {
		r.t.Errorf("an event is answered %d: %s", status, answer)
	}
	return status == 202
}

func decode[T any](t *testing.T, b []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return v
}

// get reads a path below the namespace.
func get[T any](r *running, path string) T {
	r.t.Helper()
	status, answer := r.call("GET", "/v1/namespaces/shop/"+path, nil)
	if status != 200 {
		r.t.Fatalf("%s is answered %d: %s", path, status, answer)
	}
	return decode[T](r.t, answer)
}

func (r *running) endpoint(name string) ingest.Endpoint {
	r.t.Helper()
	return get[ingest.Endpoint](r, "endpoints/"+name)
}

// delivery is the only delivery of an event.
func (r *running) delivery(webhookID string) ingest.Delivery {
	r.t.Helper()
	e := get[ingest.Event](r, "events/"+webhookID)
	if len(e.Deliveries) != 1 {
		r.t.Fatalf("%s has %d deliveries, want 1", webhookID, len(e.Deliveries))
	}
	return e.Deliveries[0]
}

// await polls until check is true.
func await(t *testing.T, what string, check func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !check() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

// problems are the lines that report a problem.
func (r *running) problems() []string {
	return slices.DeleteFunc(strings.Split(r.log.String(), "\n"), func(l string) bool { return !strings.Contains(l, "Problem: ") })
}

// lockedBuffer is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
