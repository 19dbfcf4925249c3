package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/compile"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/planstore"
)

const (
	// passInterval is the least time between the begins of two passes over one pool, and
	// restInterval that from the end of one to the next: workers have as long to read what it wrote.
	passInterval = time.Second
	restInterval = 500 * time.Millisecond
	// gatherTime is from the first change that asks for a pass to the pass, so that it takes those that
	// come together, and the key that is made for a new endpoint, at once.
	gatherTime = 100 * time.Millisecond
	// settleTime is how long the workers may take to acknowledge a version before those that
	// wait for it say so: nearly always they have it sooner, and one status says it all.
	settleTime = 3 * time.Second
)

// Planner writes the plan of each pool. Its requests are pools; whatever a plan depends on
// brings its pool (watches.go).
type Planner struct {
	Client client.Client
	// Live reads past the cache.
	Live client.Reader
	// SystemNamespace holds the installation's own pool.
	SystemNamespace string
	// Optional watches ReferenceGrants while there are any.
	Optional *optionalKinds
	// Changed get the objects about which a pass said something new.
	Changed Changed
	// Now is the wall clock.
	Now func() time.Time

	made  madeKeys
	mu    sync.Mutex
	pools map[types.NamespacedName]*poolPlan
}

// Changed are queues of objects to be reconciled.
type Changed struct {
	Endpoints, Pools chan event.GenericEvent
}

// poolPlan is what is known of one pool. writer, data, previous, looked and the times belong to the pass, of
// which there is one at a time for a pool; outcome is shared under the Planner's lock.
type poolPlan struct {
	uid      types.UID
	writer   *planstore.Writer
	data     *secretData
	previous *plan.Plan
	asked    time.Time // when a pass was first asked for; zero: not since the last one
	passed   time.Time // when the last pass began
	rested   time.Time // when it ended
	looked   map[plan.EndpointKey]time.Time
	first    bool
	outcome  *Outcome
}

// Outcome is what the last pass over a pool gave.
type Outcome struct {
	Plan *plan.Plan
	// Endpoints are the plan's, by key; Problems are what is to be said, by the object's key.
	Endpoints map[plan.EndpointKey]*plan.Endpoint
	Problems  map[plan.EndpointKey][]compile.Problem
	// Policies and Pool are problems of RetryPolicies, by key, and of the DeliveryPool.
	Policies map[plan.EndpointKey][]compile.Problem
	Pool     []compile.Problem
	// Unread says which of an endpoint's Secrets or ConfigMaps can't be read.
	Unread map[plan.EndpointKey]string
	// Written is when each version that is younger than settleTime was written.
	Written map[uint64]time.Time
	// Seen are the generations of the endpoints that the pass saw.
	Seen map[plan.EndpointKey]int64
}

// Outcome gives what the last pass over a pool gave; nil before the first.
func (p *Planner) Outcome(pool types.NamespacedName) *Outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.pools[pool]; s != nil {
		return s.outcome
	}
	return nil
}

// Reconcile makes one pass over a pool.
func (p *Planner) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var pool v1alpha1.DeliveryPool
	if err := p.Client.Get(ctx, req.NamespacedName, &pool); err != nil {
		if apierrors.IsNotFound(err) {
			return ctrl.Result{}, p.forget(ctx, req.NamespacedName)
		}
		return ctrl.Result{}, err
	}
	if !pool.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // its Secrets go with it; until then workers go on
	}
	s, err := p.state(ctx, &pool)
	if err != nil {
		return ctrl.Result{}, err
	}
	if wait := s.wait(p.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	s.asked, s.passed = time.Time{}, p.Now()
	defer func() { s.rested = p.Now() }()
	look, err := p.gather(ctx, &pool, s)
	if err != nil {
		p.notWritten(&pool, s, err)
		return ctrl.Result{}, err
	}
	r, err := s.write(ctx, &pool, look.objects, p.Now())
	if err != nil {
		// The former plan is in force; what this pass would have remembered, the next one will.
		p.notWritten(&pool, s, err)
		return ctrl.Result{}, err
	}
	if s.previous == nil || s.previous.Version != r.Plan.Version {
		log.FromContext(ctx).Info("The plan changed", "version", r.Plan.Version, "endpoints", len(r.Plan.Endpoints))
	}
	s.previous, s.first = r.Plan, false
	p.publish(&pool, s, look, r)
	return ctrl.Result{RequeueAfter: p.next(r.NextAt, look)}, nil
}

