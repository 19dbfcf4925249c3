package retry

import (
	"math"
	"time"
)

// minDelay keeps Full jitter, which may draw almost nothing, from making a hot loop.
const minDelay = time.Millisecond

// MaxAttempts is how many attempts a delivery gets in all, the first included.
func (p *Policy) MaxAttempts() int {
	if e := p.Backoff.Exponential; e != nil {
		return max(e.MaxAttempts, 1)
	}
	return len(p.Backoff.Schedule) + 1
}

// Delay is how long to wait after the nth failed attempt, n ≥ 1, by backoff and
// jitter alone; u in [0,1) is the random part. It is at least 1 ms, never
// overflows, and for equal u never shrinks as an exponential backoff goes on.
// Attempts beyond the last step use the last step. Formulas: DESIGN.md §4.
func (p *Policy) Delay(attempt int, u float64) time.Duration {
	if !(u > 0) { // NaN too
		u = 0
	}
	u = min(u, 1)
	b := p.step(attempt)
	var d time.Duration
	switch p.Jitter.Type {
	case JitterProportional:
		d = add(b, scale(b, u*float64(p.Jitter.Percent)/100))
	case JitterEqual:
		d = b/2 + scale(b-b/2, u)
	case JitterFull:
		d = scale(b, u)
	default:
		d = b
	}
	return max(d, minDelay)
}

// step is the backoff without jitter after the nth failed attempt.
func (p *Policy) step(attempt int) time.Duration {
	n := max(attempt, 1) - 1
	e := p.Backoff.Exponential
	if e == nil {
		if len(p.Backoff.Schedule) == 0 {
			return 0
		}
		return p.Backoff.Schedule[min(n, len(p.Backoff.Schedule)-1)]
	}
	// Multiplying step by step, and stopping at the cap, neither overflows nor, as
	// math.Pow may in its last bit, shrinks from one step to the next.
	b, limit := float64(e.Initial), float64(e.Max)
	for range min(n, maxAttempts) {
		if b *= e.Factor; !(b < limit) {
			return e.Max
		}
	}
	return min(time.Duration(b), e.Max)
}

// Steps gives the delays after the 1st, 2nd … failure, without jitter.
func (p *Policy) Steps() []time.Duration {
	out := make([]time.Duration, 0, max(p.MaxAttempts()-1, 0))
	for attempt := 1; attempt < p.MaxAttempts(); attempt++ {
		out = append(out, p.step(attempt))
	}
	return out
}

// Span is the time from a delivery's first attempt to its last, by backoff alone,
// cut to MaxAge. The attempts' own durations, jitter and Retry-After come on top.
func (p *Policy) Span() time.Duration {
	var sum time.Duration
	for n := 1; n < p.MaxAttempts() && sum < p.MaxAge; n++ {
		sum = add(sum, p.step(n))
	}
	return min(sum, p.MaxAge)
}

// Wait is how long to wait after the nth failed attempt with what its answer
// asks for: the longer of Delay and Retry-After, the latter cut to the policy's
// maximum and read on 408, 425, 429 and 5xx only. asked is that Retry-After, or 0;
// after 429 and 503 a lane pauses by it. status is 0 where no answer came.
func (p *Policy) Wait(attempt int, u float64, status int, retryAfter []string, now time.Time) (delay, asked time.Duration) {
	if p.RetryAfter.Honor && readsRetryAfter(status) {
		if d, ok := ParseRetryAfter(retryAfter, now); ok {
			asked = max(min(d, p.RetryAfter.Max), 0)
		}
	}
	return max(p.Delay(attempt, u), asked), asked
}

// Next says when a delivery that just failed is tried again. budgetUsed counts
// the attempts since it was last queued, this one included; delay is what Wait
// gave. A retry that would come after maxAge is made once, at maxAge. A reason
// ("OutOfAttempts" or "Expired") means that there is no next time. All times are
// steady time.
func (p *Policy) Next(failedAt, queuedAt time.Time, budgetUsed int, delay time.Duration) (due time.Time, wait time.Duration, deadLetter string) {
	if budgetUsed >= p.MaxAttempts() {
		return time.Time{}, 0, ReasonOutOfAttempts
	}
	end := queuedAt.Add(p.MaxAge)
	if !failedAt.Before(end) {
		return time.Time{}, 0, ReasonExpired
	}
	wait = min(max(delay, minDelay), end.Sub(failedAt))
	return failedAt.Add(wait), wait, ""
}

// add is a+b for durations that aren't negative, at most the longest Duration.
func add(a, b time.Duration) time.Duration {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}

// scale is d·f for f in [0,1], never more than d: a float holds a Duration only
// to the nearest 2⁵³rd.
func scale(d time.Duration, f float64) time.Duration {
	if f >= 1 {
		return d
	}
	v := float64(d) * f
	if v >= float64(d) {
		return d
	}
	return time.Duration(v)
}
