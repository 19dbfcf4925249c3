package ingest

import (
	"context"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// LaneState is what an endpoint's lane does with its deliveries (DESIGN.md §6).
type LaneState string

// The states of a lane.
const (
	LaneActive     LaneState = "Active"
	LaneBackingOff LaneState = "BackingOff"
	LaneDraining   LaneState = "Draining"
	LaneDisabled   LaneState = "Disabled"
	LaneSuspended  LaneState = "Suspended"
	LaneUnresolved LaneState = "Unresolved"
	LaneMissing    LaneState = "Missing"
	LaneNotInPlan  LaneState = "NotInPlan"
)

// LaneView is a lane as people see it.
type LaneView struct {
	State LaneState
	// Reason is one word in the manner of a condition's reason; it may be empty.
	Reason string
	// Message is one plain sentence without addresses; it may be empty.
	Message string
	// Since is when the lane came into this state.
	Since time.Time
	// RetryAt is when a lane that backs off tries next; zero when it has no such time.
	RetryAt time.Time
	// InFlight is how many attempts are open now.
	InFlight int
	// Held is set while the lane keeps its deliveries and attempts none of them.
	Held bool
	// LimitedBy is what keeps the lane from going faster now, in one word; it may be empty.
	LimitedBy string
	// LastFailure is the last failed attempt since the process began, unless one has succeeded since.
	LastFailure *Failure
}

// TestAttempt is the one attempt of a test.
type TestAttempt struct {
	// WebhookID is the webhook-id that the receiver was shown.
	WebhookID string
	// Attempt is the one that was made. Its Number means nothing.
	Attempt queue.Attempt
}

// Lanes is what ingest asks of dispatch. Implementations are safe for concurrent use.
type Lanes interface {
	// View gives an endpoint's lane; false if dispatch has none for it.
	View(plan.EndpointKey) (LaneView, bool)
	// InFlight reports whether an attempt of this delivery is open now.
	InFlight(plan.EndpointKey, queue.Seq) bool
	// Enable brings a disabled lane back, and lets one that backs off make its next attempt at once. On any other it
	// does nothing.
	Enable(context.Context, plan.EndpointKey) error
	// Retry makes what waits for its next attempt due now, and returns how many deliveries it brought forward. It enables
	// nothing: in a lane that holds its deliveries they stay held, and a lane that backs off goes on one at a time.
	Retry(context.Context, plan.EndpointKey) (int, error)
	// Test makes one attempt of an event of type doorstep.test and waits for its end. It goes out as any other attempt
	// does (signing, headers, egress guard, timeout), whatever state the lane is in, and leaves no trace: nothing is
	// stored, and neither health nor budget nor the lane's state change. A test that could not be made is an error; a
	// *Problem is answered as it is.
	Test(context.Context, plan.EndpointKey) (TestAttempt, error)
	// Health is nil while deliveries are made.
	Health() error
}
