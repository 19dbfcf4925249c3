package dispatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"github.com/doorstep-dev/doorstep/internal/deliver"
	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/queue/pebble"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

const testKey = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// world is a store on a file system in memory, a dispatcher, and receivers that are
// functions: everything but the network, in virtual time.
type world struct {
	t    *testing.T
	fs   vfs.FS
	wall func() time.Time
	// receive answers attempts; it may sleep.
	receive func(hit) deliver.Result
	plan    *plan.Plan
	// wrap, if set, stands between the dispatcher and the store.
	wrap func(queue.Queue) queue.Queue

	store *pebble.Store
	d     *Dispatcher
	stop  context.CancelFunc
	done  chan struct{}
	next  int
	// undecided: filters can't be asked when events are sent.
	undecided bool

	mu   sync.Mutex
	hits []hit
	open map[string]int // attempts under way, by endpoint
	most map[string]int
	each map[string]int // … by delivery
}

// hit is one request as a receiver sees it.
type hit struct {
	at      time.Time
	host    string
	id      string
	attempt int
	replay  bool
}

type late struct{ w *world }

func (l late) Accepted(e []*queue.StoredEvent) { l.w.d.Accepted(e) }
func (l late) Requeued(d queue.Delivery)       { l.w.d.Requeued(d) }
func (l late) Erased(s queue.Seq, e []plan.EndpointKey) {
	l.w.d.Erased(s, e)
}

// inWorld runs f in a bubble of virtual time with one endpoint, default/orders, and
// the given retry policy.
func inWorld(t *testing.T, receive func(hit) deliver.Result, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			t: t, fs: vfs.NewMem(), receive: receive, open: map[string]int{}, most: map[string]int{}, each: map[string]int{},
			plan: &plan.Plan{Format: plan.Format, Pool: plan.Pool{MaxInFlight: 512}, Endpoints: []plan.Endpoint{endpointNamed("orders")}},
		}
		w.start()
		defer w.end()
		f(w)
	})
}

func endpointNamed(name string) plan.Endpoint {
	return plan.Endpoint{
		EndpointKey: plan.EndpointKey{Namespace: "default", Name: name}, Hash: "1",
		URL: "https://" + name + ".example.com/hook", Timeout: 15 * time.Second, MaxInFlight: 16,
		Signing: plan.Signing{Scheme: plan.SchemeStandardWebhooks, Keys: []plan.SigningKey{{Name: "k", Key: testKey}}},
		Retry:   exact(retry.BuiltIn()),
	}
}

// exact is a policy without jitter.
func exact(p retry.Policy) retry.Policy {
	p.Jitter = retry.Jitter{Type: retry.JitterNone}
	return p
}

func (w *world) start() {
	w.t.Helper()
	var err error
	w.store, err = pebble.Open(pebble.Options{Dir: "/store", FS: w.fs, Wall: w.wall, Listener: late{w}, Log: logr.Discard(),
		Reserve: &pebble.Reserve{Usage: func() (uint64, uint64, error) { return 1 << 40, 1 << 41, nil }}})
	if err != nil {
		w.t.Fatalf("open the store: %v", err)
	}
	seeded := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	var mu sync.Mutex
	var q queue.Queue = w.store
	if w.wrap != nil {
		q = w.wrap(q)
	}
	w.d = New(Options{Queue: q, Deliver: w, Clock: w.store.Clock(), Log: w.logger(), Rand: func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return seeded.Float64()
	}})
	ctx, cancel := context.WithCancel(context.Background())
	w.stop, w.done = cancel, make(chan struct{})
	w.apply()
	go func() { defer close(w.done); _ = w.d.Run(ctx) }()
}

// logger fails the test where dispatch reports that an attempt was made of a
// delivery that was not waiting.
func (w *world) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		if strings.Contains(args, "was not waiting") {
			w.t.Error(args)
		}
	}, funcr.Options{})
}

func (w *world) end() {
	if err := w.d.Stop(time.Minute); err != nil {
		w.t.Error(err)
	}
	w.stop()
	<-w.done
	if err := w.store.Close(); err != nil {
		w.t.Errorf("close the store: %v", err)
	}
}

// restart stops gracefully and starts again.
func (w *world) restart() {
	w.end()
	w.start()
}

// apply uses a copy of the plan: tests change theirs.
func (w *world) apply() {
	p := *w.plan
	p.Endpoints = slices.Clone(w.plan.Endpoints)
	w.d.Apply(context.Background(), &p)
}

