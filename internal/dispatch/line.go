package dispatch

import (
	"slices"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// maxHeads is how many keys of an ordered lane may be under way or wait for a retry at
// once. Past that no further key is begun until one of them ends: memory follows
// configuration, not backlog.
const maxHeads = 4096

// line keeps the order of a lane with ordering. The deliveries of one key stand in a
// line, by acceptance; only the head may be attempted, and the next one becomes the
// head when it is delivered, dead-lettered or otherwise ended. With ordering All there
// is one key for all deliveries; with PerKey a delivery without a key stands in no
// line, and is the window's.
//
// In memory are the heads of the keys that are known, not what stands behind them: the
// store tells who is next (queue.Reader.Head). A key becomes known when a delivery of
// it is met: at its arrival, among the fresh ones that are read in order of acceptance,
// or among the retrying ones, all of which are read before any fresh one is given out.
type line struct {
	all   bool
	heads map[uint64]*head
	// ready are the heads that may be attempted, in the order in which they became so.
	ready []*head
	// nextDue is the earliest due time of a waiting head; zero: none.
	nextDue time.Time
	// lookups are the keys whose head is to be read from the store.
	lookups []uint64
	// The retrying deliveries up to oldest are known; older says that there may be more.
	oldest queue.Seq
	older  bool
	// let is how many bytes of payloads were let go that still count as kept.
	let int
}

// head is the first of a key's line.
type head struct {
	key   uint64
	state headState
	item  item
	// behind: others of the key may wait behind it.
	behind bool
}

type headState uint8

const (
	headReady   headState = iota // may be attempted
	headFlying                   // is being attempted, or its outcome is on its way to the disk
	headWaiting                  // until item.DueAt
	headSought                   // is to be read from the store
)

// allKey is the key of everything with ordering All.
const allKey = 1

func newLine(ordering string) *line {
	if ordering == "" {
		return nil
	}
	return &line{all: ordering == plan.OrderingAll, heads: map[uint64]*head{}, older: true}
}

// is reports whether a line keeps an ordering.
func (n *line) is(ordering string) bool {
	if n == nil {
		return ordering == ""
	}
	return ordering != "" && n.all == (ordering == plan.OrderingAll)
}

// keyOf is the key of a delivery's line; 0: it stands in none.
func (n *line) keyOf(d *queue.Delivery) uint64 {
	switch {
	case n == nil:
		return 0
	case n.all:
		return allKey
	}
	return d.Key
}

func (n *line) hasRoom() bool { return len(n.heads) < maxHeads }

// meet takes a waiting delivery that the store holds. It reports whether it became a
// head that may be attempted, whose event is worth keeping; ok is false where there is
// no room for another key.
func (n *line) meet(key uint64, it item, flying, now bool) (kept, ok bool) {
	h := n.heads[key]
	switch {
	case h == nil && !n.hasRoom():
		return false, false
	case h == nil:
		h = &head{key: key, item: it}
		n.heads[key] = h
		switch {
		case flying:
			h.state, h.item.event = headFlying, nil
		case now:
			n.becomeReady(h)
			return true, true
		default:
			n.wait(h, it.DueAt)
		}
	case h.item.Seq == it.Seq:
	case it.Seq < h.item.Seq && h.state != headFlying:
		h.behind = true
		n.seek(h) // it goes first
	default:
		h.behind = true
	}
	return false, true
}

func (n *line) becomeReady(h *head) {
	h.state = headReady
	n.ready = append(n.ready, h)
}

func (n *line) wait(h *head, due time.Time) {
	h.state, h.item.event, h.item.DueAt = headWaiting, nil, due
	if n.nextDue.IsZero() || due.Before(n.nextDue) {
		n.nextDue = due
	}
}

// seek has a key's head read from the store. A head that was ready is so no more.
func (n *line) seek(h *head) {
	switch h.state {
	case headSought, headFlying:
		return
	case headReady:
		n.ready = slices.DeleteFunc(n.ready, func(r *head) bool { return r == h })
	case headWaiting:
	}
	n.let += h.item.cached()
	h.state, h.item.event = headSought, nil
	n.lookups = append(n.lookups, h.key)
}

// seekAll has every head that waits read anew: due times were changed, or count no more.
func (n *line) seekAll() {
	for _, h := range n.heads {
		if h.state == headWaiting {
			n.seek(h)
		}
	}
	n.nextDue = time.Time{}
	slices.Sort(n.lookups) // a map has no order, and what is sought first goes first
}

// due has the heads sought whose due time has come.
func (n *line) due(now time.Time) {
	if n.nextDue.IsZero() || n.nextDue.After(now) {
		return
	}
	n.nextDue = time.Time{}
	var ripe []*head
	for _, h := range n.heads {
		switch {
		case h.state != headWaiting:
		case h.item.DueAt.After(now):
			n.wait(h, h.item.DueAt)
		default:
			ripe = append(ripe, h)
		}
	}
	slices.SortFunc(ripe, func(a, b *head) int { return a.item.DueAt.Compare(b.item.DueAt) })
	for _, h := range ripe {
		n.seek(h)
	}
}

// take gives the head that has been ready longest.
func (n *line) take() item {
	h := n.ready[0]
	n.ready[0] = nil
	n.ready = n.ready[1:]
	h.state = headFlying
	it := h.item
	h.item.event = nil
	return it
}

// giveBack returns a head whose attempt was not made.
func (n *line) giveBack(key uint64, it item) {
	h := n.heads[key]
	switch {
	case h == nil || h.item.Seq != it.Seq:
	case h.behind:
		h.state, h.item = headWaiting, it
		n.seek(h) // what was replayed meanwhile may go before it
	default:
		h.state, h.item = headReady, it
		n.ready = slices.Insert(n.ready, 0, h)
	}
}

// retried takes the due time of a delivery that failed.
func (n *line) retried(key uint64, d queue.Delivery, due time.Time) {
	if h := n.heads[key]; h != nil && h.item.Seq == d.Seq {
		n.wait(h, due)
		return
	}
	n.queued(key, d) // the line was made anew since its attempt began
}

// queued takes a delivery that waits from now on among the retrying ones. Which is the
// first of its key the store tells: others may wait that are not known yet.
func (n *line) queued(key uint64, d queue.Delivery) {
	it := item{Delivery: d}
	switch {
	case n.heads[key] != nil:
		n.meet(key, it, false, false)
	case n.hasRoom():
		h := &head{key: key, state: headWaiting, item: it}
		n.heads[key] = h
		n.seek(h)
	default:
		n.older, n.oldest = true, min(n.oldest, d.Seq-1) // it is met when there is room
	}
}

// ended lets the next of the key go on.
func (n *line) ended(key uint64, seq queue.Seq) {
	h := n.heads[key]
	if h == nil || h.item.Seq != seq {
		return
	}
	if !h.behind {
		delete(n.heads, key)
		return
	}
	h.state = headWaiting // flying no more
	n.seek(h)
}

// begin takes the keys to be looked up now. What is met of them from here on counts
// on top of what is read.
func (n *line) begin() []uint64 {
	keys := n.lookups[:min(len(n.lookups), windowSize)]
	n.lookups = n.lookups[len(keys):]
	for _, k := range keys {
		if h := n.heads[k]; h != nil {
			h.behind = false
		}
	}
	return keys
}

// found is what the store has of a key; no delivery where nothing of it waits.
type found struct {
	key      uint64
	delivery *queue.Delivery
}

// looked takes what was read of a key. flying and landed tell what has become of the
// delivery since it was read; mayGo whether it may be attempted already.
func (n *line) looked(f found, flying, landed, mayGo bool) {
	h := n.heads[f.key]
	if h == nil || h.state != headSought {
		return
	}
	switch {
	case f.delivery == nil && !h.behind:
		delete(n.heads, f.key)
	case f.delivery == nil, landed:
		h.state = headWaiting
		n.seek(h)
	default:
		// Whether there are more isn't known: looking once too often costs little.
		h.item, h.behind = item{Delivery: *f.delivery}, true
		switch {
		case flying:
			h.state = headFlying
		case mayGo:
			n.becomeReady(h)
		default:
			n.wait(h, f.delivery.DueAt)
		}
	}
}
