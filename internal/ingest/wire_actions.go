package ingest

import "time"

// What the API's actions take and answer.

// ActionRequest is the body of an action that takes nothing but why.
type ActionRequest struct {
	// Reason is for the audit record: one line, at most 256 bytes.
	Reason string `json:"reason,omitempty"`
}

func (r *ActionRequest) reason() string { return r.Reason }

// ReplayRequest asks to send finished deliveries of an event again.
type ReplayRequest struct {
	// Endpoint is the one to send to; empty: every endpoint where the event is a dead letter.
	Endpoint string `json:"endpoint,omitempty"`
	// Force sends again what was delivered.
	Force bool `json:"force,omitempty"`
	// Reason is for the audit record: one line, at most 256 bytes.
	Reason string `json:"reason,omitempty"`
}

func (r *ReplayRequest) reason() string { return r.Reason }

// ReplayResult names the endpoints that the event is sent to again.
type ReplayResult struct {
	WebhookID string   `json:"webhookId"`
	Replayed  []string `json:"replayed"`
}

// EnableResult says what enabling an endpoint did.
type EnableResult struct {
	Endpoint string `json:"endpoint"`
	// WasDisabled is false when there was nothing to do.
	WasDisabled bool      `json:"wasDisabled"`
	State       LaneState `json:"state"`
	// Message says what happens next, where that isn't plain from the rest.
	Message string `json:"message,omitempty"`
}

// Selection says which finished deliveries of an endpoint are meant: those to which all of its members apply. At least
// one must be set.
type Selection struct {
	// States are deadLettered, filterError and delivered; empty: the first two. Delivered ones need force, and another
	// member of the selection beside.
	States []DeliveryState `json:"states,omitempty"`
	// Since and Until bound when the event was accepted: from Since, before Until.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// EventTypes are types or patterns such as order.*; one must match.
	EventTypes []string `json:"eventTypes,omitempty"`
	// Reasons are those of the deliveries (OutOfAttempts, Rejected, Expired …).
	Reasons []string `json:"reasons,omitempty"`
	// StatusCodes are those of the last answer; 0 is none.
	StatusCodes []int `json:"statusCodes,omitempty"`
	// HandlerVersions are those that the receiver gave with its last answer.
	HandlerVersions []string `json:"handlerVersions,omitempty"`
	// EventIDs are webhook-ids.
	EventIDs []string `json:"eventIDs,omitempty"`
}

// SelectedReplayRequest asks to send the finished deliveries of an endpoint again that a selection picks.
type SelectedReplayRequest struct {
	Select Selection `json:"select"`
	// DryRun counts and changes nothing.
	DryRun bool `json:"dryRun,omitempty"`
	// Limit is the most that this call replays, 1 to 1000; unset is 1000. A dry run counts on past it.
	Limit int `json:"limit,omitempty"`
	// Cursor goes on where the last call with this selection ended.
	Cursor string `json:"cursor,omitempty"`
	// Force is needed for what was delivered.
	Force bool `json:"force,omitempty"`
	// Reason is for the audit record: one line, at most 256 bytes.
	Reason string `json:"reason,omitempty"`
}

func (r *SelectedReplayRequest) reason() string { return r.Reason }

// SelectedReplayResult is what one call did. Each delivery is looked at once on the way from the first call to the last.
type SelectedReplayResult struct {
	Endpoint string `json:"endpoint"`
	DryRun   bool   `json:"dryRun,omitempty"`
	// Matched were picked; Replayed of them are sent again, Skipped were changed by somebody else meanwhile.
	Matched  int `json:"matched"`
	Replayed int `json:"replayed"`
	Skipped  int `json:"skipped"`
	// Cursor goes on; empty when everything was looked at.
	Cursor string `json:"cursor,omitempty"`
}

// RetryResult says how many deliveries were made due.
type RetryResult struct {
	Endpoint string `json:"endpoint"`
	Retried  int    `json:"retried"`
}

// TestResult is how the one attempt of a test went.
type TestResult struct {
	Endpoint string `json:"endpoint"`
	// WebhookID is what the receiver saw. No event is kept under it.
	WebhookID string `json:"webhookId"`
	// Delivered: the receiver took it.
	Delivered bool `json:"delivered"`
	// Status, Reason, Message, DurationMS, Sent, HandlerVersion and Response are as in Attempt.
	Status         int     `json:"status,omitempty"`
	Reason         string  `json:"reason,omitempty"`
	Message        string  `json:"message,omitempty"`
	DurationMS     float64 `json:"durationMs"`
	Sent           string  `json:"sent"`
	HandlerVersion string  `json:"handlerVersion,omitempty"`
	Response       []byte  `json:"response,omitempty"`
}

// EraseResult says what erasing an event did.
type EraseResult struct {
	WebhookID string    `json:"webhookId"`
	ErasedAt  time.Time `json:"erasedAt"`
	// Again: it had been erased before.
	Again bool `json:"again,omitempty"`
	// DeadLettered is how many deliveries were still waiting; they are not made any more.
	DeadLettered int `json:"deadLettered,omitempty"`
}

// AuditRecord says what somebody did.
type AuditRecord struct {
	At     time.Time `json:"at"`
	Caller string    `json:"caller"`
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
