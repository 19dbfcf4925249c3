package pebble

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// Event gives one event with its payload.
func (s *Store) Event(_ context.Context, seq queue.Seq) (*queue.StoredEvent, error) {
	ev, _, err := s.envelope(seq)
	if err != nil {
		return nil, err
	}
	ev.Body, err = s.get(appendSeqKey(nil, kindPayload, seq))
	if errors.Is(err, queue.ErrNotFound) {
		return ev, queue.ErrPayloadMissing
	}
	return ev, err
}

func (s *Store) envelope(seq queue.Seq) (*queue.StoredEvent, []endpointID, error) {
	v, err := s.get(appendSeqKey(nil, kindEvent, seq))
	if err != nil {
		return nil, nil, err
	}
	return s.decodeEvent(seq, v)
}

func (s *Store) decodeEvent(seq queue.Seq, v []byte) (*queue.StoredEvent, []endpointID, error) {
	ev, eps, err := decodeEvent(seq, v)
	if err != nil {
		return nil, nil, err
	}
	for _, id := range eps {
		ep := s.endpoints.byID(id)
		if ep == nil {
			return nil, nil, fmt.Errorf("event %d: %w", seq, errRecord)
		}
		ev.Endpoints = append(ev.Endpoints, ep.key)
	}
	return ev, eps, nil
}

// Find gives the event with a webhook-id in a namespace.
func (s *Store) Find(ctx context.Context, namespace, webhookID string) (*queue.StoredEvent, error) {
	v, err := s.get(appendIdentityKey(nil, namespace, webhookID))
	if err != nil {
		return nil, err
	}
	id, err := decodeIdentity(v)
	if err != nil {
		return nil, err
	}
	return s.Event(ctx, id.seq)
}

// Events lists events of a namespace, newest first.
func (s *Store) Events(_ context.Context, namespace string, before queue.Seq, limit int) ([]*queue.StoredEvent, queue.Seq, error) {
	o := &pebbledb.IterOptions{LowerBound: []byte{kindEvent}, UpperBound: []byte{kindEvent + 1}}
	if before > 0 {
		o.UpperBound = appendSeqKey(nil, kindEvent, before)
	}
	it, err := s.db.NewIter(o)
	if err != nil {
		return nil, 0, err
	}
	var events []*queue.StoredEvent
	var next queue.Seq
	looked := 0
	for ok := it.Last(); ok && err == nil; ok = it.Prev() {
		if looked == limit {
			next = parseDeliverySeq(it.Key()) + 1
			break
		}
		looked++
		var v []byte
		if v, err = it.ValueAndErr(); err != nil {
			break
		}
		var ev *queue.StoredEvent
		if ev, _, err = s.decodeEvent(parseDeliverySeq(it.Key()), v); err == nil && ev.Namespace == namespace {
			events = append(events, ev)
		}
	}
	return events, next, errors.Join(err, it.Error(), it.Close())
}