// write compiles the plan and writes it. Endpoints for which it has no room are held, so
// that all others are written.
func (s *poolPlan) write(ctx context.Context, pool *v1alpha1.DeliveryPool, in compile.Objects, now time.Time) (compile.Result, error) {
	ctx, span := tracer().Start(ctx, "compile and write the plan")
	defer span.End()
	o := compile.Options{Cluster: true, PoolName: pool.Name, FirstLook: s.first, Full: map[plan.EndpointKey]bool{}}
	for {
		r := compile.Compile(in, s.previous, now, o)
		err := s.writer.Write(ctx, r.Plan)
		var full *planstore.FullError
		if !errors.As(err, &full) {
			return r, err
		}
		held := len(o.Full)
		for _, k := range full.Endpoints {
			o.Full[k] = true
		}
		if len(o.Full) == held {
			return r, err
		}
	}
}

// notWritten says in the pool's status why its plan can't be written, where that is an
// answer: an API server that can't be reached takes no status either.
func (p *Planner) notWritten(pool *v1alpha1.DeliveryPool, s *poolPlan, err error) {
	problem := compile.Problem{
		Kind: compile.KindPool, Namespace: pool.Namespace, Name: pool.Name, Reason: v1alpha1.ReasonObjectsFailed,
		Message: "The plan can't be made, and workers go on by the former one; it is tried again: " + err.Error(),
	}
	unread := unreadError("")
	switch answer := apierrors.APIStatus(nil); {
	case errors.Is(err, planstore.ErrTooLarge):
		problem.Reason = v1alpha1.ReasonPlanFull
	case errors.As(err, &unread):
	case !errors.As(err, &answer) || apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsConflict(err):
		return
	}
	p.mu.Lock()
	o := Outcome{Plan: &plan.Plan{}}
	if s.outcome != nil {
		o = *s.outcome
	}
	same := slices.Equal(o.Pool, []compile.Problem{problem})
	o.Pool = []compile.Problem{problem}
	s.outcome = &o
	p.mu.Unlock()
	if !same {
		p.Changed.pool(client.ObjectKeyFromObject(pool))
	}
}

// wait is how long the pass that is asked for now has to wait. A clock that was set back
// makes none wait longer.
func (s *poolPlan) wait(now time.Time) time.Duration {
	if s.asked.IsZero() {
		s.asked = now
	}
	var wait time.Duration
	for _, since := range []struct {
		at   time.Time
		most time.Duration
	}{{s.asked, gatherTime}, {s.passed, passInterval}, {s.rested, restInterval}} {
		if left := since.most - now.Sub(since.at); left <= since.most {
			wait = max(wait, left)
		}
	}
	return wait
}

// next is when to look again without a change; 0 for never.
func (p *Planner) next(at time.Time, l look) time.Duration {
	var wait time.Duration
	if !at.IsZero() {
		wait = max(at.Sub(p.Now()), passInterval)
	}
	if l.again > 0 && (wait == 0 || l.again < wait) {
		wait = l.again
	}
	return wait
}

// state gives what is known of a pool. The first time it is read from the plan that was
// written last; where that is damaged, what is left of it counts, and a version above
// every one that a worker may have acknowledged.
func (p *Planner) state(ctx context.Context, pool *v1alpha1.DeliveryPool) (*poolPlan, error) {
	key := client.ObjectKeyFromObject(pool)
	p.mu.Lock()
	s := p.pools[key]
	p.mu.Unlock()
	if s != nil && s.uid == pool.UID {
		return s, nil
	}
	s = &poolPlan{
		uid:    pool.UID,
		writer: planstore.NewWriter(p.Client, p.Live, key, pool.UID),
		data:   &secretData{cache: p.Client, live: p.Live, made: &p.made},
		looked: map[plan.EndpointKey]time.Time{},
		first:  true,
	}
	previous, report, err := s.writer.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the plan of DeliveryPool %s: %w", key, err)
	}
	switch {
	case len(report.Damaged) > 0 && report.NoIndex:
		log.FromContext(ctx).Info("The index of the plan is damaged or missing; the plan is written anew from its shards and the objects of the cluster")
	case len(report.Damaged) > 0:
		log.FromContext(ctx).Info("Shards of the plan are damaged or missing; they are written anew from the objects of the cluster", "shards", report.Damaged)
	}
	if report.NoIndex {
		acked, err := p.lastAcknowledged(ctx, key)
		if err != nil {
			return nil, err
		}
		if acked > 0 && previous == nil {
			previous = &plan.Plan{Format: plan.Format}
		}
		if previous != nil {
			previous.Version = max(previous.Version, acked)
		}
	}
	s.previous = previous
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pools == nil {
		p.pools = map[types.NamespacedName]*poolPlan{}
	}
	p.pools[key] = s
	return s, nil
}

// lastAcknowledged is the highest version that a worker has acknowledged; 0 if none has.
func (p *Planner) lastAcknowledged(ctx context.Context, pool types.NamespacedName) (uint64, error) {
	acks, err := acknowledged(ctx, p.Live, pool)
	if err != nil || len(acks) == 0 {
		return 0, err
	}
	return slices.Max(slices.Collect(maps.Values(acks))), nil
}

