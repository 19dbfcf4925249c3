package pebble_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/queue/pebble"
)

// What is replayed or erased while it is about to be forgotten is either gone, and whoever
// asked was told, or wholly there.
func TestForgettingBesideChanges(t *testing.T) {
	s := open(t, pebble.Options{FS: vfs.NewMem()})
	const n = 6000 // over two segments
	var batch []queue.NewEvent
	for i := range n {
		batch = append(batch, newEvent(fmt.Sprint(i), endpoints[0], endpoints[1]))
	}
	acc, err := s.Accept(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range acc {
		for _, ep := range endpoints[:2] {
			s.Record(outcome(ep, a.Seq, queue.Delivered), func(err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	var mu sync.Mutex
	waiting := map[queue.Seq]bool{}
	ctx, cancel := context.WithCancel(t.Context())
	var changes sync.WaitGroup
	begun := make(chan struct{}, 3)
	for g := range 3 {
		changes.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for i := 0; ctx.Err() == nil; i++ {
				if i == 20 {
					begun <- struct{}{}
				}
				seq := queue.Seq(1 + rng.IntN(n))
				if rng.IntN(4) == 0 {
					if _, err := s.Erase(ctx, seq); err == nil {
						mu.Lock()
						delete(waiting, seq)
						mu.Unlock()
					} else if !errors.Is(err, queue.ErrNotFound) && !errors.Is(err, context.Canceled) {
						t.Errorf("erase: %v", err)
					}
					continue
				}
				mu.Lock() // an erasure must not come between the replay and the note of it
				_, err := s.Replay(ctx, endpoints[0], seq, true)
				if err == nil {
					waiting[seq] = true
				}
				mu.Unlock()
				switch {
				case err == nil, errors.Is(err, queue.ErrNotFound), errors.Is(err, queue.ErrAlreadyWaiting), errors.Is(err, queue.ErrErased), errors.Is(err, context.Canceled):
				default:
					t.Errorf("replay: %v", err)
				}
			}
		})
	}
	for range 3 {
		<-begun
	}
	far := time.Now().Add(time.Hour)
	forgot := int64(0)
	for range 3 {
		done, err := s.Prune(t.Context(), queue.Retention{Delivered: far, DeadLetters: far, Identities: far})
		if err != nil {
			t.Fatal(err)
		}
		forgot += done.Events
	}
	cancel()
	changes.Wait()
	if forgot == 0 || len(waiting) == 0 {
		t.Errorf("%d events were forgotten, %d wait", forgot, len(waiting))
	}
	for seq := range waiting {
		ds, err := s.Deliveries(t.Context(), seq)
		if err != nil || len(ds) != 2 || ds[0].State != queue.Pending && ds[0].Reason != queue.ReasonErased || ds[1].State != queue.Delivered {
			t.Errorf("the replayed event %d: %+v, %v", seq, ds, err)
		}
	}
	left, _, err := s.Events(t.Context(), "shop", queue.EventQuery{}, n)
	if err != nil || int64(len(left)) != n-forgot {
		t.Errorf("%d events are left of %d, %d were forgotten, %v", len(left), n, forgot, err)
	}
	if c := s.Counts(endpoints[0]); c.Pending > len(waiting) {
		t.Errorf("%+v, but %d were replayed", c, len(waiting))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A crash at any moment of forgetting leaves every event whole or gone, and what waits or is
// dead is there.
func TestACrashWhileForgetting(t *testing.T) {
	far := time.Now().Add(time.Hour)
	for _, unsynced := range []int{0, 50, 100} {
		for step := 1; ; step++ {
			mem, steps := vfs.NewCrashableMem(), 0
			var crashed *vfs.MemFS
			watched := false
			s := open(t, pebble.Options{FS: onWrite(mem, func() {
				if watched {
					if steps++; steps == step {
						crashed = clone(mem, uint64(step), unsynced)
					}
				}
			})})
			kept := map[queue.Seq]queue.State{}
			for i := range 60 {
				acc, err := s.Accept(t.Context(), []queue.NewEvent{newEvent(fmt.Sprint(i), endpoints[0])})
				if err != nil {
					t.Fatal(err)
				}
				to := queue.Delivered
				switch i {
				case 7, 30:
					to = queue.DeadLettered
				case 8, 45:
					kept[acc[0].Seq] = queue.Pending
					continue
				}
				if to == queue.DeadLettered {
					kept[acc[0].Seq] = to
				}
				if err := record(s, outcome(endpoints[0], acc[0].Seq, to)); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.SetLane(t.Context(), endpoints[0], queue.Lane{}); err != nil { // an fsync
				t.Fatal(err)
			}
			watched = true
			if _, err := s.Erase(t.Context(), 31); err != nil {
				t.Fatal(err)
			}
			if n, err := s.Prune(t.Context(), queue.Retention{Delivered: far, Identities: far}); err != nil || n.Events != 56 {
				t.Fatal(n, err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if crashed == nil {
				if step < 5 {
					t.Errorf("only %d steps were taken", step)
				}
				break
			}
			s = open(t, pebble.Options{FS: crashed})
			for seq, state := range kept {
				if ds, err := s.Deliveries(t.Context(), seq); err != nil || ds[0].State != state {
					t.Errorf("event %d: %+v, %v, want it %s", seq, ds, err, state)
				}
			}
			verifyOneByOne(t, s, 60)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if t.Failed() {
				t.Fatalf("after a crash before step %d", step)
			}
		}
	}
}

// verifyOneByOne holds the events up to a number to being whole, erased or gone.
func verifyOneByOne(t *testing.T, s *pebble.Store, last queue.Seq) {
	t.Helper()
	listed := map[queue.State]int{}
	for seq := queue.Seq(1); seq <= last; seq++ {
		ev, err := s.Event(t.Context(), seq)
		if errors.Is(err, queue.ErrNotFound) {
			if as, err := s.Attempts(t.Context(), seq, endpoints[0]); err != nil || len(as) != 0 {
				t.Errorf("event %d is gone, its attempts %v aren't, %v", seq, as, err)
			}
			continue
		}
		if err != nil && !errors.Is(err, queue.ErrErased) {
			t.Errorf("event %d: %v", seq, err)
			continue
		}
		ds, err := s.Deliveries(t.Context(), seq)
		if err != nil || len(ds) != len(ev.Endpoints) {
			t.Errorf("event %d has deliveries %+v, %v", seq, ds, err)
			continue
		}
		listed[ds[0].State]++
	}
	for _, st := range []queue.State{queue.Pending, queue.Retrying, queue.Delivered, queue.DeadLettered} {
		if ds, _, err := s.List(t.Context(), endpoints[0], st, 0, 1000); err != nil || len(ds) != listed[st] {
			t.Errorf("%d are listed as %s, the events say %d, %v", len(ds), st, listed[st], err)
		}
	}
}
