package dispatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/deliver"
	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// sendKeyed accepts n events, each with the key that key gives for its number; "" is none.
// Their ids tell both.
func (w *world) sendKeyed(n int, key func(int) string) {
	w.t.Helper()
	events := make([]queue.NewEvent, n)
	for i := range events {
		w.next++
		k := key(i)
		id := fmt.Sprintf("%s-%06d", k, w.next)
		ev := &event.Event{
			Namespace: "default", ID: id, WebhookID: id, Type: "order.created", Mode: event.ModePlain,
			ContentType: "application/json", Body: []byte(`{"id":"` + id + `"}`),
		}
		if k != "" {
			ev.Attributes = []event.Attribute{{Name: "partitionkey", Value: k}}
		}
		events[i] = queue.NewEvent{Endpoints: []plan.EndpointKey{w.key()}, Event: ev}
	}
	for page := range slices.Chunk(events, 500) {
		if _, err := w.store.Accept(context.Background(), page); err != nil {
			w.t.Fatalf("accept: %v", err)
		}
	}
}

// book notes what a receiver took, in the order in which it answered 2xx.
type book struct {
	mu    sync.Mutex
	taken map[string]bool
	first []string
}

func (b *book) take(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.taken == nil {
		b.taken = map[string]bool{}
	}
	if !b.taken[id] {
		b.taken[id] = true
		b.first = append(b.first, id)
	}
}

// dice are random numbers for receivers, which run beside each other.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func newDice(seed uint64) *dice {
	return &dice{r: rand.New(rand.NewPCG(seed, seed))} //nolint:gosec // a test
}