// forget ends the work for a pool that does not exist: its endpoints say so.
func (p *Planner) forget(_ context.Context, pool types.NamespacedName) error {
	p.mu.Lock()
	s := p.pools[pool]
	delete(p.pools, pool)
	p.mu.Unlock()
	if s == nil || s.outcome == nil {
		return nil
	}
	for k := range s.outcome.Seen {
		p.Changed.endpoint(k)
	}
	return nil
}

// publish makes a pass's outcome known, and has those reconciled about whom it says
// something else than the one before.
func (p *Planner) publish(pool *v1alpha1.DeliveryPool, s *poolPlan, l look, r compile.Result) {
	o := &Outcome{
		Plan:      r.Plan,
		Endpoints: r.Plan.Index(),
		Problems:  map[plan.EndpointKey][]compile.Problem{},
		Policies:  map[plan.EndpointKey][]compile.Problem{},
		Seen:      make(map[plan.EndpointKey]int64, len(l.objects.Endpoints)),
		Unread:    l.unread,
	}
	for _, e := range l.aside {
		o.Seen[plan.EndpointKey{Namespace: e.Namespace, Name: e.Name}] = e.Generation
	}
	for i := range l.objects.Endpoints {
		e := &l.objects.Endpoints[i]
		o.Seen[plan.EndpointKey{Namespace: e.Namespace, Name: e.Name}] = e.Generation
	}
	for _, problem := range r.Problems {
		k := plan.EndpointKey{Namespace: problem.Namespace, Name: problem.Name}
		switch problem.Kind {
		case compile.KindEndpoint:
			o.Problems[k] = append(o.Problems[k], problem)
		case compile.KindRetryPolicy:
			o.Policies[k] = append(o.Policies[k], problem)
		case compile.KindPool:
			o.Pool = append(o.Pool, problem)
		}
	}
	p.mu.Lock()
	was := s.outcome
	o.Written = written(was, r.Plan.Version, p.Now())
	s.outcome = o
	p.mu.Unlock()
	for k := range o.Seen {
		if was == nil || !o.says(k, was) {
			p.Changed.endpoint(k)
		}
	}
	if was != nil {
		for k := range was.Seen {
			if _, still := o.Seen[k]; !still {
				p.Changed.endpoint(k)
			}
		}
	}
	if was == nil || !slices.Equal(was.Pool, o.Pool) || len(was.Endpoints) != len(o.Endpoints) {
		p.Changed.pool(client.ObjectKeyFromObject(pool))
	}
}

// unknown reports whether a plan was written, knows nothing of an endpoint, not even that it
// was there, and would take it in.
func (o *Outcome) unknown(k plan.EndpointKey) bool {
	_, seen := o.Seen[k]
	absent := slices.ContainsFunc(o.Plan.Absent, func(a plan.Absence) bool { return a.EndpointKey == k })
	admitted := o.Plan.Pool.Namespaces == nil || slices.Contains(*o.Plan.Pool.Namespaces, k.Namespace)
	return o.Seen != nil && !seen && !absent && admitted && o.Endpoints[k] == nil
}

// written notes that a version of the plan is written by now, which it may have been before,
// and leaves out those whose time is over.
func written(was *Outcome, version uint64, now time.Time) map[uint64]time.Time {
	at := map[uint64]time.Time{}
	if was != nil {
		maps.Copy(at, was.Written)
		if was.Plan.Version != version {
			at[version] = now
		}
	}
	maps.DeleteFunc(at, func(_ uint64, t time.Time) bool { return now.Sub(t) >= settleTime })
	return at
}

// says reports whether this outcome says the same of an endpoint as another.
func (o *Outcome) says(k plan.EndpointKey, other *Outcome) bool {
	a, b := o.Endpoints[k], other.Endpoints[k]
	if (a == nil) != (b == nil) || a != nil && (a.Version != b.Version || a.Generation != b.Generation) {
		return false
	}
	return o.Seen[k] == other.Seen[k] && o.Unread[k] == other.Unread[k] && slices.Equal(o.Problems[k], other.Problems[k])
}

func (c Changed) endpoint(k plan.EndpointKey) {
	c.Endpoints <- event.GenericEvent{Object: named(&v1alpha1.WebhookEndpoint{}, k.Namespace, k.Name)}
}

func (c Changed) pool(k types.NamespacedName) {
	c.Pools <- event.GenericEvent{Object: named(&v1alpha1.DeliveryPool{}, k.Namespace, k.Name)}
}

func named(o client.Object, namespace, name string) client.Object {
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// writer is that of a pool's plan; nil for a pool that was never looked at.
func (p *Planner) writer(pool types.NamespacedName) *planstore.Writer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.pools[pool]; s != nil {
		return s.writer
	}
	return nil
}
