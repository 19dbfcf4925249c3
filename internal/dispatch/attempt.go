package dispatch

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/doorstep-dev/doorstep/internal/deliver"
	"github.com/doorstep-dev/doorstep/internal/filter"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

// attempt makes one attempt and hands its outcome to the queue.
func (d *Dispatcher) attempt(j job) {
	ev := j.item.event
	if ev == nil {
		var err error
		if ev, err = d.queue.Event(context.Background(), j.item.Seq); err != nil {
			d.unreadable(j, err)
			return
		}
	}
	if j.item.Undecided && !d.decide(j, ev) {
		return
	}
	res := d.deliver.Do(d.attempts, request(j, ev, d.clock.Now()))
	if res.Class(&j.target.Retry) == retry.Held {
		d.held(j, &res)
		return
	}
	if res.Reason == deliver.ReasonDenied && d.outdated(j) {
		d.giveBack(j, 0)
		return
	}
	o, changed := d.judge(j, &res)
	if changed {
		// Before the outcome: after a crash in between, one more delivery is tried.
		d.save(j.lane)
	}
	if d.observe != nil {
		d.observe(&o)
	}
	d.queue.Record(o, func(err error) { d.recorded(j, &o, err) })
}

// outdated reports whether a plan was applied since the attempt began: the networks of
// the new one have nothing to say on the address of the old one.
func (d *Dispatcher) outdated(j job) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return j.lane.target.to != j.target.to
}

func request(j job, ev *queue.StoredEvent, now time.Time) *deliver.Request {
	return &deliver.Request{
		Destination:   j.target.to,
		Event:         ev.Event,
		DeliveryID:    DeliveryID(ev.Namespace, ev.WebhookID, j.target.Name),
		AttemptNumber: j.item.Attempts + 1,
		Replay:        j.item.Replays > 0,
		TraceParent:   ev.TraceParent,
		Steady:        now,
	}
}

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// DeliveryID names the delivery of an event to an endpoint: the same on every attempt
// and replay, for the doorstep-delivery-id header.
func DeliveryID(namespace, webhookID, endpoint string) string {
	b := make([]byte, 0, 192)
	b = append(b, namespace...)
	b = append(b, 0)
	b = append(b, webhookID...)
	b = append(b, 0)
	b = append(b, endpoint...)
	sum := sha256.Sum256(b)
	b = append(b[:0], "dlv_"...)
	return string(idEncoding.AppendEncode(b, sum[:16])[:4+26])
}

// isRejection tells the answers that a bad rollout at the receiver gives to all.
func isRejection(status int) bool {
	switch status {
	case 401, 403, 404, 405, 407:
		return true
	}
	return false
}

// verdictOf says what a result means for its endpoint, and the reason of a dead
// letter that comes of it.
func verdictOf(class retry.Class, res *deliver.Result) (verdict, string) {
	switch {
	case class == retry.Delivered:
		return succeeded, ""
	case class == retry.Disable:
		return gone, queue.ReasonDisabled
	case res.Reason == deliver.ReasonDenied:
		return nothing, queue.ReasonNotAllowed
	case res.WebhookDelivery == deliver.DeliveryAbort:
		return refused, queue.ReasonAborted
	case isRejection(res.Status):
		return rejected, queue.ReasonRejected
	case class == retry.DeadLetter:
		return refused, queue.ReasonRejected
	}
	return faulted, ""
}

