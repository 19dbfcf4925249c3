package dispatch

import (
	"context"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

// MissingGrace is how long a deleted endpoint's deliveries wait for it to be made
// again.
const MissingGrace = 15 * time.Minute

// Apply takes a new plan. Attempts under way finish with the old one; every attempt
// begun afterwards uses the new one.
func (d *Dispatcher) Apply(ctx context.Context, p *plan.Plan) {
	targets := make(map[plan.EndpointKey]*target, len(p.Endpoints))
	for _, e := range p.Endpoints {
		targets[e.EndpointKey] = newTarget(e)
	}
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
	for _, l := range repoliced {
		if err := d.reschedule(ctx, l); err != nil {
			d.log.Error(err, "Applying a changed retry policy to waiting deliveries failed; they keep their due times", "endpoint", l.key.String())
		}
	}
	d.lookAround()
}

// dropEmpty forgets a lane that the plan doesn't have and that has nothing to do.
func (d *Dispatcher) dropEmpty(l *lane) {
	if len(l.flying) > 0 || l.loading || l.busy || d.queue.Counts(l.key).Waiting() > 0 {
		return
	}
	for i := range l.fresh {
		d.uncache(&l.fresh[i])
	}
	l.timer.Stop()
	delete(d.lanes, l.key)
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

// Enable brings a disabled endpoint back, and lets one that backs off make its next
// attempt at once. Any other is left as it is.
func (d *Dispatcher) Enable(ctx context.Context, k plan.EndpointKey) error {
	d.mu.Lock()
	l := d.lanes[k]
	if l != nil && l.flow.state == BackingOff {
		l.flow.until = d.clock.Now()
		d.wake(l)
	}
	d.mu.Unlock()
	if l == nil {
		return ErrNoLane
	}
	return d.enable(ctx, l, "somebody enabled it")
}

func (d *Dispatcher) enable(ctx context.Context, l *lane, why string) error {
	l.saving.Lock()
	defer l.saving.Unlock()
	d.mu.Lock()
	disabled, stored := l.flow.state == Disabled, queue.Lane{RetryHash: l.stored.RetryHash}
	d.mu.Unlock()
	if !disabled {
		return nil
	}
	// Stored first: who is told that it is enabled finds it so after a crash too. What
	// waits is brought forward after one success, as BackingOff does.
	stored.BackingOff, stored.Reason = true, ReasonFailing
	if err := d.queue.SetLane(ctx, l.key, stored); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	l.stored, l.unsaved = stored, false
	l.flow.enable(l.target == nil || l.target.Retry.OnRecovery == retry.Expedite, now)
	if l.flow.expedite {
		l.beginOld(now)
	}
	d.wake(l)
	d.log.Info("Lane changed", "endpoint", l.key.String(), "from", Disabled.String(), "to", Draining.String(), "cause", why)
	return nil
}

// reschedule applies a changed policy to deliveries that wait for a retry: attempt n
// uses step n of the new policy, if that is earlier, but not earlier than the receiver
// asked for.
func (d *Dispatcher) reschedule(ctx context.Context, l *lane) error {
	l.care.Lock()
	defer l.care.Unlock()
	d.mu.Lock()
	t := l.target
	l.busy = true
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		l.busy = false
		d.wake(l)
		d.mu.Unlock()
	}()
	var after queue.Seq
	for {
		ds, err := d.queue.Retrying(ctx, l.key, after, 1000)
		if err != nil {
			return err
		}
		due := map[queue.Seq]time.Time{}
		for _, del := range ds {
			after = del.Seq
			if del.State != queue.Retrying || d.InFlight(l.key, del.Seq) {
				continue
			}
			failedAt := del.DueAt.Add(-del.Delay)
			delay := max(t.Retry.Delay(del.Budget, d.rand()), del.Asked)
			at, _, dead := t.Retry.Next(failedAt, del.QueuedAt, del.Budget, delay)
			if dead == "" && at.Before(del.DueAt) {
				due[del.Seq] = at
			}
		}
		if len(due) > 0 {
			if _, err := d.queue.Reschedule(ctx, l.key, due); err != nil {
				return err
			}
		}
		if len(ds) < 1000 {
			break
		}
	}
	d.mu.Lock()
	l.stored.RetryHash, l.unsaved = t.retryHash, true
	l.reloadDue()
	l.note(d.clock.Now())
	d.mu.Unlock()
	d.save(l)
	return nil
}
