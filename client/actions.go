package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// Each action leaves an audit record, and takes a reason for it: one line, at most 256 bytes; empty for none.

// ReplayRequest asks to send finished deliveries of an event again.
type ReplayRequest struct {
	// Endpoint is the one to send to; empty: every endpoint where the event is a dead letter.
	Endpoint string `json:"endpoint,omitempty"`
	// Force sends again what was delivered.
	Force bool `json:"force,omitempty"`
	// Reason is for the audit record.
	Reason string `json:"reason,omitempty"`
}

// ReplayResult names the endpoints that the event is sent to again.
type ReplayResult struct {
	WebhookID string   `json:"webhookId"`
	Replayed  []string `json:"replayed"`
}

func (r *ReplayResult) whole() bool { return r.WebhookID != "" }

// Replay sends finished deliveries of one event again, each with a fresh retry budget. It is made once: what had no
// answer may have been done.
func (c *Client) Replay(ctx context.Context, namespace, webhookID string, q ReplayRequest) (ReplayResult, error) {
	var result ReplayResult
	err := c.act(ctx, namespace, []string{"events", webhookID, "replay"}, q, &result)
	return result, err
}

// Selection says which finished deliveries of an endpoint are meant: those to which all of its members apply. At least
// one must be set.
type Selection struct {
	// States are deadLettered, filterError and delivered; empty: the first two. Delivered ones need Force, and another
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
	// Limit is the most that this call replays, 1 to 1000; 0: 1000. A dry run counts on past it.
	Limit int `json:"limit,omitempty"`
	// Cursor goes on where the last call with this selection ended.
	Cursor string `json:"cursor,omitempty"`
	// Force is needed for what was delivered.
	Force bool `json:"force,omitempty"`
	// Reason is for the audit record.
	Reason string `json:"reason,omitempty"`
}

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

func (r *SelectedReplayResult) whole() bool { return r.Endpoint != "" }

// ReplaySelection makes one step of a replay by selection: the caller goes on with the Cursor of the result until it is
// empty. It is made once: what had no answer may have been done, and is skipped by the same call again.
func (c *Client) ReplaySelection(ctx context.Context, namespace, endpoint string, q SelectedReplayRequest) (SelectedReplayResult, error) {
	var result SelectedReplayResult
	err := c.act(ctx, namespace, []string{"endpoints", endpoint, "replay"}, q, &result)
	return result, err
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

func (r *TestResult) whole() bool { return r.Endpoint != "" }

// Test makes one attempt of an event of type doorstep.test at an endpoint, whatever state its lane is in, and waits for
// its end. That the receiver did not take it is a result, not an error.
func (c *Client) Test(ctx context.Context, namespace, endpoint, reason string) (TestResult, error) {
	var result TestResult
	err := c.act(ctx, namespace, []string{"endpoints", endpoint, "test"}, actionRequest{reason}, &result)
	return result, err
}

// RetryResult says how many deliveries were made due.
type RetryResult struct {
	Endpoint string `json:"endpoint"`
	Retried  int    `json:"retried"`
}

func (r *RetryResult) whole() bool { return r.Endpoint != "" }

// Retry makes what waits for its next attempt due now.
func (c *Client) Retry(ctx context.Context, namespace, endpoint, reason string) (RetryResult, error) {
	var result RetryResult
	err := c.act(ctx, namespace, []string{"endpoints", endpoint, "retry"}, actionRequest{reason}, &result)
	return result, err
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

func (r *EnableResult) whole() bool { return r.Endpoint != "" }

// Enable brings a disabled endpoint back, or lets one that backs off make its next attempt now.
func (c *Client) Enable(ctx context.Context, namespace, endpoint, reason string) (EnableResult, error) {
	var result EnableResult
	err := c.act(ctx, namespace, []string{"endpoints", endpoint, "enable"}, actionRequest{reason}, &result)
	return result, err
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

func (r *EraseResult) whole() bool { return r.WebhookID != "" }

// Erase forgets an event's payload and what receivers answered to it; its id, hash and outcomes stay. What still waits
// of it is not sent any more. It is safe to repeat.
func (c *Client) Erase(ctx context.Context, namespace, webhookID, reason string) (EraseResult, error) {
	query := url.Values{}
	if reason != "" {
		query.Set("reason", reason)
	}
	var result EraseResult
	err := c.do(ctx, request{method: http.MethodDelete, namespace: namespace, path: []string{"events", webhookID}, query: query}, &result)
	return result, err
}

// actionRequest is the body of an action that takes nothing but why.
type actionRequest struct {
	Reason string `json:"reason,omitempty"`
}

// act posts an action, once.
func (c *Client) act(ctx context.Context, namespace string, path []string, q, into any) error {
	body, err := json.Marshal(q)
	if err != nil {
		return err
	}
	return c.do(ctx, request{method: http.MethodPost, namespace: namespace, path: path, body: body, once: true}, into)
}