// judge ends an attempt in memory: the lane's state takes the answer, and the policy
// says what becomes of the delivery. It reports whether there is something of the
// lane to save.
func (d *Dispatcher) judge(j job, res *deliver.Result) (queue.Outcome, bool) {
	p := &j.target.Retry
	class := res.Class(p)
	v, reason := verdictOf(class, res)
	delay, asked := p.Wait(j.item.Budget+1, d.rand(), res.Status, res.RetryAfter, d.clock.Wall())
	pause := asked
	if res.Status != 429 && res.Status != 503 {
		pause = 0
	}
	now := d.clock.Now()

	d.mu.Lock()
	l := j.lane
	before, beforeReason := l.flow.state, l.flow.reason
	l.lastFailure = nil
	if v != succeeded {
		l.lastFailure = &Failure{Time: res.StartedAt.Add(res.Duration), Status: res.Status, Reason: res.Reason, Message: res.Message}
	}
	l.flow.result(v, pause, j.epoch, p.OnRecovery == retry.Expedite, now)
	state, stateReason := l.flow.state, l.flow.reason
	if state == Draining && before != Draining && l.flow.expedite {
		l.expediteOld(now)
	}
	spare := v == rejected && l.flow.rejecting()
	if spare && class == retry.DeadLetter {
		class = retry.Retry
	}
	if (class == retry.DeadLetter || class == retry.Disable) && l.target.Hash != j.target.Hash {
		// The endpoint is another one by now: let that one say.
		class = retry.Retry
	}
	if state == Disabled && before != Disabled {
		l.stored = queue.Lane{
			Disabled: true, Reason: l.flow.reason, Message: disabledMessage(res), At: now, Hash: j.target.Hash,
			RetryHash: l.stored.RetryHash,
		}
		l.unsaved = true
	}
	if class == retry.Retry && l.stored.RetryHash != j.target.retryHash {
		l.stored.RetryHash = j.target.retryHash
		l.unsaved = true
	}
	unsaved := l.remember()
	keep := !d.dropResponses
	d.landed(l)
	d.mu.Unlock()

	if before != state || beforeReason != stateReason {
		d.log.Info("Lane changed", "endpoint", l.key.String(), "from", before.String(), "to", state.String(), "reason", stateReason, "cause", causeOf(res))
	}
	o := queue.Outcome{Seq: j.item.Seq, Endpoint: l.key, Attempt: attemptRecord(j, res, class, keep)}
	switch class {
	case retry.Delivered:
		o.To = queue.Delivered
	case retry.Retry:
		due, wait, dead := p.Next(now, j.item.QueuedAt, j.item.Budget+1, delay)
		if spare && dead == queue.ReasonOutOfAttempts {
			// Only its age ends it now: a bad rollout must not become a mass of dead letters.
			due, wait, dead = p.Next(now, j.item.QueuedAt, 0, delay)
		}
		if dead != "" {
			o.To, o.Reason = queue.DeadLettered, dead
		} else {
			o.To, o.DueAt, o.Delay, o.Asked = queue.Retrying, due, wait, asked
		}
	default:
		o.To, o.Reason = queue.DeadLettered, reason
	}
	if v != succeeded {
		d.log.V(1).Info("Attempt failed", "endpoint", l.key.String(), "event", j.item.Seq, "attempt", j.item.Attempts+1,
			"status", res.Status, "reason", res.Reason, "cause", res.Message, "then", o.To.String())
	}
	return o, unsaved
}

func causeOf(res *deliver.Result) string {
	if res.Message == "" {
		return "the receiver answered " + strconv.Itoa(res.Status)
	}
	return res.Message
}

// save stores what must outlive a restart of a lane.
func (d *Dispatcher) save(l *lane) {
	l.saving.Lock()
	defer l.saving.Unlock()
	d.mu.Lock()
	stored, unsaved := l.stored, l.unsaved && !l.aside
	l.unsaved = false
	d.mu.Unlock()
	if !unsaved {
		return
	}
	if err := d.queue.SetLane(context.Background(), l.key, stored); err != nil {
		d.mu.Lock()
		l.unsaved = true
		d.mu.Unlock()
		d.log.Error(err, "Remembering a lane's state failed; it holds, and is stored at the next look around", "endpoint", l.key.String())
	}
}

func disabledMessage(res *deliver.Result) string {
	if res.Status == 410 {
		return "the receiver answered 410 Gone"
	}
	return "the receiver asked not to be sent to any more (webhook-delivery: disable)"
}

// attemptRecord is what is kept of an attempt; keep says whether that is the beginning
// of a failed answer's body too.
func attemptRecord(j job, res *deliver.Result, class retry.Class, keep bool) queue.Attempt {
	a := queue.Attempt{
		Number: j.item.Attempts + 1, StartedAt: res.StartedAt, Duration: res.Duration,
		Status: res.Status, Class: class, Reason: res.Reason, Message: res.Message, Sent: res.Sent,
		Replay: j.item.Replays > 0, HandlerVersion: res.HandlerVersion,
	}
	if keep && class != retry.Delivered {
		a.Response = res.Response
	}
	return a
}

