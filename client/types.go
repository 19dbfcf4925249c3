package client

import "time"

// The answers of the API. Times are RFC 3339; what is zero is left out.

// AcceptedEvent is an event as Doorstep keeps it, without its payload.
type AcceptedEvent struct {
	WebhookID   string            `json:"webhookId"`
	Namespace   string            `json:"namespace"`
	ID          string            `json:"id"`
	Source      string            `json:"source,omitempty"`
	Type        string            `json:"type"`
	Subject     string            `json:"subject,omitempty"`
	Time        time.Time         `json:"time,omitzero"`
	AcceptedAt  time.Time         `json:"acceptedAt"`
	Mode        string            `json:"mode"`
	ContentType string            `json:"contentType,omitempty"`
	Attributes  map[string]string `json:"attributes,omitempty"`
	TraceParent string            `json:"traceparent,omitempty"`
	// ErasedAt is when a person erased its payload, and with it subject, attributes and what receivers answered.
	ErasedAt time.Time `json:"erasedAt,omitzero"`
	// PayloadBytes is the size of what is sent; in the answer for one event only.
	PayloadBytes *int `json:"payloadBytes,omitempty"`
	// States counts the event's deliveries by state.
	States map[DeliveryState]int `json:"states"`
	// Deliveries hold their attempts; in the answer for one event only.
	Deliveries []Delivery `json:"deliveries,omitempty"`
	// Explanations say, for each endpoint of the namespace, why it did or didn't get the event; from Explain only.
	Explanations []Explanation `json:"explanations,omitempty"`
}

func (e *AcceptedEvent) whole() bool { return e.WebhookID != "" }

// EventList is a page of events. A page may be short, or empty, before the end.
type EventList struct {
	Items []AcceptedEvent `json:"items"`
	// Cursor continues the list. The newest first: empty at the end. The oldest first: always there, and good for what
	// is accepted later.
	Cursor string `json:"cursor,omitempty"`
	// AtEnd, oldest first only, says that nothing was behind this page.
	AtEnd bool `json:"atEnd,omitempty"`
}

func (l *EventList) whole() bool { return l.Items != nil }

// DeliveryState is where a delivery is in its life.
type DeliveryState string

// The states of a delivery. InFlight and Held are what a lane does with one that waits.
const (
	StatePending      DeliveryState = "pending"
	StateRetrying     DeliveryState = "retrying"
	StateInFlight     DeliveryState = "inFlight"
	StateHeld         DeliveryState = "held"
	StateDelivered    DeliveryState = "delivered"
	StateDeadLettered DeliveryState = "deadLettered"
	// StateFilterError is of deliveries for which the endpoint's filter failed: kept, and replayed by a person.
	StateFilterError DeliveryState = "filterError"
	// StateDiscarded is of deliveries that the endpoint's filter turned out not to want.
	StateDiscarded DeliveryState = "discarded"
	// StateWaiting may be asked for, and stands for every state in which a delivery is still to be made.
	StateWaiting DeliveryState = "waiting"
)

// Waiting reports whether the delivery is still to be made.
func (s DeliveryState) Waiting() bool {
	switch s {
	case StateDelivered, StateDeadLettered, StateFilterError, StateDiscarded:
		return false
	}
	return true
}

// Delivery is one event on its way to one endpoint.
type Delivery struct {
	WebhookID string        `json:"webhookId"`
	Type      string        `json:"type"`
	Endpoint  string        `json:"endpoint"`
	State     DeliveryState `json:"state"`
	// AttemptCount counts through the delivery's life, across replays.
	AttemptCount int `json:"attemptCount"`
	Replays      int `json:"replays,omitempty"`
	// QueuedAt is acceptance or the last replay.
	QueuedAt time.Time `json:"queuedAt"`
	// DueAt is when the next attempt is made at the latest.
	DueAt   time.Time `json:"dueAt,omitzero"`
	EndedAt time.Time `json:"endedAt,omitzero"`
	// Undecided: the endpoint's filter has not been asked yet; it is before the next attempt.
	Undecided bool `json:"undecided,omitempty"`
	// Reason says why it is dead-lettered, discarded or held, or why the last attempt failed.
	Reason         string    `json:"reason,omitempty"`
	LastStatus     int       `json:"lastStatus,omitempty"`
	HandlerVersion string    `json:"handlerVersion,omitempty"`
	Attempts       []Attempt `json:"attempts,omitempty"`
}

// DeliveryList is a page of deliveries: by endpoint, then state, then oldest event first.
type DeliveryList struct {
	Items  []Delivery `json:"items"`
	Cursor string     `json:"cursor,omitempty"`
}

func (l *DeliveryList) whole() bool { return l.Items != nil }

