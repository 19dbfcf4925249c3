package pebble

import (
	"context"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// line keeps the index of what waits with an order key: was is nil for a new delivery.
func (b *batch) line(ep *endpoint, was, is *queue.Delivery) {
	before, after := was != nil && was.State.Waiting(), is.State.Waiting()
	if is.Key == 0 || before == after {
		return
	}
	b.key = appendLineKey(b.key[:0], ep.id, is.Key, is.Seq)
	if after {
		b.put(b.key, nil)
	} else {
		b.del(b.key)
	}
}

// Head gives the first waiting delivery of those with an order key, or of all.
func (s *Store) Head(ctx context.Context, k plan.EndpointKey, key uint64) (d queue.Delivery, err error) {
	ep := s.endpoints.get(k)
	if ep == nil {
		return d, s.read(func(pebbledb.Reader) error { return queue.ErrNotFound })
	}
	prefixes := [][]byte{appendEndpointKey(nil, kindFresh, ep.id), appendEndpointKey(nil, kindRetrying, ep.id)}
	if key != 0 {
		prefixes = [][]byte{appendLineKey(nil, ep.id, key, 0)[:13]}
	}
	// One view: the index and the records agree.
	err = s.view(func(r pebbledb.Reader) error {
		var first queue.Seq
		for _, p := range prefixes {
			err := s.scanPast(ctx, r, p, nil, func(k, _ []byte) error {
				if seq := parseSeq(k); first == 0 || seq < first {
					first = seq
				}
				return errStop
			})
			if err != nil {
				return err
			}
		}
		if first == 0 {
			return queue.ErrNotFound
		}
		found, err := delivery(r, ep, first, kindFresh, kindRetrying)
		if err == nil {
			d = *found
		}
		return err
	})
	return d, err
}

// DueUnkeyed is Due for deliveries without an order key.
func (s *Store) DueUnkeyed(ctx context.Context, k plan.EndpointKey, until time.Time, limit int) ([]queue.Delivery, time.Time, error) {
	return s.due(ctx, k, until, limit, func(d *queue.Delivery) bool { return d.Key == 0 })
}
