package pebble

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// Event gives one event with its payload.
func (s *Store) Event(ctx context.Context, seq queue.Seq) (ev *queue.StoredEvent, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	err = s.read(func(r pebbledb.Reader) error {
		ev, err = s.event(r, seq)
		return err
	})
	return ev, err
}

func (s *Store) event(r pebbledb.Reader, seq queue.Seq) (*queue.StoredEvent, error) {
	ev, _, err := s.envelope(r, seq)
	if err != nil {
		return nil, s.missingIfDamaged(appendSeqKey(nil, kindEvent, seq), err)
	}
	if !ev.Erased.IsZero() {
		return ev, queue.ErrErased
	}
	ev.Body, err = get(r, appendSeqKey(nil, kindPayload, seq))
	if !errors.Is(err, queue.ErrNotFound) {
		return ev, s.missingIfDamaged(appendSeqKey(nil, kindPayload, seq), err)
	}
	// Forgotten or erased between the two reads, or truly lost?
	if ev, _, err = s.envelope(r, seq); err != nil {
		return nil, err
	}
	if !ev.Erased.IsZero() {
		return ev, queue.ErrErased
	}
	return ev, queue.ErrPayloadMissing
}

// Find gives the event with a webhook-id in a namespace.
func (s *Store) Find(ctx context.Context, namespace, webhookID string) (ev *queue.StoredEvent, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	err = s.read(func(r pebbledb.Reader) error {
		v, err := get(r, appendIdentityKey(nil, namespace, webhookID))
		if err != nil {
			return err
		}
		id, err := decodeIdentity(v)
		if err != nil {
			return err
		}
		ev, err = s.event(r, id.seq)
		return err
	})
	return ev, err
}

// Deliveries gives the deliveries of one event.
func (s *Store) Deliveries(ctx context.Context, seq queue.Seq) ([]queue.Delivery, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var out []queue.Delivery
	// One view of all places: a delivery that moves meanwhile must not be missed.
	err := s.view(func(r pebbledb.Reader) error {
		_, eps, err := s.envelope(r, seq)
		if err != nil {
			return err
		}
		for _, id := range eps {
			d, err := delivery(r, s.endpoints.byID(id), seq, kindsOfDelivery...)
			if errors.Is(err, queue.ErrNotFound) {
				continue
			}
			if err != nil {
				if err = s.passOver(appendDeliveryKey(nil, kindFresh, id, seq), err); err != nil {
					return err
				}
				continue
			}
			out = append(out, *d)
		}
		return nil
	})
	slices.SortFunc(out, func(a, b queue.Delivery) int { return a.Endpoint.Compare(b.Endpoint) })
	return out, err
}

// Attempts gives the attempts of one delivery.
func (s *Store) Attempts(ctx context.Context, seq queue.Seq, k plan.EndpointKey) (out []queue.Attempt, err error) {
	ep := s.endpoints.get(k)
	err = s.read(func(r pebbledb.Reader) error {
		if ep == nil {
			return ctx.Err()
		}
		prefix := appendAttemptKey(nil, seq, ep.id, 0)
		return scan(ctx, r, prefix[:len(prefix)-4], nil, func(k, v []byte) error {
			a, err := decodeAttempt(v)
			if err != nil {
				return s.passOver(k, err)
			}
			out = append(out, a)
			return nil
		})
	})
	return out, err
}

// List gives deliveries of an endpoint in one state.
func (s *Store) List(ctx context.Context, k plan.EndpointKey, state queue.State, after queue.Seq, limit int) ([]queue.Delivery, queue.Seq, error) {
	var kinds []byte
	switch state {
	case queue.Pending:
		kinds = []byte{kindFresh, kindRetrying} // the replayed ones are among the retrying
	case queue.Retrying:
		kinds = []byte{kindRetrying}
	case queue.Delivered:
		kinds = []byte{kindDelivered}
	case queue.DeadLettered:
		kinds = []byte{kindDead}
	case queue.FilterError:
		kinds = []byte{kindFilterError}
	case queue.Discarded:
		kinds = []byte{kindDiscarded}
	}
	ep := s.endpoints.get(k)
	limit = max(limit, 1)
	var out []queue.Delivery
	err := s.view(func(r pebbledb.Reader) error {
		for _, kind := range kinds {
			// One more than asked for tells whether there is a next page.
			ds, err := s.records(ctx, r, ep, kind, page{after, limit + 1}, func(d *queue.Delivery) bool { return d.State == state })
			if err != nil {
				return err
			}
			out = append(out, ds...)
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	slices.SortFunc(out, func(a, b queue.Delivery) int { return cmp.Compare(a.Seq, b.Seq) })
	if len(out) <= limit {
		return out, 0, nil
	}
	return out[:limit], out[limit-1].Seq, nil
}

// Fresh gives never tried deliveries in order of acceptance.
func (s *Store) Fresh(ctx context.Context, k plan.EndpointKey, after queue.Seq, limit int) ([]queue.Delivery, error) {
	return s.inOrder(ctx, k, kindFresh, page{after, limit})
}

// Retrying gives retrying and replayed deliveries in order of acceptance.
func (s *Store) Retrying(ctx context.Context, k plan.EndpointKey, after queue.Seq, limit int) ([]queue.Delivery, error) {
	return s.inOrder(ctx, k, kindRetrying, page{after, limit})
}

func (s *Store) inOrder(ctx context.Context, k plan.EndpointKey, kind byte, p page) (out []queue.Delivery, err error) {
	ep := s.endpoints.get(k)
	err = s.read(func(r pebbledb.Reader) error {
		out, err = s.records(ctx, r, ep, kind, p, nil)
		return err
	})
	return out, err
}

// Due gives retrying and replayed deliveries that are due, by due time.
func (s *Store) Due(ctx context.Context, k plan.EndpointKey, until time.Time, limit int) ([]queue.Delivery, time.Time, error) {
	return s.due(ctx, k, until, limit, func(*queue.Delivery) bool { return true })
}

func (s *Store) due(ctx context.Context, k plan.EndpointKey, until time.Time, limit int, counts func(*queue.Delivery) bool) (out []queue.Delivery, next time.Time, err error) {
	ep := s.endpoints.get(k)
	if ep == nil {
		return nil, time.Time{}, s.read(func(pebbledb.Reader) error { return ctx.Err() })
	}
	// One view: the index and the records agree.
	err = s.view(func(r pebbledb.Reader) error {
		return s.scanPast(ctx, r, appendEndpointKey(nil, kindDue, ep.id), nil, func(key, _ []byte) error {
			due, seq := parseDueKey(key)
			if due.After(until) || len(out) >= limit {
				next = due
				return errStop
			}
			d, err := delivery(r, ep, seq, kindRetrying)
			if err != nil {
				return err // past it, if it can't be read
			}
			if counts(d) {
				out = append(out, *d)
			}
			return nil
		})
	})
	return out, next, err
}
