package pebble

import (
	"context"
	"errors"
	"math"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// get reads one value. The result is the caller's own.
func get(r pebbledb.Reader, key []byte) ([]byte, error) {
	v, closer, err := r.Get(key)
	if errors.Is(err, pebbledb.ErrNotFound) {
		return nil, queue.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	out := append(make([]byte, 0, len(v)), v...)
	return out, closer.Close()
}

// errStop ends a scan early.
var errStop = errors.New("stop")

// scan calls f for each record with a prefix, in order, beginning at from (nil: the
// first). f ends it early with errStop. The slices are valid during the call only.
func scan(ctx context.Context, r pebbledb.Reader, prefix, from []byte, f func(k, v []byte) error) error {
	if from == nil {
		from = prefix
	}
	it, err := r.NewIter(&pebbledb.IterOptions{LowerBound: from, UpperBound: upper(prefix)})
	if err != nil {
		return err
	}
	n := 0
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		var v []byte
		if v, err = it.ValueAndErr(); err == nil {
			err = f(it.Key(), v)
		}
		if n++; n%256 == 0 && err == nil {
			err = ctx.Err()
		}
	}
	if errors.Is(err, errStop) {
		err = nil
	}
	return errors.Join(err, it.Error(), it.Close())
}

// delivery looks for a delivery's record in the given places.
func delivery(r pebbledb.Reader, ep *endpoint, seq queue.Seq, kinds ...byte) (*queue.Delivery, error) {
	key := make([]byte, 0, 16)
	for _, k := range kinds {
		key = appendDeliveryKey(key[:0], k, ep.id, seq)
		v, closer, err := r.Get(key)
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

func encodeAs(b []byte, kind byte, d *queue.Delivery) []byte {
	if kind == kindFresh {
		return encodeFresh(b, d)
	}
	return encodeDelivery(b, d)
}

func decodeAs(kind byte, v []byte, d *queue.Delivery) error {
	if kind == kindFresh {
		return decodeFresh(v, d)
	}
	return decodeDelivery(v, d)
}

// page is where a list begins and how long it may get.
type page struct {
	after queue.Seq
	limit int
}

// records gives deliveries of one kind in order of acceptance; keep nil keeps all.
func (s *Store) records(ctx context.Context, r pebbledb.Reader, ep *endpoint, kind byte, p page, keep func(*queue.Delivery) bool) ([]queue.Delivery, error) {
	if ep == nil || p.limit <= 0 || p.after == math.MaxUint64 {
		return nil, ctx.Err()
	}
	var out []queue.Delivery
	from := appendDeliveryKey(nil, kind, ep.id, p.after+1)
	err := s.scanPast(ctx, r, appendEndpointKey(nil, kind, ep.id), from, func(key, v []byte) error {
		d := queue.Delivery{Seq: parseSeq(key), Endpoint: ep.key}
		if err := decodeAs(kind, v, &d); err != nil {
			return err
		}
		if keep == nil || keep(&d) {
			out = append(out, d)
		}
		if len(out) == p.limit {
			return errStop
		}
		return nil
	})
	return out, err
}

// envelope reads an event without its payload.
func (s *Store) envelope(r pebbledb.Reader, seq queue.Seq) (*queue.StoredEvent, []endpointID, error) {
	v, err := get(r, appendSeqKey(nil, kindEvent, seq))
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
	ev.Namespace = s.endpoints.namespaces.of(ev.Namespace, seq)
	ev.Endpoints = make([]plan.EndpointKey, 0, len(eps))
	for _, id := range eps {
		ep := s.endpoints.byID(id)
		if ep == nil {
			return nil, nil, errRecord
		}
		ev.Endpoints = append(ev.Endpoints, ep.key)
	}
	return ev, eps, nil
}

// envelope reads an event without its payload, as it was before this batch.
func (b *batch) envelope(seq queue.Seq) (*queue.StoredEvent, []endpointID, error) {
	if b.forgotten[seq] {
		return nil, nil, queue.ErrNotFound
	}
	return b.s.envelope(b.s.db, seq)
}
