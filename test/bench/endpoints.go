package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/doorstep-dev/doorstep/test/harness"
)

// crowd is the sizes of the endpoints part.
type crowd struct {
	// all endpoints, each with its own event type; the first busy of them get the load, and
	// the last fan of them also one event that goes to them all.
	all, busy, fan int
	// customers are endpoints of one event type, told apart by an attribute.
	customers int
	// quiet is how long the worker is left alone before its memory is read.
	quiet time.Duration
	// fans is how often an event fans out.
	fans int
}

var (
	wholeCrowd = crowd{all: 10_000, busy: 100, fan: 1_000, customers: 5_000, quiet: 10 * time.Second, fans: 5}
	smallCrowd = crowd{all: 1_500, busy: 20, fan: 100, customers: 1_200, quiet: time.Second, fans: 2}
)

// fanType is the event type that fans out.
const fanType = "fan"

// endpoints compares workers with many endpoints with a worker with one, in turn, so
// that a machine that changes its pace changes it for all.
func (b *bench) endpoints(ctx context.Context) error {
	c := wholeCrowd
	if b.quick {
		c = smallCrowd
	}
	fmt.Fprintf(b.out, "\nendpoints: %d of them, idle; one event to %d; %d busy of them; %d told apart by an attribute; as fast as answers come, for %v each\n",
		c.all, c.fan, c.busy, c.customers, b.duration)
	for range b.runs {
		f, err := b.throughWorker(ctx, 1)
		if err != nil {
			return fmt.Errorf("worker with one endpoint: %w", err)
		}
		one := b.tell("1 endpoint", f)
		if f, err = b.throughCrowd(ctx, c); err != nil {
			return fmt.Errorf("worker with %d endpoints: %w", c.all, err)
		}
		busy := b.tell(fmt.Sprintf("%d busy of %d", c.busy, c.all), f)
		if f, err = b.throughCustomers(ctx, c); err != nil {
			return fmt.Errorf("worker with %d endpoints of one type: %w", c.customers, err)
		}
		customers := b.tell(fmt.Sprintf("%d by an attribute", c.customers), f)
		b.results.busyRatio = append(b.results.busyRatio, busy.delivered()/one.delivered())
		b.results.customersRatio = append(b.results.customersRatio, customers.delivered()/one.delivered())
		for _, f := range []flow{one, busy, customers} {
			b.results.count(f)
		}
	}
	return nil
}

// throughCrowd measures a worker with very many endpoints: idle, with one event to many,
// and with a load to a few.
func (b *bench) throughCrowd(ctx context.Context, c crowd) (flow, error) {
	run, dir := b.nextRun()
	s, err := b.startSink(ctx, "", run)
	if err != nil {
		return flow{}, err
	}
	defer s.Kill()
	types := names("e", c.all)
	list := endpointsAt(s.addr, harness.SinkPath, types)
	fan := list[c.all-c.fan:]
	for i := range fan {
		fan[i].URL = "http://" + s.addr + harness.FanPath + fan[i].Name
		fan[i].EventTypes = append(fan[i].EventTypes, fanType)
	}
	w, err := b.startWorker(ctx, dir, list...)
	if err != nil {
		return flow{}, err
	}
	defer w.Kill()
	if err := b.idle(ctx, w, c); err != nil {
		return flow{}, err
	}
	if err := b.fanOut(ctx, w, s, run, c); err != nil {
		return flow{}, fmt.Errorf("fanning out: %w", err)
	}
	load := b.load(run, types[:c.busy]...)
	load.Addr, load.Key = w.Addr, w.Key
	f, err := b.measure(ctx, w.Process, s, load)
	if err != nil {
		return f, err
	}
	return f, w.Stop(30 * time.Second)
}

// idle leaves a worker alone and reads its memory and its processor time.
func (b *bench) idle(ctx context.Context, w *harness.Worker, c crowd) error {
	started, err := harness.RSS(w.Pid())
	if err != nil {
		return err
	}
	if err := pause(ctx, c.quiet/2); err != nil {
		return err
	}
	before, err := harness.CPU(w.Pid())
	if err != nil {
		return err
	}
	if err := pause(ctx, c.quiet/2); err != nil {
		return err
	}
	after, err := harness.CPU(w.Pid())
	if err != nil {
		return err
	}
	quiet, err := harness.RSS(w.Pid())
	if err != nil {
		return err
	}
	percent := 100 * (after - before).Seconds() / (c.quiet / 2).Seconds()
	fmt.Fprintf(b.out, "  %d idle endpoints     ready after %.2f s with %.0f MiB; after %v %.0f MiB and %.1f %% of one core\n",
		c.all, w.ReadyAfter.Seconds(), mib(started), c.quiet, mib(quiet), percent)
	b.results.idleRSS = append(b.results.idleRSS, mib(quiet))
	b.results.idleCPU = append(b.results.idleCPU, percent)
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fanOut posts events to many endpoints each, one after another, and times each from its
// acceptance to its last arrival.
func (b *bench) fanOut(ctx context.Context, w *harness.Worker, s *sink, run string, c crowd) error {
	pad := harness.NewPadding()
	var took []time.Duration
	for n := range c.fans {
		body := pad.Event(nil, run+"-fan", int64(n), fanType, time.Now(), b.size)
		var receipt struct{ Endpoints int }
		if _, err := w.Call("POST", harness.EventsPath, nil, body, &receipt); err != nil {
			return err
		}
		accepted := time.Now()
		if receipt.Endpoints != c.fan {
			return fmt.Errorf("the event goes to %d endpoints, want %d", receipt.Endpoints, c.fan)
		}
		want := int64(c.fan * (n + 1))
		var st harness.SinkStats
		limited, cancel := context.WithTimeout(ctx, drainLimit)
		err := harness.Await(limited, 20*time.Millisecond, "the last arrival", func() (bool, error) {
			err := s.call("/-/stats", &st)
			return st.Fanned >= want, err
		})
		cancel()
		if err != nil {
			return fmt.Errorf("%w; %d of %d have come", err, st.Fanned, want)
		}
		took = append(took, max(st.LastFanned.Sub(accepted), 0))
	}
	fmt.Fprintf(b.out, "  one event to %d        the last arrival %.0f ms after its acceptance (median of %d; %.0f to %.0f)\n",
		c.fan, ms(median(took)), c.fans, ms(slices.Min(took)), ms(slices.Max(took)))
	b.results.fanOut = append(b.results.fanOut, ms(median(took)))
	return nil
}

// throughCustomers measures a worker whose endpoints all take one event type, each for
// one customer.
func (b *bench) throughCustomers(ctx context.Context, c crowd) (flow, error) {
	run, dir := b.nextRun()
	s, err := b.startSink(ctx, "", run)
	if err != nil {
		return flow{}, err
	}
	defer s.Kill()
	list := make([]harness.Endpoint, c.customers)
	for i := range list {
		name := fmt.Sprintf("c%02d", i)
		list[i] = harness.Endpoint{
			Name: name, URL: "http://" + s.addr + harness.SinkPath + name,
			EventTypes: []string{"order.created"}, Customer: harness.Customer(int64(i)),
		}
	}
	w, err := b.startWorker(ctx, dir, list...)
	if err != nil {
		return flow{}, err
	}
	defer w.Kill()
	load := b.load(run, "order.created")
	load.Addr, load.Key, load.Customers = w.Addr, w.Key, int64(c.customers)
	f, err := b.measure(ctx, w.Process, s, load)
	if err != nil {
		return f, err
	}
	return f, w.Stop(30 * time.Second)
}
