package deliver

import (
	"time"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// Request is one attempt to be made. It is only read.
type Request struct {
	Destination *Destination
	Event       *event.Event
	DeliveryID  string
	// AttemptNumber counts from 1 through the delivery's life.
	AttemptNumber int
	// Replay tells the receiver that a person sent the event again.
	Replay bool
	// TraceParent is the producer's W3C traceparent, or empty.
	TraceParent string
	// Steady is the steady time of the attempt, by which former signing keys end.
	Steady time.Time
}

// Result is what came of an attempt.
type Result struct {
	// StartedAt is wall time; its Unix seconds were sent as webhook-timestamp.
	StartedAt time.Time
	Duration  time.Duration
	// Status is the answer's code, 0 without an answer.
	Status int
	// Reason is one of the Reason constants; empty on success.
	Reason string
	// Message is one plain sentence, the same each time; empty on success.
	Message string
	Sent    queue.Sent
	// RetryAfter holds the values of that header as they came.
	RetryAfter []string
	// WebhookDelivery is DeliveryDisable, DeliveryAbort or empty.
	WebhookDelivery string
	// HandlerVersion is the receiver's x-handler-version.
	HandlerVersion string
	// Response is the beginning of the body of an answer that isn't 2xx.
	Response []byte
}
