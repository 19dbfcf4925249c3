package compile

import (
	"fmt"
	"time"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// Bounds of rateLimit, as the CRD has them.
const (
	maxRate         = 1_000_000
	minRateInterval = 100 * time.Millisecond
	maxRateInterval = 24 * time.Hour
)

// rateLimit is nil for none. One that can't be used holds the endpoint: to send without
// the limit that was asked for may take the receiver down.
func (r *resolver) rateLimit() *plan.RateLimit {
	in := r.object.Spec.RateLimit
	if in == nil {
		return nil
	}
	interval, err := in.Interval.ParseOr(v1alpha1.DefaultRateInterval)
	if err == nil && (interval < minRateInterval || interval > maxRateInterval) {
		err = fmt.Errorf("interval must be from 100ms to 24h")
	}
	if err != nil {
		r.fault("spec.rateLimit.interval", v1alpha1.ReasonSpecInvalid, "%s", err)
		return nil
	}
	requests, ok := r.number("spec.rateLimit.requests", in.Requests, maxRate)
	if !ok {
		return nil
	}
	burst := requests
	if in.Burst != nil {
		if burst, ok = r.number("spec.rateLimit.burst", in.Burst, maxRate); !ok {
			return nil
		}
	}
	return &plan.RateLimit{Requests: requests, Interval: interval, Burst: burst}
}

// number checks that a number is from 1 to most.
func (r *resolver) number(field string, n *int32, most int32) (int, bool) {
	if n == nil || *n < 1 || *n > most {
		r.fault(field, v1alpha1.ReasonSpecInvalid, "%s must be from 1 to %d", lastName(field), most)
		return 0, false
	}
	return int(*n), true
}

// ordering is one of the plan's constants; empty is none.
func (r *resolver) ordering() string {
	switch r.object.Spec.Ordering {
	case "", v1alpha1.OrderingNone:
		return ""
	case v1alpha1.OrderingPerKey:
		return plan.OrderingPerKey
	case v1alpha1.OrderingAll:
		return plan.OrderingAll
	}
	r.fault("spec.ordering", v1alpha1.ReasonSpecInvalid, "ordering must be None, PerKey or All")
	return ""
}
