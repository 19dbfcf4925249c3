package dispatch

import (
	"context"
	"time"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// loadRetry is how long a lane waits after the store could not be read.
const loadRetry = 5 * time.Second

// want says what a load reads, as it was when the load began.
type want struct {
	now       time.Time
	fresh     bool
	freshSeq  queue.Seq
	freshTail queue.Seq
	due       bool
	old       bool
	oldSeq    queue.Seq
	turn      int
	// limit leaves room for deliveries that are flying and so of no use.
	limit int
}

// want says what the lane's window lacks.
func (l *lane) want(now time.Time) want {
	w := want{
		now: now, limit: windowSize + len(l.flying), turn: l.turn,
		fresh: l.wantsFresh(), freshSeq: l.freshSeq, freshTail: l.freshTail,
	}
	clear(l.landed)
	expedite := l.expediting()
	w.old, w.oldSeq = expedite && l.wantsOld(), l.oldSeq
	if w.due = l.duesTurn(expedite) && l.wantsDue(now); w.due {
		l.nextDue = time.Time{} // what is noted from now on comes on top of what is read
	}
	return w
}

// load reads from the store what a window lacks.
func (d *Dispatcher) load(j job) {
	ctx, l, w := context.Background(), j.lane, j.want
	var fresh, due, old []queue.Delivery
	var nextDue time.Time
	var err error
	if w.fresh {
		fresh, err = d.queue.Fresh(ctx, l.key, w.freshSeq, w.limit)
	}
	if w.due && err == nil {
		due, nextDue, err = d.queue.Due(ctx, l.key, w.now, w.limit)
	}
	if w.old && err == nil {
		old, err = d.queue.Retrying(ctx, l.key, w.oldSeq, w.limit)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l.loading = false
	if err != nil {
		d.log.Error(err, "Reading waiting deliveries failed; they stay in the store and are read again", "endpoint", l.key.String(), "in", loadRetry)
		if w.due {
			l.note(w.now.Add(loadRetry))
		}
		d.arm(l, w.now, w.now.Add(loadRetry))
		return
	}
	if l.turn == w.turn {
		l.loaded(w, fresh, due, old, nextDue)
	} else if w.due {
		l.note(w.now)
	}
	d.wake(l)
}

func (l *lane) loaded(w want, fresh, due, old []queue.Delivery, nextDue time.Time) {
	if w.fresh {
		l.loadedFresh(fresh, w)
	}
	if w.due {
		l.loadedDue(due, nextDue)
	}
	if w.old {
		l.loadedOld(old, w)
	}
}

func (l *lane) loadedFresh(ds []queue.Delivery, w want) {
	for _, del := range ds {
		l.freshSeq = del.Seq
		if !l.stale(del.Seq) {
			l.fresh = append(l.fresh, item{Delivery: del})
		}
	}
	if len(ds) < w.limit && l.freshTail == w.freshTail {
		// All that was durable when the load began is here, and nothing came since.
		l.freshMore = false
		l.freshSeq = max(l.freshSeq, l.freshTail)
	}
}

func (l *lane) loadedDue(ds []queue.Delivery, next time.Time) {
	for _, del := range ds {
		if !l.stale(del.Seq) {
			l.due = append(l.due, item{Delivery: del})
		}
	}
	if !next.IsZero() {
		l.note(next)
	}
}

func (l *lane) loadedOld(ds []queue.Delivery, w want) {
	l.oldMore = len(ds) == w.limit
	for _, del := range ds {
		l.oldSeq = del.Seq
		failedAt := del.DueAt.Add(-del.Delay)
		if asked := failedAt.Add(del.Asked).After(w.now); !asked && !l.stale(del.Seq) && !failedAt.After(l.oldBefore) {
			l.old = append(l.old, item{Delivery: del})
		}
	}
}
