package pebble

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// ---- reading and writing one delivery within a batch

// delivery finds a delivery wherever it is, as ops before this one left it.
func (b *batch) delivery(ep *endpoint, seq queue.Seq) (*queue.Delivery, error) {
	return b.find(ep, seq, kindsOfDelivery...)
}

// waiting is delivery, for those that wait only.
func (b *batch) waiting(ep *endpoint, seq queue.Seq) (*queue.Delivery, error) {
	d, err := b.find(ep, seq, kindFresh, kindRetrying)
	if errors.Is(err, queue.ErrNotFound) || err == nil && !d.State.Waiting() {
		return nil, queue.ErrNotWaiting
	}
	return d, err
}

// find looks for a delivery in what this batch has written, and then in the given
// places of the store.
func (b *batch) find(ep *endpoint, seq queue.Seq, kinds ...byte) (*queue.Delivery, error) {
	if b.forgotten[seq] {
		return nil, queue.ErrNotFound
	}
	if d, ok := b.deliveries[deliveryKey{ep.id, seq}]; ok {
		return d, nil
	}
	if len(b.arrived) > 0 && seq >= b.arrived[0].Seq && seq < b.s.nextSeq {
		ev := b.arrived[seq-b.arrived[0].Seq]
		if !slices.Contains(ev.Endpoints, ep.key) || b.s.endpoints.namespaces.of(ep.key.Namespace, seq) != ep.key.Namespace {
			return nil, queue.ErrNotFound
		}
		d := ev.New(ep.key)
		return &d, nil
	}
	return delivery(b.s.db, ep, seq, kinds...)
}

// fresh reports whether a delivery lies among the fresh ones: never tried and never
// replayed.
func fresh(d *queue.Delivery) bool {
	return d.State == queue.Pending && d.Attempts == 0 && d.Replays == 0
}

