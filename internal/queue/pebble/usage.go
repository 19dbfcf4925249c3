package pebble

import (
	"sync"
	"sync/atomic"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// usageEvery is how old an answer of Usage may be: pebble's own figures cost a lock that
// its writes take too.
const usageEvery = time.Second

// usage remembers the last answer.
type usage struct {
	last atomic.Pointer[queue.Usage]
	mu   sync.Mutex // held by whoever asks; the others take the last answer meanwhile
	at   time.Time
}

// Usage says how large the store and its volume are.
func (s *Store) Usage() queue.Usage {
	u := &s.usage
	if u.last.Load() == nil {
		u.mu.Lock()
	} else if !u.mu.TryLock() {
		return *u.last.Load()
	}
	defer u.mu.Unlock()
	if now := time.Now(); u.at.IsZero() || now.Sub(u.at) >= usageEvery {
		s.measure()
		u.at = now
	}
	return *u.last.Load()
}

// measure asks pebble and the volume; usage.mu is held.
func (s *Store) measure() {
	now := queue.Usage{}
	// After Close the last answer stands.
	if err := s.read(func(pebbledb.Reader) error {
		now.UsedBytes = int64(s.db.Metrics().DiskSpaceUsage()) //nolint:gosec // far below 2⁶³
		return nil
	}); err != nil {
		if last := s.usage.last.Load(); last != nil {
			now = *last
		}
		s.usage.last.Store(&now)
		return
	}
	if _, total, err := s.space.reserve.Usage(); err == nil {
		now.CapacityBytes = int64(total) //nolint:gosec // far below 2⁶³
	}
	now.Damaged = s.damage.count()
	s.usage.last.Store(&now)
}

// prunedCounts are the counts since the store was opened.
type prunedCounts struct {
	mu  sync.Mutex
	sum queue.Pruned
}

func (c *prunedCounts) add(p queue.Pruned) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sum.Add(p)
}

func (c *prunedCounts) get() queue.Pruned {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sum
}
