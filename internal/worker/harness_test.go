package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/deliver"
	"github.com/doorstep-dev/doorstep/internal/engine"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/planstore"
	"github.com/doorstep-dev/doorstep/internal/pool"
	"github.com/doorstep-dev/doorstep/internal/queue/pebble"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

var (
	thePool = types.NamespacedName{Namespace: "doorstep-system", Name: "default"}
	thePod  = v1alpha1.WorkerPodName(thePool.Name, 0)
)

// site is what outlives a worker: the API server, the volumes, the receiver. All of it is
// in the bubble of a synctest.
type site struct {
	t    *testing.T
	api  *apiServer
	disk *vfs.MemFS
	// data and plan are folders of this machine's: of what lies beside the store, and the plan.
	data, plan string
	// tls is the folder of ingest's certificate; empty speaks http.
	tls      string
	receiver *receiver
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, api: newAPIServer(t), disk: vfs.NewMem(), data: t.TempDir(), plan: t.TempDir(), receiver: &receiver{got: map[string]int{}}}
	s.api.make(
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: thePool.Namespace, Name: thePod}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: thePool.Namespace, Name: v1alpha1.PlanAcksName(thePool.Name)}},
	)
	return s
}

// TestMain takes out of client-go's handling of errors the pause since the last one: it is
// the process's, whose time is not a bubble's.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	os.Exit(m.Run())
}

// receiver answers every delivery with 204.
type receiver struct {
	mu  sync.Mutex
	got map[string]int
}

func (r *receiver) Do(_ context.Context, q *deliver.Request) deliver.Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got[q.Event.WebhookID]++
	return deliver.Result{Status: http.StatusNoContent}
}

// times gives how often an event came.
func (r *receiver) times(id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got[id]
}

// planOf is a plan with endpoints in namespace shop.
func planOf(version uint64, endpoints ...string) *plan.Plan {
	p := &plan.Plan{Format: plan.Format, Version: version, Pool: plan.Pool{
		Source: thePool.String(), MaxInFlight: 64, Ingest: plan.Ingest{DedupeWindow: 24 * time.Hour},
		Retention: plan.Retention{Delivered: 72 * time.Hour, DeadLetters: 720 * time.Hour},
	}}
	for _, name := range endpoints {
		p.Endpoints = append(p.Endpoints, plan.Endpoint{
			EndpointKey: plan.EndpointKey{Namespace: "shop", Name: name}, UID: "uid-" + name, Hash: "h1", FirstSeen: time.Now(),
			URL: "https://hooks.example.com/" + name, Timeout: 15 * time.Second, MaxInFlight: 8, Retry: retry.BuiltIn(),
			Signing: plan.Signing{Scheme: plan.SchemeNone},
		})
	}
	return p
}

