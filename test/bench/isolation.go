package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/doorstep-dev/doorstep/test/harness"
)

// Ten good endpoints, beside which five hang and five fail. Each endpoint gets the
// same share of a steady stream, so that the good ones have the same traffic in both
// cases.
const (
	goodEndpoints    = 10
	hangingEndpoints = 5
	failingEndpoints = 5
	// endpointRate is events per second for each endpoint.
	endpointRate = 100
)

// isolation compares the latency of good endpoints with bad ones beside them and
// without.
func (b *bench) isolation(ctx context.Context) error {
	fmt.Fprintf(b.out, "\nisolation: %d good endpoints, then with %d that hang and %d that fail beside them; %d events a second each for %v\n",
		goodEndpoints, hangingEndpoints, failingEndpoints, endpointRate, b.duration)
	for range b.runs {
		alone, err := b.isolated(ctx, false)
		if err != nil {
			return fmt.Errorf("good endpoints alone: %w", err)
		}
		beside, err := b.isolated(ctx, true)
		if err != nil {
			return fmt.Errorf("good endpoints beside bad ones: %w", err)
		}
		fmt.Fprintf(b.out, "  good endpoints alone p99 %6.2f ms, beside bad ones p99 %6.2f ms (%d events went to bad ones)\n",
			ms(alone.P99), ms(beside.P99), beside.Others)
		b.results.isolationRatio = append(b.results.isolationRatio, ms(beside.P99)/max(ms(alone.P99), 0.001))
		b.results.isolationP99 = append(b.results.isolationP99, ms(beside.P99))
	}
	return nil
}

// isolated is one run; bad adds the endpoints that hang and fail.
func (b *bench) isolated(ctx context.Context, bad bool) (harness.SinkStats, error) {
	run, dir := b.nextRun()
	good := names("good", goodEndpoints)
	hang, fail := names("hang", hangingEndpoints), names("fail", failingEndpoints)
	types := slices.Clone(good)
	if bad {
		types = interleave(good, slices.Concat(hang, fail))
	}
	s, err := b.startSink(ctx, "", run)
	if err != nil {
		return harness.SinkStats{}, err
	}
	defer s.Kill()
	list := endpointsAt(s.addr, harness.SinkPath, good)
	if bad {
		list = slices.Concat(list, endpointsAt(s.addr, harness.HangPath, hang), endpointsAt(s.addr, harness.FailPath, fail))
	}
	w, err := b.startWorker(ctx, dir, list...)
	if err != nil {
		return harness.SinkStats{}, err
	}
	defer w.Kill()
	load := b.load(run, types...)
	load.Addr, load.Key = w.Addr, w.Key
	load.Rate, load.Duration = float64(endpointRate*len(types)), b.duration
	got, err := b.generate(ctx, load)
	if err != nil {
		return harness.SinkStats{}, fmt.Errorf("%w\n%s", err, w.Tail())
	}
	want := got.Accepted * goodEndpoints / int64(len(types))
	st, err := s.await(ctx, want, quietTime, drainLimit)
	if err != nil {
		return st, err
	}
	if st.Unique < want {
		return st, fmt.Errorf("%d of %d events of good endpoints did not arrive", want-st.Unique, want)
	}
	if bad && st.Others == 0 {
		return st, fmt.Errorf("the bad endpoints got no request, so nothing was measured")
	}
	return st, nil
}

// interleave takes from a and b in turn, so that the load of each is even.
func interleave(a, b []string) []string {
	var out []string
	for i := range max(len(a), len(b)) {
		if i < len(a) {
			out = append(out, a[i])
		}
		if i < len(b) {
			out = append(out, b[i])
		}
	}
	return out
}
