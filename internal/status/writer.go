package status

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	apply "github.com/doorstep-dev/doorstep/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/clock"
	"github.com/doorstep-dev/doorstep/internal/dispatch"
	"github.com/doorstep-dev/doorstep/internal/health"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/ssa"
)

const (
	// writeInterval makes five writes a second the most.
	writeInterval = 200 * time.Millisecond
	// restInterval is the least time between two writes of one endpoint that are not urgent.
	restInterval = 30 * time.Second
	// lookInterval is how soon a transition is seen.
	lookInterval = time.Second
	// callTimeout bounds one call.
	callTimeout = 10 * time.Second
	maxBackOff  = 30 * time.Second
	// maxRefused is the longest pause for one endpoint whose status the API server refuses.
	maxRefused = 5 * time.Minute
)

// Queue is what is asked of the store.
type Queue interface {
	Counts(plan.EndpointKey) queue.Counts
	Usage() queue.Usage
	Head(ctx context.Context, k plan.EndpointKey, key uint64) (queue.Delivery, error)
	Due(ctx context.Context, k plan.EndpointKey, until time.Time, limit int) ([]queue.Delivery, time.Time, error)
	Fresh(ctx context.Context, k plan.EndpointKey, after queue.Seq, limit int) ([]queue.Delivery, error)
}

// Lanes are what is asked of dispatch.
type Lanes interface {
	View(plan.EndpointKey) (dispatch.View, bool)
}

// Writer writes the statuses of one pool and its endpoints.
type Writer struct {
	Client client.Client
	Pool   types.NamespacedName
	Queue  Queue
	Lanes  Lanes
	Plan   func() *plan.Plan
	Health *health.Book
	Clock  *clock.Clock
	Log    logr.Logger

	states map[plan.EndpointKey]*state
	pool   poolState
	// moved are endpoints whose lane changed its state, or that became Degraded or ceased to be,
	// urgent those with something else that is written at once, each in the order in which it
	// was seen.
	moved, urgent []plan.EndpointKey
	// after is the last endpoint that was looked at for other changes.
	after int
}

// state is what the Writer knows of one endpoint.
type state struct {
	uid string
	// looked: what is shown is known. gone: the object is not there.
	looked, gone bool
	shown        v1alpha1.WebhookEndpointStatus
	written      time.Time
	mark         mark
	moved        bool // it is in the Writer's moved
	queued       bool // it is in its urgent
	// refused is how long the endpoint was left alone for, and retryAt until when: the API
	// server refuses what is its, which is no reason to keep silent on the others.
	refused time.Duration
	retryAt time.Time
}

// mark is what is written at once when it changes.
type mark struct {
	state     dispatch.State
	reason    string
	healthy   health.Healthy
	succeeded bool
	held      bool
}

// Run writes until ctx is done.
func (w *Writer) Run(ctx context.Context) error {
	w.states = map[plan.EndpointKey]*state{}
	tick := time.NewTicker(writeInterval)
	defer tick.Stop()
	var looked, until time.Time
	wait := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		p := w.Plan()
		now := w.Clock.Now()
		if p == nil || now.Before(until) {
			continue
		}
		if now.Sub(looked) >= lookInterval {
			w.look(p, now)
			looked = now
		}
		err := w.step(ctx, p, now)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if wait == 0 {
				w.Log.Info("Statuses can't be written; it is tried again, and they are right afterwards", "error", err.Error())
			}
			wait = min(max(2*wait, time.Second), maxBackOff)
			until = now.Add(wait)
		default:
			wait = 0
		}
	}
}

// look notes which endpoints have changed state, and forgets those that the plan does not
// have any more.
func (w *Writer) look(p *plan.Plan, now time.Time) {
	present := make(map[plan.EndpointKey]bool, len(p.Endpoints))
	started := len(w.states) == 0
	for i := range p.Endpoints {
		e := &p.Endpoints[i]
		present[e.EndpointKey] = true
		s := w.states[e.EndpointKey]
		fresh := s == nil || s.uid != e.UID
		if fresh {
			if s != nil {
				w.Health.Forget(e.EndpointKey) // made anew: it inherits nothing
			}
			s = &state{uid: e.UID}
			w.states[e.EndpointKey] = s
		}
		m := w.markOf(e.EndpointKey, s, now)
		switch {
		case !fresh && (m.state != s.mark.state || (m.healthy == health.Degraded) != (s.mark.healthy == health.Degraded)):
			// Thousands of first successes, after a rollout, say, keep no outage from being told.
			if !s.moved {
				s.moved = true
				w.moved = append(w.moved, e.EndpointKey)
			}
		// Of those that are there at the start most show what is right already.
		case !s.queued && (fresh && !started || !fresh && m != s.mark):
			s.queued = true
			w.urgent = append(w.urgent, e.EndpointKey)
		}
		s.mark = m
	}
	for k := range w.states {
		if !present[k] {
			delete(w.states, k)
		}
	}
}

