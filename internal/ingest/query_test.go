package ingest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// accepted posts n events evt_1 … evt_n of a type.
func (a *api) accepted(n int, typ string) {
	a.t.Helper()
	for i := range n {
		a.post(http.StatusAccepted, plainEvent(fmt.Sprint("evt_", i+1), typ), nil)
	}
}

func TestOneEventWithEveryAttempt(t *testing.T) {
	a := newAPI(t)
	a.accepted(1, "order.created")
	a.finish(1, orders, queue.Retrying, "")
	a.finish(1, orders, queue.DeadLettered, queue.ReasonOutOfAttempts)
	a.finish(1, audit, queue.Delivered, "")
	e := get[ingest.Event](a, "events/evt_1")
	if e.WebhookID != "evt_1" || e.Type != "order.created" || *e.PayloadBytes != len(plainEvent("evt_1", "order.created")) {
		t.Errorf("event is %+v", e)
	}
	if e.States[ingest.StateDelivered] != 1 || e.States[ingest.StateDeadLettered] != 1 || len(e.Deliveries) != 2 {
		t.Fatalf("states are %v of %d deliveries", e.States, len(e.Deliveries))
	}
	d := e.Deliveries[1]
	if d.Endpoint != "orders" || d.State != ingest.StateDeadLettered || d.Reason != "OutOfAttempts" || d.AttemptCount != 2 {
		t.Errorf("delivery is %+v", d)
	}
	if len(d.Attempts) != 2 || d.Attempts[1].Number != 2 || d.Attempts[0].Status != 500 || d.Attempts[0].DurationMS != 1.5 ||
		string(d.Attempts[0].Response) != "oops" || d.Attempts[0].Outcome != "retry" || d.Attempts[0].Sent != "yes" {
		t.Errorf("attempts are %+v", d.Attempts)
	}
	if e.Explanations != nil {
		t.Errorf("there are explanations though nobody asked: %+v", e.Explanations)
	}
}

func TestStatesPeopleSee(t *testing.T) {
	for _, c := range []struct {
		name     string
		state    queue.State
		lane     ingest.LaneView
		inFlight bool
		want     ingest.DeliveryState
	}{
		{"pending", queue.Pending, ingest.LaneView{State: ingest.LaneActive}, false, ingest.StatePending},
		{"retrying", queue.Retrying, ingest.LaneView{State: ingest.LaneBackingOff}, false, ingest.StateRetrying},
		{"in flight", queue.Pending, ingest.LaneView{State: ingest.LaneActive}, true, ingest.StateInFlight},
		{"in flight in a lane that holds", queue.Pending, ingest.LaneView{State: ingest.LaneSuspended}, true, ingest.StateInFlight},
		{"suspended", queue.Pending, ingest.LaneView{State: ingest.LaneSuspended}, false, ingest.StateHeld},
		{"disabled", queue.Retrying, ingest.LaneView{State: ingest.LaneDisabled}, false, ingest.StateHeld},
		{"missing", queue.Retrying, ingest.LaneView{State: ingest.LaneMissing}, false, ingest.StateHeld},
		{"held for another reason", queue.Retrying, ingest.LaneView{State: ingest.LaneActive, Held: true}, false, ingest.StateHeld},
		{"delivered in a lane that holds", queue.Delivered, ingest.LaneView{State: ingest.LaneDisabled}, false, ingest.StateDelivered},
		{"dead-lettered", queue.DeadLettered, ingest.LaneView{State: ingest.LaneActive}, false, ingest.StateDeadLettered},
		{"a filter that failed", queue.FilterError, ingest.LaneView{State: ingest.LaneActive}, false, ingest.StateFilterError},
		{"not wanted after all", queue.Discarded, ingest.LaneView{State: ingest.LaneSuspended}, false, ingest.StateDiscarded},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newAPI(t)
			a.accepted(1, "order.created")
			switch c.state {
			case queue.Pending:
			case queue.FilterError, queue.Discarded:
				if _, err := a.queue.Settle(t.Context(), orders, []queue.Seq{1}, c.state, "FilterFalse"); err != nil {
					t.Fatal(err)
				}
			default:
				a.finish(1, orders, c.state, "Rejected")
			}
			a.lanes.Set(orders, c.lane)
			if c.inFlight {
				a.lanes.SetInFlight(orders, 1)
			}
			for _, d := range get[ingest.Event](a, "events/evt_1").Deliveries {
				if d.Endpoint == "orders" && d.State != c.want {
					t.Errorf("the event shows %s, want %s", d.State, c.want)
				}
			}
			list := get[ingest.DeliveryList](a, "endpoints/orders/deliveries?state="+string(c.want))
			if len(list.Items) != 1 || list.Items[0].State != c.want || list.Items[0].WebhookID != "evt_1" {
				t.Errorf("the list of %s holds %+v", c.want, list.Items)
			}
			for _, other := range []ingest.DeliveryState{"pending", "retrying", "inFlight", "held", "delivered", "deadLettered", "filterError", "discarded"} {
				if other == c.want {
					continue
				}
				if list := get[ingest.DeliveryList](a, "endpoints/orders/deliveries?state="+string(other)); len(list.Items) != 0 {
					t.Errorf("the list of %s holds it too", other)
				}
			}
			waiting := get[ingest.DeliveryList](a, "endpoints/orders/deliveries?state=waiting")
			if got := len(waiting.Items) == 1; got != c.want.Waiting() {
				t.Errorf("the list of waiting deliveries holds it: %v", got)
			}
		})
	}
}