// endpoint is the plan's first.
func (w *world) endpoint() *plan.Endpoint { return &w.plan.Endpoints[0] }

func (w *world) key() plan.EndpointKey {
	return plan.EndpointKey{Namespace: "default", Name: "orders"}
}

// Do is the network.
func (w *world) Do(ctx context.Context, r *deliver.Request) deliver.Result {
	h := hit{at: time.Now(), host: r.Destination.Host(), id: r.Event.WebhookID, attempt: r.AttemptNumber, replay: r.Replay}
	w.mu.Lock()
	w.hits = append(w.hits, h)
	w.open[h.host]++
	w.most[h.host] = max(w.most[h.host], w.open[h.host])
	w.each[r.DeliveryID]++
	if w.each[r.DeliveryID] > 1 {
		w.t.Errorf("%s is attempted twice at once", h.id)
	}
	w.mu.Unlock()
	res := w.receive(h)
	if ctx.Err() != nil {
		res = deliver.Result{Reason: deliver.ReasonShutdown}
	}
	w.mu.Lock()
	w.open[h.host]--
	w.each[r.DeliveryID]--
	w.mu.Unlock()
	res.StartedAt, res.Duration = h.at, time.Since(h.at)
	return res
}

// send accepts n events for all endpoints of the plan.
func (w *world) send(n int) {
	w.t.Helper()
	var keys []plan.EndpointKey
	for _, e := range w.plan.Endpoints {
		keys = append(keys, e.EndpointKey)
	}
	events := make([]queue.NewEvent, n)
	for i := range events {
		w.next++
		id := fmt.Sprintf("evt_%06d", w.next)
		events[i] = queue.NewEvent{Endpoints: keys, Event: &event.Event{
			Namespace: "default", ID: id, WebhookID: id, Type: "order.created", Mode: event.ModePlain,
			ContentType: "application/json", Body: []byte(`{"id":"` + id + `"}`),
		}}
	}
	if w.undecided {
		for i := range events {
			events[i].Undecided = keys
		}
	}
	if _, err := w.store.Accept(context.Background(), events); err != nil {
		w.t.Fatalf("accept: %v", err)
	}
}

// after lets virtual time pass.
func (w *world) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) count(s queue.State) int {
	n := 0
	for _, k := range w.store.Endpoints() {
		var after queue.Seq
		for {
			ds, next, err := w.store.List(context.Background(), k, s, after, 1000)
			if err != nil {
				w.t.Fatalf("list: %v", err)
			}
			n += len(ds)
			if next == 0 {
				break
			}
			after = next
		}
	}
	return n
}

// want checks how many deliveries are in each state.
func (w *world) want(waiting, delivered, dead int) {
	w.t.Helper()
	gotWaiting := w.count(queue.Pending) + w.count(queue.Retrying)
	if d, x := w.count(queue.Delivered), w.count(queue.DeadLettered); gotWaiting != waiting || d != delivered || x != dead {
		w.t.Errorf("%d waiting, %d delivered, %d dead-lettered; want %d, %d, %d", gotWaiting, d, x, waiting, delivered, dead)
	}
}

func (w *world) state() State {
	w.t.Helper()
	v, ok := w.d.View(w.key())
	if !ok {
		w.t.Fatal("no lane")
	}
	return v.State
}

func (w *world) seen() []hit {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]hit(nil), w.hits...)
}

func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hits = nil
}

// deadLetter gives the only dead letter.
func (w *world) deadLetter() queue.Delivery {
	w.t.Helper()
	ds, _, err := w.store.List(context.Background(), w.key(), queue.DeadLettered, 0, 10)
	if err != nil || len(ds) != 1 {
		w.t.Fatalf("%d dead letters (%v), want one", len(ds), err)
	}
	return ds[0]
}

// Answers.

func status(code int) deliver.Result {
	return deliver.Result{Status: code, Sent: queue.SentYes, Reason: reasonOf(code)}
}

func reasonOf(code int) string {
	if code/100 == 2 {
		return ""
	}
	return "status"
}

func answers(code int) func(hit) deliver.Result {
	return func(hit) deliver.Result { return status(code) }
}

func timeout() deliver.Result {
	return deliver.Result{Reason: "timeout", Message: "no answer in time", Sent: queue.SentUnknown}
}

// list gives the deliveries of the first endpoint that were never tried.
func (w *world) list(t *testing.T) []queue.Delivery {
	t.Helper()
	ds, err := w.store.Fresh(context.Background(), w.key(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return ds
}