// Attempt is one knock at the door.
type Attempt struct {
	Number     int       `json:"number"`
	StartedAt  time.Time `json:"startedAt"`
	DurationMS float64   `json:"durationMs"`
	// Status is the answer's code; 0 without an answer.
	Status int `json:"status,omitempty"`
	// Outcome is delivered, retry, deadLetter, disable or held.
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Sent says whether the receiver may have got the request: yes, no or unknown.
	Sent           string `json:"sent"`
	Replay         bool   `json:"replay,omitempty"`
	HandlerVersion string `json:"handlerVersion,omitempty"`
	// Response is the beginning of the answer's body, at most 4 KiB, kept of failures. Left out for a key that may not
	// read payloads.
	Response []byte `json:"response,omitempty"`
}

// Explanation says why an endpoint did or didn't get an event.
type Explanation struct {
	Endpoint string `json:"endpoint"`
	// Reason is a word such as Delivered, TypeMismatch, FilterFalse or CreatedLater, or the reason of a dead letter.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Endpoint is an endpoint as the worker sees it. Of its URL only the host is told.
type Endpoint struct {
	Namespace   string   `json:"namespace"`
	Name        string   `json:"name"`
	Host        string   `json:"host,omitempty"`
	EventTypes  []string `json:"eventTypes,omitempty"`
	RetryPolicy string   `json:"retryPolicy,omitempty"`
	MaxInFlight int      `json:"maxInFlight,omitempty"`
	// FirstSeen is when a plan first held the endpoint: it gets events accepted after that.
	FirstSeen time.Time `json:"firstSeen,omitzero"`
	// Ready is false when a reference can't be resolved or a setting can't be used; Problem says which.
	Ready      bool             `json:"ready"`
	Problem    *EndpointProblem `json:"problem,omitempty"`
	Lane       Lane             `json:"lane"`
	Deliveries DeliveryCounts   `json:"deliveries"`
}

func (e *Endpoint) whole() bool { return e.Name != "" }

// EndpointProblem says why an endpoint can't be used.
type EndpointProblem struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// LaneState is what an endpoint's lane does.
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

// Lane is what an endpoint's lane does.
type Lane struct {
	State    LaneState `json:"state"`
	Reason   string    `json:"reason,omitempty"`
	Message  string    `json:"message,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	RetryAt  time.Time `json:"retryAt,omitzero"`
	InFlight int       `json:"inFlight"`
	// Held is set while the lane keeps its deliveries and attempts none of them.
	Held bool `json:"held,omitempty"`
	// LimitedBy is what keeps the lane from going faster now: rateLimit, maxInFlight, ordering or pool.
	LimitedBy string `json:"limitedBy,omitempty"`
	// LastFailure is the last failed attempt since the worker began, unless one has succeeded since.
	LastFailure *Failure `json:"lastFailure,omitempty"`
}

// Failure is a failed attempt in short.
type Failure struct {
	Time time.Time `json:"time"`
	// Status is the answer's code, 0 without an answer.
	Status int `json:"status,omitempty"`
	// Reason is the short name (timeout, connect, server_error …), Message one plain sentence.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// DeliveryCounts are an endpoint's deliveries by state. Waiting is pending and retrying together, held or not.
type DeliveryCounts struct {
	Waiting      int `json:"waiting"`
	Pending      int `json:"pending"`
	Retrying     int `json:"retrying"`
	DeadLettered int `json:"deadLettered"`
	FilterError  int `json:"filterError,omitempty"`
	// WaitingBytes is the size of what waits, which limits.perEndpoint.waitingBytesPercent bounds.
	WaitingBytes int64 `json:"waitingBytes,omitempty"`
	// OldestDueTime is when the first waiting delivery is or was due.
	OldestDueTime time.Time `json:"oldestDueTime,omitzero"`
}

// EndpointList is a page of the endpoints of a namespace, by name.
type EndpointList struct {
	Items  []Endpoint `json:"items"`
	Cursor string     `json:"cursor,omitempty"`
}

func (l *EndpointList) whole() bool { return l.Items != nil }

// AuditRecord says what somebody did.
type AuditRecord struct {
	At time.Time `json:"at"`
	// Caller is who did it, such as key:ci.
	Caller string `json:"caller"`
	// Action is replay, erase, enable, retry or test; Target a webhook-id or the name of an endpoint.
	Action string `json:"action"`
	Target string `json:"target"`
	// Count is how many deliveries it was about.
	Count  int    `json:"count"`
	Detail string `json:"detail,omitempty"`
}

// AuditList is a page of audit records, newest first.
type AuditList struct {
	Items  []AuditRecord `json:"items"`
	Cursor string        `json:"cursor,omitempty"`
}

func (l *AuditList) whole() bool { return l.Items != nil }
