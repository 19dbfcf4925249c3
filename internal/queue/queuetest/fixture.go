package queuetest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

// tb is what *testing.T and *rapid.T have in common.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// fixture is an open store with everything the tests do with one.
type fixture struct {
	tb
	ctx      context.Context
	open     Open
	wall     *wallClock
	queue    queue.Queue
	listener *recorder
}

// start opens a new store that is closed at the end of the test.
func start(t *testing.T, place func(*testing.T) Open) *fixture {
	t.Helper()
	f := &fixture{tb: t, ctx: t.Context(), open: place(t), wall: newWallClock(), listener: &recorder{}}
	f.start()
	t.Cleanup(func() { _ = f.queue.Close() })
	return f
}

func (f *fixture) start() {
	f.Helper()
	q, err := f.open(Options{Wall: f.wall.now, Listener: f.listener})
	if err != nil {
		f.Fatalf("open: %v", err)
	}
	f.queue = q
}

func (f *fixture) reopen() {
	f.Helper()
	f.must(f.queue.Close())
	f.start()
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatalf("%v", err)
	}
}

// accept accepts events that must be taken.
func (f *fixture) accept(events ...queue.NewEvent) []queue.Accepted {
	f.Helper()
	acc, err := f.queue.Accept(f.ctx, events)
	f.must(err)
	if len(acc) != len(events) {
		f.Fatalf("%d results for %d events", len(acc), len(events))
	}
	return acc
}

// one accepts one event for one endpoint and gives its sequence number.
func (f *fixture) one(id string, ep plan.EndpointKey) queue.Seq {
	f.Helper()
	return f.accept(newEvent(ep.Namespace, "", id, "body of "+id, ep))[0].Seq
}

// many accepts n events for one endpoint.
func (f *fixture) many(n int, ep plan.EndpointKey) []queue.Seq {
	f.Helper()
	var events []queue.NewEvent
	for i := range n {
		events = append(events, newEvent(ep.Namespace, "", fmt.Sprintf("%s-%d", ep.Name, i), "x", ep))
	}
	var seqs []queue.Seq
	for _, a := range f.accept(events...) {
		seqs = append(seqs, a.Seq)
	}
	return seqs
}

// record stores an outcome and waits until it is written.
func (f *fixture) record(o queue.Outcome) error {
	f.Helper()
	done := make(chan error, 2)
	f.queue.Record(o, func(err error) { done <- err })
	return <-done
}

// bring makes a waiting delivery be in a state.
func (f *fixture) bring(ep plan.EndpointKey, seq queue.Seq, to queue.State) {
	f.Helper()
	switch to {
	case queue.Pending:
	case queue.Retrying:
		f.must(f.record(failed(ep, seq, f.now().Add(time.Hour), time.Hour)))
	case queue.DeadLettered:
		f.must(f.record(dead(ep, seq)))
	case queue.Delivered:
		f.must(f.record(delivered(ep, seq)))
	case queue.FilterError:
		f.settle(ep, seq, to, queue.ReasonFilterError)
	case queue.Discarded:
		f.settle(ep, seq, to, queue.ReasonFilterFalse)
	}
}

// now is about the store's steady time, in whole microseconds: a store need not keep
// finer ones.
func (f *fixture) now() time.Time { return f.wall.now().UTC().Truncate(time.Microsecond) }

// get gives one delivery, which must exist.
func (f *fixture) get(ep plan.EndpointKey, seq queue.Seq) queue.Delivery {
	f.Helper()
	ds, err := f.queue.Deliveries(f.ctx, seq)
	f.must(err)
	for _, d := range ds {
		if d.Endpoint == ep {
			return d
		}
	}
	f.Fatalf("event %d has no delivery to %s", seq, ep)
	return queue.Delivery{}
}

func (f *fixture) wantState(ep plan.EndpointKey, seq queue.Seq, want queue.State) queue.Delivery {
	f.Helper()
	d := f.get(ep, seq)
	if d.State != want {
		f.Errorf("delivery %d to %s is %s, want %s", seq, ep, d.State, want)
	}
	return d
}

func (f *fixture) wantCounts(ep plan.EndpointKey, want queue.Counts) {
	f.Helper()
	got := f.queue.Counts(ep)
	if want.WaitingBytes == 0 {
		got.WaitingBytes = 0 // a test of its own
	}
	if got != want {
		f.Errorf("counts of %s: %+v, want %+v", ep, got, want)
	}
}

