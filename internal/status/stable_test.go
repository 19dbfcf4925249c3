package status

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/doorstep-dev/doorstep/internal/dispatch"
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
			if part := s.w.poolPart(s.plan, false); !equality.Semantic.DeepEqual(part, pool) {
				t.Fatalf("the pool's part is %+v after it was written as %+v", part, pool)
			}
			time.Sleep(time.Second) // virtual
		}
	})
}