func (d *dice) IntN(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

// inOrder checks that the first successes of each key came in order of acceptance.
func (b *book) inOrder(t *testing.T, line func(id string) string) {
	t.Helper()
	last := map[string]string{}
	for _, id := range b.first {
		k := line(id)
		number := id[strings.LastIndexByte(id, '-')+1:]
		if number < last[k] {
			t.Errorf("line %q: %s came after %s", k, number, last[k])
		}
		last[k] = number
	}
}

// keyOfID is the line of an event: its key, or the event alone without one.
func keyOfID(id string) string {
	if strings.HasPrefix(id, "-") {
		return id
	}
	return id[:strings.LastIndexByte(id, '-')]
}

func ordered(w *world, ordering string, schedule ...time.Duration) {
	w.endpoint().Ordering = ordering
	w.endpoint().Hash += "o"
	if len(schedule) > 0 {
		w.endpoint().Retry.Backoff.Schedule = schedule
	}
	w.apply()
}

// Fifty keys, 10,000 events, a receiver that fails at random, and restarts: each key is
// received in order, and nothing is lost.
func TestPerKeyOrder(t *testing.T) {
	random := newDice(3)
	b := &book{}
	inWorld(t, func(h hit) deliver.Result {
		time.Sleep(time.Duration(1+random.IntN(20)) * time.Millisecond)
		if random.IntN(8) == 0 {
			return status(503)
		}
		b.take(h.id)
		return status(204)
	}, func(w *world) {
		ordered(w, plan.OrderingPerKey, slices.Repeat([]time.Duration{2 * time.Second}, 100)...)
		for range 10 {
			w.sendKeyed(1000, func(int) string { return fmt.Sprintf("k%02d", random.IntN(50)) })
			w.after(time.Duration(random.IntN(5000)) * time.Millisecond)
			if random.IntN(2) == 0 {
				w.restart()
			}
		}
		w.after(4 * time.Hour)
		w.want(0, 10000, 0)
		if len(b.first) != 10000 {
			t.Errorf("%d events arrived, want 10000", len(b.first))
		}
		b.inOrder(t, keyOfID)
	})
}

// One key's failing delivery holds that key alone, and a dead letter lets it go on.
func TestAFailingKeyHoldsItselfOnly(t *testing.T) {
	b := &book{}
	inWorld(t, func(h hit) deliver.Result {
		if strings.HasPrefix(h.id, "bad-") && h.id <= "bad-000004" {
			return status(500)
		}
		b.take(h.id)
		return status(204)
	}, func(w *world) {
		ordered(w, plan.OrderingPerKey, 10*time.Minute)
		w.sendKeyed(600, func(i int) string {
			switch i % 3 {
			case 0:
				return "bad"
			case 1:
				return fmt.Sprintf("good%d", i%30)
			}
			return "" // stands in no line
		})
		w.after(10 * time.Second)
		w.want(200, 400, 0)
		w.after(10 * time.Minute)
		// The first of the bad ones is out of attempts; the next one fails as well.
		w.want(199, 400, 1)
		w.after(10 * time.Minute)
		w.want(0, 598, 2)
		b.inOrder(t, keyOfID)
	})
}

func TestOrderOfAll(t *testing.T) {
	b := &book{}
	failures := 3
	inWorld(t, func(h hit) deliver.Result {
		time.Sleep(5 * time.Millisecond)
		if h.id == "-000010" && failures > 0 {
			failures--
			return status(500)
		}
		b.take(h.id)
		return status(204)
	}, func(w *world) {
		ordered(w, plan.OrderingAll, slices.Repeat([]time.Duration{time.Minute}, 10)...)
		w.sendKeyed(500, func(int) string { return "" })
		w.after(20 * time.Second)
		w.want(491, 9, 0)
		w.restart()
		w.after(time.Hour)
		w.want(0, 500, 0)
		b.inOrder(t, func(string) string { return "" })
		if most := w.most["orders.example.com"]; most != 1 {
			t.Errorf("%d attempts at once, want 1", most)
		}
	})
}

// With ordering All a dead letter lets the next one go, and a replayed one goes before
// what is behind it.
func TestADeadLetterLetsTheNextGo(t *testing.T) {
	b := &book{}
	var refuse atomic.Bool
	refuse.Store(true)
	inWorld(t, func(h hit) deliver.Result {
		time.Sleep(time.Second)
		if refuse.Load() && h.id == "-000002" {
			return status(400)
		}
		b.take(h.id)
		return status(204)
	}, func(w *world) {
		ordered(w, plan.OrderingAll)
		w.sendKeyed(20, func(int) string { return "" })
		w.after(5500 * time.Millisecond)
		w.want(15, 4, 1)
		refuse.Store(false)
		dead := w.deadLetter()
		if _, err := w.store.Replay(context.Background(), w.key(), dead.Seq, false); err != nil {
			t.Fatal(err)
		}
		w.after(time.Minute)
		w.want(0, 20, 0)
		want := []string{"-000001", "-000003", "-000004", "-000005", "-000006", "-000002", "-000007"}
		if !slices.Equal(b.first[:7], want) {
			t.Errorf("arrived as %v, want %v", b.first[:7], want)
		}
	})
}

// Replays of one key, in any order, go by acceptance; what is under way goes on.
func TestReplaysKeepTheOrderOfTheirKey(t *testing.T) {
	b := &book{}
	var refuse atomic.Bool
	refuse.Store(true)
	inWorld(t, func(h hit) deliver.Result {
		time.Sleep(100 * time.Millisecond)
		if refuse.Load() {
			return status(400)
		}
		b.take(h.id)
		return status(204)
	}, func(w *world) {
		ordered(w, plan.OrderingPerKey)
		w.sendKeyed(40, func(i int) string { return fmt.Sprintf("k%d", i%2) })
		w.after(time.Minute)
		w.want(0, 0, 40)
		refuse.Store(false)
		ds, _, err := w.store.List(context.Background(), w.key(), queue.DeadLettered, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		w.endpoint().Suspend = true
		w.apply()
		slices.Reverse(ds)
		for _, d := range ds {
			if _, err := w.store.Replay(context.Background(), w.key(), d.Seq, false); err != nil {
				t.Fatal(err)
			}
		}
		w.endpoint().Suspend = false
		w.apply()
		w.after(time.Minute)
		w.want(0, 40, 0)
		b.inOrder(t, keyOfID)
	})
}

// Ordering that is set, changed and removed while deliveries are under way loses none.
func TestOrderingChangesWhileDeliveriesAreUnderWay(t *testing.T) {
	random := newDice(11)
	inWorld(t, func(hit) deliver.Result {
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		if random.IntN(6) == 0 {
			return status(500)
		}
		return status(204)
	}, func(w *world) {
		orderings := []string{"", plan.OrderingPerKey, plan.OrderingAll}
		for i := range 30 {
			ordered(w, orderings[i%3], slices.Repeat([]time.Duration{time.Second}, 100)...)
			w.sendKeyed(60, func(int) string { return []string{"", "a", "b", "c"}[random.IntN(4)] })
			w.after(time.Duration(random.IntN(3000)) * time.Millisecond)
		}
		w.after(12 * time.Hour)
		w.want(0, 1800, 0)
	})
}

// More keys wait for a retry than a lane remembers: it begins no more of them, and in
// the end all are delivered, each key in order.
func TestMoreKeysFailThanALaneRemembers(t *testing.T) {
	var failing atomic.Bool
	failing.Store(true)
	var n atomic.Int32
	b := &book{}
	inWorld(t, func(h hit) deliver.Result {
		// One in four of the others succeeds, so that the lane goes on at full speed.
		if n.Add(1)%4 != 0 && failing.Load() {
			return status(500)
		}
		b.take(h.id)
		return status(204)
	}, func(w *world) {
		w.endpoint().MaxInFlight = 200
		ordered(w, plan.OrderingPerKey, slices.Repeat([]time.Duration{time.Hour}, 20)...)
		const keys = maxHeads + 1000
		w.sendKeyed(2*keys, func(i int) string { return fmt.Sprintf("k%d", i%keys) })
		w.after(10 * time.Minute)
		w.d.mu.Lock()
		heads := len(w.d.lanes[w.key()].line.heads)
		w.d.mu.Unlock()
		if heads > maxHeads {
			t.Errorf("%d keys in memory, at most %d are allowed", heads, maxHeads)
		}
		failing.Store(false)
		w.after(10 * time.Hour)
		w.want(0, 2*keys, 0)
		b.inOrder(t, keyOfID)
	})
}
