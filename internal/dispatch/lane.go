package dispatch

import (
	"reflect"
	"sync"
	"time"

	"github.com/doorstep-dev/doorstep/internal/deliver"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// target is an endpoint ready to be delivered to: parsed once per plan, shared by
// all attempts and never changed.
type target struct {
	*plan.Endpoint
	// to is nil where there is a problem.
	to *deliver.Destination
	// retryHash identifies the policy that due times are made by.
	retryHash string
	// problem is the plan's, or that of the parts that can't be read.
	problem *plan.Problem
}

// newTarget reads an endpoint of a plan. One that is as it was is not read anew: most
// changes are of a few endpoints among thousands.
func newTarget(e *plan.Endpoint, former *target) *target {
	if former != nil && reflect.DeepEqual(former.Endpoint, e) {
		return &target{Endpoint: e, to: former.to, retryHash: former.retryHash, problem: former.problem}
	}
	t := &target{Endpoint: e, retryHash: e.Retry.Hash()}
	t.to, t.problem = deliver.NewDestination(e)
	return t
}

// lane is one endpoint's deliveries on their way. The dispatcher's mutex guards it.
type lane struct {
	key plan.EndpointKey
	// target is nil until a plan has held the endpoint.
	target *target
	// hold is Suspended, Unresolved, Missing, NotInPlan, or Active for none.
	hold      State
	holdSince time.Time
	// deletedAt is the tombstone's time while Missing.
	deletedAt time.Time
	flow      flow
	// stored is what the queue remembers of this lane.
	stored queue.Lane
	// saving orders what is stored of the lane, care the changes that policies make to its
	// deliveries. Both are taken before the dispatcher's mutex.
	saving, care sync.Mutex
	// unsaved: stored has changed since it was saved.
	unsaved bool
	// aside: its name is another namespace's by now. Nothing of it is stored any more.
	aside bool

	pace pace
	// known: the store had it when this process began.
	known bool

	window
	// line is nil without ordering.
	line *line
	// flying are deliveries with an attempt under way or an outcome not yet written.
	flying map[queue.Seq]struct{}
	// landed are those that stopped flying while a load was under way: it may have
	// read them as they were before.
	landed map[queue.Seq]struct{}
	// inFlight counts attempts under way.
	inFlight    int
	lastFailure *Failure

	ready   bool // in the ready ring
	parked  bool // waits for its share of the pool's attempts
	loading bool // a load is under way or in the ring
	busy    bool // upkeep is changing stored deliveries: nothing is picked
	timer   *time.Timer
	wakeAt  time.Time
}

// settled ends a delivery's flight.
func (l *lane) settled(seq queue.Seq) {
	delete(l.flying, seq)
	if l.loading {
		l.landed[seq] = struct{}{}
	}
}

// stale reports whether what a load has read of a delivery may be out of date.
func (l *lane) stale(seq queue.Seq) bool {
	_, flying := l.flying[seq]
	_, landed := l.landed[seq]
	return flying || landed
}

// state is the lane's state as seen from outside.
func (l *lane) state() State {
	if l.hold != Active {
		return l.hold
	}
	return l.flow.state
}

// since is when it began.
func (l *lane) since() time.Time {
	if l.hold != Active {
		return l.holdSince
	}
	return l.flow.since
}

// setHold reports whether that is a change.
func (l *lane) setHold(s State, now time.Time) bool {
	if l.hold == s {
		return false
	}
	l.hold, l.holdSince = s, now
	return true
}

// decision is what a lane has for a worker.
type decision uint8

const (
	idle    decision = iota // nothing now; look again at wakeAt, if set
	attempt                 // a delivery
	load                    // its window wants filling first
)

// pick chooses what the lane does next. share is how many attempts the pool lets it
// have in flight at the moment. It changes the window when it gives a delivery out.
func (l *lane) pick(now time.Time, share int) (decision, item, time.Time) {
	if l.state().Held() || l.busy || l.target == nil {
		return idle, item{}, time.Time{}
	}
	allowed, wake := l.flow.allowed(l.target.MaxInFlight, now)
	if l.inFlight >= min(allowed, share) {
		return idle, item{}, wake
	}
	if l.unrecorded() >= l.maxUnrecorded() {
		return idle, item{}, time.Time{} // recorded wakes it
	}
	if wait := l.pace.wait(now); wait > 0 {
		return idle, item{}, now.Add(wait)
	}
	expedite := l.expediting()
	if l.line != nil {
		l.line.due(now)
	}
	if l.wantsLoad(expedite, now) && !l.loading {
		return load, item{}, time.Time{}
	}
	if expedite && l.wantsOld() {
		return idle, item{}, time.Time{} // the load under way may bring older ones than are here
	}
	if it, ok := l.next(expedite, now); ok {
		l.pace.spend(now)
		return attempt, it, time.Time{}
	}
	return idle, item{}, sooner(wake, l.nextTurn(expedite, now)) // what else there may be wakes the lane itself: a load, or an attempt that ends
}

// limitedBy names what keeps the lane from going faster, given that more waits than is
// in flight; empty for nothing, or where its state does.
func (l *lane) limitedBy(now time.Time) string {
	switch {
	case l.target == nil || l.state() != Active && l.state() != Draining:
		return ""
	case l.pace.wait(now) > 0:
		return "rateLimit"
	case l.parked:
		return "pool"
	case l.inFlight >= l.target.MaxInFlight:
		return "maxInFlight"
	case l.line != nil && len(l.fresh) == 0 && len(l.line.ready) == 0 && len(l.line.heads) > 0:
		return "ordering"
	}
	return ""
}

// unrecorded is how many outcomes are not yet on their way to the disk. They are what a
// crash repeats, so a store that hangs must stop the lane.
func (l *lane) unrecorded() int { return len(l.flying) - l.inFlight }

func (l *lane) maxUnrecorded() int { return max(64, 2*l.target.MaxInFlight) }

// expediting reports whether retrying deliveries are being brought forward.
func (l *lane) expediting() bool { return l.flow.state == Draining && l.flow.expedite }

// drained ends Draining where full speed is reached, or there is nothing left to
// bring forward. It reports whether that is to be stored.
func (l *lane) drained(now time.Time) bool {
	f := &l.flow
	if f.state != Draining || l.target == nil || l.loading {
		return false
	}
	caughtUp := !f.expedite || !l.oldMore && len(l.old) == 0
	empty := len(l.fresh) == 0 && !l.freshMore && l.inFlight == 0
	if n := l.line; n != nil {
		caughtUp = caughtUp && len(n.lookups) == 0 && !n.older
		empty = empty && len(n.ready) == 0
	}
	if caughtUp && (f.limit >= l.target.MaxInFlight || empty) {
		f.full(now)
		l.endOld(now)
		return l.remember()
	}
	return false
}

// remember notes in stored what must outlive a restart. It reports whether that is
// a change, and so to be saved.
func (l *lane) remember() bool {
	was := l.stored
	switch l.flow.state {
	case BackingOff:
		l.stored.BackingOff, l.stored.Reason, l.stored.Until = true, l.flow.reason, time.Time{}
		if l.flow.reason == ReasonRateLimited {
			l.stored.Until = l.flow.until
		}
	case Active:
		l.stored.BackingOff, l.stored.Reason, l.stored.Until = false, "", time.Time{}
	default: // Draining hasn't caught up yet; Disabled is noted with its cause
	}
	l.unsaved = l.unsaved || l.stored != was
	return l.unsaved
}

// wantsLoad reports whether the store should be read before the next delivery is taken.
func (l *lane) wantsLoad(expedite bool, now time.Time) bool {
	n := l.line
	if n == nil {
		return l.wants(expedite, now)
	}
	return len(n.lookups) > 0 || l.wantsOlder() || l.wantsMore() || !n.all && (expedite && l.wantsOld() || l.duesTurn(expedite) && l.wantsDue(now))
}

// wantsOlder: not all retrying deliveries are known yet, and so not which keys may go.
func (l *lane) wantsOlder() bool { return l.line != nil && l.line.older && l.line.hasRoom() }

// wantsMore reports whether fresh deliveries are to be read.
func (l *lane) wantsMore() bool {
	n := l.line
	if n == nil {
		return l.wantsFresh()
	}
	return l.wantsFresh() && len(n.ready) == 0 && !n.older && n.hasRoom() && (!n.all || len(n.heads) == 0)
}

// next gives the delivery to attempt: of the line's and the window's the one that has
// waited longer.
func (l *lane) next(expedite bool, now time.Time) (item, bool) {
	n := l.line
	if n == nil {
		return l.take(expedite, now)
	}
	if len(n.ready) > 0 && !l.goesBefore(n.ready[0].item, now) {
		return n.take(), true
	}
	if n.older {
		return item{}, false // the fresh ones' turn comes when all keys are known
	}
	return l.take(expedite, now)
}

// goesBefore reports whether the window has a delivery that has waited longer.
func (w *window) goesBefore(it item, now time.Time) bool {
	return len(w.fresh) > 0 && w.fresh[0].DueAt.Before(it.DueAt) ||
		len(w.due) > 0 && !w.due[0].DueAt.After(now) && w.due[0].DueAt.Before(it.DueAt)
}

// nextTurn is when something comes due; zero: nothing that is known.
func (l *lane) nextTurn(expedite bool, now time.Time) (at time.Time) {
	if (l.line == nil || !l.line.all) && l.duesTurn(expedite) && now.Before(l.nextDue) {
		at = l.nextDue
	}
	if l.line != nil {
		at = sooner(at, l.line.nextDue)
	}
	return at
}

// sooner is the earlier of two times, of which zero is none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// arrived takes a new event. keep says whether there is room for its payload in memory;
// the result whether it was kept.
func (l *lane) arrived(ev *queue.StoredEvent, d queue.Delivery, keep bool) bool {
	key := l.line.keyOf(&d)
	if key == 0 {
		return l.arrive(ev, d, keep)
	}
	n := l.line
	known := n.heads[key] != nil
	if ev.Seq <= l.freshSeq || n.all && known {
		if known {
			n.heads[key].behind = true
		}
		return false
	}
	it := item{Delivery: d}
	if keep {
		it.event = ev
	}
	if l.freshMore || n.older {
		l.freshMore, l.freshTail = true, ev.Seq
		return false
	}
	kept, ok := n.meet(key, it, false, true)
	if !ok {
		l.freshMore, l.freshTail = true, ev.Seq
		return false
	}
	l.freshSeq = ev.Seq
	return kept && keep
}

// rereadDue has due times read anew, which somebody has changed.
func (l *lane) rereadDue(now time.Time) {
	l.reloadDue()
	l.note(now)
	if l.line != nil {
		l.line.seekAll()
	}
}

// expediteOld begins to bring retrying deliveries forward.
func (l *lane) expediteOld(now time.Time) {
	l.beginOld(now)
	if l.line != nil {
		l.oldMore = !l.line.all // with one line for all there is nothing beside it
		l.line.seekAll()
	}
}

// restart forgets what is in memory of the lane's waiting deliveries; the store is read
// anew. It returns the payloads' bytes that are let go.
func (l *lane) restart(ordering string, now time.Time) (let int) {
	for _, it := range l.fresh {
		let += it.cached()
	}
	if l.line != nil {
		let += l.line.let
		for _, h := range l.line.heads {
			let += h.item.cached()
		}
	}
	l.reset(now)
	l.line = newLine(ordering)
	l.oldMore = l.expediting() && (l.line == nil || !l.line.all) // with one line for all there is nothing beside it
	return let
}
