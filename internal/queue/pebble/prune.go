package pebble

import (
	"context"
	"errors"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// Prune forgets old events.
func (s *Store) Prune(ctx context.Context, delivered, deadLetters time.Time, limit int) (int, bool, error) {
	op := &pruneOp{waitOp: newWaitOp(), delivered: delivered, deadLetters: deadLetters, limit: limit}
	err := s.run(ctx, op, op.done)
	return op.pruned, op.ended, err
}

type pruneOp struct {
	waitOp
	delivered, deadLetters time.Time
	limit                  int
	pruned                 int
	ended                  bool
}

func (p *pruneOp) apply(b *batch) error {
	looked := 0
	p.ended = true
	from := appendSeqKey(nil, kindEvent, b.s.pruneFrom)
	err := b.s.scan([]byte{kindEvent}, from, func(k, v []byte) error {
		seq := parseDeliverySeq(k)
		if looked == p.limit {
			p.ended = false
			return errStop
		}
		looked++
		b.s.pruneFrom = seq + 1
		ev, eps, err := b.s.decodeEvent(seq, v)
		if err != nil {
			return err
		}
		if !ev.AcceptedAt.Before(p.delivered) && !ev.AcceptedAt.Before(p.deadLetters) {
			return errStop // so are all after it
		}
		return p.event(b, ev, eps)
	})
	if p.ended {
		b.s.pruneFrom = 0
	}
	return err
}

// event forgets one event if all its deliveries may be forgotten.
func (p *pruneOp) event(b *batch, ev *queue.StoredEvent, eps []endpointID) error {
	found := make([]*queue.Delivery, len(eps))
	for i, id := range eps {
		d, err := b.delivery(b.s.endpoints.byID(id), ev.Seq)
		if errors.Is(err, queue.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		// A replayed delivery's time runs from its replay.
		at := later(ev.AcceptedAt, d.QueuedAt, d.EndedAt)
		if d.State.Waiting() ||
			d.State == queue.Delivered && !at.Before(p.delivered) ||
			d.State == queue.DeadLettered && !at.Before(p.deadLetters) {
			return nil
		}
		found[i] = d
	}
	if len(eps) == 0 && !ev.AcceptedAt.Before(p.delivered) {
		return nil
	}
	for i, id := range eps {
		if d := found[i]; d != nil {
			b.del(appendDeliveryKey(nil, kindOf(d), id, ev.Seq))
			b.s.endpoints.byID(id).count(d.State, -1)
		}
	}
	if err := b.deleteAttempts(ev.Seq); err != nil {
		return err
	}
	b.del(appendSeqKey(nil, kindEvent, ev.Seq))
	b.del(appendSeqKey(nil, kindPayload, ev.Seq))
	b.del(appendIdentityKey(nil, ev.Namespace, ev.WebhookID))
	p.pruned++
	return nil
}

func (b *batch) deleteAttempts(seq queue.Seq) error {
	return b.s.scan(appendSeqKey(nil, kindAttempt, seq), nil, func(k, _ []byte) error {
		return b.Delete(k, &pebbledb.WriteOptions{})
	})
}

func later(ts ...time.Time) (t time.Time) {
	for _, x := range ts {
		if x.After(t) {
			t = x
		}
	}
	return t
}
