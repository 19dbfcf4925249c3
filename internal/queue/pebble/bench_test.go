package pebble_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/queue/pebble"
)

var benchSize = flag.Int("size", 20_000, "events that wait in BenchmarkOpen and BenchmarkBacklog")

// BenchmarkAcceptRecord is the whole durable path of an event: 64 producers accept 1 KiB
// events one by one, and each is recorded as delivered once it is acknowledged.
func BenchmarkAcceptRecord(b *testing.B) {
	s := openBench(b, b.TempDir())
	b.ReportAllocs()
	acceptAndRecord(b, s, 0)
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

// acceptAndRecord accepts b.N events, numbered from first on, and records each as delivered.
func acceptAndRecord(b *testing.B, s *pebble.Store, first int64) {
	b.Helper()
	payload := benchPayload()
	var next atomic.Int64
	var outcomes sync.WaitGroup
	b.ResetTimer()
	cpu := cpuTime()
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(b.N) {
					return
				}
				acc, err := s.Accept(context.Background(), []queue.NewEvent{benchEvent(first+i, payload)})
				if err != nil {
					b.Error(err)
					return
				}
				outcomes.Add(1)
				s.Record(outcome(endpoints[0], acc[0].Seq, queue.Delivered), func(err error) {
					if err != nil {
						b.Error(err)
					}
					outcomes.Done()
				})
			}
		})
	}
	wg.Wait()
	outcomes.Wait()
	b.StopTimer()
	b.ReportMetric(float64((cpuTime()-cpu).Microseconds())/float64(b.N), "cpu-µs/event")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkRetained is BenchmarkAcceptRecord in a store that keeps nothing, and in one that
// keeps -size delivered events, with Prune beside it as a worker has it. The two should be
// as fast (case QD104): compare cpu-µs/event on a machine that does other things as well.
func BenchmarkRetained(b *testing.B) {
	for _, kept := range []int{0, *benchSize} {
		b.Run(fmt.Sprintf("kept=%d", kept), func(b *testing.B) {
			s := openBench(b, b.TempDir())
			deliverBench(b, s, kept)
			s.AwaitCompactions()
			ctx, cancel := context.WithCancel(context.Background())
			var pruner sync.WaitGroup
			pruner.Go(func() {
				for every := time.Tick(time.Second); ctx.Err() == nil; {
					_, _ = s.Prune(ctx, queue.Retention{MaxBytes: 1 << 40})
					select {
					case <-every:
					case <-ctx.Done():
					}
				}
			})
			acceptAndRecord(b, s, 1<<40)
			cancel()
			pruner.Wait()
			b.ReportMetric(float64(s.Usage().UsedBytes)/(1<<20), "MiB-used")
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// deliverBench stores n events that are delivered.
func deliverBench(b *testing.B, s *pebble.Store, n int) {
	b.Helper()
	payload := benchPayload()
	for i := 0; i < n; i += 500 {
		var batch []queue.NewEvent
		for j := range min(500, n-i) {
			batch = append(batch, benchEvent(int64(i+j), payload))
		}
		acc, err := s.Accept(b.Context(), batch)
		if err != nil {
			b.Fatal(err)
		}
		for _, a := range acc {
			s.Record(outcome(endpoints[0], a.Seq, queue.Delivered), func(err error) {
				if err != nil {
					b.Error(err)
				}
			})
		}
	}
}

// BenchmarkOpen opens a store with -size waiting events, to the first page of them.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	s := openBench(b, dir)
	fillBench(b, s, *benchSize)
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s := openBench(b, dir)
		if ds, err := s.Fresh(b.Context(), endpoints[0], 0, 100); err != nil || len(ds) == 0 {
			b.Fatal(ds, err)
		}
		b.StopTimer()
		if c := s.Counts(endpoints[0]); c.Pending != *benchSize {
			b.Fatalf("%+v", c)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkBacklog accepts -size events of 1 KiB that nobody delivers and gives the
// peak of the process's memory; run it alone.
func BenchmarkBacklog(b *testing.B) {
	for b.Loop() {
		s := openBench(b, b.TempDir())
		fillBench(b, s, *benchSize)
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(peakKiB(b))/1024, "peak-MiB")
	b.ReportMetric(float64((*benchSize)*b.N)/b.Elapsed().Seconds(), "events/s")
}

func openBench(b *testing.B, dir string) *pebble.Store {
	b.Helper()
	s, err := pebble.Open(pebble.Options{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func fillBench(b *testing.B, s *pebble.Store, n int) {
	b.Helper()
	payload := benchPayload()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if _, err := s.Accept(context.Background(), []queue.NewEvent{benchEvent(i, payload)}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// benchPayload is 1 KiB of JSON that compresses as such does, by half or so.
func benchPayload() []byte {
	rng := rand.New(rand.NewPCG(1, 1))
	var sb strings.Builder
	sb.WriteString(`{"id":"x","type":"order.created","data":{`)
	for i := 0; sb.Len() < 1024; i++ {
		fmt.Fprintf(&sb, `"field%d":"%x",`, i, rng.Uint64())
	}
	return []byte(sb.String()[:1022] + "}}")
}

func benchEvent(i int64, payload []byte) queue.NewEvent {
	e := newEvent("", endpoints[0])
	e.Event.ID = fmt.Sprintf("evt_%016x", uint64(i)*0x9e3779b97f4a7c15)
	e.Event.WebhookID = event.WebhookID("", e.Event.ID)
	e.Event.Body = payload
	return e
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peakKiB is the process's VmHWM.
func peakKiB(b *testing.B) (kib int) {
	b.Helper()
	if runtime.GOOS != "linux" {
		b.Skip("needs /proc")
	}
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			return kib
		}
	}
	b.Fatal("no VmHWM")
	return 0
}
