package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/doorstep-dev/doorstep/test/harness"
)

const (
	// retainedSize is the bytes of an event that is kept: small, to fit on any disk.
	retainedSize = 200
	// fillLimit bounds the filling of a store, in all.
	fillLimit = 5 * time.Minute
	// fillSteps is in how many parts it is filled, with a comparison after each.
	fillSteps = 4
	// finalPairs is how many comparisons are made at the end; their median counts.
	finalPairs = 3
)

// retention compares a store that keeps more and more delivered events with one that
// keeps few. A machine's pace changes over minutes, so that the figures of the beginning
// say little beside those of the end: two workers are measured in turn, and while one
// is, the other is stopped by a signal. Both have been under load for a while before the
// first comparison, so that neither is spared the work of its store in the background.
func (b *bench) retention(ctx context.Context) error {
	fmt.Fprintf(b.out, "\nretention: up to %d events of %d bytes are delivered and kept by one worker, few by another; both under load in turn, for %v each\n",
		b.retained, retainedSize, b.window())
	s, err := b.startSink(ctx, "", "none")
	if err != nil {
		return err
	}
	defer s.Kill()
	few, err := b.startKeeper(ctx, s)
	if err != nil {
		return err
	}
	defer few.Kill()
	many, err := b.startKeeper(ctx, s)
	if err != nil {
		return err
	}
	defer many.Kill()
	if err := few.stop(); err != nil {
		return err
	}
	left := fillLimit
	warm := b.retained / 20
	for _, k := range []*keeper{many, few} {
		if err := k.run(); err != nil {
			return err
		}
		if _, err := k.deliver(ctx, warm, fillLimit); err != nil {
			return fmt.Errorf("warming up: %w", err)
		}
		if err := k.stop(); err != nil {
			return err
		}
	}
	if _, err := compare(ctx, few, many); err != nil {
		return err
	}
	for step := range fillSteps {
		begun := time.Now()
		f, err := many.fill(ctx, b.retained*(step+1)/fillSteps, left)
		if err != nil {
			return fmt.Errorf("filling: %w", err)
		}
		left -= time.Since(begun)
		if f.load.Accepted > 0 {
			b.tell(fmt.Sprintf("filled to %d", many.kept), f)
		}
		pairs := 1
		if step == fillSteps-1 {
			pairs = finalPairs
		}
		for range pairs {
			ratio, err := compare(ctx, few, many)
			if err != nil {
				return err
			}
			if step == fillSteps-1 {
				b.results.retentionRatio = append(b.results.retentionRatio, ratio)
			}
		}
	}
	b.results.retained, b.results.toRetain = append(b.results.retained, float64(many.kept)), b.retained
	return nil
}

// window is the length of one measurement.
func (b *bench) window() time.Duration { return min(b.duration, 5*time.Second) }

// keeper is a worker that keeps what it has delivered.
type keeper struct {
	*harness.Worker
	b    *bench
	sink *sink
	// kept counts the events that it has accepted and delivered.
	kept int
}

func (b *bench) startKeeper(ctx context.Context, s *sink) (*keeper, error) {
	_, dir := b.nextRun()
	e := endpointsAt(s.addr, harness.SinkPath, []string{"e00"})[0]
	e.MaxInFlight = b.inFlight
	w, err := b.startWorker(ctx, dir, e)
	return &keeper{Worker: w, b: b, sink: s}, err
}

// stop keeps a worker from running until run.
func (k *keeper) stop() error { return k.Signal(syscall.SIGSTOP) }

func (k *keeper) run() error { return k.Signal(syscall.SIGCONT) }

// deliver sends events, as many as are given or as come in a time, and waits until all
// have arrived.
func (k *keeper) deliver(ctx context.Context, events int, d time.Duration) (flow, error) {
	run, _ := k.b.nextRun()
	if err := k.sink.call("/-/reset?run="+run, nil); err != nil {
		return flow{}, err
	}
	load := k.b.load(run, "e00")
	load.Addr, load.Key, load.Size, load.Count, load.Duration = k.Addr, k.Key, retainedSize, events, d
	f, err := k.b.measure(ctx, k.Process, k.sink, load)
	k.kept += int(f.load.Accepted)
	k.b.results.count(f)
	if err == nil && f.sink.Unique == 0 {
		err = errors.New("nothing arrived; the worker's last lines:\n" + k.Tail())
	}
	return f, err
}

// fill delivers until the worker keeps so many events, or the time is over.
func (k *keeper) fill(ctx context.Context, events int, d time.Duration) (flow, error) {
	if events <= k.kept || d <= 0 {
		return flow{}, nil
	}
	if err := k.run(); err != nil {
		return flow{}, err
	}
	f, err := k.deliver(ctx, events-k.kept, d)
	if err != nil {
		return f, err
	}
	return f, k.stop()
}

// compare measures both workers, one after the other, and gives the ratio of their
// rates. Both are stopped before and afterwards.
func compare(ctx context.Context, few, many *keeper) (float64, error) {
	kept := [2]int{few.kept, many.kept}
	var rate [2]float64
	for i, k := range []*keeper{few, many} {
		if err := k.run(); err != nil {
			return 0, err
		}
		f, err := k.deliver(ctx, maxWindow, k.b.window())
		if err != nil {
			return 0, err
		}
		rate[i] = f.delivered()
		if err := k.stop(); err != nil {
			return 0, err
		}
	}
	ratio := rate[1] / rate[0]
	fmt.Fprintf(few.b.out, "  with %7d events kept %6.0f/s, with %7d events kept %6.0f/s: %.2f\n", kept[0], rate[0], kept[1], rate[1], ratio)
	return ratio, nil
}

// maxWindow is more events than a window can hold.
const maxWindow = 8 << 20
