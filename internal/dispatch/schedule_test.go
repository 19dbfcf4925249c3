package dispatch

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/deliver"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

// gaps are the waits between attempts.
func gaps(hits []hit) []time.Duration {
	var g []time.Duration
	for i := 1; i < len(hits); i++ {
		g = append(g, hits[i].at.Sub(hits[i-1].at))
	}
	return g
}

func wantGaps(t *testing.T, hits []hit, want ...time.Duration) {
	t.Helper()
	got := gaps(hits)
	if len(got) != len(want) {
		t.Fatalf("%d attempts, want %d (waits: %v)", len(hits), len(want)+1, got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("wait after failure %d is %v, want %v", i+1, got[i], want[i])
		}
	}
	for i, h := range hits {
		if h.attempt != i+1 {
			t.Errorf("attempt %d says it is number %d", i+1, h.attempt)
		}
	}
}

func TestTheBuiltInScheduleIsKeptToTheEnd(t *testing.T) {
	inWorld(t, answers(500), func(w *world) {
		w.send(1)
		w.after(72 * time.Hour)
		wantGaps(t, w.seen(), time.Minute, 5*time.Minute, 30*time.Minute, 2*time.Hour, 10*time.Hour, 24*time.Hour)
		if d := w.deadLetter(); d.Reason != queue.ReasonOutOfAttempts || d.Attempts != 7 || d.LastStatus != 500 {
			t.Errorf("dead letter %q after %d attempts with status %d, want OutOfAttempts, 7, 500", d.Reason, d.Attempts, d.LastStatus)
		}
	})
}

func TestExponentialGrowsToItsCap(t *testing.T) {
	inWorld(t, answers(500), func(w *world) {
		w.endpoint().Retry.Backoff = retry.Backoff{Exponential: &retry.Exponential{Initial: 2 * time.Minute, Factor: 3, Max: time.Hour, MaxAttempts: 6}}
		w.apply()
		w.send(1)
		w.after(72 * time.Hour)
		wantGaps(t, w.seen(), 2*time.Minute, 6*time.Minute, 18*time.Minute, 54*time.Minute, time.Hour)
	})
}

func TestJitterStaysWithinItsBounds(t *testing.T) {
	for _, c := range []struct {
		jitter    retry.Jitter
		low, high time.Duration
	}{
		{retry.Jitter{Type: retry.JitterProportional, Percent: 10}, 10 * time.Minute, 11 * time.Minute},
		{retry.Jitter{Type: retry.JitterEqual}, 5 * time.Minute, 10 * time.Minute},
		{retry.Jitter{Type: retry.JitterFull}, 0, 10 * time.Minute},
		{retry.Jitter{Type: retry.JitterNone}, 10 * time.Minute, 10 * time.Minute},
	} {
		t.Run(string(c.jitter.Type), func(t *testing.T) {
			inWorld(t, answers(500), func(w *world) {
				w.endpoint().Retry.Backoff = retry.Backoff{Schedule: []time.Duration{10 * time.Minute, 10 * time.Minute, 10 * time.Minute}}
				w.endpoint().Retry.Jitter = c.jitter
				w.apply()
				w.send(1)
				w.after(2 * time.Hour)
				for i, g := range gaps(w.seen()) {
					// The lane's own back-off may not bring it forward, only the schedule.
					if g < c.low || g > c.high {
						t.Errorf("wait %d is %v, want %v to %v", i+1, g, c.low, c.high)
					}
				}
			})
		})
	}
}

// case RT51: attempts are counted over restarts.
func TestRestartsKeepTheAttemptCountAndTheDueTime(t *testing.T) {
	inWorld(t, answers(500), func(w *world) {
		w.send(1)
		w.after(time.Second)
		for range 6 {
			w.restart()
			w.after(12 * time.Hour)
			w.restart()
			w.after(12 * time.Hour)
		}
		wantGaps(t, w.seen(), time.Minute, 5*time.Minute, 30*time.Minute, 2*time.Hour, 10*time.Hour, 24*time.Hour)
		w.want(0, 0, 1)
	})
}

// case RT50: a policy that lists 403 retries it to the end of its budget.
func TestAListedRejectionIsRetriedToTheEnd(t *testing.T) {
	inWorld(t, answers(403), func(w *world) {
		w.endpoint().Retry.Backoff = retry.Backoff{Exponential: &retry.Exponential{Initial: time.Second, Factor: 1, Max: time.Second, MaxAttempts: 3}}
		w.endpoint().Retry.Responses.Retry = []string{"403"}
		w.apply()
		w.send(1)
		w.after(time.Minute)
		wantGaps(t, w.seen(), time.Second, time.Second)
		w.want(0, 0, 1)
	})
}

