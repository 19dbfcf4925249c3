package queue

import (
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

// State is where a delivery is in its life. In flight and held are not stored:
// they are what a lane is doing with a delivery that waits.
type State uint8

// The stored states. Numbers are on disk: never reuse one.
const (
	Pending      State = 1 // never tried since it was queued or replayed
	Retrying     State = 2 // tried, waiting for its due time
	Delivered    State = 3
	DeadLettered State = 4
	// FilterError: the endpoint's filter could not be evaluated. It waits for nobody but
	// a person, who can replay it.
	FilterError State = 5
	// Discarded: it was not to be sent after all, as its endpoint's filter said once that
	// could be asked.
	Discarded State = 6
)

// String is the state's name in the API.
func (s State) String() string {
	switch s {
	case Pending:
		return "pending"
	case Retrying:
		return "retrying"
	case Delivered:
		return "delivered"
	case DeadLettered:
		return "deadLettered"
	case FilterError:
		return "filterError"
	case Discarded:
		return "discarded"
	}
	return "unknown"
}

// Waiting reports whether the delivery is still to be made.
func (s State) Waiting() bool { return s == Pending || s == Retrying }

// Delivery is one event on its way to one endpoint. Times are steady time.
type Delivery struct {
	Seq      Seq
	Endpoint plan.EndpointKey
	State    State
	// Attempts counts through the delivery's life, Budget since it was last queued.
	Attempts, Budget int
	// QueuedAt is acceptance or the last replay: ages run from it.
	QueuedAt time.Time
	// DueAt is when the next attempt may be made at the latest (waiting only).
	DueAt time.Time
	// Delay is the wait that DueAt came from, Asked the receiver's Retry-After in it.
	Delay, Asked time.Duration
	// EndedAt is when it was delivered or dead-lettered.
	EndedAt time.Time
	// Reason says why it is dead-lettered, or why the last attempt failed.
	Reason string
	// LastStatus is the status code of the last attempt, 0 if there was none.
	LastStatus     int
	HandlerVersion string
	// Replays counts how often a person queued it again.
	Replays int
	// Key tells deliveries that must keep their order: a hash of the event's partitionkey
	// attribute (OrderKey), 0 without one.
	Key uint64
	// Size is the event's payload in bytes; Share is this delivery's part of it: the size
	// over the number of the event's deliveries.
	Size, Share int
	// Undecided: the endpoint's filter has not been asked yet, since it could not be
	// compiled when the event came, or its error was replayed. It is asked before the next
	// attempt.
	Undecided bool
}

// Reasons of dead letters that no answer gives.
const (
	ReasonExpired         = retry.ReasonExpired       // older than maxAge
	ReasonEndpointDeleted = "EndpointDeleted"         // its endpoint is gone for good
	ReasonOutOfAttempts   = retry.ReasonOutOfAttempts // the retry budget is spent
	ReasonRejected        = "Rejected"                // an answer that is not retried
	ReasonAborted         = "AbortedByReceiver"       // webhook-delivery: abort-message
	ReasonDisabled        = "DisabledByReceiver"      // 410 or webhook-delivery: disable
	ReasonNotAllowed      = "DestinationNotAllowed"
	ReasonPayloadMissing  = "PayloadMissing" // its payload can't be read
	ReasonErased          = "Erased"         // a person erased its payload
)

// Reasons of deliveries that a filter ended.
const (
	ReasonFilterFalse = "FilterFalse" // Discarded
	ReasonFilterError = "FilterError" // FilterError
)

// Sent says whether a receiver may have got the request.
type Sent uint8

// Whether the request reached the receiver.
const (
	SentNo      Sent = 1 // nothing of it left
	SentUnknown Sent = 2 // it may have been received
	SentYes     Sent = 3 // an answer came
)

// String is the value's name in the API.
func (s Sent) String() string {
	switch s {
	case SentNo:
		return "no"
	case SentYes:
		return "yes"
	}
	return "unknown"
}

// Attempt is the record of one knock at the door.
type Attempt struct {
	// Number counts from 1 through the delivery's life, across replays.
	Number int
	// StartedAt is wall time.
	StartedAt time.Time
	Duration  time.Duration
	// Status is the answer's code, 0 without an answer.
	Status int
	Class  retry.Class
	// Reason is the short name of a failure (timeout, connect, dns, tls, denied …);
	// empty on success.
	Reason string
	// Message is one plain sentence, without addresses, URLs or bodies.
	Message        string
	Sent           Sent
	Replay         bool
	HandlerVersion string
	// Response is the beginning of the answer's body, kept of failures.
	Response []byte
}

// Outcome is an attempt and what follows from it.
type Outcome struct {
	Seq      Seq
	Endpoint plan.EndpointKey
	Attempt  Attempt
	// To is Delivered, DeadLettered or Retrying.
	To State
	// Reason of a dead letter.
	Reason string
	// Delay until the next attempt and DueAt, for Retrying; Asked as in Delivery. Steady
	// time.
	Delay, Asked time.Duration
	DueAt        time.Time
}

// Counts are an endpoint's deliveries by state.
type Counts struct {
	Pending, Retrying, DeadLettered, FilterError int
	// WaitingBytes is the size of what waits, payloads whole.
	WaitingBytes int64
}

// Waiting is pending and retrying together.
func (c Counts) Waiting() int { return c.Pending + c.Retrying }

// Lane is what a lane must remember across restarts.
type Lane struct {
	// Disabled lanes make no attempts until a person, or a change of spec, enables them.
	Disabled bool
	// BackingOff lanes have not caught up since their receiver failed: after a restart
	// they begin with one attempt, and bring forward what waits once it succeeds.
	BackingOff bool
	// Until is the end of the pause that the receiver asked for.
	Until time.Time
	// Reason is of Disabled or BackingOff.
	Reason string
	// Message is one plain sentence for people.
	Message string
	At      time.Time
	// Hash is the endpoint's plan hash when it was disabled: another one enables.
	Hash string
	// RetryHash is the hash of the retry policy that due times were made by.
	RetryHash string
}
