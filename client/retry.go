package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"
)

const (
	firstPause = 200 * time.Millisecond
	maxPause   = 30 * time.Second
	// maxRetryAfter is the longest Retry-After that is waited for; a longer one is the caller's to decide.
	maxRetryAfter = time.Minute
)

// pause is how long to wait after the nth attempt, and whether another one can help: twice as long each time, with
// half of it left to chance, so that producers that failed together don't come back together.
func pause(err error, n int) (time.Duration, bool) {
	d := min(firstPause<<min(n-1, 16), maxPause)
	d = d/2 + rand.N(d/2+1)
	var problem *Problem
	var unreachable *UnreachableError
	switch {
	case errors.As(err, &problem):
		retried := problem.Status == http.StatusRequestTimeout || problem.Status == http.StatusTooManyRequests ||
			problem.Status >= 500
		return max(d, problem.RetryAfter), retried && problem.RetryAfter <= maxRetryAfter
	case errors.As(err, &unreachable):
		return d, true
	}
	return 0, false
}

// fits reports whether there is time for a pause: what must end in it needn't be waited for.
func fits(ctx context.Context, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > wait
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
