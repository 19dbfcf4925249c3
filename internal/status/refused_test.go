package status

import (
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/dispatch"
	"github.com/doorstep-dev/doorstep/internal/health"
)

var backingOff = dispatch.View{State: dispatch.BackingOff, Reason: dispatch.ReasonFailing, Message: "the receiver fails"}

// attempt takes a success down.
func (s *scene) attempt(i int) {
	s.w.Health.Attempted(key(i), &health.Attempt{At: s.w.Clock.Now(), Wall: s.w.Clock.Wall(), OK: true, Duration: 20 * time.Millisecond})
}

// One endpoint whose status is refused, for a right or a rule, keeps no other one waiting.
func TestARefusedEndpointKeepsNoOtherWaiting(t *testing.T) {
	in(t, 20, func(s *scene) {
		s.during(time.Minute)
		s.change(func() { s.refused, s.views[key(3)] = key(3).Name, backingOff })
		others := 0
		for range 60 {
			s.attempt(7)
			others += s.during(10 * time.Second)
		}
		if others < 10 {
			t.Errorf("a busy endpoint was written %d times in 10 minutes", others)
		}
		s.change(func() {
			if s.tried < 2 || s.tried > 20 {
				t.Errorf("the refused one was tried %d times in 10 minutes", s.tried)
			}
			s.views[key(8)] = backingOff
		})
		s.during(2 * time.Second)
		if got := s.reason(8, v1alpha1.ConditionDelivering); got != v1alpha1.ReasonBackingOff {
			t.Errorf("2 s after a transition another one shows %s", got)
		}
		s.change(func() { s.refused = "" })
		s.during(maxRefused + time.Second)
		if got := s.reason(3, v1alpha1.ConditionDelivering); got != v1alpha1.ReasonBackingOff {
			t.Errorf("the right is back, and %s shows", got)
		}
	})
}

// A transition soon after a restart doesn't wait until all endpoints were looked at.
func TestATransitionSoonAfterTheStart(t *testing.T) {
	in(t, 500, func(s *scene) {
		s.during(2 * time.Second)
		s.change(func() { s.views[key(400)] = backingOff })
		s.during(2 * time.Second)
		if got := s.reason(400, v1alpha1.ConditionDelivering); got != v1alpha1.ReasonBackingOff {
			t.Errorf("it shows %q", got)
		}
	})
}

// An endpoint that goes on as before is not written for the time of its last success.
func TestTimesAloneAreSeldomWritten(t *testing.T) {
	in(t, 1, func(s *scene) {
		run := func(d time.Duration) (writes int) {
			for range int(d / (5 * time.Second)) {
				s.attempt(0)
				writes += s.during(5 * time.Second)
			}
			return writes
		}
		run(2 * time.Hour)
		n := run(time.Hour)
		if n > 15 {
			t.Errorf("%d writes in an hour in which nothing changed", n)
		}
		if n < 6 {
			t.Errorf("%d writes in an hour: the last success is behind for long", n)
		}
	})
}

func TestSentence(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"a word", "the receiver answered 500", "The receiver answered 500"},
		{"no letter", "500", "500"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := sentence(c.in); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
