package dispatch

import "time"

// State is what a lane does with its deliveries.
type State uint8

// The states of a lane (DESIGN.md §6). The last four are holds: they lie over one
// of the first four, which goes on where it was when the hold ends.
const (
	Active     State = iota // attempts as configured
	BackingOff              // one attempt at a time, further and further apart
	Draining                // the receiver is back: from one attempt in flight up to full speed
	Disabled                // no attempts until a person, or a change of spec, enables
	Suspended               // a person's pause, of the endpoint or the pool
	Unresolved              // the endpoint can't be used as it is (its plan entry says why)
	Missing                 // deleted, for at most MissingGrace
	NotInPlan               // not to be seen at the moment, which is no deletion
)

var stateNames = [...]string{"Active", "BackingOff", "Draining", "Disabled", "Suspended", "Unresolved", "Missing", "NotInPlan"}

// String is the state's name in the API.
func (s State) String() string { return stateNames[s] }

// Held reports whether deliveries of a lane in this state are held.
func (s State) Held() bool { return s >= Disabled }

// Reasons of BackingOff and Disabled.
const (
	ReasonFailing     = "Failing"     // endpoint faults in a row
	ReasonRateLimited = "RateLimited" // 429 or 503 with Retry-After
	ReasonRejecting   = "Rejecting"   // 401, 403, 404, 405 or 407 in a row
	ReasonGone        = "DisabledByReceiver"
	ReasonAuthFailed  = "AuthFailed" // no OAuth2 token can be had
)

const (
	// faultsToBackOff endpoint faults, or rejections, in a row open BackingOff.
	faultsToBackOff = 5
	firstBackOff    = time.Second
	maxBackOff      = time.Minute
	// Between two tries to get a token.
	firstAuthWait = time.Minute
	maxAuthWait   = 15 * time.Minute
)

// verdict is what an attempt says about its endpoint.
type verdict uint8

const (
	succeeded verdict = iota
	faulted           // network error, timeout, retried answer
	rejected          // 401, 403, 404, 405, 407
	refused           // another answer that is not retried: the receiver is up and said no
	gone              // 410, or webhook-delivery: disable
	nothing           // says nothing about the endpoint (address not allowed)
)

// flow is the state machine of a lane, without the holds. It has no clock and no
// lock of its own.
type flow struct {
	state  State
	reason string
	since  time.Time
	// faults counts endpoint faults in a row; rejections count until a success.
	faults, rejections int
	// step is how many back-offs in a row have been made; it survives into Draining, so
	// that a receiver that comes up only to fall over again isn't hammered.
	step int
	// authStep is how many times in a row no token could be had.
	authStep int
	// until is the time before which no attempt is made.
	until time.Time
	// limit is how many attempts may be in flight while Draining.
	limit int
	// expedite: Draining brings retrying deliveries forward.
	expedite bool
	// epoch numbers the states, so that answers to attempts of a former state are
	// known as such.
	epoch int
	// anew is the epoch in which the endpoint was last changed or enabled: answers to
	// attempts begun before speak of what is no more.
	anew int
}

func (f *flow) enter(s State, reason string, now time.Time) {
	f.state, f.reason, f.since = s, reason, now
	f.faults = 0
	f.epoch++
}

// result takes what an attempt, begun in the given epoch, says. pause is the
// Retry-After of a 429 or 503, 0 without one. expedite is the policy's onRecovery.
func (f *flow) result(v verdict, pause time.Duration, epoch int, expedite bool, now time.Time) {
	if epoch < f.anew {
		return
	}
	f.authStep = 0
	switch v {
	case succeeded:
		f.rejections = 0
	case rejected:
		f.rejections++
		f.faults++
	case faulted:
		f.faults++
	case refused:
		f.faults = 0
	case gone:
		f.enter(Disabled, ReasonGone, now)
		return
	case nothing:
		return
	}
	switch f.state {
	case Active:
		f.active(v, pause, now)
	case BackingOff:
		f.backingOff(v, pause, epoch == f.epoch, expedite, now)
	case Draining:
		f.draining(v, pause, epoch == f.epoch, now)
	default: // Disabled: nothing that was under way changes it
	}
}

func (f *flow) active(v verdict, pause time.Duration, now time.Time) {
	switch {
	case v == succeeded:
		f.faults = 0
	case v == rejected && f.rejections >= faultsToBackOff:
		f.backOff(ReasonRejecting, pause, now)
	case v == faulted && pause > 0:
		f.backOff(ReasonRateLimited, pause, now)
	case v == faulted && f.faults >= faultsToBackOff:
		f.backOff(ReasonFailing, pause, now)
	}
}

