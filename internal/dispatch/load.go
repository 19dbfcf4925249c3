package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// loadRetry is how long a lane waits after the store could not be read.
const loadRetry = 5 * time.Second

// unkeyedEvery is how often the due deliveries of a lane with a line are searched for ones
// that stand in none, where nothing else is known of them: the store reads past all that
// have a key, which after a bulk replay are many. What fails or is replayed while the
// process runs is noted, and found when it is due.
const unkeyedEvery = time.Second

// want says what a load reads, as it was when the load began.
type want struct {
	now       time.Time
	fresh     bool
	freshSeq  queue.Seq
	freshTail queue.Seq
	due       bool
	old       bool
	oldSeq    queue.Seq
	// of a line
	line    *line
	all     bool
	unkeyed bool
	older   bool
	oldest  queue.Seq
	lookups []uint64
	turn    int
	// limit leaves room for deliveries that are flying and so of no use.
	limit int
}

// want says what the lane's window lacks.
func (l *lane) want(now time.Time) want {
	w := want{
		now: now, limit: windowSize + len(l.flying), turn: l.turn,
		fresh: l.wantsMore(), freshSeq: l.freshSeq, freshTail: l.freshTail,
	}
	clear(l.landed)
	if n := l.line; n != nil {
		w.line, w.all = n, n.all
		w.unkeyed, w.older, w.oldest, w.lookups = true, l.wantsOlder(), n.oldest, n.begin()
	}
	expedite := l.expediting()
	w.old, w.oldSeq = expedite && l.wantsOld() && !w.all, l.oldSeq
	if w.due = l.duesTurn(expedite) && l.wantsDue(now) && !w.all; w.due {
		l.nextDue = time.Time{} // what is noted from now on comes on top of what is read
	}
	return w
}

// load reads from the store what a window lacks.
func (d *Dispatcher) load(j job) {
	l, w := j.lane, j.want
	r, err := d.read(l, w)
	d.mu.Lock()
	defer d.mu.Unlock()
	l.loading = false
	if err != nil {
		d.log.Error(err, "Reading waiting deliveries failed; they stay in the store and are read again", "endpoint", l.key.String(), "in", loadRetry)
		now := d.clock.Now() // reading may have taken its time
		if w.due {
			l.note(now.Add(loadRetry))
		}
		l.lookAgain(w)
		d.arm(l, now, now.Add(loadRetry))
		return
	}
	if l.turn == w.turn {
		l.loaded(w, r)
	} else {
		if w.due {
			l.note(w.now)
		}
		l.lookAgain(w)
	}
	d.wake(l)
}

// lookAgain has the keys looked up once more for which a load was of no use. Their heads
// are sought: nobody else asks for them.
func (l *lane) lookAgain(w want) {
	if l.line != nil && l.line == w.line {
		l.line.lookups = append(l.line.lookups, w.lookups...)
	}
}

// result is what a load has read.
type result struct {
	fresh, due, old, older []queue.Delivery
	nextDue                time.Time
	heads                  []found
}

func (d *Dispatcher) read(l *lane, w want) (r result, err error) {
	ctx := context.Background()
	if w.fresh {
		r.fresh, err = d.queue.Fresh(ctx, l.key, w.freshSeq, w.limit)
	}
	if w.due && err == nil {
		read := d.queue.Due
		if w.unkeyed {
			read = d.queue.DueUnkeyed
		}
		r.due, r.nextDue, err = read(ctx, l.key, w.now, w.limit)
	}
	if w.old && err == nil {
		r.old, err = d.queue.Retrying(ctx, l.key, w.oldSeq, w.limit)
	}
	if w.older && err == nil {
		r.older, err = d.queue.Retrying(ctx, l.key, w.oldest, w.limit)
	}
	for _, key := range w.lookups {
		if err != nil {
			break
		}
		f := found{key: key}
		stored := key
		if w.all {
			stored = 0 // of all keys
		}
		del, missing := d.queue.Head(ctx, l.key, stored)
		switch {
		case missing == nil:
			f.delivery = &del
		case !errors.Is(missing, queue.ErrNotFound):
			err = missing
		}
		r.heads = append(r.heads, f)
	}
	return r, err
}

func (l *lane) loaded(w want, r result) {
	for _, f := range r.heads {
		flying, landed, mayGo := false, false, false
		if f.delivery != nil {
			_, flying = l.flying[f.delivery.Seq]
			_, landed = l.landed[f.delivery.Seq]
			mayGo = l.mayGo(f.delivery, w.now)
		}
		l.line.looked(f, flying, landed, mayGo)
	}
	if w.older {
		l.loadedOlder(r.older, w)
	}
	if w.fresh {
		l.loadedFresh(r.fresh, w)
	}
	if w.due {
		next := r.nextDue
		if w.unkeyed && next.After(w.now) {
			next = later(next, w.now.Add(unkeyedEvery)) // it may be of one with a key
		}
		l.loadedDue(r.due, next)
	}
	if w.old {
		l.loadedOld(r.old, w)
	}
}

// mayGo reports whether a head may be attempted already: it is due, or it is brought
// forward, unless its receiver has asked to wait.
func (l *lane) mayGo(d *queue.Delivery, now time.Time) bool {
	if !d.DueAt.After(now) {
		return true
	}
	failedAt := d.DueAt.Add(-d.Delay)
	return l.expediting() && !failedAt.Add(d.Asked).After(now) && !failedAt.After(l.oldBefore)
}

// loadedOlder meets the retrying deliveries.
func (l *lane) loadedOlder(ds []queue.Delivery, w want) {
	n := l.line
	if n.oldest != w.oldest {
		return // one was replayed that lies before what was read
	}
	n.older = len(ds) == w.limit
	for i := range ds {
		if key := n.keyOf(&ds[i]); key != 0 && !l.meet(key, &ds[i], l.mayGo(&ds[i], w.now)) {
			n.older = true
			return
		}
		n.oldest = ds[i].Seq
	}
}

func (l *lane) loadedFresh(ds []queue.Delivery, w want) {
	for i := range ds {
		del := &ds[i]
		if key := l.line.keyOf(del); key != 0 {
			if l.line.older || !l.meet(key, del, true) {
				return // the rest is read when a key has ended
			}
			if l.line.all {
				l.line.heads[key].behind = true
				return // there may be more, which the store tells when their turn comes
			}
		} else if !l.stale(del.Seq) {
			l.fresh = append(l.fresh, item{Delivery: *del})
		}
		l.freshSeq = del.Seq
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
		if l.line.keyOf(&del) != 0 {
			continue // its line brings it forward
		}
		if asked := failedAt.Add(del.Asked).After(w.now); !asked && !l.stale(del.Seq) && !failedAt.After(l.oldBefore) {
			l.old = append(l.old, item{Delivery: del})
		}
	}
}

// meet takes a delivery that stands in a line and was read from the store; false where
// there is no room for its key.
func (l *lane) meet(key uint64, del *queue.Delivery, mayGo bool) bool {
	n := l.line
	_, flying := l.flying[del.Seq]
	if _, landed := l.landed[del.Seq]; !landed {
		_, ok := n.meet(key, item{Delivery: *del}, flying, mayGo)
		return ok
	}
	// It has ended since it was read, or waits for a retry: the store knows.
	if h := n.heads[key]; h != nil {
		h.behind = true
		return true
	}
	if !n.hasRoom() {
		return false
	}
	h := &head{key: key, state: headWaiting, item: item{Delivery: *del}}
	n.heads[key] = h
	n.seek(h)
	return true
}
