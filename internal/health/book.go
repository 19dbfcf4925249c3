package health

import (
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
)

const (
	minutes  = 60
	quarters = 96
	quarter  = 15 * time.Minute
	// slots are the latencies that are told apart: from 1 ms, each a quarter longer than the one
	// before, to over two minutes.
	slots = 68
)

// Book keeps the health of endpoints. It is safe for concurrent use.
type Book struct {
	mu      sync.Mutex
	records map[plan.EndpointKey]*record
	// changed: there is something that no file has; fresh: there are endpoints that no file has.
	changed, fresh bool
}

// NewBook makes an empty Book.
func NewBook() *Book { return &Book{records: map[plan.EndpointKey]*record{}} }

// record is what is kept of one endpoint. Its fields are exported for Save.
type record struct {
	Minutes  [minutes]bucket
	Quarters [quarters]bucket
	// Latencies count the attempts of this hour and of the one before by how long they took.
	Latencies   [2][slots]uint32
	Hour        int64
	LastSuccess time.Time
	LastEvent   time.Time
	LastFailure *Failure
}

// bucket counts the attempts of one step of time.
type bucket struct {
	Step         int64
	Attempts, OK uint32
}

// Failure is a failed attempt. Time is wall time.
type Failure struct {
	Time    time.Time
	Status  int
	Reason  string
	Message string
}

// Attempt is an attempt as it ended.
type Attempt struct {
	// At is steady time, Wall what people see.
	At, Wall time.Time
	OK       bool
	Duration time.Duration
	// Failure is of one that is not OK.
	Failure Failure
}

// record is an endpoint's record, to be written into. The lock is held.
func (b *Book) record(k plan.EndpointKey) *record {
	b.changed = true
	r := b.records[k]
	if r == nil {
		r = new(record)
		b.records[k] = r
		b.fresh = true
	}
	return r
}

// Attempted takes note of an attempt.
func (b *Book) Attempted(k plan.EndpointKey, a *Attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.record(k)
	count(r.Minutes[:], a.At.Unix()/60, a.OK)
	count(r.Quarters[:], a.At.Unix()/int64(quarter/time.Second), a.OK)
	r.latency(a.At.Unix()/3600, a.Duration)
	if a.OK {
		r.LastSuccess = a.Wall
		return
	}
	f := a.Failure
	f.Time = a.Wall
	r.LastFailure = &f
}

// Accepted takes note of an event for an endpoint, at wall time.
func (b *Book) Accepted(k plan.EndpointKey, wall time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.record(k).LastEvent = wall
}

// Forget drops an endpoint.
func (b *Book) Forget(k plan.EndpointKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.records[k] != nil {
		b.changed = true
		delete(b.records, k)
	}
}

// Fresh reports whether there are endpoints of which the last file knows nothing at all.
func (b *Book) Fresh() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fresh
}

// count adds to the bucket of a step, which takes the place of an older one.
func count(buckets []bucket, step int64, ok bool) {
	c := &buckets[int(step%int64(len(buckets)))]
	if c.Step > step {
		return // steady time doesn't go back; a record of another clock's
	}
	if c.Step != step {
		*c = bucket{Step: step}
	}
	c.Attempts++
	if ok {
		c.OK++
	}
}

// latency counts a duration in its hour.
func (r *record) latency(hour int64, d time.Duration) {
	switch {
	case hour < r.Hour:
		// It ended before the hour did, and was overtaken on its way here.
		if hour == r.Hour-1 {
			r.Latencies[1][slotOf(d)]++
		}
		return
	case hour == r.Hour+1:
		r.Latencies[1] = r.Latencies[0]
		r.Latencies[0] = [slots]uint32{}
	case hour != r.Hour:
		r.Latencies = [2][slots]uint32{}
	}
	r.Hour = hour
	r.Latencies[0][slotOf(d)]++
}

// slotOf gives the slot of a duration: four for each doubling.
func slotOf(d time.Duration) int {
	ms := uint64(max(d.Milliseconds(), 1)) //nolint:gosec // not negative
	power := bits.Len64(ms) - 1
	within := int((ms<<2)>>power) & 3
	return min(4*power+within, slots-1)
}

// limitOf is the longest duration of a slot.
func limitOf(slot int) time.Duration {
	power, within := slot/4, slot%4
	return time.Duration(float64(uint64(1)<<power)*(1+float64(within+1)/4)) * time.Millisecond
}

// Window is how the attempts of some time went.
type Window struct{ Attempts, OK int }

