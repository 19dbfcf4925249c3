package pebble

import (
	"context"
	"errors"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// Erase removes an event's payload and the bodies of all answers.
func (s *Store) Erase(ctx context.Context, seq queue.Seq) (queue.Erased, error) {
	op := &eraseOp{waitOp: newWaitOp(), seq: seq}
	err := s.run(ctx, op, op.done)
	return op.erased, err
}

type eraseOp struct {
	waitOp
	seq    queue.Seq
	erased queue.Erased
	// ended are the endpoints whose deliveries waited.
	ended []plan.EndpointKey
}

// answer is an attempt of this batch whose record holds the body of an answer.
type answer struct {
	key     []byte
	seq     queue.Seq
	attempt queue.Attempt
}

func (e *eraseOp) apply(b *batch) error {
	if b.erased[e.seq] {
		e.erased = queue.Erased{At: b.now, Again: true}
		return nil
	}
	ev, eps, err := b.envelope(e.seq)
	if err != nil {
		return err
	}
	if !ev.Erased.IsZero() {
		e.erased = queue.Erased{At: ev.Erased, Again: true}
		return nil
	}
	waiting, err := b.waitingOf(eps, e.seq)
	if err != nil {
		return err
	}
	answers, err := b.answersOf(e.seq)
	if err != nil {
		return err
	}
	payload, err := get(b.s.db, appendSeqKey(nil, kindPayload, e.seq))
	if err != nil && !errors.Is(err, queue.ErrNotFound) {
		return err
	}

	// Nothing fails from here on.
	e.erased = queue.Erased{At: b.now, Bytes: int64(len(payload)), DeadLettered: len(waiting)}
	ev.Erased, ev.TraceParent = b.now, ""
	ev.Subject, ev.Headers, ev.Attributes = "", nil, nil
	b.key = appendSeqKey(b.key[:0], kindEvent, e.seq)
	b.value = encodeEvent(b.value[:0], ev, eps)
	b.put(b.key, b.value)
	b.key = appendSeqKey(b.key[:0], kindPayload, e.seq)
	b.del(b.key)
	for _, a := range answers {
		e.erased.Bytes += int64(len(a.attempt.Response))
		a.attempt.Response = nil
		b.value = encodeAttempt(b.value[:0], &a.attempt)
		b.put(a.key, b.value)
	}
	for _, was := range waiting {
		ep, is := b.s.endpoints.get(was.Endpoint), *was
		end(&is, queue.DeadLettered, queue.ReasonErased, b.now)
		b.move(ep, was, &is)
		e.ended = append(e.ended, was.Endpoint)
	}
	b.key = appendSeqKey(b.key[:0], kindErased, e.seq)
	b.put(b.key, nil)
	if b.erased == nil {
		b.erased = map[queue.Seq]bool{}
	}
	b.erased[e.seq] = true
	b.s.segments.changed(e.seq)
	b.durable = true
	return nil
}

// waitingOf gives what waits of an event.
func (b *batch) waitingOf(eps []endpointID, seq queue.Seq) (out []*queue.Delivery, err error) {
	for _, id := range eps {
		d, err := b.waiting(b.s.endpoints.byID(id), seq)
		if errors.Is(err, queue.ErrNotWaiting) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// answersOf gives the attempts of an event that hold bodies of answers.
func (b *batch) answersOf(seq queue.Seq) (out []answer, err error) {
	err = scan(context.Background(), b.s.db, appendSeqKey(nil, kindAttempt, seq), nil, func(k, v []byte) error {
		a, err := decodeAttempt(v)
		if err == nil && len(a.Response) > 0 {
			out = append(out, answer{append([]byte(nil), k...), seq, a})
		}
		return err
	})
	for _, a := range b.answers {
		if a.seq == seq {
			out = append(out, a)
		}
	}
	return out, err
}
