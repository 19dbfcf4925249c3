package status

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/dispatch"
	"github.com/doorstep-dev/doorstep/internal/health"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// case CS173: looked at a hundred times while time goes by and nothing else does, the parts that the worker writes are the
// same each time, in the order in which they are read back. What is counted over all endpoints does not depend on the order
// in which they come.
func TestPartsAreStable(t *testing.T) {
	in(t, 50, func(s *scene) {
		s.change(func() {
			for i := range 50 {
				s.counts[key(i)] = queue.Counts{Pending: i, Retrying: 2, DeadLettered: 1}
				s.views[key(i)] = dispatch.View{State: []dispatch.State{dispatch.Active, dispatch.Disabled, dispatch.Suspended}[i%3], Message: "why"}
			}
		})
		s.during(5 * time.Minute)
		shown, pool := s.shown(7), s.w.pool.shown
		if len(shown.Conditions) != 2 || *pool.Queue.Waiting != 1300 || *pool.Queue.DeadLettered != 50 {
			t.Fatalf("shown is %+v, and of the pool %+v", shown, pool.Queue)
		}
		s.stop()
		defer s.start()
		for range 100 {
			now := s.w.Clock.Now()
			e := find(s.plan, plan.EndpointKey{Namespace: "shop", Name: key(7).Name})
			if part := s.w.sight(t.Context(), e, s.w.states[e.EndpointKey], now).part(shown.Conditions); !equality.Semantic.DeepEqual(part, *shown) {
				t.Fatalf("the endpoint's part is %+v after it was written as %+v", part, *shown)
			}
			if part := s.w.poolPart(t.Context(), s.plan, false, now); !equality.Semantic.DeepEqual(part, pool) {
				t.Fatalf("the pool's part is %+v after it was written as %+v", part, pool)
			}
			time.Sleep(time.Second) // virtual
		}
	})
}

// The pool's OLDEST is that of the endpoint with the oldest, held ones among them, and goes away with it.
func TestThePoolsOldestIsThatOfItsEndpoints(t *testing.T) {
	in(t, 3, func(s *scene) {
		start := s.w.Clock.Now()
		s.change(func() {
			for i := range 2 {
				s.counts[key(i)] = queue.Counts{Pending: 1}
				s.fresh[key(i)] = start.Add(time.Duration(i) * time.Second)
			}
			s.views[key(0)] = dispatch.View{State: dispatch.Suspended}
		})
		oldest := func() time.Time {
			s.during(2 * time.Minute)
			var pool v1alpha1.DeliveryPool
			if err := s.w.Client.Get(t.Context(), s.w.Pool, &pool); err != nil {
				t.Fatal(err)
			}
			if pool.Status.Queue == nil || pool.Status.Queue.OldestDueTime == nil {
				return time.Time{}
			}
			return pool.Status.Queue.OldestDueTime.Time
		}
		if got, want := oldest(), s.shown(0).Deliveries.OldestDueTime; want == nil || !got.Equal(want.Time) {
			t.Errorf("the pool's oldest is %v, that of the endpoint %v", got, want)
		}
		s.change(func() { delete(s.counts, key(0)); delete(s.fresh, key(0)) })
		if got, want := oldest(), s.shown(1).Deliveries.OldestDueTime; want == nil || !got.Equal(want.Time) {
			t.Errorf("once that is delivered the pool's oldest is %v, that of the other endpoint %v", got, want)
		}
		s.change(func() { delete(s.counts, key(1)); delete(s.fresh, key(1)) })
		if got := oldest(); !got.IsZero() {
			t.Errorf("once nothing waits the pool's oldest is %v", got)
		}
	})
}

// What Healthy says of a receiver that fails names its answer, and promises no retry of what is refused.
func TestDegradedNamesTheAnswer(t *testing.T) {
	s := &sight{healthy: health.Degraded, health: health.View{LastFailure: &health.Failure{Reason: "client_error", Status: 422, Message: "the receiver answered 422"}}}
	want := "Too many attempts fail, over 5 minutes and over an hour; at the last failure, the receiver answered 422. " +
		"See to the receiver; what fails is tried again, or kept as a dead letter that can be replayed, as the retry policy says"
	if got := s.healthiness().message; got != want {
		t.Errorf("Healthy says %q, want %q", got, want)
	}
}
