package pebble_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/queue/pebble"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

var osFS = vfs.Default

var endpoints = []plan.EndpointKey{
	{Namespace: "shop", Name: "audit"}, {Namespace: "shop", Name: "billing"}, {Namespace: "shop", Name: "orders"},
}

func newEvent(id string, eps ...plan.EndpointKey) queue.NewEvent {
	body := []byte("body of " + id)
	return queue.NewEvent{Endpoints: eps, Event: &event.Event{
		Namespace: "shop", ID: id, WebhookID: event.WebhookID("", id), Type: "order.created", Mode: event.ModePlain,
		ContentType: "application/json", Body: body, Hash: sha256.Sum256(body),
	}}
}

func outcome(ep plan.EndpointKey, seq queue.Seq, to queue.State) queue.Outcome {
	o := queue.Outcome{Seq: seq, Endpoint: ep, To: to, Attempt: queue.Attempt{StartedAt: time.Now().UTC(), Status: 200, Class: retry.Delivered, Sent: queue.SentYes}}
	if to == queue.Retrying {
		o.DueAt, o.Delay = time.Now().UTC().Add(time.Hour), time.Hour
	}
	return o
}

func record(s *pebble.Store, o queue.Outcome) error {
	done := make(chan error, 1)
	s.Record(o, func(err error) { done <- err })
	return <-done
}

func open(t *testing.T, o pebble.Options) *pebble.Store {
	t.Helper()
	if o.Dir == "" {
		o.Dir = "q"
	}
	s, err := pebble.Open(o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return s
}

// ledger is what a load was told, and so what must be there afterwards.
type ledger struct {
	mu     sync.Mutex
	events map[string]int // id → endpoints
	acks   atomic.Int64
}

func newLedger() *ledger {
	return &ledger{events: map[string]int{}}
}

// snapshot is the ledger as it is now.
func (l *ledger) snapshot() *ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := newLedger()
	for k, v := range l.events {
		c.events[k] = v
	}
	return c
}

// load makes n calls of Accept, of one to three events, and delivers half of them, until
// something fails. name makes its ids unlike others.
func (l *ledger) load(ctx context.Context, s *pebble.Store, name string, n int) error {
	var outcomes sync.WaitGroup
	defer outcomes.Wait()
	for i := range n {
		var batch []queue.NewEvent
		for j := range 1 + i%3 {
			batch = append(batch, newEvent(name+"-"+strconv.Itoa(i)+"-"+strconv.Itoa(j), endpoints[:(i+j)%4]...))
		}
		acc, err := s.Accept(ctx, batch)
		if err != nil {
			return err
		}
		l.mu.Lock()
		for _, e := range batch {
			l.events[e.Event.ID] = len(e.Endpoints)
		}
		l.mu.Unlock()
		l.acks.Add(1)
		if i%2 == 0 {
			continue
		}
		for j, a := range acc {
			for k, ep := range batch[j].Endpoints {
				outcomes.Add(1)
				to := []queue.State{queue.Delivered, queue.Retrying, queue.DeadLettered}[k]
				s.Record(outcome(ep, a.Seq, to), func(error) { outcomes.Done() })
			}
		}
	}
	return nil
}

