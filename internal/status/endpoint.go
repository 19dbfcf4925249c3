package status

import (
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/dispatch"
	"github.com/doorstep-dev/doorstep/internal/health"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/ssa"
)

// degradedBelowPercent is what Healthy is measured by.
const degradedBelowPercent = 95

// sight is what is to be seen of an endpoint at a time.
type sight struct {
	generation int64
	lane       dispatch.View
	counts     queue.Counts
	health     health.View
	healthy    health.Healthy
	// oldestDue and heldUntil are wall time; zero for none.
	oldestDue, heldUntil time.Time
	now                  time.Time
}

// part is the worker's part of an endpoint's status.
func (s *sight) part(before []metav1.Condition) v1alpha1.WebhookEndpointStatus {
	return v1alpha1.WebhookEndpointStatus{
		Conditions: []metav1.Condition{
			s.condition(before, v1alpha1.ConditionDelivering, s.delivering()),
			s.condition(before, v1alpha1.ConditionHealthy, s.healthiness()),
		},
		Health:     s.endpointHealth(),
		Deliveries: s.deliveries(),
	}
}

type verdict struct {
	status          metav1.ConditionStatus
	reason, message string
}

// delivering says what the lane does. It is True while deliveries are attempted as they
// fall due.
func (s *sight) delivering() verdict {
	switch l := &s.lane; l.State {
	case dispatch.Active:
		return verdict{metav1.ConditionTrue, v1alpha1.ReasonActive, "Deliveries are attempted as they fall due"}
	case dispatch.Draining:
		return verdict{metav1.ConditionTrue, v1alpha1.ReasonDraining, "The receiver is back: waiting deliveries are brought forward, a few at first"}
	case dispatch.BackingOff:
		reason := v1alpha1.ReasonBackingOff
		switch l.Reason {
		case dispatch.ReasonRejecting:
			reason = v1alpha1.ReasonRejecting
		case dispatch.ReasonAuthFailed:
			reason = v1alpha1.ReasonAuthFailed
		}
		return verdict{metav1.ConditionFalse, reason, sentence(l.Message) + "; events are kept and delivered when the receiver is back"}
	case dispatch.Disabled:
		return verdict{metav1.ConditionFalse, v1alpha1.ReasonDisabled, sentence(l.Message)}
	case dispatch.Suspended:
		return verdict{metav1.ConditionFalse, v1alpha1.ReasonSuspended, sentence(l.Message)}
	case dispatch.Missing:
		return verdict{metav1.ConditionFalse, v1alpha1.ReasonEndpointMissing, sentence(l.Message)}
	case dispatch.NotInPlan:
		return verdict{metav1.ConditionFalse, v1alpha1.ReasonNotInPlan, sentence(l.Message)}
	default:
		return verdict{metav1.ConditionFalse, v1alpha1.ReasonUnresolved, "The endpoint can't be used as it is, which Ready explains; events are held"}
	}
}

// healthiness says what the receiver answers.
func (s *sight) healthiness() verdict {
	if s.lane.State == dispatch.BackingOff && s.lane.Reason == dispatch.ReasonAuthFailed {
		return verdict{metav1.ConditionFalse, v1alpha1.ReasonAuthFailed, sentence(s.lane.Message)}
	}
	switch s.healthy {
	case health.Good:
		return verdict{metav1.ConditionTrue, v1alpha1.ReasonSucceeding, "The receiver takes what it is sent"}
	case health.Degraded:
		message := "Too many attempts fail, over 5 minutes and over an hour"
		if f := s.health.LastFailure; f != nil && f.Message != "" {
			message += "; at the last failure, " + f.Message
		}
		return verdict{metav1.ConditionFalse, v1alpha1.ReasonDegraded, message + ". See to the receiver; what fails is tried again, or kept as a dead letter that can be replayed, as the retry policy says"}
	default:
		return verdict{metav1.ConditionUnknown, v1alpha1.ReasonNoAttempts, "No attempt is known of within 24 hours"}
	}
}

func (s *sight) condition(before []metav1.Condition, kind string, v verdict) metav1.Condition {
	return ssa.Condition(before, metav1.Condition{Type: kind, Status: v.status, Reason: v.reason, Message: v.message, ObservedGeneration: s.generation}, s.now)
}

func (s *sight) endpointHealth() *v1alpha1.EndpointHealth {
	h := &v1alpha1.EndpointHealth{
		LastSuccessTime: timeOf(s.health.LastSuccess),
		LastEventTime:   timeOf(s.health.LastEvent),
		LimitedBy:       s.lane.LimitedBy,
		P50:             durationOf(s.health.P50),
		P95:             durationOf(s.health.P95),
	}
	if score, ok := s.health.Score(); ok {
		h.Score = pointer(int32(5 * math.Floor(score/5)))
	}
	percent := v1alpha1.SuccessPercent{FiveMinutes: percentOf(s.health.FiveMinutes), OneHour: percentOf(s.health.Hour), OneDay: percentOf(s.health.Day)}
	if percent != (v1alpha1.SuccessPercent{}) {
		h.SuccessPercent = &percent
	}
	if n := s.health.Hour.Attempts; n > 0 {
		h.Attempts = rounded(n)
	}
	if f := s.health.LastFailure; f != nil {
		h.LastFailure = &v1alpha1.AttemptFailure{Time: timeOf(f.Time), Reason: f.Reason, Message: sentence(f.Message)}
		if f.Status != 0 {
			h.LastFailure.StatusCode = pointer(int32(f.Status)) //nolint:gosec // three digits
		}
	}
	if *h == (v1alpha1.EndpointHealth{}) {
		return nil
	}
	return h
}

func (s *sight) deliveries() *v1alpha1.EndpointDeliveries {
	d := &v1alpha1.EndpointDeliveries{
		Waiting: rounded(s.counts.Waiting()), Retrying: rounded(s.counts.Retrying), InFlight: rounded(s.lane.InFlight),
		Held: rounded(0), DeadLettered: rounded(s.counts.DeadLettered), OldestDueTime: timeOf(s.oldestDue),
	}
	if s.lane.State.Held() {
		d.Held, d.HeldUntil = d.Waiting, timeOf(s.heldUntil)
	}
	return d
}

// rounded is a number, exact up to 100 and then to two digits.
func rounded(n int) *int64 {
	step := int64(1)
	for v := int64(n); v >= 100; v /= 10 {
		step *= 10
	}
	return pointer(int64(n) / step * step)
}

func percentOf(w health.Window) *int32 {
	if p, ok := w.Percent(); ok {
		return pointer(int32(p)) //nolint:gosec // at most 100
	}
	return nil
}

func timeOf(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	out := metav1.NewTime(t).Rfc3339Copy()
	return &out
}

func durationOf(d time.Duration) v1alpha1.Duration {
	if d == 0 {
		return ""
	}
	if d >= time.Second {
		d = d.Round(100 * time.Millisecond)
	}
	return v1alpha1.Duration(milliseconds(d))
}

// milliseconds writes a duration as whole milliseconds or seconds, as the API has them.
func milliseconds(d time.Duration) string {
	if d%time.Second == 0 {
		return d.String()
	}
	return itoa(d.Milliseconds()) + "ms"
}

func pointer[T any](v T) *T { return &v }
