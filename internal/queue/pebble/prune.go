package pebble

import (
	"context"
	"errors"
	"time"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// Prune forgets old events.
func (s *Store) Prune(ctx context.Context, r queue.Retention) (queue.Pruned, error) {
	var done queue.Pruned
	for from := queue.Seq(0); ; {
		op := &pruneOp{waitOp: newWaitOp(), Retention: r, from: from, limit: 200}
		if err := s.run(ctx, op, op.done); err != nil {
			return done, err
		}
		done.Events += int64(op.pruned)
		if from = op.from; op.ended {
			return done, nil
		}
	}
}

// Pruned is what was forgotten since the store was opened.
func (s *Store) Pruned() queue.Pruned { return queue.Pruned{} }

type pruneOp struct {
	waitOp
	queue.Retention
	limit  int
	from   queue.Seq
	pruned int
	ended  bool
}

// expired is an event to forget, with its deliveries.
type expired struct {
	event      *queue.StoredEvent
	endpoints  []endpointID
	deliveries []*queue.Delivery // nil where there is none
}

func (p *pruneOp) apply(b *batch) error {
	var old []expired
	looked := 0
	p.ended = true
	err := scan(context.Background(), b.s.db, []byte{kindEvent}, appendSeqKey(nil, kindEvent, p.from), func(k, v []byte) error {
		if looked >= p.limit {
			p.ended = false
			return errStop
		}
		looked++
		p.from = parseSeq(k) + 1
		ev, eps, err := b.s.decodeEvent(parseSeq(k), v)
		if err != nil {
			b.s.log.Error(err, "An event can't be read and is passed over; it stays in the store", "seq", parseSeq(k))
			return nil
		}
		if !ev.AcceptedAt.Before(p.Delivered) && !ev.AcceptedAt.Before(p.DeadLetters) {
			return errStop // so are all after it
		}
		x, ok, err := p.expired(b, ev, eps)
		if ok {
			old = append(old, x)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, x := range old {
		b.forget(x, p.Identities)
	}
	p.pruned = len(old)
	return nil
}

// expired says whether an event and all its deliveries may be forgotten.
func (p *pruneOp) expired(b *batch, ev *queue.StoredEvent, eps []endpointID) (x expired, ok bool, err error) {
	x = expired{event: ev, endpoints: eps, deliveries: make([]*queue.Delivery, len(eps))}
	if len(eps) == 0 {
		return x, ev.AcceptedAt.Before(p.Delivered), nil
	}
	for i, id := range eps {
		d, err := b.delivery(b.s.endpoints.byID(id), ev.Seq)
		if errors.Is(err, queue.ErrNotFound) {
			continue
		}
		if err != nil {
			return x, false, err
		}
		at := later(ev.AcceptedAt, d.QueuedAt, d.EndedAt)
		line := p.Delivered
		if d.State == queue.DeadLettered || d.State == queue.FilterError {
			line = p.DeadLetters
		}
		if d.State.Waiting() || !at.Before(line) {
			return x, false, nil
		}
		x.deliveries[i] = d
	}
	return x, true, nil
}

func (b *batch) forget(x expired, identities time.Time) {
	seq := x.event.Seq
	for i, id := range x.endpoints {
		d := x.deliveries[i]
		if d == nil {
			continue
		}
		ep := b.s.endpoints.byID(id)
		b.key = appendDeliveryKey(b.key[:0], kindOf(d), id, seq)
		b.del(b.key)
		b.deliveries[deliveryKey{id, seq}] = nil
		ep.count(d, -1)
		for n := 1; n <= d.Attempts; n++ {
			b.key = appendAttemptKey(b.key[:0], seq, id, n)
			b.del(b.key)
		}
	}
	b.key = appendSeqKey(b.key[:0], kindEvent, seq)
	b.del(b.key)
	b.key = appendSeqKey(b.key[:0], kindPayload, seq)
	b.del(b.key)
	b.key = appendListedKey(b.key[:0], b.namespace(x.event.Namespace).id, seq)
	b.del(b.key)
	if x.event.AcceptedAt.Before(identities) {
		b.key = appendIdentityKey(b.key[:0], x.event.Namespace, x.event.WebhookID)
		b.del(b.key)
		b.identities[string(b.key)] = identity{}
	}
}

func later(ts ...time.Time) (t time.Time) {
	for _, x := range ts {
		if x.After(t) {
			t = x
		}
	}
	return t
}
