package pebble

import (
	"context"
	"errors"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// look reads one segment and finds what may be forgotten of it.
type look struct {
	s *Store
	queue.Retention
	// early is how many bytes of events may be forgotten before their time.
	early int64

	forget []forgotten // by seq
	drop   []dropped   // payloads of events that are kept, by seq
	// left is what is known of the events that are kept.
	left segment
	// runs numbers the runs of events without a kept one between them, payloadRuns those of
	// events whose payloads may go.
	runs, payloadRuns int
}

// forgotten is an event to forget.
type forgotten struct {
	seq        queue.Seq
	run        int
	namespace  namespaceID
	identity   []byte // key
	acceptedAt time.Time
	size       int
	early      bool
	deliveries []finished
}

// finished is a delivery of an event to forget.
type finished struct {
	endpoint *endpoint
	delivery *queue.Delivery
}

// dropped is a payload to drop.
type dropped struct {
	seq  queue.Seq
	run  int
	size int
}

// read looks at every event of the segment.
func (l *look) read(ctx context.Context, r pebbledb.Reader) error {
	from := queue.Seq(l.left.id << segmentShift)
	to := from + 1<<segmentShift
	last := from
	return l.s.scanPast(ctx, r, []byte{kindEvent}, appendSeqKey(nil, kindEvent, from), func(k, v []byte) error {
		seq := parseSeq(k)
		if seq >= to {
			return errStop
		}
		if seq > last+1 {
			l.keep() // what lies between is gone, or can't be read
		}
		last = seq
		return l.event(r, seq, v)
	})
}

// event decides what becomes of one event.
func (l *look) event(r pebbledb.Reader, seq queue.Seq, v []byte) error {
	ev, eps, err := l.s.decodeEvent(seq, v)
	if err != nil {
		l.keep()
		return err // past it
	}
	ns := l.s.endpoints.namespaces.get(ev.Namespace)
	x := forgotten{
		seq: seq, namespace: ns.id, acceptedAt: ev.AcceptedAt, size: ev.Size,
		identity: appendIdentityKey(nil, ev.Namespace, ev.WebhookID),
	}
	var a ages
	if len(eps) == 0 {
		a.add(queue.Delivered, ev.AcceptedAt)
	}
	for _, id := range eps {
		ep := l.s.endpoints.byID(id)
		d, err := delivery(r, ep, seq, kindDelivered, kindDead, kindFresh, kindRetrying, kindFilterError, kindDiscarded)
		if errors.Is(err, queue.ErrNotFound) {
			a.add(queue.Delivered, ev.AcceptedAt)
			continue
		}
		if err != nil {
			l.keep()
			return err // past it, if it can't be read
		}
		if d.State.Waiting() {
			l.keep()
			return nil
		}
		a.add(d.State, later(ev.AcceptedAt, d.QueuedAt, d.EndedAt))
		x.deliveries = append(x.deliveries, finished{ep, d})
	}
	return l.decide(r, x, a)
}

// ages are the last changes of an event's deliveries, zero where there are none: of those
// kept like delivered ones, and of those kept like dead letters.
type ages struct{ delivered, dead time.Time }

func (a *ages) add(s queue.State, at time.Time) {
	if keptAsDead(s) {
		a.dead = later(a.dead, at)
	} else {
		a.delivered = later(a.delivered, at)
	}
}

// decide forgets an event of which nothing waits, or keeps it.
func (l *look) decide(r pebbledb.Reader, x forgotten, a ages) error {
	wantsDead := !a.dead.IsZero() && !a.dead.Before(l.DeadLetters)
	wantsDelivered := !a.delivered.IsZero() && !a.delivered.Before(l.Delivered)
	switch {
	case !wantsDead && !wantsDelivered:
	case a.dead.IsZero() && l.early > 0:
		x.early = true
		l.early -= int64(x.size + recordBytes)
	default:
		l.runs++
		if wantsDead {
			l.left.dead = earlier(l.left.dead, nanos(a.dead))
		} else {
			l.left.delivered = earlier(l.left.delivered, nanos(a.delivered))
		}
		if !a.dead.IsZero() {
			l.payloadRuns++
			return nil
		}
		l.left.spare = true
		return l.dropPayload(r, x.seq, x.size)
	}
	x.run = l.runs
	l.forget = append(l.forget, x)
	return nil
}

// dropPayload lets the payload of a delivered event go that is kept itself.
func (l *look) dropPayload(r pebbledb.Reader, seq queue.Seq, size int) error {
	if !l.DropPayloads || size == 0 {
		l.left.payloads = true // for the day when they are to be dropped
		return nil
	}
	_, closer, err := r.Get(appendSeqKey(nil, kindPayload, seq))
	if errors.Is(err, pebbledb.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	l.drop = append(l.drop, dropped{seq, l.payloadRuns, size})
	return closer.Close()
}

// keep ends the runs: an event is kept with its payload.
func (l *look) keep() {
	l.runs++
	l.payloadRuns++
}

func later(ts ...time.Time) (t time.Time) {
	for _, x := range ts {
		if x.After(t) {
			t = x
		}
	}
	return t
}
