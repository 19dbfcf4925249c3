package dispatch

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/doorstep-dev/doorstep/internal/plan"
)

// pace keeps a lane to its endpoint's rate limit: over any time t at most
// burst + requests·t attempts begin. What waits for its turn has not failed. The zero
// pace has no limit.
type pace struct{ limiter *rate.Limiter }

// set takes a new limit. spent is for a lane that an earlier process had: how much of
// the burst that one used isn't known, so that none of it is given again.
func (p *pace) set(l *plan.RateLimit, spent bool, now time.Time) {
	if l == nil {
		p.limiter = nil
		return
	}
	perSecond := rate.Limit(float64(l.Requests) / l.Interval.Seconds())
	if p.limiter != nil {
		p.limiter.SetLimitAt(now, perSecond)
		p.limiter.SetBurstAt(now, l.Burst)
		return
	}
	p.limiter = rate.NewLimiter(perSecond, l.Burst)
	if spent {
		p.limiter.AllowN(now, l.Burst)
	}
}

// wait is how long the next attempt has to wait, 0 for not at all.
func (p *pace) wait(now time.Time) time.Duration {
	if p.limiter == nil {
		return 0
	}
	missing := 1 - p.limiter.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	// Rounded up: a wait that ends too early would be waited for again.
	return time.Duration(missing/float64(p.limiter.Limit())*float64(time.Second)) + time.Nanosecond
}

// spend counts an attempt.
func (p *pace) spend(now time.Time) {
	if p.limiter != nil {
		p.limiter.AllowN(now, 1)
	}
}
