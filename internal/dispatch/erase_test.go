package dispatch

import (
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/deliver"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// What is erased while it waits is not sent any more, whether a lane has it in memory with
// its payload, as a retry, or only the store has it.
func TestErasedEventsAreNotSent(t *testing.T) {
	for _, c := range []struct {
		name     string
		ordering string
		failing  bool
	}{{"new ones", "", false}, {"retries", "", true}, {"in order", plan.OrderingAll, false}, {"retries in order", plan.OrderingAll, true}} {
		t.Run(c.name, func(t *testing.T) {
			code := 500
			inWorld(t, func(hit) deliver.Result { return status(code) }, func(w *world) {
				w.endpoint().Ordering, w.endpoint().Suspend = c.ordering, !c.failing
				w.apply()
				w.send(300) // more than a window
				w.after(time.Minute)
				w.endpoint().Suspend = true
				w.apply()
				w.after(time.Minute)
				w.forget()
				for _, seq := range []queue.Seq{1, 2, 100, 300} {
					if done, err := w.store.Erase(t.Context(), seq); err != nil || done.DeadLettered != 1 {
						t.Fatalf("%d: %+v, %v", seq, done, err)
					}
				}
				code = 200
				w.endpoint().Suspend = false
				w.apply()
				w.after(48 * time.Hour)
				w.want(0, 296, 4)
				if n := len(w.seen()); n != 296 {
					t.Errorf("%d attempts of 296 events", n)
				}
			})
		})
	}
}
