package engine

import (
	"context"
	"errors"

	"github.com/doorstep-dev/doorstep/internal/dispatch"
	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// laneViews shows dispatch's lanes to the API.
type laneViews struct{ *dispatch.Dispatcher }

// View gives an endpoint's lane.
func (l laneViews) View(k plan.EndpointKey) (ingest.LaneView, bool) {
	v, ok := l.Dispatcher.View(k)
	view := ingest.LaneView{
		State: ingest.LaneState(v.State.String()), Reason: v.Reason, Message: v.Message,
		Since: v.Since, RetryAt: v.RetryAt, InFlight: v.InFlight, Held: v.State.Held(), LimitedBy: v.LimitedBy,
	}
	if f := v.LastFailure; f != nil {
		view.LastFailure = &ingest.Failure{Time: f.Time, Status: f.Status, Reason: f.Reason, Message: f.Message}
	}
	return view, ok
}

// Test makes one attempt of a test event.
func (l laneViews) Test(ctx context.Context, k plan.EndpointKey) (ingest.TestAttempt, error) {
	id, a, err := l.Dispatcher.Test(ctx, k)
	var notReady *dispatch.NotReadyError
	if errors.As(err, &notReady) {
		err = ingest.EndpointNotReady(notReady.Reason, notReady.Message)
	}
	return ingest.TestAttempt{WebhookID: id, Attempt: a}, err
}
