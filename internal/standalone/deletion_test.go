package standalone

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/go-logr/logr"

	"github.com/doorstep-dev/doorstep/internal/deliver"
	"github.com/doorstep-dev/doorstep/internal/dispatch"
	"github.com/doorstep-dev/doorstep/internal/engine"
	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/manifest"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/queue/pebble"
)

// bubble is a process in virtual time: real manifests, planner, plans, store and lanes.
// Only the network is a function, and manifests are looked at when the test says so.
type bubble struct {
	*site
	p        *process
	loader   *manifest.Loader
	ctx      context.Context
	up       atomic.Bool
	attempts atomic.Int32
}

var ordersKey = plan.EndpointKey{Namespace: "shop", Name: "orders"}

// Do is the network: a receiver that answers 500 until it is up.
func (b *bubble) Do(context.Context, *deliver.Request) deliver.Result {
	b.attempts.Add(1)
	if b.up.Load() {
		return deliver.Result{Status: 204, Sent: queue.SentYes}
	}
	return deliver.Result{Status: 500, Reason: deliver.ReasonServerError, Sent: queue.SentYes}
}

func inBubble(t *testing.T, f func(b *bubble)) {
	t.Helper()
	s := newSite(t)
	s.usual("https://orders.invalid/in")
	synctest.Test(t, func(t *testing.T) {
		o := s.options()
		o.Out, o.Log = &lockedBuffer{}, logr.Discard()
		b := &bubble{site: s, p: &process{Options: o}}
		b.t = t
		if err := makePrivateFolder(o.Data); err != nil {
			t.Fatal(err)
		}
		var err error
		b.p.engine, err = engine.Open(t.Context(), engine.Options{Dir: "/store", Log: logr.Discard(), Grace: o.Grace, Deliver: b, Store: func(s *pebble.Options) {
			s.FS, s.Reserve = vfs.NewMem(), &pebble.Reserve{Usage: func() (uint64, uint64, error) { return 1 << 40, 1 << 41, nil }}
		}})
		if err != nil {
			t.Fatal(err)
		}
		if b.p.planner, err = newPlanner(b.p); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		b.ctx = ctx
		b.p.engine.Use(ctx, b.p.planner.first())
		// Watching files waits for the operating system, which knows no virtual time.
		b.loader, b.p.planner.loader = b.p.planner.loader, nil
		ended := make(chan error, 2)
		go func() { ended <- b.p.planner.run(ctx) }()
		go func() { ended <- b.p.engine.Lanes().Run(ctx) }()
		f(b)
		cancel()
		<-ended
		<-ended
		if err := b.p.engine.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// look reads the manifests, as a change of them does.
func (b *bubble) look() {
	pl := b.p.planner
	pl.mu.Lock()
	pl.snapshot = b.loader.Load()
	pl.mu.Unlock()
	pl.refresh(b.ctx)
}

func (b *bubble) accept(n int) {
	b.t.Helper()
	events := make([]queue.NewEvent, n)
	for i := range events {
		id := fmt.Sprintf("evt_%04d", i)
		events[i] = queue.NewEvent{Endpoints: []plan.EndpointKey{ordersKey}, Event: &event.Event{
			Namespace: "shop", ID: id, WebhookID: id, Type: "a.b", Mode: event.ModePlain, ContentType: "application/json", Body: []byte("{}"),
		}}
	}
	if _, err := b.p.engine.Store().Accept(b.ctx, events); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bubble) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (b *bubble) want(when string, state dispatch.State, waiting, dead int) {
	b.t.Helper()
	v, _ := b.p.engine.Lanes().View(ordersKey)
	c := b.p.engine.Store().Counts(ordersKey)
	if v.State != state || c.Waiting() != waiting || c.DeadLettered != dead {
		b.t.Errorf("%s: %v with %d waiting and %d dead-lettered; want %v, %d, %d", when, v.State, c.Waiting(), c.DeadLettered, state, waiting, dead)
	}
}

// Absent, then deleted after 10 s, then dead-lettered once after a quarter of an hour.
func TestADeletionEndsInDeadLettersOnce(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.accept(700)
		b.after(time.Second)
		b.remove("orders.yaml")
		b.look()
		b.attempts.Store(0)
		b.after(9 * time.Second)
		b.want("after 9 s", dispatch.NotInPlan, 700, 0)
		b.after(2 * time.Second)
		b.want("after 11 s", dispatch.Missing, 700, 0)
		b.after(14*time.Minute + 45*time.Second)
		b.want("just before a quarter of an hour", dispatch.Missing, 700, 0)
		b.after(time.Minute)
		dead, _, err := b.p.engine.Store().List(b.ctx, ordersKey, queue.DeadLettered, 0, 1000)
		if err != nil || len(dead) != 700 {
			b.t.Fatalf("%d dead letters, %v; want all 700", len(dead), err)
		}
		for _, d := range dead {
			if d.Reason != queue.ReasonEndpointDeleted {
				b.t.Fatalf("reason %q, want %q", d.Reason, queue.ReasonEndpointDeleted)
			}
		}
		ended := dead[0].EndedAt
		b.after(24 * time.Hour)
		if dead, _, err = b.p.engine.Store().List(b.ctx, ordersKey, queue.DeadLettered, 0, 1000); err != nil || len(dead) != 700 || !dead[0].EndedAt.Equal(ended) {
			b.t.Errorf("a day later: %d dead letters (%v), the first ended %v, not %v", len(dead), err, dead[0].EndedAt, ended)
		}
		if n := b.attempts.Load(); n != 0 {
			b.t.Errorf("%d attempts after the deletion", n)
		}
	})
}

func TestAnEndpointMadeAgainInTimeFindsItsEvents(t *testing.T) {
	for name, gone := range map[string]time.Duration{
		"while it is only absent":   9 * time.Second,
		"while it is missing":       14 * time.Minute,
		"just before it's for good": 15*time.Minute + 5*time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.accept(700)
				b.after(time.Second)
				b.remove("orders.yaml")
				b.look()
				b.after(gone)
				b.up.Store(true)
				b.usual("https://orders.invalid/new")
				b.look()
				b.after(10 * time.Minute)
				b.want("made again", dispatch.Active, 0, 0)
			})
		})
	}
}

// A look that is incomplete between the complete ones begins the 10 s anew.
func TestABrokenFileHoldsADeletionBack(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.accept(1)
		b.after(time.Second)
		b.remove("orders.yaml")
		b.look()
		b.after(9 * time.Second)
		b.write("quick.yaml", "a: [\n")
		b.look()
		b.after(24 * time.Hour)
		b.want("with a broken file beside it", dispatch.NotInPlan, 1, 0)
		b.write("quick.yaml", quickYAML)
		b.look()
		b.after(9 * time.Second)
		b.want("9 s after it was mended", dispatch.NotInPlan, 1, 0)
		b.after(2 * time.Second)
		b.want("11 s after it was mended", dispatch.Missing, 1, 0)
	})
}
