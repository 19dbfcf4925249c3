package dispatch

import (
	"cmp"
	"slices"
	"time"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

const (
	// windowSize is how many waiting deliveries of each kind a lane keeps in memory.
	windowSize = 128
	// cacheBytes is how much of the payloads of new events is kept in memory, over all
	// lanes, so that a delivery made at once need not be read from the store.
	cacheBytes = 32 << 20
)

// item is a delivery as the window holds it.
type item struct {
	queue.Delivery
	// event is the new event itself where there was room to keep it.
	event *queue.StoredEvent
}

// window is the part of a lane's waiting deliveries that is in memory. There are
// three sources, each in its own order:
//
//	fresh  never tried, by acceptance: filled by arrivals while everything in the
//	       store is here (freshMore false), else from the store
//	due    retrying or replayed, by due time, as they come due
//	old    retrying or replayed, by acceptance: while Draining expedites
type window struct {
	// turn numbers the times that a source was begun anew: what a load read in an
	// earlier turn may have been given out since, from another source.
	turn int

	fresh []item
	// freshSeq: everything up to it is in the window or was given out.
	freshSeq queue.Seq
	// freshMore: there is more in the store, up to freshTail at least (0: unknown).
	freshMore bool
	freshTail queue.Seq

	due []item
	// nextDue is the earliest due time that may be in the store but not in due; zero:
	// none.
	nextDue time.Time

	old     []item
	oldSeq  queue.Seq
	oldMore bool
	// oldBefore: only what had failed by this time is brought forward.
	oldBefore time.Time
}

// cached is how many bytes of memory the item's event counts for.
func (it *item) cached() int {
	if it.event == nil {
		return 0
	}
	return share(it.event)
}

// share is what one delivery of an event counts for: all of them have one payload.
func share(ev *queue.StoredEvent) int { return len(ev.Body)/max(len(ev.Endpoints), 1) + 512 }

// arrive takes a new event. keep says whether there is room for its payload in memory;
// the result whether it was kept.
func (w *window) arrive(ev *queue.StoredEvent, d queue.Delivery, keep bool) bool {
	if ev.Seq <= w.freshSeq {
		return false // a load has found it already
	}
	if w.freshMore || len(w.fresh) >= windowSize {
		w.freshMore, w.freshTail = true, ev.Seq
		return false
	}
	w.freshSeq = ev.Seq
	it := item{Delivery: d}
	if keep {
		it.event = ev
	}
	w.fresh = append(w.fresh, it)
	return keep
}

// note takes a due time that has been written to the store.
func (w *window) note(due time.Time) {
	if w.nextDue.IsZero() || due.Before(w.nextDue) {
		w.nextDue = due
	}
}

// wants reports whether the store should be read before the next delivery is taken.
func (w *window) wants(expedite bool, now time.Time) bool {
	return w.wantsFresh() || expedite && w.wantsOld() || w.duesTurn(expedite) && w.wantsDue(now)
}

// duesTurn reports whether due times count: while expediting they don't, since all
// that is due is among the old ones.
func (w *window) duesTurn(expedite bool) bool { return !expedite || !w.oldMore && len(w.old) == 0 }

func (w *window) wantsOld() bool { return w.oldMore && len(w.old) == 0 }

func (w *window) wantsFresh() bool { return w.freshMore && len(w.fresh) == 0 }

func (w *window) wantsDue(now time.Time) bool {
	return len(w.due) == 0 && !w.nextDue.IsZero() && !w.nextDue.After(now)
}

// take gives the next delivery: while expediting the oldest, else the one that has
// been due longest.
func (w *window) take(expedite bool, now time.Time) (item, bool) {
	if expedite && len(w.old) > 0 && (len(w.fresh) == 0 || w.old[0].Seq < w.fresh[0].Seq) {
		return pop(&w.old), true
	}
	if len(w.due) > 0 && !w.due[0].DueAt.After(now) &&
		(len(w.fresh) == 0 || w.due[0].DueAt.Before(w.fresh[0].DueAt)) {
		return pop(&w.due), true
	}
	if len(w.fresh) > 0 {
		return pop(&w.fresh), true
	}
	return item{}, false
}

// giveBack returns a delivery whose attempt was not made.
func (w *window) giveBack(it item) {
	if it.Attempts == 0 && it.Replays == 0 {
		i, _ := slices.BinarySearchFunc(w.fresh, it.Seq, func(a item, s queue.Seq) int { return cmp.Compare(a.Seq, s) })
		w.fresh = slices.Insert(w.fresh, i, it)
		return
	}
	w.note(it.DueAt)
}

// beginOld starts bringing retrying deliveries forward, from the oldest.
func (w *window) beginOld(now time.Time) {
	w.turn++
	w.old, w.oldSeq, w.oldMore, w.oldBefore = nil, 0, true, now
	w.reloadDue()
}

// endOld goes back to due times.
func (w *window) endOld(now time.Time) {
	w.turn++
	w.old, w.oldMore = nil, false
	w.note(now)
}

// reloadDue forgets what is in memory of the due ones: the store is read anew.
func (w *window) reloadDue() {
	w.turn++
	for _, it := range w.due {
		w.note(it.DueAt)
	}
	w.due = nil
}

// reset forgets everything in memory; the store is read anew. Payloads that were
// kept are given back by the caller.
func (w *window) reset(now time.Time) {
	tail := max(w.freshTail, w.freshSeq)
	*w = window{turn: w.turn + 1, freshMore: true, freshTail: tail, nextDue: now, oldBefore: w.oldBefore}
}

func pop(q *[]item) item {
	it := (*q)[0]
	(*q)[0] = item{} // let the event go
	*q = (*q)[1:]
	return it
}