// verify holds a store to a ledger, and to being whole: no event without its payload,
// identity and every delivery, no delivery whose attempts or place are not its own.
func (l *ledger) verify(t *testing.T, s *pebble.Store) {
	t.Helper()
	ctx := t.Context()
	for id, eps := range l.events {
		ev, err := s.Find(ctx, "shop", id)
		if err != nil {
			t.Errorf("the acknowledged event %s: %v", id, err)
			continue
		}
		if len(ev.Endpoints) != eps {
			t.Errorf("event %s has endpoints %v, want %d", id, ev.Endpoints, eps)
		}
	}
	listed := map[plan.EndpointKey]map[queue.State]int{}
	for before := queue.Seq(0); ; {
		evs, next, err := s.Events(ctx, "shop", queue.EventQuery{Cursor: before}, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range evs {
			verifyWhole(t, s, e, listed)
		}
		if next == 0 {
			break
		}
		before = next
	}
	for _, ep := range endpoints {
		c := queue.Counts{Pending: listed[ep][queue.Pending], Retrying: listed[ep][queue.Retrying], DeadLettered: listed[ep][queue.DeadLettered]}
		got := s.Counts(ep)
		got.WaitingBytes = 0 // counted by the conformance suite
		if got != c {
			t.Errorf("counts of %s: %+v, but its events say %+v", ep, got, c)
		}
		for st, n := range listed[ep] {
			if ds, _, err := s.List(ctx, ep, st, 0, 1<<20); err != nil || len(ds) != n {
				t.Errorf("%d of %s are listed as %s, %v; its events say %d", len(ds), ep, st, err, n)
			}
		}
	}
}

func verifyWhole(t *testing.T, s *pebble.Store, e *queue.StoredEvent, listed map[plan.EndpointKey]map[queue.State]int) {
	t.Helper()
	ctx := t.Context()
	ev, err := s.Event(ctx, e.Seq)
	if err != nil || string(ev.Body) != "body of "+ev.ID || sha256.Sum256(ev.Body) != ev.Hash {
		t.Errorf("event %d is half there: %v", e.Seq, err)
		return
	}
	if found, err := s.Find(ctx, "shop", ev.WebhookID); err != nil || found.Seq != e.Seq {
		t.Errorf("event %d by its identity: %v", e.Seq, err)
	}
	ds, err := s.Deliveries(ctx, e.Seq)
	if err != nil || len(ds) != len(ev.Endpoints) {
		t.Errorf("event %d has deliveries %+v, %v; want %v", e.Seq, ds, err, ev.Endpoints)
	}
	for _, d := range ds {
		if listed[d.Endpoint] == nil {
			listed[d.Endpoint] = map[queue.State]int{}
		}
		listed[d.Endpoint][d.State]++
		as, err := s.Attempts(ctx, e.Seq, d.Endpoint)
		if err != nil || len(as) != d.Attempts {
			t.Errorf("delivery %d to %s counts %d attempts and has %d, %v", e.Seq, d.Endpoint, d.Attempts, len(as), err)
		}
	}
}

// ---- file systems that misbehave

// hangingFS is a MemFS whose syncs wait while it is held.
type hangingFS struct {
	vfs.FS
	mem  *vfs.MemFS
	mu   sync.Mutex
	held chan struct{} // nil: not held
}

func newHangingFS() *hangingFS {
	h := &hangingFS{mem: vfs.NewCrashableMem()}
	h.FS = errorfs.Wrap(h.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			h.mu.Lock()
			c := h.held
			h.mu.Unlock()
			if c != nil {
				<-c
			}
		}
		return nil
	}))
	return h
}

func (h *hangingFS) hold() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = make(chan struct{})
}

func (h *hangingFS) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.held)
	h.held = nil
}

// tree is everything in a folder, by path.
func tree(t *testing.T, fs vfs.FS, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	for _, n := range names {
		path := fs.PathJoin(dir, n)
		info, err := fs.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		out[path] = fmt.Sprint(info.Mode(), info.ModTime())
		if info.IsDir() {
			for k, v := range tree(t, fs, path) {
				out[k] = v
			}
			continue
		}
		f, err := fs.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, info.Size())
		if _, err := f.ReadAt(b, 0); err != nil && info.Size() > 0 {
			t.Fatal(err)
		}
		out[path] += string(b)
		if err := errors.Join(f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// onWrite calls f before each operation that writes.
func onWrite(fs vfs.FS, f func()) vfs.FS {
	var mu sync.Mutex
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			mu.Lock()
			defer mu.Unlock()
			f()
		}
		return nil
	}))
}

func readAll(fs vfs.FS, path string) (string, error) {
	f, err := fs.Open(path)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(f)
	return string(b), errors.Join(err, f.Close())
}