// delivery looks for a delivery's record in the given places.
func (s *Store) delivery(ep *endpoint, seq queue.Seq, kinds ...byte) (*queue.Delivery, error) {
	for _, k := range kinds {
		v, closer, err := s.db.Get(appendDeliveryKey(make([]byte, 0, 16), k, ep.id, seq))
		if errors.Is(err, pebbledb.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		d := &queue.Delivery{Seq: seq, Endpoint: ep.key}
		return d, errors.Join(decodeAs(k, v, d), closer.Close())
	}
	return nil, queue.ErrNotFound
}

func decodeAs(kind byte, v []byte, d *queue.Delivery) error {
	if kind == kindFresh {
		return decodeFresh(v, d)
	}
	return decodeDelivery(v, d)
}

// Deliveries gives the deliveries of one event.
func (s *Store) Deliveries(_ context.Context, seq queue.Seq) ([]queue.Delivery, error) {
	_, eps, err := s.envelope(seq)
	if err != nil {
		return nil, err
	}
	// One view of all places: a delivery that moves meanwhile must not be missed.
	snap := s.db.NewSnapshot()
	defer snap.Close() //nolint:errcheck // nothing to do about it
	var out []queue.Delivery
	for _, id := range eps {
		ep := s.endpoints.byID(id)
		for _, k := range []byte{kindFresh, kindRetrying, kindDead, kindDelivered} {
			v, closer, err := snap.Get(appendDeliveryKey(nil, k, id, seq))
			if errors.Is(err, pebbledb.ErrNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			d := queue.Delivery{Seq: seq, Endpoint: ep.key}
			if err := errors.Join(decodeAs(k, v, &d), closer.Close()); err != nil {
				return nil, err
			}
			out = append(out, d)
			break
		}
	}
	slices.SortFunc(out, func(a, b queue.Delivery) int { return a.Endpoint.Compare(b.Endpoint) })
	return out, nil
}

// Attempts gives the attempts of one delivery.
func (s *Store) Attempts(_ context.Context, seq queue.Seq, k plan.EndpointKey) ([]queue.Attempt, error) {
	ep := s.endpoints.get(k)
	if ep == nil {
		return nil, nil
	}
	prefix := appendAttemptKey(nil, seq, ep.id, 0)
	var out []queue.Attempt
	err := s.scan(prefix[:len(prefix)-4], nil, func(_, v []byte) error {
		a, err := decodeAttempt(v)
		out = append(out, a)
		return err
	})
	return out, err
}

// records gives deliveries of one kind in order of acceptance.
func (s *Store) records(k plan.EndpointKey, kind byte, after queue.Seq, limit int, keep func(*queue.Delivery) bool) ([]queue.Delivery, error) {
	ep := s.endpoints.get(k)
	if ep == nil || limit <= 0 {
		return nil, nil
	}
	var out []queue.Delivery
	prefix := appendEndpointKey(nil, kind, ep.id)
	err := s.scan(prefix, appendDeliveryKey(nil, kind, ep.id, after+1), func(key, v []byte) error {
		d := queue.Delivery{Seq: parseDeliverySeq(key), Endpoint: k}
		if err := decodeAs(kind, v, &d); err != nil {
			return err
		}
		if keep == nil || keep(&d) {
			out = append(out, d)
		}
		if len(out) == limit {
			return errStop
		}
		return nil
	})
	return out, err
}

// List gives deliveries of an endpoint in one state.
func (s *Store) List(_ context.Context, k plan.EndpointKey, state queue.State, after queue.Seq, limit int) ([]queue.Delivery, queue.Seq, error) {
	kinds := map[queue.State][]byte{
		queue.Pending: {kindFresh, kindRetrying}, queue.Retrying: {kindRetrying},
		queue.Delivered: {kindDelivered}, queue.DeadLettered: {kindDead},
	}[state]
	var out []queue.Delivery
	for _, kind := range kinds {
		// One more than asked for tells whether there is a next page.
		ds, err := s.records(k, kind, after, limit+1, func(d *queue.Delivery) bool { return d.State == state })
		if err != nil {
			return nil, 0, err
		}
		out = append(out, ds...)
	}
	slices.SortFunc(out, func(a, b queue.Delivery) int { return cmp.Compare(a.Seq, b.Seq) })
	if len(out) <= limit {
		return out, 0, nil
	}
	return out[:limit], out[limit-1].Seq, nil
}

// Fresh gives never tried deliveries in order of acceptance.
func (s *Store) Fresh(_ context.Context, k plan.EndpointKey, after queue.Seq, limit int) ([]queue.Delivery, error) {
	return s.records(k, kindFresh, after, limit, nil)
}

// Retrying gives retrying and replayed deliveries in order of acceptance.
func (s *Store) Retrying(_ context.Context, k plan.EndpointKey, after queue.Seq, limit int) ([]queue.Delivery, error) {
	return s.records(k, kindRetrying, after, limit, nil)
}

// Due gives retrying and replayed deliveries that are due, by due time.
func (s *Store) Due(_ context.Context, k plan.EndpointKey, until time.Time, limit int) ([]queue.Delivery, time.Time, error) {
	ep := s.endpoints.get(k)
	if ep == nil {
		return nil, time.Time{}, nil
	}
	var out []queue.Delivery
	var next time.Time
	err := s.scan(appendEndpointKey(nil, kindDue, ep.id), nil, func(key, _ []byte) error {
		due, seq := parseDueKey(key)
		if due.After(until) || len(out) >= limit {
			next = due
			return errStop
		}
		d, err := s.delivery(ep, seq, kindRetrying)
		if errors.Is(err, queue.ErrNotFound) {
			return nil // moved since this scan began
		}
		if err != nil {
			return err
		}
		if d.DueAt.Equal(due) {
			out = append(out, *d)
		}
		return nil
	})
	return out, next, err
}
