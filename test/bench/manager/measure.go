package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	apply "github.com/doorstep-dev/doorstep/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/test/harness"
)

const (
	// perNamespace is how many endpoints a namespace has.
	perNamespace = 200
	// open is how many applies may be under way at once: enough for the rate on an API server that takes a second.
	open = 64
	// progress is how often a line tells how far it is.
	progress = 20 * time.Second
)

// results are what was found.
type results struct {
	options
	// applied is when the API server answered the apply of each endpoint; took is for all of them.
	applied map[plan.EndpointKey]time.Time
	took    time.Duration

	inPlan, toReady harness.Histogram
	cpu             time.Duration
	rss             int64
	restartRSS      int64
	restartTook     time.Duration
	// requests are what the manager asked of the API server until all were Ready, by verb and kind.
	requests map[string]int
}

func keyOf(i int) plan.EndpointKey {
	return plan.EndpointKey{Namespace: fmt.Sprintf("team-%03d", i/perNamespace), Name: fmt.Sprintf("orders-%05d", i)}
}

// endpoint is the i-th one, as a team would write it, with a key that the manager makes.
func endpoint(i int, timeout v1alpha1.Duration) *apply.WebhookEndpointApplyConfiguration {
	k := keyOf(i)
	return apply.WebhookEndpoint(k.Name, k.Namespace).WithLabels(map[string]string{"team": k.Namespace}).WithSpec(
		apply.WebhookEndpointSpec().WithURL(fmt.Sprintf("https://hooks.example.com/%s/%s", k.Namespace, k.Name)).
			WithEventTypes("order.*", "payment.completed").WithTimeout(timeout))
}

// apply applies the endpoints at the rate.
func (r *results) apply(ctx context.Context, s *site, out io.Writer) error {
	for i := 0; i < r.endpoints; i += perNamespace {
		if err := s.EnsureNamespace(ctx, keyOf(i).Namespace, nil); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "%d endpoints in namespaces of %d are applied at %g a second; the manager, a worker, the API server and etcd are processes on this machine\n",
		r.endpoints, perNamespace, r.rate)
	r.applied = make(map[plan.EndpointKey]time.Time, r.endpoints)
	before, err := harness.CPU(s.manager.Pid())
	if err != nil {
		return err
	}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(open)
	start, told := time.Now(), time.Now()
	for i := range r.endpoints {
		due := start.Add(time.Duration(float64(i) / r.rate * float64(time.Second)))
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(due)):
		}
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			if err := s.client.Apply(ctx, endpoint(i, "15s"), client.FieldOwner("bench")); err != nil {
				return fmt.Errorf("apply WebhookEndpoint %s: %w", keyOf(i), err)
			}
			at := time.Now()
			mu.Lock()
			defer mu.Unlock()
			r.applied[keyOf(i)] = at
			return nil
		})
		if time.Since(told) >= progress {
			told = time.Now()
			r.tell(s, out, i+1)
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	r.took = time.Since(start)
	after, err := harness.CPU(s.manager.Pid())
	r.cpu = after - before
	return err
}

// tell prints how far it is.
func (r *results) tell(s *site, out io.Writer, applied int) {
	rss, _ := harness.RSS(s.manager.Pid())
	cpu, _ := harness.CPU(s.manager.Pid())
	s.mu.Lock()
	ready, versions := len(s.ready), len(s.versions)
	s.mu.Unlock()
	fmt.Fprintf(out, "  %d applied, %d Ready, %d versions of the plan written; the manager has %.0f MiB and took %.0f s of processor time\n",
		applied, ready, versions, mib(rss), cpu.Seconds())
}

// planned waits until all are in the plan and usable, and works out when each of them was first so.
func (r *results) planned(ctx context.Context, s *site, _ io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var p *plan.Plan
	err := harness.Await(ctx, time.Second, "all endpoints to be in the plan", func() (bool, error) {
		var err error
		p, err = s.plan(ctx)
		return err == nil && usable(p) == r.endpoints, err
	})
	if err != nil {
		return err
	}
	for i := range p.Endpoints {
		e := &p.Endpoints[i]
		at, ok := s.written(e.Version)
		if !ok {
			return fmt.Errorf("WebhookEndpoint %s is of version %d of the plan, whose index was not seen", e.EndpointKey, e.Version)
		}
		r.inPlan.Add(at.Sub(r.applied[e.EndpointKey]))
	}
	return nil
}

// usable is how many endpoints of a plan are not held.
func usable(p *plan.Plan) int {
	n := 0
	for i := range p.Endpoints {
		if p.Endpoints[i].Problem == nil {
			n++
		}
	}
	return n
}

// ready waits until all are Ready.
func (r *results) ready(ctx context.Context, s *site, _ io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := harness.Await(ctx, 200*time.Millisecond, "all endpoints to be Ready", func() (bool, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.ready) == r.endpoints, nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%d of %d endpoints are Ready: %w", len(s.ready), r.endpoints, err)
	}
	for k, at := range s.ready {
		r.toReady.Add(at.Sub(r.applied[k]))
	}
	if r.rss, err = harness.PeakRSS(s.manager.Pid()); err != nil {
		return err
	}
	r.requests, err = s.managersRequests()
	return err
}

// restart starts the manager anew, with a cold cache and all endpoints there, and waits until a change is in the plan.
func (r *results) restart(ctx context.Context, s *site, _ io.Writer) error {
	start := time.Now()
	if err := s.manager.Relaunch(ctx); err != nil {
		return err
	}
	const timeout = 16 * time.Second
	if err := s.client.Apply(ctx, endpoint(0, "16s"), client.FieldOwner("bench")); err != nil {
		return err
	}
	await, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := harness.Await(await, 200*time.Millisecond, "a change to be in the plan after a restart of the manager", func() (bool, error) {
		p, err := s.plan(ctx)
		if err != nil {
			return false, err
		}
		e := p.Index()[keyOf(0)]
		return e != nil && e.Timeout == timeout, nil
	})
	if err != nil {
		return err
	}
	r.restartTook = time.Since(start)
	r.restartRSS, err = harness.PeakRSS(s.manager.Pid())
	return err
}
