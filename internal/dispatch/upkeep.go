package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

const (
	upkeepInterval = 30 * time.Second
	// expiryGrace is how much longer than maxAge a delivery of a lane that still makes
	// attempts may wait: its last attempt, due at maxAge, comes first.
	expiryGrace = time.Minute
	settlePage  = 500
)

// Run looks after what waits without being attempted, until ctx is done: what is
// older than its policy's maxAge, and what belongs to endpoints deleted for good.
func (d *Dispatcher) Run(ctx context.Context) error {
	t := time.NewTicker(upkeepInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.upkeepNow:
		case <-t.C:
		}
		d.upkeep(ctx)
		d.pulse()
	}
}

// stuckAfter is how long the dispatcher may show no life before Health says so.
const stuckAfter = 4 * upkeepInterval

// pulse notes that the dispatcher lives: its lock can be had, and what is ready is
// looked at.
func (d *Dispatcher) pulse() {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	if len(d.ring) > 0 && d.workers < d.maxInFlight && now.Sub(d.turned) > upkeepInterval {
		return // lanes are ready and nobody comes
	}
	d.beat.Store(now.UnixNano())
}

// Health is nil while the dispatcher works. Deliveries are safe in the queue when it
// isn't, but only a restart brings them on their way. It takes no lock.
func (d *Dispatcher) Health() error {
	if d.clock.Now().Sub(time.Unix(0, d.beat.Load())) > stuckAfter {
		return fmt.Errorf("the dispatcher has shown no life for over %s; restart to go on, nothing is lost", stuckAfter)
	}
	return nil
}

// lookAround asks for an upkeep soon.
func (d *Dispatcher) lookAround() {
	select {
	case d.upkeepNow <- struct{}{}:
	default:
	}
}

func (d *Dispatcher) upkeep(ctx context.Context) {
	d.mu.Lock()
	keys := sortedKeys(d.lanes)
	var unsaved []*lane
	for _, l := range d.lanes {
		if l.unsaved {
			unsaved = append(unsaved, l)
		}
	}
	d.mu.Unlock()
	for _, l := range unsaved {
		d.save(l)
	}
	for _, k := range keys {
		if ctx.Err() != nil {
			return
		}
		if d.queue.Counts(k).Waiting() == 0 {
			continue
		}
		if err := d.upkeepLane(ctx, k); err != nil && ctx.Err() == nil {
			d.log.Error(err, "Looking after waiting deliveries failed; they stay as they are until the next look", "endpoint", k.String())
		}
	}
}

// overdue says which of the lane's deliveries have waited too long: those queued before
// the time, for the reason. A zero time is none.
func (l *lane) overdue(now time.Time) (before time.Time, reason string) {
	switch s := l.state(); {
	case s == Missing:
		if !l.deletedAt.IsZero() && now.Sub(l.deletedAt) >= MissingGrace {
			return now.Add(time.Nanosecond), queue.ReasonEndpointDeleted
		}
	case s == NotInPlan || l.target == nil || l.target.Retry.MaxAge <= 0:
		// Absence is never deletion, and without a policy there is no maxAge.
	case s.Held():
		return now.Add(-l.target.Retry.MaxAge), queue.ReasonExpired
	case s == BackingOff:
		return now.Add(-l.target.Retry.MaxAge - expiryGrace), queue.ReasonExpired
	case s == Active || s == Draining:
		// Whatever is due is attempted, the last time at maxAge.
	}
	return time.Time{}, ""
}

func (d *Dispatcher) upkeepLane(ctx context.Context, k plan.EndpointKey) error {
	d.mu.Lock()
	l := d.lanes[k]
	d.mu.Unlock()
	if l == nil {
		return nil
	}
	d.pulse() // settling millions takes its time, and is a sign of life
	l.care.Lock()
	defer l.care.Unlock()
	d.mu.Lock()
	now := d.clock.Now()
	before, reason := l.overdue(now)
	if before.IsZero() || l.loading {
		d.mu.Unlock()
		return nil
	}
	l.busy = true
	d.mu.Unlock()
	settled, err := d.settle(ctx, l, before, reason)
	d.mu.Lock()
	defer d.mu.Unlock()
	l.busy = false
	if settled > 0 {
		d.reread(l, now)
		d.log.Info("Waiting deliveries were dead-lettered", "endpoint", k.String(), "reason", reason, "deliveries", settled)
	}
	d.wake(l)
	return err
}

// settle dead-letters the lane's deliveries that were queued before a time and are
// not flying.
func (d *Dispatcher) settle(ctx context.Context, l *lane, before time.Time, reason string) (int, error) {
	total := 0
	list := func(page func(queue.Seq) ([]queue.Delivery, error), ordered bool) error {
		var after queue.Seq
		for ctx.Err() == nil {
			ds, err := page(after)
			if err != nil {
				return err
			}
			var seqs []queue.Seq
			done := len(ds) < settlePage
			for _, del := range ds {
				after = del.Seq
				if !del.QueuedAt.Before(before) {
					// Fresh ones lie in order of acceptance: none behind it is older.
					if done = done || ordered; ordered {
						break
					}
					continue
				}
				if !d.InFlight(l.key, del.Seq) {
					seqs = append(seqs, del.Seq)
				}
			}
			if len(seqs) > 0 {
				n, err := d.queue.Settle(ctx, l.key, seqs, queue.DeadLettered, reason)
				total += n
				if err != nil {
					return err
				}
			}
			if done {
				return nil
			}
		}
		return ctx.Err()
	}
	err := errors.Join(
		list(func(after queue.Seq) ([]queue.Delivery, error) { return d.queue.Fresh(ctx, l.key, after, settlePage) }, true),
		list(func(after queue.Seq) ([]queue.Delivery, error) {
			return d.queue.Retrying(ctx, l.key, after, settlePage)
		}, false),
	)
	return total, err
}

// Stop ends all attempts: no new one begins, those under way may finish within the
// grace, and what is left then is cut and given back. It returns when no attempt is
// under way and every outcome has been handed to the queue; ErrStuck if that has not
// come about some time after the grace, because the queue takes nothing.
func (d *Dispatcher) Stop(grace time.Duration) error {
	d.mu.Lock()
	d.stopping = true
	for _, l := range d.lanes {
		l.timer.Stop()
	}
	d.mu.Unlock()
	cut := time.AfterFunc(grace, d.cut)
	defer d.cut()
	defer cut.Stop()
	ended := make(chan struct{})
	go func() {
		d.work.Wait()
		close(ended)
	}()
	patience := time.NewTimer(grace + stopPatience)
	defer patience.Stop()
	select {
	case <-ended:
		return nil
	case <-patience.C:
		return ErrStuck
	}
}

// stopPatience is how long after the grace a stop waits for outcomes to be taken.
const stopPatience = 5 * time.Second

// ErrStuck says that a stop was not clean: attempts that were made are not recorded, and
// will be made again.
var ErrStuck = errors.New("the store takes no outcomes; what was under way is attempted again after a restart")
