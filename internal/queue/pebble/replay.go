package pebble

import (
	"context"
	"errors"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

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
	case was.State == queue.Discarded && !r.force:
		return queue.ErrDiscarded
	}
	if err := b.sendable(r.seq); err != nil {
		return err
	}
	is := *was
	is.State, is.Reason, is.Budget, is.EndedAt = queue.Pending, "", 0, time.Time{}
	is.QueuedAt, is.DueAt, is.Delay, is.Asked = b.now, b.now, 0, 0
	is.Undecided = was.State == queue.FilterError
	is.Replays++
	b.move(ep, was, &is)
	b.durable = true
	r.delivery = is
	return nil
}

// sendable is nil if an event's payload is there.
func (b *batch) sendable(seq queue.Seq) error {
	if b.erased[seq] {
		return queue.ErrErased
	}
	if len(b.arrived) > 0 && seq >= b.arrived[0].Seq {
		return nil
	}
	_, closer, err := b.s.db.Get(appendSeqKey(nil, kindPayload, seq))
	switch {
	case err == nil:
		return closer.Close()
	case !errors.Is(err, pebbledb.ErrNotFound):
		return b.s.missingIfDamaged(appendSeqKey(nil, kindPayload, seq), err)
	}
	ev, _, err := b.s.envelope(b.s.db, seq)
	switch {
	case err != nil:
		return b.s.missingIfDamaged(appendSeqKey(nil, kindEvent, seq), err)
	case !ev.Erased.IsZero():
		return queue.ErrErased
	}
	return queue.ErrPayloadMissing
}
