package main

import (
	"context"
	"fmt"
	"time"

	"github.com/doorstep-dev/doorstep/test/harness"
)

// latency measures the time from a producer's send to the receiver's arrival at a
// steady rate that the machine can bear.
func (b *bench) latency(ctx context.Context) error {
	fmt.Fprintf(b.out, "\nend to end: %.0f events a second for %v, one endpoint\n", b.rate, 2*b.duration)
	for range b.runs {
		run, dir := b.nextRun()
		f, err := b.steady(ctx, run, dir, []string{"e00"}, b.rate, 2*b.duration, func(addr string) []harness.Endpoint {
			return endpointsAt(addr, harness.SinkPath, []string{"e00"})
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(b.out, "  p50 %6.2f ms  p99 %6.2f ms  (accepted after p50 %.2f, p99 %.2f ms)  lost %d  duplicated %d\n",
			ms(f.sink.P50), ms(f.sink.P99), ms(f.load.AckP50), ms(f.load.AckP99), f.lost(), f.sink.Repeats)
		b.results.p50 = append(b.results.p50, ms(f.sink.P50))
		b.results.p99 = append(b.results.p99, ms(f.sink.P99))
		if f.lost() > 0 {
			return fmt.Errorf("%d accepted events did not arrive", f.lost())
		}
	}
	return nil
}

// steady runs a worker at a rate of events of the given types and stops it.
func (b *bench) steady(ctx context.Context, run, dir string, types []string, rate float64, d time.Duration, endpoints func(addr string) []harness.Endpoint) (flow, error) {
	s, err := b.startSink(ctx, "", run)
	if err != nil {
		return flow{}, err
	}
	defer s.Kill()
	w, err := b.startWorker(ctx, dir, endpoints(s.addr)...)
	if err != nil {
		return flow{}, err
	}
	defer w.Kill()
	load := b.load(run, types...)
	load.Addr, load.Key, load.Rate, load.Duration = w.Addr, w.Key, rate, d
	f, err := b.measure(ctx, w.Process, s, load)
	if err != nil {
		return f, err
	}
	return f, w.Stop(30 * time.Second)
}
