package status

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

// timeInterval is how far the time of the last success, failure or event may be behind
// while nothing else changes: a write at each attempt would be one for nothing.
const timeInterval = 5 * time.Minute

// differs reports whether a status is worth a write over the one that is shown. A write
// for any reason brings all times up to date.
func differs(want, shown *v1alpha1.WebhookEndpointStatus) bool {
	if want.Health == nil || shown.Health == nil {
		return !equality.Semantic.DeepEqual(want, shown)
	}
	w, h := *want, *want.Health
	w.Health = &h
	h.LastSuccessTime = settled(h.LastSuccessTime, shown.Health.LastSuccessTime)
	h.LastEventTime = settled(h.LastEventTime, shown.Health.LastEventTime)
	// The hour's first minute leaves it at once, and its last comes one by one: with the same
	// traffic the number goes up and down by a sixtieth.
	if n, m := h.Attempts, shown.Health.Attempts; n != nil && m != nil && max(*n-*m, *m-*n)*20 <= *m {
		h.Attempts = m
	}
	if f, g := h.LastFailure, shown.Health.LastFailure; f != nil && g != nil {
		copied := *f
		copied.Time = settled(f.Time, g.Time)
		h.LastFailure = &copied
	}
	return !equality.Semantic.DeepEqual(&w, shown)
}

// settled is the time that is shown, if the present one is only a little later.
func settled(t, shown *metav1.Time) *metav1.Time {
	if t == nil || shown == nil {
		return t
	}
	if ahead := t.Sub(shown.Time); ahead >= 0 && ahead < timeInterval {
		return shown
	}
	return t
}
