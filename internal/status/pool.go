package status

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	apply "github.com/doorstep-dev/doorstep/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/ssa"
)

// Of a volume, this many percent used are too many, and this many are few enough again.
const (
	pressureFrom  = 80
	pressureUntil = 75
)

// poolState is what the Writer knows of its pool.
type poolState struct {
	looked, pressure bool
	shown            v1alpha1.DeliveryPoolStatus
	written          time.Time
}

// poolStatus writes the pool's status if it differs and is urgent or was last written a
// while ago, and reports whether it made a call.
func (w *Writer) poolStatus(ctx context.Context, p *plan.Plan, now time.Time) (bool, error) {
	s := &w.pool
	pressure := w.pressure()
	if s.looked && pressure == s.pressure && now.Sub(s.written) < restInterval {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if !s.looked {
		var o v1alpha1.DeliveryPool
		if err := w.Client.Get(ctx, w.Pool, &o); err != nil {
			s.written = now
			if apierrors.IsNotFound(err) {
				return true, nil
			}
			return true, fmt.Errorf("read DeliveryPool %s: %w", w.Pool, err)
		}
		s.looked = true
		s.shown = v1alpha1.DeliveryPoolStatus{Store: o.Status.Store, Queue: o.Status.Queue}
		for i := range o.Status.Conditions {
			if c := o.Status.Conditions[i]; c.Type == v1alpha1.ConditionStorePressure {
				s.shown.Conditions = []metav1.Condition{c}
			}
		}
	}
	want := w.poolPart(ctx, p, pressure, now)
	s.written, s.pressure = now, pressure
	if equality.Semantic.DeepEqual(want, s.shown) {
		return false, nil
	}
	a := apply.DeliveryPool(w.Pool.Name, w.Pool.Namespace).WithStatus(ssa.Configuration[apply.DeliveryPoolStatusApplyConfiguration](&want))
	if err := w.Client.Status().Apply(ctx, a, client.FieldOwner(v1alpha1.FieldOwnerWorker), client.ForceOwnership); err != nil {
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return true, fmt.Errorf("write the status of DeliveryPool %s: %w", w.Pool, err)
	}
	s.shown = want
	return true, nil
}

// pressure reports whether the volume has little room left; one that is at the threshold
// stays what it is.
func (w *Writer) pressure() bool {
	u := w.Queue.Usage()
	if u.CapacityBytes <= 0 {
		return false
	}
	percent := u.UsedBytes * 100 / u.CapacityBytes
	return percent >= pressureFrom || w.pool.pressure && percent >= pressureUntil
}

// poolPart is the worker's part of the pool's status.
func (w *Writer) poolPart(ctx context.Context, p *plan.Plan, pressure bool, now time.Time) v1alpha1.DeliveryPoolStatus {
	sight := sight{generation: 0, now: w.Clock.Wall()}
	v := verdict{metav1.ConditionFalse, v1alpha1.ReasonEnoughSpace, "The volume has room"}
	if pressure {
		v = verdict{metav1.ConditionTrue, v1alpha1.ReasonLowSpace,
			"The volume is nearly full; when free space comes under its reserve, events are answered 503 and deliveries go on: raise store.embedded.size, lower retention, or see to the endpoints with most waiting"}
	}
	c := sight.condition(w.pool.shown.Conditions, v1alpha1.ConditionStorePressure, v)
	out := v1alpha1.DeliveryPoolStatus{Conditions: []metav1.Condition{c}, Queue: w.queue(ctx, p, now)}
	u := w.Queue.Usage()
	out.Store = &v1alpha1.StoreStatus{UsedBytes: rounded(int(u.UsedBytes)), CapacityBytes: rounded(int(u.CapacityBytes))}
	if u.CapacityBytes > 0 {
		out.Store.UsedPercent = pointer(int32(u.UsedBytes * 100 / u.CapacityBytes)) //nolint:gosec // a percentage
	}
	return out
}

// queue counts over all endpoints of the plan.
func (w *Writer) queue(ctx context.Context, p *plan.Plan, now time.Time) *v1alpha1.QueueStatus {
	var waiting, retrying, held, dead int
	var oldest time.Time
	for e := range p.Known() {
		c := w.Queue.Counts(e.EndpointKey)
		waiting += c.Waiting()
		retrying += c.Retrying
		dead += c.DeadLettered
		if v, ok := w.Lanes.View(e.EndpointKey); ok && v.State.Held() {
			held += c.Waiting()
		}
		if c.Waiting() == 0 {
			continue
		}
		if at := w.oldestDue(ctx, e.EndpointKey, now); !at.IsZero() && (oldest.IsZero() || at.Before(oldest)) {
			oldest = at
		}
	}
	if !oldest.IsZero() {
		oldest = w.walls(now)(oldest)
	}
	return &v1alpha1.QueueStatus{
		Waiting: rounded(waiting), Retrying: rounded(retrying), Held: rounded(held), DeadLettered: rounded(dead), OldestDueTime: timeOf(oldest),
	}
}
