package dispatch

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// MissingGrace is how long a deleted endpoint's deliveries wait for it to be made
// again.
const MissingGrace = 15 * time.Minute

// repolicedAtOnce lanes take a changed policy side by side, so that they share the store's
// writes: ten thousand endpoints may have the one policy, and the next plan waits for it.
const repolicedAtOnce = 32

// Apply takes a new plan. Attempts under way finish with the old one; every attempt
// begun afterwards uses the new one.
func (d *Dispatcher) Apply(ctx context.Context, p *plan.Plan) {
	targets := d.targets(p)
	deleted := make(map[plan.EndpointKey]time.Time, len(p.Tombstones))
	for _, t := range p.Tombstones {
		deleted[t.EndpointKey] = t.DeletedAt
	}
	absent := make(map[plan.EndpointKey]bool, len(p.Absent))
	for i := range p.Absent {
		absent[p.Absent[i].EndpointKey] = true
	}
	var enabled, repoliced []*lane
	d.mu.Lock()
	now := d.clock.Now()
	d.maxInFlight = max(p.Pool.MaxInFlight, 1)
	d.deleted = deleted
	d.dropResponses = p.Pool.Retention.DropResponses
	for k := range targets {
		d.lane(k)
	}
	for k := range absent {
		d.lane(k)
	}
	for _, k := range sortedKeys(d.lanes) {
		l := d.lanes[k]
		t := targets[k]
		if t == nil {
			l.absent(deleted[k], now)
			if !absent[k] {
				d.dropEmpty(l)
			}
			continue
		}
		was := l.target
		l.target, l.deletedAt = t, time.Time{}
		if !l.line.is(t.Ordering) {
			d.reread(l, now)
		}
		l.pace.set(t.RateLimit, was == nil && l.known, now)
		if l.setHold(holdOf(t, p.Pool.Suspend), now) && l.state() == Active && d.queue.Counts(k).Waiting() > 0 {
			l.flow.drain(false, now) // what was held comes at a pace, not at once
		}
		if was != nil && was.Hash != t.Hash {
			l.flow.changed(now)
		}
		// Also one that was deleted and made again is another one.
		if l.flow.state == Disabled && (l.stored.Hash != t.Hash || t.FirstSeen.After(l.stored.At)) {
			enabled = append(enabled, l)
		}
		if t.problem == nil && l.stored.RetryHash != "" && l.stored.RetryHash != t.retryHash {
			repoliced = append(repoliced, l)
		}
		d.wake(l)
	}
	d.mu.Unlock()
	for _, l := range enabled {
		if err := d.enable(ctx, l, "the endpoint was changed"); err != nil {
			d.log.Error(err, "Enabling a changed endpoint failed; it stays disabled", "endpoint", l.key.String())
		}
	}
	var several errgroup.Group
	several.SetLimit(repolicedAtOnce)
	for _, l := range repoliced {
		several.Go(func() error {
			if err := d.repolice(ctx, l); err != nil {
				d.log.Error(err, "Applying a changed retry policy to waiting deliveries failed; they keep their due times", "endpoint", l.key.String())
			}
			return nil
		})
	}
	_ = several.Wait()
	d.lookAround()
}

// targets reads the plan's endpoints.
func (d *Dispatcher) targets(p *plan.Plan) map[plan.EndpointKey]*target {
	former := make(map[plan.EndpointKey]*target, len(p.Endpoints))
	d.mu.Lock()
	for k, l := range d.lanes {
		former[k] = l.target
	}
	d.mu.Unlock()
	targets := make(map[plan.EndpointKey]*target, len(p.Endpoints))
	for i := range p.Endpoints {
		e := &p.Endpoints[i]
		targets[e.EndpointKey] = newTarget(e, former[e.EndpointKey])
	}
	return targets
}