// publish writes a plan as the manager does.
func (s *site) publish(p *plan.Plan) {
	s.t.Helper()
	w := planstore.NewWriter(s.api, s.api, thePool, "uid")
	if _, _, err := w.Load(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	if err := w.Write(s.t.Context(), p); err != nil {
		s.t.Fatal(err)
	}
}

// replaceIndex puts other bytes where the plan's index is.
func (s *site) replaceIndex(b []byte) {
	s.t.Helper()
	s.alter(v1alpha1.PlanIndexName(thePool.Name), b)
}

// loseShards damages every shard.
func (s *site) loseShards() {
	s.t.Helper()
	for n := range v1alpha1.PlanShards {
		s.alter(v1alpha1.PlanShardName(thePool.Name, n), []byte("damaged"))
	}
}

// alter puts other bytes into a Secret, if there is one.
func (s *site) alter(name string, b []byte) {
	s.t.Helper()
	var o corev1.Secret
	if s.api.Get(s.t.Context(), types.NamespacedName{Namespace: thePool.Namespace, Name: name}, &o) != nil {
		return
	}
	o.Data = map[string][]byte{v1alpha1.PlanSecretKey: b}
	if err := s.api.Update(s.t.Context(), &o); err != nil {
		s.t.Fatal(err)
	}
}

// project brings the plan to the pod's volume, as the kubelet does.
func (s *site) project() {
	s.t.Helper()
	put := func(secret, file string) {
		var o corev1.Secret
		if err := s.api.Get(s.t.Context(), types.NamespacedName{Namespace: thePool.Namespace, Name: secret}, &o); err != nil {
			return // an empty shard has none
		}
		if err := os.WriteFile(filepath.Join(s.plan, file), o.Data[v1alpha1.PlanSecretKey], 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	for n := range v1alpha1.PlanShards {
		put(v1alpha1.PlanShardName(thePool.Name, n), pool.PlanShardFile(n))
	}
	put(v1alpha1.PlanIndexName(thePool.Name), pool.PlanIndexFile)
}

// running is one run of a worker.
type running struct {
	*site
	log    *lines
	cancel context.CancelFunc
	ended  chan error
	// places are the listeners by flag, clients that speak to them.
	places map[string]*place
}

// start starts a worker and waits until it has done what it does at first.
func (s *site) start() *running {
	s.t.Helper()
	r := &running{site: s, log: &lines{}, ended: make(chan error, 1), places: map[string]*place{}}
	for _, flag := range []string{"--listen", "--probes", "--metrics"} {
		r.places[flag] = newPlace()
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	r.cancel = cancel
	o := Options{
		Pool: thePool, Pod: thePod, Data: s.data, PlanDir: s.plan, TLSDir: s.tls, Listen: ":8080", Probes: ":8082", Metrics: ":9090",
		Grace: 5 * time.Second, Version: "test", Log: r.log.logger(),
	}
	out := outside{
		client: s.api, reviews: s.api,
		listen: func(_, flag string) (net.Listener, error) { return r.places[flag], nil },
		engine: func(e *engine.Options) {
			e.Dir = "queue"
			e.Store = func(p *pebble.Options) { p.FS = s.disk }
			e.Deliver = s.receiver
		},
	}
	go func() { r.ended <- run(ctx, o, out) }()
	synctest.Wait()
	return r
}

// stop ends the worker and wants it to end well.
func (r *running) stop() {
	r.t.Helper()
	r.cancel()
	if err := <-r.ended; err != nil {
		r.t.Fatalf("the worker ended with %v", err)
	}
}

// get asks one of the worker's ports.
func (r *running) get(flag, path string) (int, string) {
	r.t.Helper()
	return r.call(flag, http.MethodGet, path, "")
}

// send posts an event to namespace shop.
func (r *running) send(id string) (int, string) {
	r.t.Helper()
	return r.call("--listen", http.MethodPost, "/v1/namespaces/shop/events", fmt.Sprintf(`{"id":%q,"type":"order.created","data":{}}`, id))
}

func (r *running) call(flag, method, path, body string) (int, string) {
	r.t.Helper()
	q, err := http.NewRequestWithContext(r.t.Context(), method, "http://worker"+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+token)
	q.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{DialContext: r.places[flag].dial, DisableKeepAlives: true}
	resp, err := transport.RoundTrip(q)
	if err != nil {
		r.t.Fatalf("%s %s: %v\n%s", method, path, err, r.log)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// want wants a call to be answered with a status, and words in the answer.
func (r *running) want(status int, words string, got int, body string) {
	r.t.Helper()
	if got != status || !strings.Contains(body, words) {
		r.t.Fatalf("answered %d %s, want %d with %q\n%s", got, body, status, words, r.log)
	}
}

// delivered sends an event, and wants it delivered within a second.
func (r *running) delivered(id string) {
	r.t.Helper()
	code, body := r.send(id)
	r.want(http.StatusAccepted, "", code, body)
	time.Sleep(time.Second)
	if n := r.receiver.times(id); n != 1 {
		r.t.Fatalf("event %s came %d times\n%s", id, n, r.log)
	}
}

// place is a listener in memory: connections are pipes, which a bubble's clock doesn't wait
// for.
type place struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPlace() *place { return &place{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *place) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *place) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *place) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

func (p *place) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// lines is a log.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.b.WriteString(time.Now().Format(time.TimeOnly) + " " + prefix + " " + args + "\n")
	}, funcr.Options{})
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lines) count(words string) int { return strings.Count(l.String(), words) }
