package pebble_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/goleak"

	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/queue/pebble"
)

// From some write on, every write fails. Then either the store says so, or Fatal is
// called; what was acknowledged is there after a restart, and what wasn't can be sent
// again. Cases IN4, DD80, QD98.
func TestFailingWrites(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 2))
			mem, known := vfs.NewCrashableMem(), newLedger()
			var left atomic.Int64
			left.Store(1 << 40)
			fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && left.Add(-1) < 0 {
					return errorfs.ErrInjected
				}
				return nil
			}))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var fatal atomic.Bool
			s := open(t, pebble.Options{FS: fs, Fatal: func(string) {
				fatal.Store(true)
				cancel()
				runtime.Goexit() // as the process's end would, for this goroutine
			}})
			left.Store(rng.Int64N(100))
			var failed atomic.Int64
			var wg sync.WaitGroup
			for g := range 3 {
				wg.Go(func() {
					for i := range 200 {
						id := fmt.Sprintf("%d-%d", g, i)
						_, err := s.Accept(ctx, []queue.NewEvent{newEvent(id, endpoints...)})
						if err != nil {
							failed.Add(1)
							return
						}
						known.mu.Lock()
						known.events[id] = len(endpoints)
						known.mu.Unlock()
					}
				})
			}
			wg.Wait()
			if failed.Load() != 3 {
				t.Fatalf("%d of 3 producers were told", failed.Load())
			}
			if s.Health() == nil && !fatal.Load() {
				t.Error("the store failed and is healthy")
			}
			// The process ends here; the machine may, too.
			crashed := clone(mem, seed, rng.IntN(101))
			if !fatal.Load() {
				left.Store(1 << 40) // let it close
				_ = s.Close()
			}
			s = open(t, pebble.Options{FS: crashed})
			known.verify(t, s)
			for g := range 3 {
				for i := range 200 {
					id := fmt.Sprintf("%d-%d", g, i)
					acc, err := s.Accept(t.Context(), []queue.NewEvent{newEvent(id, endpoints...)})
					if err != nil {
						t.Fatal(err)
					}
					if _, told := known.events[id]; told && !acc[0].Duplicate {
						t.Errorf("the acknowledged event %s was stored again", id)
					}
					known.events[id] = len(endpoints)
				}
			}
			known.verify(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A refused event is not known: sent again it is stored. Cases IN4, DD80; and QD88:
// while space is short deliveries go on, and events are taken again when it is back.
func TestReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free atomic.Uint64
		free.Store(100 << 20)
		s := open(t, pebble.Options{FS: vfs.NewMem(), Reserve: &pebble.Reserve{
			Usage: func() (uint64, uint64, error) { return free.Load(), 1 << 30, nil },
		}})
		defer s.Close() //nolint:errcheck // a test's end
		// A tenth of the volume is 102.4 MiB.
		event := []queue.NewEvent{newEvent("evt_9", endpoints[0])}
		if _, err := s.Accept(t.Context(), event); !errors.Is(err, queue.ErrNoSpace) || !strings.Contains(err.Error(), "100 MiB free, 102 MiB") {
			t.Fatalf("answer %v, want ErrNoSpace with the figures", err)
		}
		free.Store(200 << 20)
		time.Sleep(time.Second)
		acc, err := s.Accept(t.Context(), event)
		if err != nil || acc[0].Duplicate {
			t.Fatalf("the same event when space is back: %+v, %v", acc, err)
		}
		free.Store(1 << 20)
		time.Sleep(time.Second)
		if _, err := s.Accept(t.Context(), []queue.NewEvent{newEvent("2", endpoints[0])}); !errors.Is(err, queue.ErrNoSpace) {
			t.Errorf("answer %v, want ErrNoSpace", err)
		}
		if err := record(s, outcome(endpoints[0], acc[0].Seq, queue.Delivered)); err != nil {
			t.Errorf("a delivery's outcome while space is short: %v", err)
		}
		if err := s.Health(); err != nil {
			t.Errorf("short of space is not broken: %v", err)
		}
	})
}

func TestReserveDefault(t *testing.T) {
	for _, c := range []struct {
		name        string
		free, total uint64
		err         error
		bytes       uint64
		full        bool
	}{
		{name: "a tenth of a small volume, just kept", free: 1 << 30, total: 10 << 30},
		{name: "a tenth of a small volume, broken", free: 1<<30 - 1, total: 10 << 30, full: true},
		{name: "at most 2 GiB, just kept", free: 2 << 30, total: 1 << 40},
		{name: "at most 2 GiB, broken", free: 2<<30 - 1, total: 1 << 40, full: true},
		{name: "as configured, kept", free: 5, total: 1 << 40, bytes: 5},
		{name: "as configured, broken", free: 4, total: 1 << 40, bytes: 5, full: true},
		{name: "a volume that can't tell isn't full", err: errors.New("unsupported")},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, pebble.Options{FS: vfs.NewMem(), Reserve: &pebble.Reserve{
				Bytes: c.bytes, Usage: func() (uint64, uint64, error) { return c.free, c.total, c.err },
			}})
			defer s.Close() //nolint:errcheck // a test's end
			_, err := s.Accept(t.Context(), []queue.NewEvent{newEvent("1")})
			if full := errors.Is(err, queue.ErrNoSpace); full != c.full || err != nil && !full {
				t.Errorf("answer %v", err)
			}
		})
	}
}