// case RT44
func TestRetryAfterIsAFloorAndHasACap(t *testing.T) {
	for _, c := range []struct {
		name       string
		code       int
		retryAfter string
		want       time.Duration
	}{
		{"longer than the policy", 503, "120", 2 * time.Minute},
		{"shorter than the policy", 429, "5", time.Minute},
		{"over the cap", 503, "999999", 6 * time.Hour},
		{"case RT45: overflowing", 503, "9223372036854775807", 6 * time.Hour},
		{"case RTY-12: not a number", 503, "soon", time.Minute},
		{"case RTY-10: not read on 409", 409, "120", time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(hit) deliver.Result {
				r := status(c.code)
				r.RetryAfter = []string{c.retryAfter}
				return r
			}, func(w *world) {
				w.send(1)
				w.after(7 * time.Hour)
				if g := gaps(w.seen()); g[0] != c.want {
					t.Errorf("the first wait is %v, want %v", g[0], c.want)
				}
			})
		})
	}
}

func TestARetryAfterMaxAgeIsMadeOnceAtMaxAge(t *testing.T) {
	inWorld(t, answers(500), func(w *world) {
		w.endpoint().Retry.MaxAge = time.Hour
		w.apply()
		w.send(1)
		w.after(24 * time.Hour)
		wantGaps(t, w.seen(), time.Minute, 5*time.Minute, 30*time.Minute, 24*time.Minute)
		if d := w.deadLetter(); d.Reason != queue.ReasonExpired {
			t.Errorf("reason %q, want Expired", d.Reason)
		}
	})
}

func TestHeldDeliveriesExpireAtMaxAge(t *testing.T) {
	inWorld(t, answers(200), func(w *world) {
		w.endpoint().Suspend = true
		w.apply()
		w.send(300)
		w.after(71 * time.Hour)
		w.want(300, 0, 0)
		w.after(2 * time.Hour)
		w.want(0, 0, 300)
		if n := len(w.seen()); n != 0 {
			t.Errorf("%d attempts while suspended", n)
		}
	})
}

// case TM72: the wall clock steps while deliveries wait.
func TestAClockThatStepsNeitherFiresNorHolds(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, -10 * time.Minute, time.Hour, 1000 * time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			var off atomic.Int64
			inWorld(t, answers(500), func(w *world) {
				w.end()
				w.wall = func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
				w.start()
				w.send(1)
				w.after(time.Minute + time.Second) // second attempt made, third due in 5 min
				off.Store(int64(step))
				w.after(10 * time.Minute)
				wantGaps(t, w.seen(), time.Minute, 5*time.Minute)
			})
		})
	}
}

// case TM76: after a restart due times are kept, also when the clock went back.
func TestARestartAfterAStepBackKeepsTheRest(t *testing.T) {
	var off atomic.Int64
	inWorld(t, answers(500), func(w *world) {
		w.end()
		w.wall = func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
		w.start()
		w.send(1)
		w.after(6*time.Minute + 2*time.Second) // the third attempt failed 1 s ago: 30 min to wait
		off.Store(int64(-time.Hour))
		w.restart()
		w.forget()
		w.after(29 * time.Minute)
		if n := len(w.seen()); n != 0 {
			t.Fatalf("%d attempts in 29 minutes, want none", n)
		}
		w.after(2 * time.Minute)
		if n := len(w.seen()); n != 1 {
			t.Errorf("%d attempts after 31 minutes, want 1: a step back must not hold it longer", n)
		}
	})
}

func TestOverdueDeliveriesAreRampedAfterADowntime(t *testing.T) {
	inWorld(t, func(hit) deliver.Result { time.Sleep(time.Second); return status(200) }, func(w *world) {
		w.endpoint().Suspend = true
		w.apply()
		w.send(100)
		w.endpoint().Suspend = false
		w.restart()
		w.after(500 * time.Millisecond)
		if n := len(w.seen()); n != 1 {
			t.Errorf("%d attempts at once after a restart, want 1", n)
		}
		w.after(time.Minute)
		w.want(0, 100, 0)
	})
}

// case TM76: no burst of what isn't due.
func TestARestartDoesNotBringForwardWhatIsNotDue(t *testing.T) {
	var fixed atomic.Bool
	inWorld(t, func(hit) deliver.Result {
		if fixed.Load() {
			return status(200)
		}
		return status(409)
	}, func(w *world) {
		w.endpoint().Retry.Backoff = retry.Backoff{Schedule: []time.Duration{6 * time.Hour}}
		w.apply()
		w.send(4) // too few faults for a back-off
		w.after(time.Second)
		fixed.Store(true)
		w.restart()
		w.after(5 * time.Hour)
		w.want(4, 0, 0)
		w.after(2 * time.Hour)
		w.want(0, 4, 0)
	})
}
