package pebble

import (
	"context"
	"errors"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// ---- reading and writing one delivery within a batch

// delivery finds a delivery wherever it is, as ops before this one left it.
func (b *batch) delivery(ep *endpoint, seq queue.Seq) (*queue.Delivery, error) {
	if d, ok := b.deliveries[deliveryKey{ep.id, seq}]; ok {
		return d, nil
	}
	return b.s.delivery(ep, seq, kindFresh, kindRetrying, kindDead, kindDelivered)
}

// waiting is delivery, for those that wait only.
func (b *batch) waiting(ep *endpoint, seq queue.Seq) (*queue.Delivery, error) {
	d, ok := b.deliveries[deliveryKey{ep.id, seq}]
	if !ok {
		var err error
		d, err = b.s.delivery(ep, seq, kindFresh, kindRetrying)
		if errors.Is(err, queue.ErrNotFound) {
			return nil, queue.ErrNotWaiting
		}
		if err != nil {
			return nil, err
		}
	}
	if !d.State.Waiting() {
		return nil, queue.ErrNotWaiting
	}
	return d, nil
}

// fresh reports whether a delivery lies among the fresh ones: never tried and never
// replayed.
func fresh(d *queue.Delivery) bool {
	return d.State == queue.Pending && d.Attempts == 0 && d.Replays == 0
}

// kindOf is where a delivery's record lies.
func kindOf(d *queue.Delivery) byte {
	switch {
	case d.State == queue.Delivered:
		return kindDelivered
	case d.State == queue.DeadLettered:
		return kindDead
	case fresh(d):
		return kindFresh
	}
	return kindRetrying
}

// move rewrites a delivery from how it was to how it is.
func (b *batch) move(ep *endpoint, was, is *queue.Delivery) {
	switch k := kindOf(was); k {
	case kindFresh:
		// Written once and removed once: pebble may drop both where they meet.
		b.key = appendDeliveryKey(b.key[:0], k, ep.id, was.Seq)
		_ = b.SingleDelete(b.key, nil)
	case kindRetrying:
		b.key = appendDueKey(b.key[:0], ep.id, was.DueAt, was.Seq)
		b.del(b.key)
		if kindOf(is) == k {
			break
		}
		fallthrough
	default:
		b.key = appendDeliveryKey(b.key[:0], k, ep.id, was.Seq)
		b.del(b.key)
	}
	if kindOf(is) == kindRetrying {
		b.key = appendDueKey(b.key[:0], ep.id, is.DueAt, is.Seq)
		b.put(b.key, nil)
	}
	b.key = appendDeliveryKey(b.key[:0], kindOf(is), ep.id, is.Seq)
	b.value = encodeDelivery(b.value[:0], is)
	b.put(b.key, b.value)
	b.deliveries[deliveryKey{ep.id, is.Seq}] = is
	ep.count(was.State, -1)
	ep.count(is.State, 1)
}

// end makes a delivery a finished one.
func end(d *queue.Delivery, s queue.State, reason string, at time.Time) {
	d.State, d.Reason, d.EndedAt = s, reason, at
	d.DueAt, d.Delay = time.Time{}, 0
}

// ---- outcomes

// Record stores an attempt's outcome.
func (s *Store) Record(o queue.Outcome, done func(error)) {
	op := &recordOp{outcome: o, done: done}
	// Never refuse what has happened: wait for a place as long as it takes.
	for {
		err := s.submit(context.Background(), op, time.Minute)
		if errors.Is(err, queue.ErrOverloaded) {
			continue
		}
		if err != nil {
			done(err)
		}
		return
	}
}

type recordOp struct {
	outcome queue.Outcome
	done    func(error)
}

func (r *recordOp) finish(_ *Store, err error) { r.done(err) }

func (r *recordOp) apply(b *batch) error {
	o := &r.outcome
	ep := b.s.endpoints.get(o.Endpoint)
	if ep == nil {
		return queue.ErrNotFound
	}
	was, err := b.waiting(ep, o.Seq)
	if err != nil {
		return err
	}
	is := *was
	is.Attempts = max(o.Attempt.Number, was.Attempts+1)
	is.Budget++
	is.LastStatus = o.Attempt.Status
	if o.Attempt.HandlerVersion != "" {
		is.HandlerVersion = o.Attempt.HandlerVersion
	}
	if o.To == queue.Retrying {
		is.State, is.Reason, is.Delay, is.DueAt = queue.Retrying, o.Attempt.Reason, o.Delay, o.DueAt
	} else {
		end(&is, o.To, o.Reason, b.now)
	}
	b.move(ep, was, &is)
	b.key = appendAttemptKey(b.key[:0], o.Seq, ep.id, is.Attempts)
	b.value = encodeAttempt(b.value[:0], &o.Attempt)
	b.put(b.key, b.value)
	return nil
}

// ---- changes that people and policies make

// Settle dead-letters waiting deliveries without an attempt.
func (s *Store) Settle(ctx context.Context, k plan.EndpointKey, seqs []queue.Seq, reason string) (int, error) {
	n := 0
	err := s.change(ctx, k, true, func(b *batch, ep *endpoint) error {
		for _, seq := range seqs {
			was, err := b.waiting(ep, seq)
			if errors.Is(err, queue.ErrNotWaiting) {
				continue
			}
			if err != nil {
				return err
			}
			is := *was
			end(&is, queue.DeadLettered, reason, b.now)
			b.move(ep, was, &is)
			n++
		}
		return nil
	})
	return n, err
}

// Reschedule brings retrying deliveries forward.
func (s *Store) Reschedule(ctx context.Context, k plan.EndpointKey, due map[queue.Seq]time.Time) (int, error) {
	n := 0
	err := s.change(ctx, k, false, func(b *batch, ep *endpoint) error {
		for seq, at := range due {
			was, err := b.waiting(ep, seq)
			if errors.Is(err, queue.ErrNotWaiting) {
				continue
			}
			if err != nil {
				return err
			}
			if fresh(was) || !at.Before(was.DueAt) {
				continue
			}
			is := *was
			is.Delay = max(0, was.Delay-was.DueAt.Sub(at))
			is.DueAt = at
			b.move(ep, was, &is)
			n++
		}
		return nil
	})
	return n, err
}

// SetLane remembers what must outlive a restart of a lane.
func (s *Store) SetLane(ctx context.Context, k plan.EndpointKey, lane queue.Lane) error {
	op := &changeOp{waitOp: newWaitOp(), key: k, make: true, durable: true, f: func(b *batch, ep *endpoint) error {
		b.put(appendEndpointKey(nil, kindLane, ep.id), encodeLane(lane))
		ep.lane.Store(&lane)
		return nil
	}}
	return s.run(ctx, op, op.done)
}

// Replay queues a finished delivery again.
func (s *Store) Replay(ctx context.Context, k plan.EndpointKey, seq queue.Seq, force bool) (queue.Delivery, error) {
	op := &replayOp{waitOp: newWaitOp(), key: k, seq: seq, force: force}
	err := s.run(ctx, op, op.done)
	return op.delivery, err
}

type replayOp struct {
	waitOp
	key      plan.EndpointKey
	seq      queue.Seq
	force    bool
	delivery queue.Delivery
}

func (r *replayOp) apply(b *batch) error {
	ep := b.s.endpoints.get(r.key)
	if ep == nil {
		return queue.ErrNotFound
	}
	was, err := b.delivery(ep, r.seq)
	switch {
	case err != nil:
		return err
	case was.State.Waiting():
		return queue.ErrAlreadyWaiting
	case was.State == queue.Delivered && !r.force:
		return queue.ErrDelivered
	}
	is := *was
	is.State, is.Reason, is.Budget, is.EndedAt = queue.Pending, "", 0, time.Time{}
	is.QueuedAt, is.DueAt, is.Delay = b.now, b.now, 0
	is.Replays++
	b.move(ep, was, &is)
	b.durable = true
	r.delivery = is
	return nil
}

// changeOp is a change of one endpoint's deliveries as a function.
type changeOp struct {
	waitOp
	key plan.EndpointKey
	// make: the endpoint is made known if it isn't; otherwise there is nothing to do.
	make    bool
	durable bool
	f       func(*batch, *endpoint) error
}

func (c *changeOp) apply(b *batch) error {
	b.durable = b.durable || c.durable
	if c.make {
		return c.f(b, b.endpoint(c.key))
	}
	if ep := b.s.endpoints.get(c.key); ep != nil {
		return c.f(b, ep)
	}
	return nil
}

func (s *Store) change(ctx context.Context, k plan.EndpointKey, durable bool, f func(*batch, *endpoint) error) error {
	op := &changeOp{waitOp: newWaitOp(), key: k, durable: durable, f: f}
	return s.run(ctx, op, op.done)
}

// run hands an op over and waits until it is answered: a change that has been
// handed over happens, so a caller that gave up would not know.
func (s *Store) run(ctx context.Context, o op, done <-chan error) error {
	if err := s.submit(ctx, o, overloadAfter); err != nil {
		return err
	}
	return <-done
}