// dropEmpty forgets a lane that the plan doesn't have and that has nothing to do.
func (d *Dispatcher) dropEmpty(l *lane) {
	if len(l.flying) > 0 || l.loading || l.busy || d.queue.Counts(l.key).Waiting() > 0 {
		return
	}
	d.cached -= l.restart("", l.holdSince)
	l.timer.Stop()
	delete(d.lanes, l.key)
}

// Forget lets go of all lanes of a namespace, whose name is another one's from now on. What
// they have under way ends, and changes nothing; new lanes are made of what the queue has.
// Nothing is attempted for these before a plan that has them is applied.
//
// It is to be called before the queue is told, so that nothing of a former lane is stored
// for the new namespace, and after, for what was told of in between.
func (d *Dispatcher) Forget(namespace string) {
	d.mu.Lock()
	var former []*lane
	for _, k := range sortedKeys(d.lanes) {
		if k.Namespace == namespace {
			former = append(former, d.lanes[k])
		}
	}
	d.mu.Unlock()
	for _, l := range former {
		l.saving.Lock() // what is being stored is the former one's yet
		d.mu.Lock()
		now := d.clock.Now()
		l.aside = true
		l.setHold(NotInPlan, now)
		d.reread(l, now)
		l.timer.Stop()
		delete(d.lanes, l.key)
		d.mu.Unlock()
		l.saving.Unlock()
	}
}

// absent holds a lane that the plan doesn't have.
func (l *lane) absent(deletedAt, now time.Time) {
	if deletedAt.IsZero() {
		l.setHold(NotInPlan, now)
		return
	}
	l.deletedAt = deletedAt
	l.setHold(Missing, now)
}

func holdOf(t *target, poolSuspended bool) State {
	switch {
	case t.problem != nil:
		return Unresolved
	case t.Suspend || poolSuspended:
		return Suspended
	}
	return Active
}

// repolice applies a changed policy to deliveries that wait for a retry: attempt n uses
// step n of the new policy, if that is earlier, but not earlier than the receiver asked
// for.
func (d *Dispatcher) repolice(ctx context.Context, l *lane) error {
	d.mu.Lock()
	t := l.target
	d.mu.Unlock()
	_, err := d.reschedule(ctx, l, func(del *queue.Delivery) time.Time {
		failedAt := del.DueAt.Add(-del.Delay)
		delay := max(t.Retry.Delay(del.Budget, d.rand()), del.Asked)
		at, _, dead := t.Retry.Next(failedAt, del.QueuedAt, del.Budget, delay)
		if dead != "" {
			return del.DueAt
		}
		return at
	})
	if err != nil {
		return err
	}
	d.mu.Lock()
	l.stored.RetryHash, l.unsaved = t.retryHash, true
	d.mu.Unlock()
	d.save(l)
	return nil
}

// reschedulePage is how many due times are changed in one step.
const reschedulePage = 1000

// reschedule gives deliveries that wait for a retry other due times, where these are
// earlier. It returns how many it brought forward.
func (d *Dispatcher) reschedule(ctx context.Context, l *lane, to func(*queue.Delivery) time.Time) (int, error) {
	l.care.Lock()
	defer l.care.Unlock()
	d.mu.Lock()
	l.busy = true
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		l.busy = false
		l.rereadDue(d.clock.Now())
		d.wake(l)
	}()
	total := 0
	var after queue.Seq
	for {
		ds, err := d.queue.Retrying(ctx, l.key, after, reschedulePage)
		if err != nil {
			return total, err
		}
		due := map[queue.Seq]time.Time{}
		for i := range ds {
			after = ds[i].Seq
			if ds[i].State != queue.Retrying || d.InFlight(l.key, ds[i].Seq) {
				continue
			}
			if at := to(&ds[i]); at.Before(ds[i].DueAt) {
				due[ds[i].Seq] = at
			}
		}
		if len(due) > 0 {
			n, err := d.queue.Reschedule(ctx, l.key, due)
			total += n
			if err != nil {
				return total, err
			}
		}
		if len(ds) < reschedulePage {
			return total, nil
		}
	}
}
