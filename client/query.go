package client

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Get gives one event by its webhook-id, with its deliveries and every attempt.
func (c *Client) Get(ctx context.Context, namespace, webhookID string) (AcceptedEvent, error) {
	return c.event(ctx, namespace, []string{"events", webhookID}, url.Values{})
}

// Explain gives what Get does, and for each endpoint of the namespace why it did or didn't get the event.
func (c *Client) Explain(ctx context.Context, namespace, webhookID string) (AcceptedEvent, error) {
	return c.event(ctx, namespace, []string{"events", webhookID}, url.Values{"explain": {"true"}})
}

// Find gives what Get does, of the event with the id and source (perhaps empty) that its producer gave it.
func (c *Client) Find(ctx context.Context, namespace, source, id string) (AcceptedEvent, error) {
	return c.event(ctx, namespace, []string{"events"}, url.Values{"id": {id}, "source": {source}})
}

func (c *Client) event(ctx context.Context, namespace string, path []string, query url.Values) (AcceptedEvent, error) {
	var e AcceptedEvent
	err := c.do(ctx, request{method: http.MethodGet, namespace: namespace, path: path, query: query}, &e)
	return e, err
}

// Payload gives the bytes of an event as they are sent to receivers.
func (c *Client) Payload(ctx context.Context, namespace, webhookID string) ([]byte, error) {
	var body []byte
	err := c.do(ctx, request{method: http.MethodGet, namespace: namespace, path: []string{"events", webhookID, "payload"}}, &body)
	return body, err
}

// Endpoint gives one endpoint.
func (c *Client) Endpoint(ctx context.Context, namespace, name string) (Endpoint, error) {
	var e Endpoint
	err := c.do(ctx, request{method: http.MethodGet, namespace: namespace, path: []string{"endpoints", name}}, &e)
	return e, err
}

// EventFilter says which events are listed, and how. The zero value lists all, newest first.
type EventFilter struct {
	// Type is a type, or a pattern such as order.*.
	Type string
	// Since and Until bound when the event was accepted: from Since, before Until.
	Since, Until time.Time
	// OldestFirst lists in the order of acceptance, for consumers that reconcile what they missed.
	OldestFirst bool
	// Cursor goes on where a page of the same filter ended.
	Cursor string
	// PageSize is how many are asked for at once, 1 to 500; 0: 100.
	PageSize int
}

func (f EventFilter) query() url.Values {
	v := pageQuery(f.PageSize, f.Cursor)
	setTimes(v, f.Since, f.Until)
	if f.Type != "" {
		v.Set("type", f.Type)
	}
	if f.OldestFirst {
		v.Set("order", "oldest")
	}
	return v
}

// EventPage gives one page of events. A consumer that reconciles keeps the Cursor of the last page, oldest first, and
// asks from there on the next time.
func (c *Client) EventPage(ctx context.Context, namespace string, f EventFilter) (EventList, error) {
	var page EventList
	err := c.do(ctx, request{method: http.MethodGet, namespace: namespace, path: []string{"events"}, query: f.query()}, &page)
	return page, err
}

// Events lists events to the end, a page at a time. An error is the last thing it gives.
func (c *Client) Events(ctx context.Context, namespace string, f EventFilter) iter.Seq2[AcceptedEvent, error] {
	return walk(f.query(), func(query url.Values) ([]AcceptedEvent, string, error) {
		var page EventList
		err := c.do(ctx, request{method: http.MethodGet, namespace: namespace, path: []string{"events"}, query: query}, &page)
		if page.AtEnd {
			page.Cursor = ""
		}
		return page.Items, page.Cursor, err
	})
}

// DeliveryFilter says which deliveries are listed. The zero value lists all of the namespace.
type DeliveryFilter struct {
	// Endpoint is the name of the one endpoint.
	Endpoint string
	State    DeliveryState
	// Since and Until bound when the event was accepted: from Since, before Until.
	Since, Until time.Time
	// PageSize is how many are asked for at once, 1 to 500; 0: 100.
	PageSize int
}

// Deliveries lists deliveries to the end, by endpoint, then state, then oldest event first. An error is the last thing
// it gives.
func (c *Client) Deliveries(ctx context.Context, namespace string, f DeliveryFilter) iter.Seq2[Delivery, error] {
	path, query := []string{"deliveries"}, pageQuery(f.PageSize, "")
	if f.Endpoint != "" {
		path = []string{"endpoints", f.Endpoint, "deliveries"}
	}
	setTimes(query, f.Since, f.Until)
	if f.State != "" {
		query.Set("state", string(f.State))
	}
	return walk(query, func(query url.Values) ([]Delivery, string, error) {
		var page DeliveryList
		err := c.do(ctx, request{method: http.MethodGet, namespace: namespace, path: path, query: query}, &page)
		return page.Items, page.Cursor, err
	})
}

// Endpoints lists the endpoints of a namespace by name, pageSize (0: 100) at once. An error is the last thing it gives.
func (c *Client) Endpoints(ctx context.Context, namespace string, pageSize int) iter.Seq2[Endpoint, error] {
	return walk(pageQuery(pageSize, ""), func(query url.Values) ([]Endpoint, string, error) {
		var page EndpointList
		err := c.do(ctx, request{method: http.MethodGet, namespace: namespace, path: []string{"endpoints"}, query: query}, &page)
		return page.Items, page.Cursor, err
	})
}

// AuditFilter says which audit records are listed. The zero value lists all.
type AuditFilter struct {
	// Action is replay, erase, enable, retry or test; Target a webhook-id or the name of an endpoint.
	Action, Target string
	// PageSize is how many are asked for at once, 1 to 500; 0: 100.
	PageSize int
}

// Audit lists a namespace's audit records, newest first. An error is the last thing it gives.
func (c *Client) Audit(ctx context.Context, namespace string, f AuditFilter) iter.Seq2[AuditRecord, error] {
	query := pageQuery(f.PageSize, "")
	for name, value := range map[string]string{"action": f.Action, "target": f.Target} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return walk(query, func(query url.Values) ([]AuditRecord, string, error) {
		var page AuditList
		err := c.do(ctx, request{method: http.MethodGet, namespace: namespace, path: []string{"audit"}, query: query}, &page)
		return page.Items, page.Cursor, err
	})
}

func pageQuery(size int, cursor string) url.Values {
	v := url.Values{}
	if size > 0 {
		v.Set("limit", strconv.Itoa(size))
	}
	if cursor != "" {
		v.Set("cursor", cursor)
	}
	return v
}

func setTimes(v url.Values, since, until time.Time) {
	for name, t := range map[string]time.Time{"since": since, "until": until} {
		if !t.IsZero() {
			v.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
}

// walk follows the cursors of a list.
func walk[T any](query url.Values, page func(url.Values) ([]T, string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		query := maps.Clone(query)
		for {
			items, cursor, err := page(query)
			if err == nil && cursor != "" && cursor == query.Get("cursor") {
				err = fmt.Errorf("%w (it gives the same page again and again)", ErrForeign)
			}
			if err != nil {
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if cursor == "" {
				return
			}
			query.Set("cursor", cursor)
		}
	}
}
