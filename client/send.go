package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Event is an event to send.
type Event struct {
	// ID names the event, within its namespace and source: the same one again is a duplicate, which is answered and not
	// sent again. Empty: Send takes a NewID. Who calls Send again after an error gives the same ID, and the same content,
	// both times: what had no answer may have been accepted.
	ID string
	// Type is the event's type, such as order.created.
	Type string
	// Source says where the event comes from; empty is a source too.
	Source string
	// Time is when it happened; zero: left out.
	Time time.Time
	// Attributes are texts that endpoints may select by; their names are of a-z and 0-9.
	Attributes map[string]string
	// Data becomes the event's data: a json.RawMessage as it is, byte for byte, anything else by json.Marshal.
	Data any
}

// Receipt is the answer to an event that was accepted, or that is a duplicate of one.
type Receipt struct {
	ID     string `json:"id"`
	Source string `json:"source"`
	// WebhookID is the id that receivers see, and by which the event is looked up.
	WebhookID string `json:"webhookId"`
	// Endpoints is how many endpoints the event goes to.
	Endpoints int `json:"endpoints"`
	// Duplicate is set when the same event was accepted before: nothing new is sent.
	Duplicate bool `json:"duplicate,omitempty"`
}

func (r *Receipt) whole() bool { return r.WebhookID != "" }

// BatchReceipt is the answer to a batch: a receipt for each event, in their order.
type BatchReceipt struct {
	Results []Receipt `json:"results"`
}

func (r *BatchReceipt) whole() bool { return r.Results != nil }

// NewID is a fresh random event id.
func NewID() string { return "evt_" + strings.ToLower(rand.Text()) }

// Send posts an event in Doorstep's plain form. It returns once the event and all its deliveries are durable.
func (c *Client) Send(ctx context.Context, namespace string, e Event) (Receipt, error) {
	if e.ID == "" {
		e.ID = NewID()
	}
	body, err := e.plain()
	if err != nil {
		return Receipt{}, err
	}
	return c.Post(ctx, namespace, http.Header{"Content-Type": {"application/json"}}, body)
}

// Batch posts events together, as a CloudEvents batch: all are accepted or none. Each needs a Source; at most 1,000 and
// 4 MiB. An event that was sent by Send has other bytes here, and so is no duplicate but a conflict.
func (c *Client) Batch(ctx context.Context, namespace string, events []Event) ([]Receipt, error) {
	body := []byte{'['}
	for i, e := range events {
		if e.ID == "" {
			e.ID = NewID()
		}
		text, err := e.cloudEvent()
		if err != nil {
			return nil, fmt.Errorf("event %d: %w", i, err)
		}
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, text...)
	}
	var receipt BatchReceipt
	err := c.do(ctx, request{
		method: http.MethodPost, namespace: namespace, path: []string{"events"}, body: append(body, ']'),
		header: http.Header{"Content-Type": {"application/cloudevents-batch+json"}},
	}, &receipt)
	return receipt.Results, err
}

// Post posts an event that is already in one of the forms the API takes: a plain one, or a CloudEvent, structured or
// (by its ce- headers) binary. header needs a Content-Type. The bytes go as they are.
func (c *Client) Post(ctx context.Context, namespace string, header http.Header, body []byte) (Receipt, error) {
	var receipt Receipt
	err := c.do(ctx, request{
		method: http.MethodPost, namespace: namespace, path: []string{"events"}, header: header, body: body,
	}, &receipt)
	return receipt, err
}

// plain is the event in Doorstep's own form. It is put together by hand: encoding a json.RawMessage would compact it.
func (e *Event) plain() ([]byte, error) {
	b := members{'{'}
	b.text("id", e.ID)
	b.text("type", e.Type)
	if e.Source != "" {
		b.text("source", e.Source)
	}
	if !e.Time.IsZero() {
		b.text("created_at", e.Time.Format(time.RFC3339Nano))
	}
	if len(e.Attributes) > 0 {
		text, err := json.Marshal(e.Attributes)
		if err != nil {
			return nil, err
		}
		b.add("attributes", text)
	}
	return b.end(e.Data)
}

// cloudEvent is the event in CloudEvents' structured form.
func (e *Event) cloudEvent() ([]byte, error) {
	if e.Source == "" {
		return nil, errors.New("it has no Source, which a CloudEvent needs")
	}
	b := members{'{'}
	b.text("specversion", "1.0")
	b.text("id", e.ID)
	b.text("type", e.Type)
	b.text("source", e.Source)
	if !e.Time.IsZero() {
		b.text("time", e.Time.Format(time.RFC3339Nano))
	}
	names := make([]string, 0, len(e.Attributes))
	for name := range e.Attributes {
		if slices.Contains([]string{"specversion", "id", "type", "source", "time", "data", "data_base64"}, name) {
			return nil, fmt.Errorf("the attribute %s is a member of the CloudEvent itself", name)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		b.text(name, e.Attributes[name])
	}
	return b.end(e.Data)
}

// members are those of a JSON object so far.
type members []byte

func (m *members) add(name string, value []byte) {
	if len(*m) > 1 {
		*m = append(*m, ',')
	}
	*m = append(append(append(*m, quoted(name)...), ':'), value...)
}

func (m *members) text(name, value string) { m.add(name, quoted(value)) }

func (m *members) end(data any) ([]byte, error) {
	raw, ok := data.(json.RawMessage)
	switch {
	case !ok:
		var err error
		if raw, err = json.Marshal(data); err != nil {
			return nil, fmt.Errorf("encode Data: %w", err)
		}
	case !json.Valid(raw):
		return nil, errors.New("encode Data: it is a json.RawMessage and no JSON")
	}
	m.add("data", raw)
	return append(*m, '}'), nil
}

func quoted(s string) []byte {
	b, _ := json.Marshal(s) // a string always encodes
	return b
}