func TestExplain(t *testing.T) {
	a := newAPI(t)
	p := testPlan()
	add := func(name string, seen time.Time, types ...string) {
		p.Endpoints = append(p.Endpoints, plan.Endpoint{EndpointKey: plan.EndpointKey{Namespace: "shop", Name: name}, FirstSeen: seen, EventTypes: types})
	}
	add("later", start.Add(time.Minute))
	add("payments", start.Add(-time.Hour), "payment.*", "refund.made")
	add("operations", start.Add(-time.Hour), "doorstep.*")
	a.plan.Store(p)
	a.post(http.StatusAccepted, plainEvent("evt_1", "order.created"), nil)
	// later was not there then: it has no delivery, though the fan-out of this plan gave it one.
	later := plan.EndpointKey{Namespace: "shop", Name: "later"}
	if e := get[ingest.Event](a, "events/evt_1"); len(e.Deliveries) != 3 {
		t.Fatalf("%d deliveries, want 3", len(e.Deliveries))
	}
	a.post(http.StatusAccepted, plainEvent("evt_2", "user.created"), nil)
	a.finish(1, audit, queue.Delivered, "")
	a.finish(1, orders, queue.DeadLettered, queue.ReasonRejected)
	a.lanes.Set(later, ingest.LaneView{State: ingest.LaneSuspended})
	for _, c := range []struct{ event, endpoint, reason, words string }{
		{"evt_1", "audit", "Delivered", "1 attempt, last answer 204"},
		{"evt_1", "orders", "Rejected", "not retried"},
		{"evt_1", "later", "Suspended", "suspended"},
		{"evt_1", "payments", "TypeMismatch", "payment.*, refund.made"},
		{"evt_1", "operations", "TypeMismatch", "doorstep.*"},
		{"evt_2", "orders", "TypeMismatch", "order.*"},
		{"evt_2", "audit", "Pending", "first attempt"},
	} {
		x := explanation(t, get[ingest.Event](a, "events/"+c.event+"?explain"), c.endpoint)
		if x.Reason != c.reason || !strings.Contains(x.Message, c.words) {
			t.Errorf("%s and %s: %+v, want %s with %q", c.event, c.endpoint, x, c.reason, c.words)
		}
	}
	for limit, words := range map[string]string{"ordering": "earlier event", "rateLimit": "rateLimit", "maxInFlight": "maxInFlight", "pool": "pool's limits"} {
		a.lanes.Set(audit, ingest.LaneView{State: ingest.LaneActive, LimitedBy: limit})
		if x := explanation(t, get[ingest.Event](a, "events/evt_2?explain"), "audit"); !strings.Contains(x.Message, words) {
			t.Errorf("a lane limited by %s is explained by %+v", limit, x)
		}
	}
}

func explanation(t *testing.T, e ingest.Event, endpoint string) ingest.Explanation {
	t.Helper()
	for _, x := range e.Explanations {
		if x.Endpoint == endpoint {
			return x
		}
	}
	t.Fatalf("%s is not explained: %+v", endpoint, e.Explanations)
	return ingest.Explanation{}
}

