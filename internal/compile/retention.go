package compile

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// leastMaxBytes is what a store needs to work at all: pebble's log and memtables, and
// something to keep.
const leastMaxBytes = 64 << 20

// retention fills in how long and how much is kept.
func (f poolFields) retention(r v1alpha1.Retention) plan.Retention {
	return plan.Retention{
		Delivered:     f.duration("spec.retention.delivered", r.Delivered, v1alpha1.DefaultRetainDelivered),
		DeadLetters:   f.duration("spec.retention.deadLetters", r.DeadLetters, v1alpha1.DefaultRetainDeadLetters),
		MaxBytes:      f.maxBytes(r.MaxBytes),
		DropPayloads:  oneOf(f, "spec.retention.payloads", r.Payloads, v1alpha1.DefaultPayloadRetention, v1alpha1.PayloadsUntilDelivered) == v1alpha1.PayloadsUntilDelivered,
		DropResponses: oneOf(f, "spec.retention.responseBodies", r.ResponseBodies, v1alpha1.DefaultResponseBodyRetention, v1alpha1.ResponseBodiesNever) == v1alpha1.ResponseBodiesNever,
	}
}

// maxBytes is 0, the share of the volume, where the field is unset or can't be used.
func (f poolFields) maxBytes(q *resource.Quantity) int64 {
	if q == nil {
		return 0
	}
	if q.CmpInt64(leastMaxBytes) < 0 {
		f.bad("spec.retention.maxBytes", fmt.Sprintf("maxBytes must be at least 64Mi; until then %d percent of the volume hold", v1alpha1.DefaultMaxBytesPercent))
		return 0
	}
	if q.CmpInt64(math.MaxInt64) >= 0 {
		return math.MaxInt64
	}
	return q.Value()
}

// oneOf gives a field that is one of two words, of which unset is the one that holds where
// it is empty.
func oneOf[T ~string](f poolFields, field string, v, unset, other T) T {
	switch v {
	case unset, other:
		return v
	case "":
		return unset
	}
	f.bad(field, fmt.Sprintf("%s must be %s or %s; until then %s holds", lastName(field), unset, other, unset))
	return unset
}