func (w *Writer) markOf(k plan.EndpointKey, s *state, now time.Time) mark {
	v, _ := w.Lanes.View(k)
	h := w.Health.View(k, now)
	return mark{
		state: v.State, reason: v.Reason, healthy: h.Healthy(s.mark.healthy, degradedBelowPercent),
		succeeded: !h.LastSuccess.IsZero(), held: v.State.Held() && w.Queue.Counts(k).Waiting() > 0,
	}
}

// step makes at most one call that writes: for a transition, for the pool, or for the
// endpoint that has waited longest with something to say.
func (w *Writer) step(ctx context.Context, p *plan.Plan, now time.Time) error {
	for _, list := range []*[]plan.EndpointKey{&w.moved, &w.urgent} {
		if wrote, err := w.atOnce(ctx, p, now, list); err != nil || wrote {
			return err
		}
	}
	if wrote, err := w.poolStatus(ctx, p, now); err != nil {
		if refused(err) {
			w.Log.Info("The status of the pool is refused; it is tried again", "error", err.Error())
			return nil
		}
		return err
	} else if wrote {
		return nil
	}
	// A part of the endpoints at each step, in turn, so that each is looked at every few seconds.
	for range min(len(p.Endpoints), max(len(p.Endpoints)/20, 20)) {
		w.after = (w.after + 1) % len(p.Endpoints)
		e := &p.Endpoints[w.after]
		s := w.states[e.EndpointKey]
		if s == nil || s.gone || s.moved || s.queued || now.Before(s.retryAt) || s.looked && now.Sub(s.written) < restInterval {
			continue
		}
		wrote, err := w.endpoint(ctx, e, s, now)
		if err != nil {
			return w.refusal(s, now, err)
		}
		if wrote {
			return nil
		}
	}
	return nil
}

// atOnce writes the first of a list that has something to say, and reports whether it made a
// call. One that is refused goes to the list's end.
func (w *Writer) atOnce(ctx context.Context, p *plan.Plan, now time.Time, list *[]plan.EndpointKey) (bool, error) {
	for range len(*list) {
		k := (*list)[0]
		*list = (*list)[1:]
		s, e := w.states[k], find(p, k)
		if s == nil || e == nil {
			continue
		}
		if now.Before(s.retryAt) {
			*list = append(*list, k)
			continue
		}
		wrote, err := w.endpoint(ctx, e, s, now)
		if err != nil {
			*list = append(*list, k)
			return true, w.refusal(s, now, err)
		}
		if list == &w.moved {
			s.moved = false
		} else {
			s.queued = false
		}
		if wrote {
			return true, nil
		}
	}
	return false, nil
}

// refusal takes note of a call that failed. It is nil where only the one endpoint is
// concerned, which is then left alone for a while, longer each time.
func (w *Writer) refusal(s *state, now time.Time, err error) error {
	if !refused(err) {
		return err
	}
	if s.refused == 0 {
		w.Log.Info("The status of an endpoint is refused; it is tried again, and others don't wait for it", "error", err.Error())
	}
	s.refused = min(max(2*s.refused, time.Second), maxRefused)
	s.retryAt = now.Add(s.refused)
	return nil
}

// refused tells an answer on the one object, such as a right that is missing in its
// namespace, from an API server that can't be had.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

