package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/doorstep-dev/doorstep/test/harness"
)

const (
	// quietTime without an arrival means that nothing more comes.
	quietTime = 20 * time.Second
	// drainLimit bounds a wait for a run's last events.
	drainLimit = 2 * time.Minute
	// backlogLimit bounds each half of the backlog part.
	backlogLimit = 8 * time.Minute
)

// backlog queues events for a receiver that is not there, kills the worker, opens
// the receiver and starts the worker again.
func (b *bench) backlog(ctx context.Context) error {
	fmt.Fprintf(b.out, "\nbacklog: %d events for a receiver that refuses connections, then SIGKILL and a restart with the receiver open\n", b.options.backlog)
	run, dir := b.nextRun()
	addr, err := harness.FreeAddr()
	if err != nil {
		return err
	}
	e := endpointsAt(addr, harness.SinkPath, []string{"e00"})[0]
	e.MaxInFlight = b.inFlight
	if b.quick {
		// The built-in policy would have the few that were tried wait for a minute.
		e.RetryPolicy = "quick"
		policy := harness.RetryManifest(e.RetryPolicy, slices.Repeat([]string{"1s"}, 100)...)
		if err := harness.WriteManifest(filepath.Join(dir, "manifests"), "quick.yaml", policy); err != nil {
			return err
		}
	}
	filled, err := b.fill(ctx, run, dir, e)
	if err != nil {
		return fmt.Errorf("filling: %w", err)
	}
	s, err := b.startSink(ctx, addr, run)
	if err != nil {
		return err
	}
	defer s.Kill()
	drained, restart, err := b.drain(ctx, dir, s)
	if err != nil {
		return fmt.Errorf("draining: %w", err)
	}
	b.results.backlogRSS = append(b.results.backlogRSS, max(mib(filled), mib(drained)))
	b.results.backlogRestart = append(b.results.backlogRestart, restart.Seconds())
	return nil
}

// fill queues the events, kills the worker and returns its peak memory.
func (b *bench) fill(ctx context.Context, run, dir string, e harness.Endpoint) (int64, error) {
	w, err := b.startWorker(ctx, dir, e)
	if err != nil {
		return 0, err
	}
	defer w.Kill()
	load := b.load(run, "e00")
	load.Addr, load.Key, load.Count, load.Duration = w.Addr, w.Key, b.options.backlog, backlogLimit
	got, err := b.generate(ctx, load)
	if err != nil {
		return 0, fmt.Errorf("%w\n%s", err, w.Tail())
	}
	if got.Accepted < int64(b.options.backlog) {
		return 0, fmt.Errorf("only %d of %d events were accepted in %v", got.Accepted, b.options.backlog, backlogLimit)
	}
	peak, err := harness.PeakRSS(w.Pid())
	fmt.Fprintf(b.out, "  queued at %.0f/s, peak %.0f MiB\n", got.PerSecond(), mib(peak))
	return peak, err
}

// drain restarts the worker and lets it deliver everything. It returns its peak
// memory and the time from the process's start to the first arrival.
func (b *bench) drain(ctx context.Context, dir string, s *sink) (int64, time.Duration, error) {
	w, err := b.restartWorker(ctx, dir)
	if err != nil {
		return 0, 0, err
	}
	defer w.Kill()
	if _, err := s.await(ctx, 1, drainLimit, drainLimit); err != nil {
		return 0, 0, err
	}
	// The last few were tried before the kill and come when their retry is due: the rate
	// is that of the first 99 %.
	most, err := s.await(ctx, int64(b.options.backlog)*99/100, drainLimit, backlogLimit)
	if err != nil {
		return 0, 0, err
	}
	st, err := s.await(ctx, int64(b.options.backlog), drainLimit, backlogLimit)
	if err != nil {
		return 0, 0, err
	}
	if st.Unique == 0 {
		return 0, 0, errors.New("nothing arrived after the restart; the worker's last lines:\n" + w.Tail())
	}
	peak, err := harness.PeakRSS(w.Pid())
	if err != nil {
		return 0, 0, err
	}
	restart := st.First.Sub(w.StartedAt)
	rate := float64(most.Unique) / max(most.Last.Sub(most.First).Seconds(), 1e-9)
	fmt.Fprintf(b.out, "  ready %.2f s after the restart, first delivery after %.2f s, 99 %% of them at %.0f/s, the last after %.0f s, peak %.0f MiB; lost %d, duplicated %d\n",
		w.ReadyAfter.Seconds(), restart.Seconds(), rate, st.Last.Sub(w.StartedAt).Seconds(), mib(peak), int64(b.options.backlog)-st.Unique, st.Repeats)
	if missing := int64(b.options.backlog) - st.Unique; missing > 0 {
		return 0, 0, fmt.Errorf("%d events did not arrive", missing)
	}
	return peak, restart, nil
}
