package dispatch

import (
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/deliver"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// A namespace that is made anew inherits nothing: neither what waited in the former one, nor
// what was under way there, whose receiver's answer decides nothing any more.
func TestANamespaceMadeAnew(t *testing.T) {
	for _, row := range []struct {
		name, ordering string
		code           int
		// when, of attempts of ten seconds each, it is made anew.
		when time.Duration
	}{
		{"attempts under way that disable", "", 410, 5 * time.Second},
		{"attempts under way that fail", "", 500, 5 * time.Second},
		{"attempts under way that fail, in order", plan.OrderingAll, 500, 5 * time.Second},
		{"a lane that is disabled", "", 410, 15 * time.Second},
		{"a lane that backs off", "", 500, time.Minute},
		{"a lane that backs off, in order", plan.OrderingAll, 500, time.Minute},
	} {
		t.Run(row.name, func(t *testing.T) {
			slow := func(h hit) deliver.Result {
				if h.host == "anew.example.com" {
					return status(204)
				}
				time.Sleep(10 * time.Second)
				return status(row.code)
			}
			inWorld(t, slow, func(w *world) {
				w.endpoint().Ordering = row.ordering
				w.apply()
				w.naming("u1", queue.SameNamespace)
				w.send(300)
				w.after(row.when)

				w.d.Forget("default")
				w.naming("u2", queue.NewNamespace)
				w.d.Forget("default")
				w.forget()
				w.send(2) // by the plan of before
				w.plan.Endpoints[0] = endpointNamed("orders")
				w.endpoint().URL, w.endpoint().Hash, w.endpoint().FirstSeen = "https://anew.example.com/", "2", time.Now()
				w.apply()
				if v, ok := w.d.View(w.key()); !ok || v.State != Active && v.State != Draining || v.LastFailure != nil {
					t.Errorf("the new lane is %+v", v)
				}
				w.send(3)
				w.after(time.Minute)
				w.want(0, 5, 0)
				if s := w.state(); s != Active {
					t.Errorf("the lane is %s", s)
				}
				if l := w.store.Lane(w.key()); l.Disabled || l.BackingOff {
					t.Errorf("the answer to the former endpoint is remembered: %+v", l)
				}
				if _, err := w.store.Prune(w.t.Context(), queue.Retention{}); err != nil {
					t.Fatal(err)
				}
				w.restart()
				w.after(time.Hour)
				w.want(0, 5, 0)
				for _, h := range w.seen() {
					if h.host != "anew.example.com" {
						t.Fatalf("%s was sent to the former endpoint", h.id)
					}
				}
				if n := len(w.seen()); n != 5 {
					t.Errorf("%d attempts of 5 events", n)
				}
			})
		})
	}
}

func (w *world) naming(uid string, want queue.Naming) {
	w.t.Helper()
	if got, err := w.store.Namespace(w.t.Context(), "default", uid); err != nil || got != want {
		w.t.Fatalf("uid %s is %d to the store, %v; want %d", uid, got, err, want)
	}
}
