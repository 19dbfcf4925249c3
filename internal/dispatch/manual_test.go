package dispatch

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/deliver"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

// case HD146: a test leaves no trace.
func TestATestLeavesNoTrace(t *testing.T) {
	inWorld(t, answers(410), func(w *world) {
		for range 10 {
			id, a, err := w.d.Test(context.Background(), w.key())
			if err != nil || a.Status != 410 || a.Class != retry.Disable || !strings.HasPrefix(id, "test_") {
				t.Fatalf("test %q gave %+v and %v", id, a, err)
			}
		}
		if got := w.state(); got != Active {
			t.Errorf("the lane is %s after failed tests", got)
		}
		w.want(0, 0, 0)
		if hits := w.seen(); len(hits) != 10 || hits[0].id == hits[1].id {
			t.Errorf("%d requests, want 10 with an id of their own", len(hits))
		}
	})
}

// A test is made at once, and counts in the rate limit of what comes after it.
func TestATestCountsInTheRateLimit(t *testing.T) {
	inWorld(t, answers(204), func(w *world) {
		w.endpoint().RateLimit = &plan.RateLimit{Requests: 1, Interval: time.Minute, Burst: 1}
		w.apply()
		for range 2 {
			if _, a, err := w.d.Test(context.Background(), w.key()); err != nil || a.Status != 204 {
				t.Fatalf("%+v, %v", a, err)
			}
		}
		w.send(1)
		w.after(59 * time.Second)
		w.want(1, 0, 0)
		w.after(time.Minute)
		w.want(0, 1, 0)
	})
}

func TestATestIsMadeInAnyState(t *testing.T) {
	inWorld(t, answers(204), func(w *world) {
		w.endpoint().Suspend = true
		w.apply()
		if _, a, err := w.d.Test(context.Background(), w.key()); err != nil || a.Status != 204 {
			t.Errorf("of a suspended endpoint: %+v, %v", a, err)
		}
		w.endpoint().Problem = &plan.Problem{Reason: "SecretNotFound", Message: "Secret x does not exist"}
		w.apply()
		var notReady *NotReadyError
		if _, _, err := w.d.Test(context.Background(), w.key()); !errors.As(err, &notReady) || notReady.Reason != "SecretNotFound" {
			t.Errorf("of an endpoint with a problem: %v", err)
		}
		if _, _, err := w.d.Test(context.Background(), plan.EndpointKey{Namespace: "default", Name: "nobody"}); !errors.Is(err, ErrNoLane) {
			t.Errorf("of no endpoint: %v", err)
		}
		if len(w.seen()) != 1 {
			t.Errorf("%d requests, want 1", len(w.seen()))
		}
	})
}

func TestRetryBringsForward(t *testing.T) {
	var mended atomic.Bool
	inWorld(t, func(hit) deliver.Result {
		if mended.Load() {
			return status(204)
		}
		return status(500)
	}, func(w *world) {
		w.endpoint().Retry.Backoff.Schedule = []time.Duration{time.Hour, time.Hour}
		w.apply()
		w.send(3)
		w.after(time.Second)
		w.want(3, 0, 0)
		mended.Store(true)
		if n, err := w.d.Retry(context.Background(), w.key()); n != 3 || err != nil {
			t.Errorf("%d brought forward, %v; want 3", n, err)
		}
		w.after(time.Second)
		w.want(0, 3, 0)
		if _, err := w.d.Retry(context.Background(), plan.EndpointKey{Namespace: "default", Name: "nobody"}); !errors.Is(err, ErrNoLane) {
			t.Errorf("of no endpoint: %v", err)
		}
	})
}

// A lane that is held stays so.
func TestRetryEnablesNothing(t *testing.T) {
	inWorld(t, answers(500), func(w *world) {
		w.endpoint().Retry.Backoff.Schedule = []time.Duration{time.Hour, time.Hour}
		w.apply()
		w.send(2)
		w.after(time.Second)
		w.endpoint().Suspend = true
		w.apply()
		w.forget()
		if n, err := w.d.Retry(context.Background(), w.key()); n != 2 || err != nil {
			t.Errorf("%d brought forward, %v; want 2", n, err)
		}
		w.after(time.Minute)
		if len(w.seen()) != 0 {
			t.Errorf("%d attempts of a suspended endpoint", len(w.seen()))
		}
	})
}
