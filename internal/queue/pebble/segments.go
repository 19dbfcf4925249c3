package pebble

import (
	"slices"
	"sync"
	"time"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// Forgetting must not look at every old event again and again: there may be a million dead
// letters that are kept for a month. So sequence numbers are taken in segments of 4096, and
// of each segment that was looked at it is remembered when something in it may be forgotten
// next. A change that ends a delivery brings that time forward. All of it is in memory only:
// after a restart each segment old enough is looked at once more.
const segmentShift = 12

// segment is what is known of a segment since it was looked at.
type segment struct {
	id uint64
	// delivered and dead are the earliest of the last changes (nanos) of its events that
	// wait for nothing but the time of the same name in queue.Retention; 0: there is none.
	delivered, dead int64
	// spare: there may be events that could be forgotten for their bytes.
	spare bool
	// payloads: there may be payloads whose deliveries are all delivered.
	payloads bool
}

// due reports whether there may be something to forget.
func (g *segment) due(r *queue.Retention, early bool) bool {
	return early && g.spare || r.DropPayloads && g.payloads ||
		g.delivered != 0 && g.delivered < nanos(r.Delivered) || g.dead != 0 && g.dead < nanos(r.DeadLetters)
}

// empty reports whether nothing is known of it that could ever be due: its events are gone,
// or wait.
func (g *segment) empty() bool { return g.delivered == 0 && g.dead == 0 && !g.spare && !g.payloads }

// note takes in what one of its events waits for.
func (g *segment) note(dead bool, at int64) {
	if dead {
		g.dead = earlier(g.dead, at)
		return
	}
	g.delivered = earlier(g.delivered, at)
	g.spare, g.payloads = true, true
}

func (g *segment) merge(o segment) {
	g.delivered, g.dead = earlier(g.delivered, o.delivered), earlier(g.dead, o.dead)
	g.spare, g.payloads = g.spare || o.spare, g.payloads || o.payloads
}

func earlier(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// segments are those that were looked at and may have something to forget one day, and
// the one that is being looked at.
type segments struct {
	mu   sync.Mutex
	list []segment // by id
	// next is the first one that was never looked at.
	next uint64
	// looking is set while a segment is looked at: touched are the events that changed
	// meanwhile, of which what was read is not true any more.
	looking bool
	at      uint64
	touched map[queue.Seq]bool
}

func segmentOf(seq queue.Seq) uint64 { return uint64(seq) >> segmentShift }

// ended takes in that a delivery has ended, or that an event without one has come. It is
// called by the writer for every change: of young events, which are nearly all, it returns
// at once.
func (s *segments) ended(seq queue.Seq, state queue.State, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := segmentOf(seq)
	if id >= s.next {
		return
	}
	s.get(id).note(keptAsDead(state), nanos(at))
	s.touch(seq)
}

// changed takes in any other change.
func (s *segments) changed(seq queue.Seq) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touch(seq)
}

func (s *segments) touch(seq queue.Seq) {
	if s.looking && segmentOf(seq) == s.at {
		s.touched[seq] = true
	}
}

// keptAsDead reports whether a delivery that has ended is kept like a dead letter.
func keptAsDead(s queue.State) bool { return s == queue.DeadLettered || s == queue.FilterError }

func (s *segments) get(id uint64) *segment {
	i, ok := slices.BinarySearchFunc(s.list, id, func(g segment, id uint64) int {
		switch {
		case g.id < id:
			return -1
		case g.id > id:
			return 1
		}
		return 0
	})
	if !ok {
		s.list = slices.Insert(s.list, i, segment{id: id})
	}
	return &s.list[i]
}

// due gives the first segment from an id on that may have something to forget, and failing
// that the first that was never looked at (known false).
func (s *segments) due(from uint64, r *queue.Retention, early bool) (id uint64, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.list {
		if g := &s.list[i]; g.id >= from && g.due(r, early) {
			return g.id, true
		}
	}
	return max(from, s.next), false
}

// begin begins a look at a segment: what was known of it is forgotten, and changes are
// noted from here on.
func (s *segments) begin(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*s.get(id) = segment{id: id}
	s.next = max(s.next, id+1)
	s.looking, s.at, s.touched = true, id, map[queue.Seq]bool{}
}

// seen gives what was touched since the look began; the caller is the writer.
func (s *segments) seen() map[queue.Seq]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.touched
}

// end ends a look and takes in what it has found.
func (s *segments) end(found segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.get(found.id)
	g.merge(found)
	if g.empty() {
		id := found.id
		s.list = slices.DeleteFunc(s.list, func(g segment) bool { return g.id == id })
	}
	s.looking, s.touched = false, nil
}

// unknown is what a segment counts as that could not be looked at: it is due at once.
func unknown(id uint64) segment {
	return segment{id: id, delivered: 1, dead: 1, spare: true, payloads: true}
}
