package pebble

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// loadEndpoints reads the endpoints and counts their deliveries by walking over them: the
// counts are never stored, so they can't differ from the records.
func (s *Store) loadEndpoints() error {
	if err := s.endpoints.load(s.db); err != nil {
		return err
	}
	for _, ep := range s.endpoints.list {
		if ep == nil {
			continue
		}
		if err := errors.Join(s.loadLane(ep), s.loadCounts(ep)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) loadLane(e *endpoint) error {
	key := appendEndpointKey(nil, kindLane, e.id)
	v, err := get(s.db, key)
	if errors.Is(err, queue.ErrNotFound) {
		return nil
	}
	if err == nil {
		var l queue.Lane
		if l, err = decodeLane(v); err == nil {
			e.lane.Store(&l)
		}
	}
	if err != nil {
		return s.passOver(key, err)
	}
	return nil
}

func (s *Store) loadCounts(e *endpoint) error {
	// Of dead letters only the number counts, which their keys tell.
	for kind, n := range map[byte]*atomic.Int64{kindDead: &e.dead, kindFilterError: &e.filterErrors} {
		err := s.scanPast(context.Background(), s.db, appendEndpointKey(nil, kind, e.id), nil, func(_, _ []byte) error { n.Add(1); return nil })
		if err != nil {
			return err
		}
	}
	for _, kind := range []byte{kindFresh, kindRetrying} {
		err := s.scanPast(context.Background(), s.db, appendEndpointKey(nil, kind, e.id), nil, func(_, v []byte) error {
			var d queue.Delivery
			if err := decodeAs(kind, v, &d); err != nil {
				return err
			}
			e.count(&d, 1)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