// recorded is called once an outcome is written.
func (d *Dispatcher) recorded(j job, o *queue.Outcome, err error) {
	if err != nil && !errors.Is(err, queue.ErrNotWaiting) {
		// The delivery stays flying: the store is about to end, and the next process
		// finds it waiting, as it was before this attempt.
		d.log.Error(err, "Recording an attempt failed; the delivery still waits in the store and will be attempted again after a restart",
			"endpoint", j.lane.key.String(), "attempt", o.Attempt.Number)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l := j.lane
	if err != nil && !l.aside {
		d.log.Info("An attempt was made of a delivery that was not waiting any more; its outcome is not recorded",
			"endpoint", l.key.String(), "attempt", o.Attempt.Number)
	}
	wake := l.target != nil && l.unrecorded() >= l.maxUnrecorded()
	l.settled(j.item.Seq)
	retrying := err == nil && o.To == queue.Retrying
	if key := l.line.keyOf(&j.item.Delivery); key != 0 {
		wake = true // for the next of its key
		if retrying {
			l.line.retried(key, j.item.Delivery, o.DueAt)
		} else {
			l.line.ended(key, j.item.Seq)
		}
	} else if retrying {
		l.note(o.DueAt)
		wake = true
	}
	if wake {
		d.wake(l)
	}
}

// unreadable deals with a delivery whose event can't be read.
func (d *Dispatcher) unreadable(j job, err error) {
	if errors.Is(err, queue.ErrErased) {
		d.end(j, queue.DeadLettered, queue.ReasonErased)
		return
	}
	if !errors.Is(err, queue.ErrPayloadMissing) && !errors.Is(err, queue.ErrNotFound) {
		d.log.Error(err, "Reading an event failed; its delivery stays in the store and is tried again",
			"endpoint", j.lane.key.String(), "in", loadRetry)
		d.giveBack(j, loadRetry)
		return
	}
	d.end(j, queue.DeadLettered, queue.ReasonPayloadMissing)
}

// decide asks the endpoint's filter about a delivery for which it could not be asked
// before. It reports whether the delivery is to be attempted.
func (d *Dispatcher) decide(j job, ev *queue.StoredEvent) bool {
	if j.target.Filter == "" {
		return true
	}
	matches := false
	f, err := filter.Compile(j.target.Filter)
	if err == nil {
		matches, err = f.Match(ev.Event)
	}
	switch {
	case err != nil:
		d.end(j, queue.FilterError, queue.ReasonFilterError)
	case !matches:
		d.end(j, queue.Discarded, queue.ReasonFilterFalse)
	}
	return err == nil && matches
}

// end ends a delivery without an attempt.
func (d *Dispatcher) end(j job, to queue.State, reason string) {
	_, err := d.queue.Settle(context.Background(), j.lane.key, []queue.Seq{j.item.Seq}, to, reason)
	if err != nil {
		d.log.Error(err, "Ending a delivery without an attempt failed; it stays in the store and is looked at again",
			"endpoint", j.lane.key.String(), "reason", reason, "in", loadRetry)
		d.giveBack(j, loadRetry)
		return
	}
	if to == queue.DeadLettered {
		d.log.Info("A delivery was dead-lettered without an attempt", "endpoint", j.lane.key.String(), "reason", reason)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone(j)
}

// gone forgets a delivery that ended without an outcome.
func (d *Dispatcher) gone(j job) {
	l := j.lane
	l.settled(j.item.Seq)
	if key := l.line.keyOf(&j.item.Delivery); key != 0 {
		l.line.ended(key, j.item.Seq)
	}
	d.landed(l)
}

// held gives a delivery back whose attempt was not made by a fault of ours.
func (d *Dispatcher) held(j job, res *deliver.Result) {
	if res.Reason == deliver.ReasonShutdown {
		d.giveBack(j, 0)
		return
	}
	if res.Reason == deliver.ReasonAuth {
		d.authFailed(j, res)
		return
	}
	d.log.Info("An attempt could not be made; its delivery waits and is tried again", "endpoint", j.lane.key.String(), "cause", res.Message, "in", loadRetry)
	d.giveBack(j, loadRetry)
}

// authFailed gives a delivery back for which no token could be had.
func (d *Dispatcher) authFailed(j job, res *deliver.Result) {
	d.mu.Lock()
	l := j.lane
	l.lastFailure = &Failure{Time: res.StartedAt.Add(res.Duration), Reason: res.Reason, Message: res.Message}
	news := l.flow.authFailed(j.epoch, d.clock.Now())
	l.remember()
	d.mu.Unlock()
	if news {
		d.log.Info("No token can be had for an endpoint; its deliveries wait", "endpoint", l.key.String(), "cause", res.Message)
	}
	d.giveBack(j, 0)
	d.save(l)
}

// giveBack returns a delivery whose attempt was not made, and pauses its lane.
func (d *Dispatcher) giveBack(j job, pause time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := j.lane
	l.settled(j.item.Seq)
	j.item.event = nil
	if key := l.line.keyOf(&j.item.Delivery); key != 0 {
		l.line.giveBack(key, j.item)
	} else {
		l.window.giveBack(j.item)
	}
	if pause > 0 {
		l.flow.until = later(l.flow.until, d.clock.Now().Add(pause))
	}
	d.landed(l)
}

// View is what a lane looks like from outside.
type View struct {
	State State
	// Reason and Message say why, in the words of a condition; empty while Active.
	Reason, Message string
	// Since is when the state began, steady time.
	Since time.Time
	// RetryAt is when the next attempt may be made, while BackingOff.
	RetryAt  time.Time
	InFlight int
	// LimitedBy is what keeps a lane that delivers from going faster now: rateLimit,
	// maxInFlight, ordering or pool; empty for nothing.
	LimitedBy string
	// LastFailure is the last failed attempt, with neither addresses nor bodies; nil if
	// there was none since the process began, or one has succeeded since.
	LastFailure *Failure
}

// Failure is a failed attempt in short. Time is wall time.
type Failure struct {
	Time            time.Time
	Status          int
	Reason, Message string
}

// View gives an endpoint's lane; false if there is none.
func (d *Dispatcher) View(k plan.EndpointKey) (View, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.lanes[k]
	if l == nil {
		return View{}, false
	}
	v := View{State: l.state(), Reason: l.flow.reason, Since: l.since(), InFlight: l.inFlight, LastFailure: l.lastFailure}
	if d.queue.Counts(k).Waiting() > l.inFlight {
		v.LimitedBy = l.limitedBy(d.clock.Now())
	}
	switch v.State {
	case Disabled:
		v.Message = l.stored.Message + "; events are held; once the receiver is mended, run doorstep endpoint enable or change the endpoint's spec"
	case BackingOff:
		v.RetryAt = l.flow.until
		v.Message = backOffMessages[l.flow.reason]
	case Suspended:
		v.Reason, v.Message = "Suspended", "spec.suspend of the endpoint or its pool is true; events are held"
	case Missing:
		v.Reason, v.Message = "EndpointMissing", "the endpoint was deleted; its waiting deliveries are dead-lettered if it isn't made again within 15 minutes"
	case NotInPlan:
		v.Reason, v.Message = "NotInPlan", "the endpoint isn't to be seen at the moment; events are held"
	case Unresolved:
		v.Reason, v.Message = l.target.problem.Reason, l.target.problem.Message
	}
	return v, true
}

var backOffMessages = map[string]string{
	ReasonFailing:     "the receiver fails; one attempt at a time is made, at most a minute apart",
	ReasonRateLimited: "the receiver asks to wait (Retry-After)",
	ReasonAuthFailed:  "no OAuth2 token can be had for the endpoint; its authorization server is asked again, at most 15 minutes apart, and no attempt is burnt meanwhile",
	ReasonRejecting:   "the receiver answers 401, 403, 404, 405 or 407 to everything; while it does, nothing is dead-lettered for it",
}

// InFlight reports whether a delivery is being attempted.
func (d *Dispatcher) InFlight(k plan.EndpointKey, seq queue.Seq) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.lanes[k]
	if l == nil {
		return false
	}
	_, ok := l.flying[seq]
	return ok
}

// sortedKeys is for loops whose order shows.
func sortedKeys(m map[plan.EndpointKey]*lane) []plan.EndpointKey {
	keys := make([]plan.EndpointKey, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, plan.EndpointKey.Compare)
	return keys
}