// A disk that hangs is noticed, holds up nobody who doesn't want to wait, and loses
// nothing when it comes back.
func TestHangingDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := newHangingFS()
		s := open(t, pebble.Options{FS: fs})
		fs.hold()
		answer := make(chan error, 1)
		go func() {
			_, err := s.Accept(context.Background(), []queue.NewEvent{newEvent("1", endpoints[0])})
			answer <- err
		}()
		time.Sleep(9 * time.Second)
		if err := s.Health(); err != nil {
			t.Errorf("after 9 s: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Accept(ctx, []queue.NewEvent{newEvent("2", endpoints[0])}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller with a deadline: %v", err)
		}
		time.Sleep(2 * time.Second)
		if err := s.Health(); err == nil || !strings.Contains(err.Error(), "disk") {
			t.Errorf("after 12 s: %v, want the disk's fault", err)
		}
		if c := s.Counts(endpoints[1]); c != (queue.Counts{}) {
			t.Errorf("reads go on, but count %+v", c)
		}
		fs.release()
		if err := <-answer; err != nil {
			t.Errorf("the disk is back: %v", err)
		}
		synctest.Wait()
		if err := s.Health(); err != nil {
			t.Errorf("the disk is back: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// Close wakes everybody who waits for a place, at once, although the disk hangs; and
// what was handed over before is answered when the disk is back.
func TestCloseWakesThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := newHangingFS()
		s := open(t, pebble.Options{FS: fs})
		acc, err := s.Accept(t.Context(), []queue.NewEvent{newEvent("first", endpoints[0])})
		if err != nil {
			t.Fatal(err)
		}
		fs.hold()
		var closed, stored, other atomic.Int64
		count := func(err error) {
			switch {
			case err == nil:
				stored.Add(1)
			case errors.Is(err, queue.ErrClosed):
				closed.Add(1)
			default:
				other.Add(1)
			}
		}
		const n = 4000
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				_, err := s.Accept(context.Background(), []queue.NewEvent{newEvent(fmt.Sprint(i), endpoints[0])})
				count(err)
			})
		}
		wg.Go(func() { s.Record(outcome(endpoints[0], acc[0].Seq, queue.Delivered), func(error) {}) })
		synctest.Wait()
		begin := time.Now()
		done := make(chan error, 1)
		go func() { done <- s.Close() }()
		synctest.Wait()
		if closed.Load() == 0 || time.Since(begin) != 0 {
			t.Errorf("%d callers were woken within %s", closed.Load(), time.Since(begin))
		}
		if stored.Load() != 0 {
			t.Errorf("%d events were acknowledged by a disk that hangs", stored.Load())
		}
		fs.release()
		if err := <-done; err != nil {
			t.Errorf("close: %v", err)
		}
		wg.Wait()
		if stored.Load()+closed.Load() != n || stored.Load() == 0 {
			t.Errorf("%d stored, %d closed, %d other", stored.Load(), closed.Load(), other.Load())
		}
		s = open(t, pebble.Options{FS: fs})
		c := s.Counts(endpoints[0])
		if got := int64(c.Pending); got != stored.Load() && got != stored.Load()+1 {
			t.Errorf("%d are pending, %d were acknowledged", got, stored.Load())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// A store that can't keep up says so, after a while.
func TestOverloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := newHangingFS()
		s := open(t, pebble.Options{FS: fs})
		fs.hold()
		var overloaded, stored atomic.Int64
		var wg sync.WaitGroup
		for i := range 4000 {
			wg.Go(func() {
				switch _, err := s.Accept(context.Background(), []queue.NewEvent{newEvent(fmt.Sprint(i), endpoints[0])}); {
				case errors.Is(err, queue.ErrOverloaded):
					overloaded.Add(1)
				case err == nil:
					stored.Add(1)
				}
			})
		}
		time.Sleep(6 * time.Second)
		if overloaded.Load() == 0 {
			t.Error("nobody was refused")
		}
		fs.release()
		wg.Wait()
		if overloaded.Load()+stored.Load() != 4000 || int64(s.Counts(endpoints[0]).Pending) != stored.Load() {
			t.Errorf("%d refused, %d stored, %+v", overloaded.Load(), stored.Load(), s.Counts(endpoints[0]))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestNoGoroutineIsLeft(t *testing.T) {
	before := goleak.IgnoreCurrent()
	dir := t.TempDir()
	for range 2 {
		s := open(t, pebble.Options{Dir: dir})
		known := newLedger()
		if err := known.load(t.Context(), s, "x", 20); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	goleak.VerifyNone(t, before)
}
