package ingest_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

func (a *api) replay(want int, event, body string) *ingest.ReplayResult {
	a.t.Helper()
	w := a.want(want, a.call(http.MethodPost, "/v1/namespaces/shop/events/"+event+"/replay", body, nil))
	if want != http.StatusOK {
		return nil
	}
	r := decode[ingest.ReplayResult](a.t, w.Body.Bytes())
	return &r
}

// cases DD78, DD82, DL159.
func TestReplay(t *testing.T) {
	a := newAPI(t)
	a.accepted(1, "order.created")
	// What waits is not sent twice.
	a.replay(http.StatusConflict, "evt_1", `{"endpoint":"orders"}`)
	a.replay(http.StatusConflict, "evt_1", `{"endpoint":"orders","force":true}`)
	a.finish(1, orders, queue.Retrying, "")
	a.replay(http.StatusConflict, "evt_1", `{"endpoint":"orders"}`)
	a.finish(1, orders, queue.DeadLettered, queue.ReasonOutOfAttempts)
	a.finish(1, audit, queue.Delivered, "")
	// What was delivered is not sent again unless asked by force.
	a.replay(http.StatusConflict, "evt_1", `{"endpoint":"audit"}`)
	if r := a.replay(http.StatusOK, "evt_1", ""); len(r.Replayed) != 1 || r.Replayed[0] != "orders" {
		t.Errorf("replayed to %v, want orders", r.Replayed)
	}
	// A second press does nothing.
	a.replay(http.StatusConflict, "evt_1", "")
	if r := a.replay(http.StatusOK, "evt_1", `{"endpoint":"audit","force":true}`); len(r.Replayed) != 1 || r.Replayed[0] != "audit" {
		t.Errorf("replayed to %v, want audit", r.Replayed)
	}
	e := get[ingest.Event](a, "events/evt_1")
	for _, d := range e.Deliveries {
		if d.State != ingest.StatePending || d.Replays != 1 {
			t.Errorf("delivery is %+v, want pending after one replay", d)
		}
	}
}

func TestReplayRefusals(t *testing.T) {
	a := newAPI(t)
	a.accepted(1, "order.created")
	a.finish(1, orders, queue.DeadLettered, "Rejected")
	p := testPlan()
	for _, c := range []struct {
		name, body string
		status     int
		detail     string
	}{
		{"an endpoint that never had it", `{"endpoint":"payments"}`, 404, "no delivery"},
		{"not a name", `{"endpoint":"No"}`, 400, "name"},
		{"a misspelt member", `{"enpoint":"orders"}`, 400, "not known"},
		{"a member in another case", `{"Endpoint":"orders"}`, 400, "not known"},
		{"a member twice", `{"force":true,"force":false}`, 400, "twice"},
		{"null", `null`, 400, "JSON"},
		{"a reason of two lines", `{"reason":"a\nb"}`, 400, "one line"},
		{"a reason that turns the line round", `{"reason":"a\u202eb"}`, 400, "one line"},
		{"a long reason", `{"reason":"` + strings.Repeat("a", 257) + `"}`, 400, "longer"},
		{"a wrong kind", `{"force":"yes"}`, 400, "wrong kind"},
		{"not an object", `[]`, 400, "JSON"},
		{"two objects", `{}{}`, 400, "one JSON object"},
		{"too long", `{"endpoint":"` + strings.Repeat("a", 5000) + `"}`, 413, "larger"},
	} {
		w := a.want(c.status, a.call(http.MethodPost, "/v1/namespaces/shop/events/evt_1/replay", c.body, nil))
		if got := a.problem(w).Detail; !strings.Contains(got, c.detail) {
			t.Errorf("%s: %s", c.name, got)
		}
	}
	p.Endpoints = p.Endpoints[:2]
	a.plan.Store(p)
	w := a.want(http.StatusConflict, a.call(http.MethodPost, "/v1/namespaces/shop/events/evt_1/replay", "{}", nil))
	if got := a.problem(w); !strings.HasSuffix(got.Type, "endpoint-gone") {
		t.Errorf("the problem is %+v", got)
	}
	p = testPlan()
	p.Endpoints = nil
	a.plan.Store(p)
	a.post(http.StatusAccepted, plainEvent("evt_2", "a"), nil)
	a.replay(http.StatusConflict, "evt_2", "")
}

func TestEnable(t *testing.T) {
	a := newAPI(t)
	const path = "/v1/namespaces/shop/endpoints/orders/enable"
	a.lanes.Set(orders, ingest.LaneView{State: ingest.LaneDisabled})
	r := decode[ingest.EnableResult](t, a.want(http.StatusOK, a.call(http.MethodPost, path, "", nil)).Body.Bytes())
	if !r.WasDisabled || r.State != ingest.LaneActive {
		t.Errorf("result is %+v", r)
	}
	a.lanes.Set(orders, ingest.LaneView{State: ingest.LaneSuspended})
	r = decode[ingest.EnableResult](t, a.want(http.StatusOK, a.call(http.MethodPost, path, "{}", nil)).Body.Bytes())
	if r.WasDisabled || r.State != ingest.LaneSuspended {
		t.Errorf("result for a suspended endpoint is %+v", r)
	}
}

// What the dispatcher says of a lane need not be a sentence; the answer is one.
func TestRetryOfWhatIsHeld(t *testing.T) {
	a := newAPI(t)
	for said, want := range map[string]string{"spec.suspend is true": "Held: spec.suspend is true. Nothing was made due.",
		"": "Held: the endpoint or its pool is suspended. Nothing was made due."} {
		a.lanes.Set(orders, ingest.LaneView{State: ingest.LaneSuspended, Held: true, Message: said})
		w := a.want(http.StatusConflict, a.call(http.MethodPost, "/v1/namespaces/shop/endpoints/orders/retry", "{}", nil))
		if got := a.problem(w).Detail; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Each refusal of the store that the API knows has its own words.
func TestProblemsOfTheStoreDiffer(t *testing.T) {
	a := newAPI(t)
	seen := map[string]error{}
	for _, err := range []error{queue.ErrNoSpace, queue.ErrOverloaded, queue.ErrClosed, errors.New("x")} {
		a.queue.FailAccept(err)
		p := decode[ingest.Problem](t, a.call(http.MethodPost, "/v1/namespaces/shop/events", plainEvent("e", "a"), nil).Body.Bytes())
		if other, ok := seen[p.Type+p.Detail]; ok {
			t.Errorf("%v and %v are told in the same words", err, other)
		}
		seen[p.Type+p.Detail] = err
	}
}
