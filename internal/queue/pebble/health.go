package pebble

import (
	"fmt"
	"sync"
	"time"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// Health says what keeps the store from taking writes: one that failed, or one that
// hangs, which is what a full or broken disk does to pebble.
func (s *Store) Health() error {
	if err := s.failure(); err != nil {
		return err
	}
	if s.progress.stuckFor() > stuckAfter {
		return fmt.Errorf("a write to the store has been waiting for over %s; the disk may be full or broken", stuckAfter)
	}
	return nil
}

// fail remembers the first write that failed: from then on nothing more is taken.
func (s *Store) fail(err error) {
	if s.failed.CompareAndSwap(nil, &err) {
		s.log.Error(err, "The store failed a write and takes no more: everything acknowledged before is on disk; restart to go on")
	}
}

func (s *Store) failure() error {
	if e := s.failed.Load(); e != nil {
		return fmt.Errorf("%w: %w", queue.ErrFailed, *e)
	}
	return nil
}

// progress notices commits that hang.
type progress struct {
	mu    sync.Mutex
	open  int
	since time.Time // the last step while open > 0
}

func (p *progress) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == 0 {
		p.since = time.Now()
	}
	p.open++
}

func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = time.Now()
	p.open--
}

// stuckFor is how long the oldest commit that isn't done has made no step.
func (p *progress) stuckFor() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == 0 {
		return 0
	}
	return time.Since(p.since)
}