// Percent is how many of 100 attempts were successes; false without attempts. It is 100
// only if all were.
func (w Window) Percent() (int, bool) {
	if w.Attempts == 0 {
		return 0, false
	}
	return int(math.Floor(100 * float64(w.OK) / float64(w.Attempts))), true
}

// below reports whether fewer than percent of the attempts were successes.
func (w Window) below(percent int) bool { return w.Attempts > 0 && w.OK*100 < percent*w.Attempts }

// View is an endpoint's health at a time.
type View struct {
	FiveMinutes, Hour, Day Window
	// P50 and P95 are of this hour and the one before; 0 without attempts.
	P50, P95 time.Duration
	// LastSuccess, LastEvent and LastFailure are wall time; zero and nil: none is known.
	LastSuccess, LastEvent time.Time
	LastFailure            *Failure
}

// View gives an endpoint's health at a steady time.
func (b *Book) View(k plan.EndpointKey, now time.Time) View {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.records[k]
	if r == nil {
		return View{}
	}
	minute, quarterNow := now.Unix()/60, now.Unix()/int64(quarter/time.Second)
	v := View{
		FiveMinutes: sum(r.Minutes[:], minute-5, minute), Hour: sum(r.Minutes[:], minute-60, minute), Day: sum(r.Quarters[:], quarterNow-quarters, quarterNow),
		LastSuccess: r.LastSuccess, LastEvent: r.LastEvent,
	}
	if f := r.LastFailure; f != nil {
		copied := *f
		v.LastFailure = &copied
	}
	v.P50, v.P95 = r.quantiles(now.Unix() / 3600)
	return v
}

// sum adds the buckets after one step, up to and with another.
func sum(buckets []bucket, after, last int64) (w Window) {
	for i := range buckets {
		if c := &buckets[i]; c.Step > after && c.Step <= last {
			w.Attempts += int(c.Attempts)
			w.OK += int(c.OK)
		}
	}
	return w
}

func (r *record) quantiles(hour int64) (p50, p95 time.Duration) {
	if hour > r.Hour+1 {
		return 0, 0
	}
	var all [slots]uint64
	var total uint64
	for _, of := range r.Latencies {
		for i, n := range of {
			all[i] += uint64(n)
			total += uint64(n)
		}
	}
	if total == 0 {
		return 0, 0
	}
	at := func(share float64) time.Duration {
		want, seen := uint64(math.Ceil(share*float64(total))), uint64(0)
		for i, n := range all {
			if seen += n; seen >= want {
				return limitOf(i)
			}
		}
		return limitOf(slots - 1)
	}
	return at(0.5), at(0.95)
}

// Score is 0 to 100: 0.5 of the success of 5 minutes, 0.3 of an hour, 0.2 of a day, over
// those that have attempts; false if none has (DESIGN.md §7).
func (v *View) Score() (float64, bool) {
	var score, weights float64
	for _, part := range []struct {
		weight float64
		Window
	}{{0.5, v.FiveMinutes}, {0.3, v.Hour}, {0.2, v.Day}} {
		if part.Attempts > 0 {
			score += part.weight * 100 * float64(part.OK) / float64(part.Attempts)
			weights += part.weight
		}
	}
	if weights == 0 {
		return 0, false
	}
	return score / weights, true
}

// Healthy says whether the receiver answers as it should.
type Healthy uint8

// What Healthy may be.
const (
	Unknown  Healthy = iota // no attempt in 24 hours
	Good                    // at least degradedBelowPercent over 5 minutes or over an hour
	Degraded                // below it over both
)

// Healthy decides by degradedBelowPercent. One that was Degraded is Good again only above
// it by recoverBy over the 5 minutes, so that an endpoint at the threshold stays what it is.
func (v *View) Healthy(before Healthy, degradedBelowPercent int) Healthy {
	if v.Day.Attempts == 0 && v.Hour.Attempts == 0 {
		return Unknown
	}
	recent := v.FiveMinutes
	if recent.Attempts == 0 {
		recent = v.Hour // quiet for five minutes: what was last known
	}
	if recent.Attempts == 0 {
		recent = v.Day
	}
	if before == Degraded {
		if recent.below(min(degradedBelowPercent+recoverBy, 100)) {
			return Degraded
		}
		return Good
	}
	if recent.below(degradedBelowPercent) && (v.Hour.Attempts == 0 || v.Hour.below(degradedBelowPercent)) {
		return Degraded
	}
	return Good
}

// recoverBy is how many percent above the threshold an endpoint counts as recovered.
const recoverBy = 3