func find(p *plan.Plan, k plan.EndpointKey) *plan.Endpoint {
	lo, hi := 0, len(p.Endpoints)
	for lo < hi {
		if mid := (lo + hi) / 2; p.Endpoints[mid].EndpointKey.Compare(k) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(p.Endpoints) && p.Endpoints[lo].EndpointKey == k {
		return &p.Endpoints[lo]
	}
	return nil
}

// endpoint writes one endpoint's status if it differs from the one shown, and reports
// whether it made a call.
func (w *Writer) endpoint(ctx context.Context, e *plan.Endpoint, s *state, now time.Time) (bool, error) {
	if s.gone {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	asked := false
	if !s.looked {
		asked = true
		var o v1alpha1.WebhookEndpoint
		err := w.Client.Get(ctx, types.NamespacedName{Namespace: e.Namespace, Name: e.Name}, &o)
		if apierrors.IsNotFound(err) || err == nil && string(o.UID) != e.UID {
			s.gone = true // the plan is late
			return true, nil
		}
		if err != nil {
			return true, fmt.Errorf("read WebhookEndpoint %s: %w", e.EndpointKey, err)
		}
		s.looked, s.shown = true, *workerPart(&o.Status)
		s.recall(w.Health.View(e.EndpointKey, now))
	}
	want := w.sight(ctx, e, s, now).part(s.shown.Conditions)
	if !differs(&want, &s.shown) {
		s.refused = 0
		return asked, nil
	}
	a := apply.WebhookEndpoint(e.Name, e.Namespace).WithUID(types.UID(e.UID)).WithStatus(ssa.Configuration[apply.WebhookEndpointStatusApplyConfiguration](&want))
	err := w.Client.Status().Apply(ctx, a, client.FieldOwner(v1alpha1.FieldOwnerWorker), client.ForceOwnership)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		s.gone = true // deleted, or made anew under another uid: the plan is late
		return true, nil
	case err != nil:
		return true, fmt.Errorf("write the status of WebhookEndpoint %s: %w", e.EndpointKey, err)
	}
	s.shown, s.written, s.refused = want, now, 0
	return true, nil
}

// recall goes on from the Healthy that is shown, or a restart would forget that an
// endpoint at the threshold was Degraded.
func (s *state) recall(v health.View) {
	for i := range s.shown.Conditions {
		if c := &s.shown.Conditions[i]; c.Type == v1alpha1.ConditionHealthy && c.Reason == v1alpha1.ReasonDegraded {
			s.mark.healthy = v.Healthy(health.Degraded, degradedBelowPercent)
		}
	}
}

// workerPart is what the worker owns of a status.
func workerPart(s *v1alpha1.WebhookEndpointStatus) *v1alpha1.WebhookEndpointStatus {
	out := &v1alpha1.WebhookEndpointStatus{Health: s.Health, Deliveries: s.Deliveries}
	for _, kind := range []string{v1alpha1.ConditionDelivering, v1alpha1.ConditionHealthy} {
		for i := range s.Conditions {
			if s.Conditions[i].Type == kind {
				out.Conditions = append(out.Conditions, s.Conditions[i])
			}
		}
	}
	return out
}

// sight looks at one endpoint.
func (w *Writer) sight(ctx context.Context, e *plan.Endpoint, s *state, now time.Time) *sight {
	k := e.EndpointKey
	v, _ := w.Lanes.View(k)
	out := &sight{
		generation: e.Generation, lane: v, counts: w.Queue.Counts(k), health: w.Health.View(k, now), healthy: s.mark.healthy, now: w.Clock.Wall(),
	}
	if out.counts.Waiting() == 0 {
		return out
	}
	wall := w.walls(now)
	if at := w.oldestDue(ctx, k, now); !at.IsZero() {
		out.oldestDue = wall(at)
	}
	if v.State.Held() && e.Retry.MaxAge > 0 {
		if d, err := w.Queue.Head(ctx, k, 0); err == nil {
			out.heldUntil = wall(d.QueuedAt.Add(e.Retry.MaxAge))
		}
	}
	return out
}

// walls gives the wall time of a steady one, as of now.
func (w *Writer) walls(now time.Time) func(time.Time) time.Time {
	// Rounded, or the moment between the two readings would make one time look like another.
	ahead := w.Clock.Wall().Sub(now).Round(time.Second)
	return func(steady time.Time) time.Time { return steady.Add(ahead) }
}

// oldestDue is since when the delivery waits that should have been attempted first; zero without one.
func (w *Writer) oldestDue(ctx context.Context, k plan.EndpointKey, now time.Time) time.Time {
	var oldest time.Time
	if d, _, err := w.Queue.Due(ctx, k, now, 1); err == nil && len(d) > 0 {
		oldest = d[0].DueAt
	}
	if d, err := w.Queue.Fresh(ctx, k, 0, 1); err == nil && len(d) > 0 && (oldest.IsZero() || d[0].QueuedAt.Before(oldest)) {
		oldest = d[0].QueuedAt
	}
	return oldest
}