// kindOf is where a delivery's record lies.
func kindOf(d *queue.Delivery) byte {
	switch d.State {
	case queue.Delivered:
		return kindDelivered
	case queue.DeadLettered:
		return kindDead
	case queue.FilterError:
		return kindFilterError
	case queue.Discarded:
		return kindDiscarded
	}
	if fresh(d) {
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
	b.value = encodeDelivery(b.value[:0], is) // never fresh again, see move's kindFresh
	b.put(b.key, b.value)
	b.deliveries[deliveryKey{ep.id, is.Seq}] = is
	b.line(ep, was, is)
	ep.count(was, -1)
	ep.count(is, 1)
	if is.State.Waiting() {
		b.s.segments.changed(is.Seq)
	} else {
		b.s.segments.ended(is.Seq, is.State, b.now)
	}
}

// end makes a delivery a finished one.
func end(d *queue.Delivery, s queue.State, reason string, at time.Time) {
	d.State, d.Reason, d.EndedAt = s, reason, at
	d.DueAt, d.Delay, d.Asked, d.Undecided = time.Time{}, 0, 0, false
}

// ---- outcomes

// Record stores an attempt's outcome.
func (s *Store) Record(o queue.Outcome, done func(error)) {
	// Never refuse what has happened: wait for a place as long as it takes.
	if err := s.submit(context.Background(), &recordOp{outcome: o, done: done}, 0); err != nil {
		done(err)
	}
}

type recordOp struct {
	outcome queue.Outcome
	done    func(error)
}

func (r *recordOp) finish(err error) { r.done(err) }

func (r *recordOp) apply(b *batch) error {
	o := &r.outcome
	if o.To != queue.Delivered && o.To != queue.DeadLettered && o.To != queue.Retrying {
		return fmt.Errorf("an attempt can't make a delivery %s", o.To)
	}
	ep := b.s.endpoints.get(o.Endpoint)
	if ep == nil {
		return queue.ErrNotWaiting
	}
	was, err := b.waiting(ep, o.Seq)
	if err != nil {
		return err
	}
	if b.s.space.check(len(o.Attempt.Response)) != nil {
		o.Attempt.Response = nil // what room is left is for the outcomes themselves
	}
	is := *was
	is.Attempts++
	is.Budget++
	is.Undecided = false // no attempt is made before the filter was asked
	o.Attempt.Number = is.Attempts
	is.LastStatus = o.Attempt.Status
	if o.Attempt.HandlerVersion != "" {
		is.HandlerVersion = o.Attempt.HandlerVersion
	}
	if o.To == queue.Retrying {
		is.State, is.Reason, is.Delay, is.Asked, is.DueAt = queue.Retrying, o.Attempt.Reason, o.Delay, o.Asked, o.DueAt
	} else {
		end(&is, o.To, o.Reason, b.now)
	}
	b.move(ep, was, &is)
	b.key = appendAttemptKey(b.key[:0], o.Seq, ep.id, is.Attempts)
	b.value = encodeAttempt(b.value[:0], &o.Attempt)
	b.put(b.key, b.value)
	if len(o.Attempt.Response) > 0 {
		b.answers = append(b.answers, answer{slices.Clone(b.key), o.Seq, o.Attempt})
	}
	return nil
}

// ---- changes that people and policies make

// Settle ends waiting deliveries without an attempt.
func (s *Store) Settle(ctx context.Context, k plan.EndpointKey, seqs []queue.Seq, to queue.State, reason string) (int, error) {
	if to != queue.DeadLettered && to != queue.FilterError && to != queue.Discarded {
		return 0, fmt.Errorf("a delivery can't be made %s without an attempt", to)
	}
	op := &changeOp{waitOp: newWaitOp(), key: k, durable: true, seqs: slices.Compact(slices.Sorted(slices.Values(seqs)))}
	op.to = ending(to, reason)
	err := s.run(ctx, op, op.done)
	return op.changed, err
}

// ending is the change that ends a delivery.
func ending(to queue.State, reason string) func(*queue.Delivery, time.Time) bool {
	return func(is *queue.Delivery, now time.Time) bool {
		end(is, to, reason, now)
		return true
	}
}

// Reschedule brings retrying deliveries forward.
func (s *Store) Reschedule(ctx context.Context, k plan.EndpointKey, due map[queue.Seq]time.Time) (int, error) {
	// Not durable at once: a crash leaves the later times, which are right as well.
	op := &changeOp{waitOp: newWaitOp(), key: k, seqs: slices.Sorted(maps.Keys(due))}
	op.to = func(is *queue.Delivery, _ time.Time) bool {
		at := due[is.Seq]
		if fresh(is) || !at.Before(is.DueAt) {
			return false
		}
		is.Delay = max(0, is.Delay-is.DueAt.Sub(at))
		is.DueAt = at
		return true
	}
	err := s.run(ctx, op, op.done)
	return op.changed, err
}

// changeOp changes waiting deliveries of one endpoint; those that don't wait are left out.
type changeOp struct {
	waitOp
	key plan.EndpointKey
	// ep takes the place of key where no key leads to the endpoint.
	ep      *endpoint
	seqs    []queue.Seq // each once
	durable bool
	// to makes of a delivery what it is to be and says whether anything is different.
	to      func(is *queue.Delivery, now time.Time) bool
	changed int
}

func (c *changeOp) apply(b *batch) error {
	ep := c.ep
	if ep == nil {
		ep = b.s.endpoints.get(c.key)
	}
	if ep == nil {
		return nil
	}
	type change struct{ was, is *queue.Delivery }
	var changes []change
	for _, seq := range c.seqs {
		was, err := b.waiting(ep, seq)
		if errors.Is(err, queue.ErrNotWaiting) {
			continue
		}
		if err != nil {
			return err
		}
		is := *was
		if c.to(&is, b.now) {
			changes = append(changes, change{was, &is})
		}
	}
	for _, ch := range changes {
		b.move(ep, ch.was, ch.is)
	}
	c.changed = len(changes)
	b.durable = b.durable || c.durable && c.changed > 0
	return nil
}

// SetLane remembers what must outlive a restart of a lane.
func (s *Store) SetLane(ctx context.Context, k plan.EndpointKey, lane queue.Lane) error {
	op := &laneOp{waitOp: newWaitOp(), key: k, lane: lane}
	return s.run(ctx, op, op.done)
}

type laneOp struct {
	waitOp
	key  plan.EndpointKey
	lane queue.Lane
}

func (l *laneOp) apply(b *batch) error {
	ep := b.endpoint(l.key)
	b.put(appendEndpointKey(nil, kindLane, ep.id), encodeLane(l.lane))
	ep.lane.Store(&l.lane)
	b.durable = true
	return nil
}

// run hands an op over and waits until it is answered: a change that has been
// handed over happens, so a caller that gave up would not know.
func (s *Store) run(ctx context.Context, o op, done <-chan error) error {
	if err := s.submit(ctx, o, overloadAfter); err != nil {
		return err
	}
	return <-done
}
