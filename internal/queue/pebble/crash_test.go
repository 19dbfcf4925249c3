package pebble_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/queue/pebble"
)

var (
	crashRounds = flag.Int("crash.rounds", 40, "how often the machine crashes under load")
	crashSeed   = flag.Uint64("crash.seed", 1, "first seed of the crashes")
)

// clone is the file system after a crash at this moment.
func clone(fs *vfs.MemFS, seed uint64, unsynced int) *vfs.MemFS {
	return fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rand.New(rand.NewPCG(seed, 1))})
}

// case QD93: the machine crashes at any moment under load, several times in a row, and what was
// not synced is there or not, block by block.
func TestCrashUnderLoad(t *testing.T) {
	t.Parallel()
	for round := range *crashRounds {
		seed := *crashSeed + uint64(round)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			fs, known := vfs.NewCrashableMem(), newLedger()
			for crash := range 3 {
				s := open(t, pebble.Options{FS: fs})
				known.verify(t, s)
				after := known.acks.Load() + rng.Int64N(200)
				var wg sync.WaitGroup
				ctx, cancel := context.WithCancel(t.Context())
				for g := range 4 {
					wg.Go(func() { _ = known.load(ctx, s, fmt.Sprintf("%d-%d", crash, g), 1<<20) })
				}
				for known.acks.Load() < after {
					runtime.Gosched()
				}
				// What is acknowledged before the crash begins must survive it.
				told := known.snapshot()
				crashed := clone(fs, rng.Uint64(), rng.IntN(101))
				cancel()
				wg.Wait()
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				fs, known = crashed, told
			}
			s := open(t, pebble.Options{FS: fs})
			known.verify(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A crash before each single operation on the file system, from the very first open
// on, over a stop and a second open. Case QD90.
func TestCrashAtEveryStep(t *testing.T) {
	t.Parallel()
	for _, unsynced := range []int{0, 30, 70, 100} {
		t.Run(fmt.Sprintf("unsynced=%d", unsynced), func(t *testing.T) {
			for step := int64(1); ; step++ {
				mem, told := vfs.NewCrashableMem(), newLedger()
				known := newLedger()
				var crashed *vfs.MemFS
				var steps atomic.Int64
				fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
					if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && steps.Add(1) == step {
						told = known.snapshot()
						crashed = clone(mem, uint64(step), unsynced)
					}
					return nil
				}))
				for range 2 {
					s := open(t, pebble.Options{FS: fs})
					if err := known.load(t.Context(), s, fmt.Sprint(steps.Load()), 4); err != nil {
						t.Fatal(err)
					}
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
				}
				if steps.Load() < step {
					if step < 50 {
						t.Fatalf("only %d steps were taken", step)
					}
					return
				}
				s, err := pebble.Open(pebble.Options{Dir: "q", FS: crashed})
				if err != nil {
					t.Fatalf("after a crash before step %d: %v", step, err)
				}
				told.verify(t, s)
				if err := told.load(t.Context(), s, "again", 2); err != nil {
					t.Errorf("after a crash before step %d: %v", step, err)
				}
				told.verify(t, s)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if t.Failed() {
					t.Fatalf("after a crash before step %d", step)
				}
			}
		})
	}
}

// An outcome survives a crash when the sync interval is over, also if nothing but
// outcomes comes, and comes without a pause.
func TestOutcomesAreSyncedInTime(t *testing.T) {
	for _, c := range []struct {
		name  string
		pause time.Duration
	}{{"one at a time", 20 * time.Millisecond}, {"without a pause", 100 * time.Microsecond}, {"rarely", time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const limit = 60 * time.Millisecond // the sync interval, and a little
				fs := vfs.NewCrashableMem()
				s := open(t, pebble.Options{FS: fs})
				var batch []queue.NewEvent
				const n = 2000
				for i := range n {
					batch = append(batch, newEvent(fmt.Sprint(i), endpoints[0]))
				}
				acc, err := s.Accept(t.Context(), batch)
				if err != nil {
					t.Fatal(err)
				}
				at := make([]time.Time, 0, n)
				begin := time.Now()
				for _, a := range acc {
					if err := record(s, outcome(endpoints[0], a.Seq, queue.Delivered)); err != nil {
						t.Fatal(err)
					}
					at = append(at, time.Now())
					if time.Since(begin) > 150*time.Millisecond && len(at) > 5 {
						break
					}
					time.Sleep(c.pause)
				}
				crashedAt := time.Now()
				crashed := clone(fs, 1, 0)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = open(t, pebble.Options{FS: crashed})
				defer s.Close() //nolint:errcheck // a test's end
				lost := 0
				for i, when := range at {
					ds, err := s.Deliveries(t.Context(), acc[i].Seq)
					if err != nil || len(ds) != 1 {
						t.Fatalf("%+v, %v", ds, err)
					}
					if ds[0].State == queue.Delivered {
						continue
					}
					lost++
					if age := crashedAt.Sub(when); age > limit {
						t.Errorf("an outcome of %s before the crash is lost", age)
					}
				}
				t.Logf("of %d outcomes the last %d are lost", len(at), lost)
				newLedger().verify(t, s)
			})
		})
	}
}