func TestExplainWhatChangedSince(t *testing.T) {
	a := newAPI(t)
	a.accepted(1, "order.created")
	p := testPlan()
	p.Endpoints = p.Endpoints[:2] // orders is gone from the plan
	p.Endpoints = append(p.Endpoints,
		plan.Endpoint{EndpointKey: plan.EndpointKey{Namespace: "shop", Name: "new"}, FirstSeen: start.Add(time.Second)},
		plan.Endpoint{EndpointKey: plan.EndpointKey{Namespace: "shop", Name: "old"}, FirstSeen: start.Add(-time.Minute)},
		plan.Endpoint{EndpointKey: plan.EndpointKey{Namespace: "shop", Name: "just"}, FirstSeen: start.Add(-time.Second)})
	a.plan.Store(p)
	e := get[ingest.Event](a, "events?id=evt_1&explain=true")
	for endpoint, want := range map[string]string{"orders": "NotInPlan", "new": "CreatedLater", "old": "ChangedLater", "just": "CreatedLater"} {
		if x := explanation(t, e, endpoint); x.Reason != want || x.Message == "" {
			t.Errorf("%s: %+v, want %s", endpoint, x, want)
		}
	}
	a.finish(1, audit, queue.Retrying, "")
	a.lanes.Set(audit, ingest.LaneView{State: ingest.LaneBackingOff, Reason: "Rejecting", RetryAt: start.Add(8 * time.Second)})
	x := explanation(t, get[ingest.Event](a, "events/evt_1?explain"), "audit")
	if x.Reason != "Retrying" || !strings.Contains(x.Message, "2026-11-30T12:01:00Z") || !strings.Contains(x.Message, "Rejecting") {
		t.Errorf("a retry is explained by %+v", x)
	}
}

