package main

import (
	"context"
	"fmt"
	"time"

	"github.com/doorstep-dev/doorstep/test/harness"
)

// flow is one saturated run of events through a relay or a worker.
type flow struct {
	load harness.LoadResult
	sink harness.SinkStats
	// cpu is what the relay or worker used, sinkCPU the sink, in all.
	cpu, sinkCPU time.Duration
	rss          int64
	// others is the share of the machine's processor time that went to programs outside
	// this benchmark (the kernel's own threads among them), 0 to 1.
	others float64
}

// delivered is new events per second between the first and the last arrival.
func (f flow) delivered() float64 {
	return float64(f.sink.Unique) / max(f.sink.Last.Sub(f.sink.First).Seconds(), 1e-9)
}

// cpuMS is the subject's CPU per delivered event in milliseconds.
func (f flow) cpuMS() float64 { return ms(f.cpu) / float64(max(f.sink.Unique, 1)) }

func (f flow) lost() int64 { return f.load.Accepted - f.sink.Unique }

// saturate measures the relay, a worker with one endpoint and one with fifty in
// turn, so that a machine that changes its pace changes it for all three.
func (b *bench) saturate(ctx context.Context) error {
	fmt.Fprintf(b.out, "\nsaturated: as fast as answers come, for %v\n", b.duration)
	var limits, one, many []flow
	for range b.runs {
		f, err := b.throughRelay(ctx)
		if err != nil {
			return fmt.Errorf("relay: %w", err)
		}
		limits = append(limits, b.tell("relay, no store", f))
		if f, err = b.throughWorker(ctx, 1); err != nil {
			return fmt.Errorf("worker with one endpoint: %w", err)
		}
		one = append(one, b.tell("worker, 1 endpoint", f))
		if f, err = b.throughWorker(ctx, 50); err != nil {
			return fmt.Errorf("worker with 50 endpoints: %w", err)
		}
		many = append(many, b.tell("worker, 50 endpoints", f))
	}
	b.results.saturated(limits, one, many)
	return nil
}

// tell prints a run and returns it.
func (b *bench) tell(what string, f flow) flow {
	n := float64(max(f.sink.Unique, 1))
	fmt.Fprintf(b.out, "  %-21s accepted %6.0f/s  delivered %6.0f/s  CPU per event: %.3f ms (generator %.3f, sink %.3f)  peak %3.0f MiB  lost %d  duplicated %d  refused %d  (other programs: %.0f %% of the machine)\n",
		what, f.load.PerSecond(), f.delivered(), f.cpuMS(), ms(f.load.CPU)/n, ms(f.sinkCPU)/n, mib(f.rss), f.lost(), f.sink.Repeats, f.load.Refused, 100*f.others)
	return f
}

// calibrate measures the relay once, so that the machine can be judged where saturate
// does not run.
func (b *bench) calibrate(ctx context.Context) error {
	f, err := b.throughRelay(ctx)
	if err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	b.results.limit = append(b.results.limit, b.tell("relay, no store", f).delivered())
	return nil
}

func (b *bench) throughRelay(ctx context.Context) (flow, error) {
	run, _ := b.nextRun()
	s, err := b.startSink(ctx, "", run)
	if err != nil {
		return flow{}, err
	}
	defer s.Kill()
	addr, err := harness.FreeAddr()
	if err != nil {
		return flow{}, err
	}
	p, err := b.startHelper(ctx, "relay", addr, "http://"+s.addr+harness.SinkPath+"relay")
	if err != nil {
		return flow{}, err
	}
	defer p.Kill()
	load := b.load(run, "e00")
	load.Addr = addr
	return b.measure(ctx, p, s, load)
}

func (b *bench) throughWorker(ctx context.Context, endpoints int) (flow, error) {
	run, dir := b.nextRun()
	s, err := b.startSink(ctx, "", run)
	if err != nil {
		return flow{}, err
	}
	defer s.Kill()
	types := names("e", endpoints)
	list := endpointsAt(s.addr, harness.SinkPath, types)
	if endpoints == 1 {
		list[0].MaxInFlight = b.inFlight
	}
	w, err := b.startWorker(ctx, dir, list...)
	if err != nil {
		return flow{}, err
	}
	defer w.Kill()
	load := b.load(run, types...)
	load.Addr, load.Key = w.Addr, w.Key
	f, err := b.measure(ctx, w.Process, s, load)
	if err != nil {
		return f, err
	}
	return f, w.Stop(30 * time.Second)
}

// measure sends a load through p and waits until the sink has it all.
func (b *bench) measure(ctx context.Context, p *harness.Process, s *sink, load harness.Load) (flow, error) {
	var f flow
	machine, err := harness.MachineCPU()
	if err != nil {
		return f, err
	}
	cpu, err := harness.CPU(p.Pid())
	if err != nil {
		return f, err
	}
	sinkCPU, err := harness.CPU(s.Pid())
	if err != nil {
		return f, err
	}
	if f.load, err = b.generate(ctx, load); err != nil {
		return f, fmt.Errorf("%w\n%s", err, p.Tail())
	}
	if f.sink, err = s.await(ctx, f.load.Accepted, 20*time.Second, 2*time.Minute); err != nil {
		return f, err
	}
	if f.cpu, err = harness.CPU(p.Pid()); err != nil {
		return f, err
	}
	if f.sinkCPU, err = harness.CPU(s.Pid()); err != nil {
		return f, err
	}
	f.cpu, f.sinkCPU = f.cpu-cpu, f.sinkCPU-sinkCPU
	after, err := harness.MachineCPU()
	if err != nil {
		return f, err
	}
	others := after.Busy - machine.Busy - f.cpu - f.sinkCPU - f.load.CPU
	f.others = max(0, others.Seconds()/max((after.Total-machine.Total).Seconds(), 1e-9))
	f.rss, err = harness.PeakRSS(p.Pid())
	return f, err
}