func (f *flow) backingOff(v verdict, pause time.Duration, current, expedite bool, now time.Time) {
	if v == rejected && f.rejections >= faultsToBackOff {
		f.reason = ReasonRejecting
	}
	switch {
	case v == succeeded:
		f.drain(expedite, now)
	case !current:
		// An attempt from before: it may ask for a longer pause, but it isn't news.
		f.until = later(f.until, now.Add(pause))
	case v == refused:
		f.drain(expedite, now) // it is up, and says no to this one
	case f.reason == ReasonAuthFailed:
		f.backOff(ReasonFailing, pause, now) // there is a token again, and another fault
	default:
		f.backOff(f.reason, pause, now)
	}
}

// authFailed is for an attempt, begun in the given epoch, that was not made because no
// token could be had: the lane waits, further and further apart, and burns no attempts.
// It reports whether that is news.
func (f *flow) authFailed(epoch int, now time.Time) bool {
	if epoch < f.anew || f.state == Disabled || f.reason == ReasonAuthFailed && epoch != f.epoch {
		return false // it speaks of what is no more, or of what is known
	}
	f.enter(BackingOff, ReasonAuthFailed, now)
	f.until = later(f.until, now.Add(min(firstAuthWait<<min(f.authStep, 4), maxAuthWait)))
	f.authStep++
	return true
}

func (f *flow) draining(v verdict, pause time.Duration, current bool, now time.Time) {
	switch {
	case v == succeeded, v == refused:
		f.faults = 0
		f.limit++
	case v == rejected && f.rejections >= faultsToBackOff:
		f.backOff(ReasonRejecting, pause, now)
	case v == rejected:
	case pause > 0:
		f.backOff(ReasonRateLimited, pause, now)
	case !current:
	case f.limit <= 1 || f.faults >= faultsToBackOff:
		f.backOff(ReasonFailing, 0, now)
	default:
		f.limit /= 2
	}
}

// backOff waits for the next step, or as long as the receiver asks.
func (f *flow) backOff(reason string, pause time.Duration, now time.Time) {
	if f.state != BackingOff {
		f.enter(BackingOff, reason, now)
	} else {
		f.reason = reason
		f.epoch++
	}
	wait := maxBackOff
	if f.step < 6 { // 1 s · 2⁶ is over a minute
		wait = firstBackOff << f.step
	}
	f.step++
	if pause > 0 {
		wait = pause
	}
	f.until = later(f.until, now.Add(wait))
}

// resume is how a lane that had not caught up begins after a restart: with one
// attempt, at once.
func (f *flow) resume(reason string, until, now time.Time) {
	f.enter(BackingOff, reason, now)
	f.until = until // what the receiver asked for holds
	if reason == ReasonRejecting {
		f.rejections = faultsToBackOff
	}
}

// drain begins to catch up.
func (f *flow) drain(expedite bool, now time.Time) {
	f.enter(Draining, "", now)
	f.limit, f.expedite, f.until = 1, expedite, time.Time{}
}

// full ends Draining.
func (f *flow) full(now time.Time) {
	f.enter(Active, "", now)
	f.step, f.expedite = 0, false
}

// enable brings a lane back from Disabled: the next attempt is made at once.
func (f *flow) enable(expedite bool, now time.Time) {
	f.step, f.rejections = 0, 0
	f.drain(expedite, now)
	f.anew = f.epoch
}

// changed is for an endpoint that is another one now: what was said of the former is
// forgotten, and what was wrong may be mended, so the next attempt is made at once.
func (f *flow) changed(now time.Time) {
	f.epoch++
	f.anew = f.epoch
	f.faults, f.rejections, f.authStep = 0, 0, 0
	if f.state == BackingOff {
		f.until, f.step = now, 0
	}
}

// allowed is how many attempts may be in flight, given the endpoint's own maximum,
// and, where that is none for now, when to look again.
func (f *flow) allowed(maxInFlight int, now time.Time) (int, time.Time) {
	if f.state != Disabled && now.Before(f.until) {
		return 0, f.until
	}
	switch f.state {
	case Active:
		return maxInFlight, time.Time{}
	case BackingOff:
		return 1, time.Time{}
	case Draining:
		return min(f.limit, maxInFlight), time.Time{}
	default:
		return 0, time.Time{}
	}
}

// rejecting reports whether an answer that would dead-letter is kept for later: a
// bad rollout at the receiver must not become a mass of dead letters.
func (f *flow) rejecting() bool { return f.state == BackingOff && f.reason == ReasonRejecting }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