// case PF24: digits are equal through the payload's own path, and so is every other byte.
func TestPayloadIsTheBytesThatCame(t *testing.T) {
	a := newAPI(t)
	body := "{ \"id\":\"evt_1\",\t\"type\":\"a\", \"data\":{\"id\":123456789012345678,\"n\":1e400,\"n\":1.10,\"s\":\"\\u00e9<&>\"} }\n"
	a.post(http.StatusAccepted, body, nil)
	w := a.want(http.StatusOK, a.call(http.MethodGet, "/v1/namespaces/shop/events/evt_1/payload", "", nil))
	if w.Body.String() != body {
		t.Errorf("payload is %q, want %q", w.Body, body)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "X-Content-Type-Options": "nosniff",
		"Content-Disposition": `attachment; filename="evt_1"`, "Content-Length": fmt.Sprint(len(body)),
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	html := "<script>alert(1)</script>\xff"
	a.post(http.StatusAccepted, html, header{"Content-Type": "text/html", "Ce-Specversion": "1.0", "Ce-Id": "h", "Ce-Source": "/s", "Ce-Type": "a"})
	id := get[ingest.Event](a, "events?id=h&source=/s").WebhookID
	w = a.want(http.StatusOK, a.call(http.MethodGet, "/v1/namespaces/shop/events/"+id+"/payload", "", nil))
	if w.Body.String() != html || !strings.HasPrefix(w.Header().Get("Content-Disposition"), "attachment") {
		t.Errorf("binary payload is %q, %v", w.Body, w.Header())
	}
}

// follow collects a list page by page, and counts the pages.
func follow[T any](a *api, path string, limit int, page func([]byte) ([]T, string)) (items []T, pages int) {
	a.t.Helper()
	cursor := ""
	for {
		pages++
		if pages > 1000 {
			a.t.Fatal("the list has no end")
		}
		query := url.Values{"limit": {fmt.Sprint(limit)}}
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		glue := "?"
		if strings.Contains(path, "?") {
			glue = "&"
		}
		raw := get[json.RawMessage](a, path+glue+query.Encode())
		got, next := page(raw)
		if len(got) > limit {
			a.t.Fatalf("a page holds %d items, the limit is %d", len(got), limit)
		}
		items = append(items, got...)
		if next == "" {
			return items, pages
		}
		cursor = next
	}
}

func TestEventsNewestFirst(t *testing.T) {
	a := newAPI(t)
	for i := range 30 {
		typ := "order.created"
		if i%3 == 0 {
			typ = "user.created"
		}
		a.post(http.StatusAccepted, plainEvent(fmt.Sprint("evt_", i), typ), nil)
		a.want(http.StatusAccepted, a.call(http.MethodPost, "/v1/namespaces/other/events", plainEvent(fmt.Sprint("evt_", i), typ), nil))
	}
	page := func(b []byte) ([]ingest.Event, string) {
		l := decode[ingest.EventList](t, b)
		return l.Items, l.Cursor
	}
	for _, limit := range []int{1, 7, 30, 500} {
		events, _ := follow(a, "events", limit, page)
		if len(events) != 30 || events[0].WebhookID != "evt_29" || events[29].WebhookID != "evt_0" {
			t.Fatalf("limit %d: %d events, first %s", limit, len(events), events[0].WebhookID)
		}
		for _, e := range events {
			if e.Namespace != "shop" || e.States[ingest.StatePending] == 0 {
				t.Errorf("limit %d: event %+v", limit, e)
			}
		}
		events, _ = follow(a, "events?type=user.*", limit, page)
		if len(events) != 10 || events[0].WebhookID != "evt_27" {
			t.Errorf("limit %d: %d events of a type", limit, len(events))
		}
	}
}

// Spans side by side hold each event once: since is inclusive, until is not.
func TestEventsOfASpan(t *testing.T) {
	a := newAPI(t)
	now := start
	a.queue.Now = func() time.Time { return now }
	for i := range 10 {
		now = start.Add(time.Duration(i) * time.Minute)
		a.post(http.StatusAccepted, plainEvent(fmt.Sprint("evt_", i), "a"), nil)
	}
	at := func(minute int) string { return start.Add(time.Duration(minute) * time.Minute).Format(time.RFC3339) }
	for _, c := range []struct {
		name, query string
		want        []string
	}{
		{"since", "since=" + at(8), []string{"evt_9", "evt_8"}},
		{"until", "until=" + at(2), []string{"evt_1", "evt_0"}},
		{"both", "since=" + at(4) + "&until=" + at(6), []string{"evt_5", "evt_4"}},
		{"neither", "since=" + at(4) + "&until=" + at(4), nil},
	} {
		for _, limit := range []int{1, 100} {
			events, _ := follow(a, "events?"+c.query, limit, func(b []byte) ([]ingest.Event, string) {
				l := decode[ingest.EventList](t, b)
				return l.Items, l.Cursor
			})
			var got []string
			for _, e := range events {
				got = append(got, e.WebhookID)
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("%s by %d: %v, want %v", c.name, limit, got, c.want)
			}
		}
	}
}

func TestDeliveriesPageByPage(t *testing.T) {
	a := newAPI(t)
	a.accepted(20, "order.created")
	for i := range 20 {
		switch i % 4 {
		case 0:
			a.finish(queue.Seq(i+1), orders, queue.Delivered, "")
		case 1:
			a.finish(queue.Seq(i+1), orders, queue.DeadLettered, "Rejected")
		case 2:
			a.finish(queue.Seq(i+1), orders, queue.Retrying, "")
		}
	}
	page := func(b []byte) ([]ingest.Delivery, string) {
		l := decode[ingest.DeliveryList](t, b)
		return l.Items, l.Cursor
	}
	for _, c := range []struct {
		path string
		want int
	}{
		{"deliveries", 40}, {"deliveries?state=deadLettered", 5}, {"deliveries?state=pending", 25}, {"deliveries?state=waiting", 30},
		{"endpoints/orders/deliveries", 20}, {"endpoints/orders/deliveries?state=retrying", 5},
		{"endpoints/audit/deliveries?state=delivered", 0},
	} {
		for _, limit := range []int{1, 3, 5, 100} {
			items, _ := follow(a, c.path, limit, page)
			seen := map[string]bool{}
			for _, d := range items {
				seen[d.Endpoint+"/"+d.WebhookID] = true
				if d.Type != "order.created" {
					t.Errorf("delivery %+v has no type", d)
				}
			}
			if len(items) != c.want || len(seen) != c.want {
				t.Errorf("%s by %d: %d items, %d of them different, want %d", c.path, limit, len(items), len(seen), c.want)
			}
		}
	}
	// A cursor belongs to its list.
	cursor := get[ingest.DeliveryList](a, "endpoints/orders/deliveries?limit=1").Cursor
	for _, path := range []string{"endpoints/audit/deliveries?cursor=", "deliveries?state=delivered&cursor=", "events?cursor=", "endpoints?cursor="} {
		w := a.want(http.StatusBadRequest, a.call(http.MethodGet, "/v1/namespaces/shop/"+path+cursor, "", nil))
		if a.problem(w).Field != "cursor" {
			t.Errorf("%s: %s", path, w.Body)
		}
	}
}

// A filter that matches little must not make one request walk the whole backlog.
func TestAPageLooksAtABoundedNumber(t *testing.T) {
	a := newAPI(t)
	for i := range 2500 {
		a.post(http.StatusAccepted, plainEvent(fmt.Sprint("evt_", i), "order.created"), nil)
	}
	a.lanes.SetInFlight(orders, 2400)
	items, pages := follow(a, "deliveries?state=inFlight", 100, func(b []byte) ([]ingest.Delivery, string) {
		l := decode[ingest.DeliveryList](t, b)
		return l.Items, l.Cursor
	})
	if len(items) != 1 || pages != 2 {
		t.Errorf("%d items in %d pages, want 1 in 2", len(items), pages)
	}
}

// Absence is not deletion: an endpoint that is out of sight still gets its events.
func TestAnAbsentEndpointIsStillSentTo(t *testing.T) {
	a := newAPI(t)
	p := testPlan()
	gone := p.Endpoints[2]
	p.Endpoints, p.Absent = p.Endpoints[:2], []plan.Absence{{Endpoint: gone}}
	a.plan.Store(p)
	if r := decode[ingest.Receipt](t, a.post(http.StatusAccepted, plainEvent("1", "order.created"), nil).Body.Bytes()); r.Endpoints != 2 {
		t.Errorf("the event went to %d endpoints, want both", r.Endpoints)
	}
	a.lanes.Set(orders, ingest.LaneView{State: ingest.LaneNotInPlan, Held: true})
	if e := get[ingest.Endpoint](a, "endpoints/orders"); e.Ready {
		t.Error("an absent endpoint is shown as ready")
	}
}

func TestEndpoints(t *testing.T) {
	a := newAPI(t)
	a.accepted(3, "order.created")
	a.finish(1, orders, queue.DeadLettered, "Rejected")
	a.finish(2, orders, queue.Retrying, "")
	p := testPlan()
	p.Endpoints[1].Problem = &plan.Problem{Reason: "SecretNotFound", Message: "Secret orders-signing does not exist."}
	p.Endpoints = p.Endpoints[:2] // orders is gone
	p.Endpoints = append(p.Endpoints, plan.Endpoint{EndpointKey: plan.EndpointKey{Namespace: "shop", Name: "zebra"}})
	a.plan.Store(p)
	a.lanes.Set(audit, ingest.LaneView{State: ingest.LaneUnresolved, Reason: "SecretNotFound", Since: start})
	list := get[ingest.EndpointList](a, "endpoints")
	if len(list.Items) != 3 {
		t.Fatalf("endpoints are %+v", list.Items)
	}
	first, gone := list.Items[0], list.Items[1]
	if first.Name != "audit" || first.Host != "hooks.example.com" || first.Ready || first.Problem.Reason != "SecretNotFound" ||
		first.Lane.State != ingest.LaneUnresolved || !first.Lane.Held || first.RetryPolicy != "patient" {
		t.Errorf("audit is %+v", first)
	}
	if gone.Name != "orders" || gone.Lane.State != ingest.LaneNotInPlan || gone.Deliveries.Waiting != 2 ||
		gone.Deliveries.DeadLettered != 1 || gone.Deliveries.Retrying != 1 || !gone.Deliveries.OldestDueTime.Equal(start) {
		t.Errorf("orders is %+v", gone)
	}
	one := get[ingest.Endpoint](a, "endpoints/orders")
	if one.Deliveries != gone.Deliveries {
		t.Errorf("one endpoint is %+v, in the list it was %+v", one, gone)
	}
	items, pages := follow(a, "endpoints", 1, func(b []byte) ([]ingest.Endpoint, string) {
		l := decode[ingest.EndpointList](t, b)
		return l.Items, l.Cursor
	})
	if len(items) != 3 || pages != 3 || items[2].Name != "zebra" {
		t.Errorf("page by page: %d items in %d pages", len(items), pages)
	}
}

// Nothing that the API answers holds more of an endpoint's URL than its host.
func TestURLsStayInside(t *testing.T) {
	a := newAPI(t)
	a.accepted(1, "order.created")
	a.finish(1, orders, queue.DeadLettered, "Rejected")
	for _, path := range []string{"endpoints", "endpoints/orders", "events", "events/evt_1?explain", "deliveries", "events/evt_1/payload"} {
		w := a.want(http.StatusOK, a.call(http.MethodGet, "/v1/namespaces/shop/"+path, "", nil))
		if strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s answers %s", path, w.Body)
		}
	}
}
