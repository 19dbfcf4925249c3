package ingest_test

import (
	"net/http"
	"testing"

	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// as lets everybody in as one caller, but for some verbs.
type as struct {
	caller ingest.Caller
	not    map[ingest.Verb]bool
}

func (a *as) Authorize(_ *http.Request, q ingest.Request) (ingest.Caller, error) {
	if a.not[q.Verb] {
		return ingest.Caller{}, &ingest.Problem{Type: "https://doorstep.dev/problems/forbidden", Title: "Forbidden", Status: 403, Detail: "Not you."}
	}
	return a.caller, nil
}

// A caller that is bound to an endpoint sees that endpoint and what goes to it, and nothing of anybody else's.
func TestACallerBoundToAnEndpoint(t *testing.T) {
	who := &as{caller: ingest.Caller{Name: "key:all"}}
	a := newAPI(t, func(o *ingest.Options) { o.Authorizer = who })
	a.post(http.StatusAccepted, plainEvent("evt_1", "order.created"), nil) // for both
	a.post(http.StatusAccepted, plainEvent("evt_2", "user.created"), nil)  // for audit alone
	a.finish(1, orders, queue.DeadLettered, queue.ReasonRejected)
	a.finish(1, audit, queue.DeadLettered, queue.ReasonRejected)
	a.finish(2, audit, queue.DeadLettered, queue.ReasonRejected)
	a.want(http.StatusOK, a.call(http.MethodPost, "/v1/namespaces/shop/endpoints/audit/test", "", nil))
	who.caller = ingest.Caller{Name: "key:orders", Endpoints: []string{"orders"}}

	for _, order := range []string{"newest", "oldest"} {
		for _, limit := range []int{1, 100} {
			got := get[ingest.EventList](a, "events?order="+order+"&limit="+encode(t, limit))
			if len(got.Items) != 1 || got.Items[0].WebhookID != "evt_1" || got.Items[0].States[ingest.StateDeadLettered] != 1 {
				t.Errorf("%s by %d: the events are %+v", order, limit, got.Items)
			}
		}
	}
	if e := get[ingest.Event](a, "events/evt_1?explain"); len(e.Deliveries) != 1 || e.Deliveries[0].Endpoint != "orders" || len(e.Explanations) != 1 {
		t.Errorf("the event is %+v", e)
	}
	if l := get[ingest.EndpointList](a, "endpoints"); len(l.Items) != 1 || l.Items[0].Name != "orders" {
		t.Errorf("the endpoints are %+v", l.Items)
	}
	for _, path := range []string{"deliveries", "endpoints/orders/deliveries"} {
		if l := get[ingest.DeliveryList](a, path); len(l.Items) != 1 || l.Items[0].Endpoint != "orders" {
			t.Errorf("%s are %+v", path, l.Items)
		}
	}
	if l := get[ingest.AuditList](a, "audit"); len(l.Items) != 0 {
		t.Errorf("the audit records are %+v", l.Items)
	}
	const shop = "/v1/namespaces/shop/"
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"GET", "events/evt_1/payload", "", 200},
		{"GET", "endpoints/orders", "", 200},
		{"POST", "endpoints/orders/test", "", 200},
		{"POST", "endpoints/orders/replay", `{"select":{"states":["deadLettered"]},"dryRun":true}`, 200},
		{"POST", "events", plainEvent("evt_3", "a"), 403},
		{"DELETE", "events/evt_1", "", 403},
		{"GET", "events/evt_2", "", 404},
		{"GET", "events?id=evt_2", "", 404},
		{"GET", "events/evt_2/payload", "", 404},
		{"POST", "events/evt_2/replay", "", 404},
		{"POST", "events/evt_1/replay", `{"endpoint":"audit"}`, 403},
		{"GET", "endpoints/audit", "", 403},
		{"GET", "endpoints/nope", "", 403}, // not even whether it exists
		{"GET", "endpoints/audit/deliveries", "", 403},
		{"POST", "endpoints/audit/replay", `{"select":{"states":["deadLettered"]}}`, 403},
		{"POST", "endpoints/audit/enable", "", 403},
		{"POST", "endpoints/audit/retry", "", 403},
		{"POST", "endpoints/audit/test", "", 403},
	} {
		if w := a.call(c.method, shop+c.path, c.body, nil); w.Code != c.want {
			t.Errorf("%s %s: %d, want %d: %s", c.method, c.path, w.Code, c.want, w.Body)
		}
	}
	// A replay of the event goes to its own endpoint alone.
	if r := a.replay(http.StatusOK, "evt_1", ""); len(r.Replayed) != 1 || r.Replayed[0] != "orders" {
		t.Errorf("replayed to %v", r.Replayed)
	}
	if a.queue.Counts(audit).Waiting() != 0 {
		t.Error("audit got a replay")
	}
	// Of an event that is not its own it does not even learn that there was one which was erased.
	if _, err := a.queue.Erase(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"events/evt_2", "events/evt_2/payload", "events/evt_9/payload"} {
		a.want(http.StatusNotFound, a.call(http.MethodGet, shop+path, "", nil))
	}
}

// case SS134: what receivers answered is capped, can't write to a terminal, and is for those who may read payloads.
func TestAnswersOfReceiversAreGuarded(t *testing.T) {
	who := &as{caller: ingest.Caller{Name: "key:all"}}
	a := newAPI(t, func(o *ingest.Options) { o.Authorizer = who })
	a.accepted(1, "order.created")
	secret := make([]byte, 1<<20)
	copy(secret, "\x1b]0;owned\x07 password=hunter2")
	a.queue.Record(queue.Outcome{Seq: 1, Endpoint: orders, To: queue.DeadLettered, Reason: queue.ReasonRejected, Attempt: queue.Attempt{
		StartedAt: start, Status: 400, Sent: queue.SentYes, Response: secret, Message: "the receiver answered 400"}}, nil)
	a.lanes.TestFunc = nil
	response := func() []byte {
		w := a.want(http.StatusOK, a.call(http.MethodGet, "/v1/namespaces/shop/events/evt_1", "", nil))
		for _, b := range w.Body.Bytes() {
			if b < ' ' && b != '\n' {
				t.Fatalf("the answer holds the control character %#x", b)
			}
		}
		for _, d := range decode[ingest.Event](t, w.Body.Bytes()).Deliveries {
			if d.Endpoint == "orders" {
				return d.Attempts[0].Response
			}
		}
		return nil
	}
	if got := response(); len(got) != 4<<10 || string(got[:4]) != "\x1b]0;" {
		t.Errorf("%d bytes of the answer are shown", len(got))
	}
	who.not = map[ingest.Verb]bool{ingest.VerbReadPayload: true}
	if got := response(); got != nil {
		t.Errorf("one who may not read payloads sees %d bytes", len(got))
	}
}
