package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// A damaged file must not take the rest of the store with it: whoever reads passes over what
// can't be read, a record or a whole block of a file. It is told and counted, once for each
// place, and nothing is removed: a backup may still have it.

// damage remembers what could not be read.
type damage struct {
	mu   sync.Mutex
	seen map[string]bool
}

// damageKept bounds how many places are remembered, and so counted.
const damageKept = 100_000

// note takes in an unreadable place and reports whether it is a new one.
func (d *damage) note(key []byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.seen == nil {
		d.seen = map[string]bool{}
	}
	if d.seen[string(key)] || len(d.seen) == damageKept {
		return false
	}
	d.seen[string(key)] = true
	return true
}

func (d *damage) count() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return int64(len(d.seen))
}

// isDamage tells a record or block that can't be read from a disk that doesn't answer.
func isDamage(err error) bool {
	return errors.Is(err, errRecord) || pebbledb.IsCorruptionError(err)
}

// passOver notes damage at a key, and answers nil; any other error it gives back.
func (s *Store) passOver(key []byte, err error) error {
	if !isDamage(err) {
		return err
	}
	if s.damage.note(key) {
		s.log.Error(plainError(err), "A part of the store can't be read and is passed over; restore a backup if it is missed", "kind", string(key[:1]), "key", key)
	}
	return nil
}

// scanPast is scan over keys of a prefix and a number of eight bytes, past what can't be
// read: a record that f can't decode, or a block that pebble can't.
func (s *Store) scanPast(ctx context.Context, r pebbledb.Reader, prefix, from []byte, f func(k, v []byte) error) error {
	at := append([]byte(nil), prefix...)
	if from != nil {
		at = append([]byte(nil), from...)
	}
	for {
		var stop error
		err := scan(ctx, r, prefix, at, func(k, v []byte) error {
			at = append(at[:0], k...)
			err := f(k, v)
			if err == nil || errors.Is(err, errStop) {
				return err
			}
			if stop = s.passOver(k, err); stop != nil {
				return stop
			}
			return nil
		})
		if err == nil || stop != nil || !isDamage(err) {
			return err
		}
		_ = s.passOver(at, err)
		next, ok, err := readableAfter(r, prefix, at)
		if err != nil || !ok {
			return err
		}
		at = next
	}
}

// readableAfter finds the first number after a key's from which on the store can be read
// again. Where a damaged block ends nobody says, so steps of doubling width find a readable
// place, and halving ones the first.
func readableAfter(r pebbledb.Reader, prefix, key []byte) (next []byte, ok bool, err error) {
	last := uint64(0)
	if len(key) >= len(prefix)+8 {
		last = binary.BigEndian.Uint64(key[len(prefix):])
	}
	bad, good, step := last, uint64(0), uint64(1)
	for good == 0 {
		if step == 0 || bad > math.MaxUint64-step {
			return nil, false, nil // unreadable to the end
		}
		at := bad + step
		switch err := readable(r, prefix, at); {
		case err == nil:
			good = at
		case !isDamage(err):
			return nil, false, err
		default:
			bad, step = at, step*2
		}
	}
	for good-bad > 1 {
		middle := bad + (good-bad)/2
		switch err := readable(r, prefix, middle); {
		case err == nil:
			good = middle
		case !isDamage(err):
			return nil, false, err
		default:
			bad = middle
		}
	}
	return binary.BigEndian.AppendUint64(append([]byte(nil), prefix...), good), true, nil
}

// readable reports whether the first record from a number on can be read.
func readable(r pebbledb.Reader, prefix []byte, number uint64) error {
	from := binary.BigEndian.AppendUint64(append([]byte(nil), prefix...), number)
	return scan(context.Background(), r, prefix, from, func(_, _ []byte) error { return errStop })
}

// missingIfDamaged makes damage, which no later try heals, a missing payload. Otherwise one
// damaged event would be read again for ever, and hold up its endpoints' other deliveries.
func (s *Store) missingIfDamaged(key []byte, err error) error {
	if !isDamage(err) {
		return err
	}
	_ = s.passOver(key, err)
	return fmt.Errorf("%w: %w", queue.ErrPayloadMissing, err)
}