// list gives all deliveries of an endpoint in a state, page by page.
func (f *fixture) list(ep plan.EndpointKey, state queue.State, limit int) []queue.Delivery {
	f.Helper()
	var all []queue.Delivery
	for after := queue.Seq(0); ; {
		ds, next, err := f.queue.List(f.ctx, ep, state, after, limit)
		f.must(err)
		if len(ds) > limit {
			f.Fatalf("a page of %d, the limit is %d", len(ds), limit)
		}
		all = append(all, ds...)
		if next == 0 {
			return all
		}
		if next <= after {
			f.Fatalf("page after %d leads on to %d", after, next)
		}
		after = next
	}
}

func seqsOf(ds []queue.Delivery) []queue.Seq {
	out := []queue.Seq{}
	for _, d := range ds {
		out = append(out, d.Seq)
	}
	return out
}

func (f *fixture) wantSeqs(what string, got []queue.Delivery, want ...queue.Seq) {
	f.Helper()
	if g := seqsOf(got); !slices.Equal(g, want) {
		f.Errorf("%s: %v, want %v", what, g, want)
	}
}

// ---- events and outcomes

var (
	orders  = plan.EndpointKey{Namespace: "shop", Name: "orders"}
	billing = plan.EndpointKey{Namespace: "shop", Name: "billing"}
	foreign = plan.EndpointKey{Namespace: "bank", Name: "orders"}
)

func newEvent(namespace, source, id, body string, eps ...plan.EndpointKey) queue.NewEvent {
	return queue.NewEvent{Endpoints: eps, Event: &event.Event{
		Namespace: namespace, Source: source, ID: id, WebhookID: event.WebhookID(source, id),
		Type: "order.created", Mode: event.ModePlain, ContentType: "application/json",
		Body: []byte(body), Hash: sha256.Sum256([]byte(body)),
	}}
}

var attemptAt = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func delivered(ep plan.EndpointKey, seq queue.Seq) queue.Outcome {
	return queue.Outcome{Seq: seq, Endpoint: ep, To: queue.Delivered, Attempt: queue.Attempt{
		StartedAt: attemptAt, Duration: 12 * time.Millisecond, Status: 204, Class: retry.Delivered,
		Sent: queue.SentYes, HandlerVersion: "v2",
	}}
}

func failed(ep plan.EndpointKey, seq queue.Seq, due time.Time, delay time.Duration) queue.Outcome {
	return queue.Outcome{Seq: seq, Endpoint: ep, To: queue.Retrying, DueAt: due, Delay: delay, Attempt: queue.Attempt{
		StartedAt: attemptAt, Duration: time.Second, Status: 503, Class: retry.Retry, Reason: "server_error",
		Message: "the receiver answered 503", Sent: queue.SentYes, HandlerVersion: "v1", Response: []byte("busy\x00\xff"),
	}}
}

func dead(ep plan.EndpointKey, seq queue.Seq) queue.Outcome {
	return queue.Outcome{Seq: seq, Endpoint: ep, To: queue.DeadLettered, Reason: queue.ReasonRejected, Attempt: queue.Attempt{
		StartedAt: attemptAt, Status: 400, Class: retry.DeadLetter, Reason: "client_error", Sent: queue.SentYes,
	}}
}

// ---- the world around a store

// wallClock is a wall clock that can be set.
type wallClock struct {
	mu     sync.Mutex
	offset time.Duration
}

func newWallClock() *wallClock { return &wallClock{} }

func (w *wallClock) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.offset)
}

func (w *wallClock) step(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.offset += d
}

// recorder is a listener that remembers.
type recorder struct {
	mu       sync.Mutex
	accepted []*queue.StoredEvent
	requeued []queue.Delivery
	erased   []erasure
}

type erasure struct {
	seq       queue.Seq
	endpoints []plan.EndpointKey
}

func (r *recorder) Erased(seq queue.Seq, endpoints []plan.EndpointKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.erased = append(r.erased, erasure{seq, endpoints})
}

func (r *recorder) Accepted(events []*queue.StoredEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.accepted = append(r.accepted, events...)
}

func (r *recorder) Requeued(d queue.Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requeued = append(r.requeued, d)
}

// seqs are those of the events told of, in the order they came.
func (r *recorder) seqs() []queue.Seq {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []queue.Seq{}
	for _, e := range r.accepted {
		out = append(out, e.Seq)
	}
	return out
}

func (r *recorder) replays() []queue.Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requeued)
}
