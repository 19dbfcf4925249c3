package ingest_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

const testPath = "/v1/namespaces/shop/endpoints/orders/test"

// A test answers 200 whatever the receiver said, with what it said, and leaves nothing but an audit record.
func TestATestSaysHowItWent(t *testing.T) {
	failed := queue.Attempt{Duration: 12500 * time.Microsecond, Status: 401, Class: retry.DeadLetter, Reason: "auth_rejected",
		Message: "the receiver answered 401", Sent: queue.SentYes, HandlerVersion: "v7", Response: []byte("\x1b[31mwho are you?")}
	for _, c := range []struct {
		name    string
		attempt queue.Attempt
		want    ingest.TestResult
	}{
		{"delivered", queue.Attempt{Duration: time.Second, Status: 204, Class: retry.Delivered, Sent: queue.SentYes},
			ingest.TestResult{Delivered: true, Status: 204, DurationMS: 1000, Sent: "yes"}},
		{"refused", failed, ingest.TestResult{Status: 401, Reason: "auth_rejected", Message: "the receiver answered 401",
			DurationMS: 12.5, Sent: "yes", HandlerVersion: "v7", Response: failed.Response}},
		{"no answer", queue.Attempt{Class: retry.Retry, Reason: "connect", Message: "nobody listens", Sent: queue.SentNo},
			ingest.TestResult{Reason: "connect", Message: "nobody listens", Sent: "no"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newAPI(t)
			a.lanes.TestFunc = func(context.Context, plan.EndpointKey) (ingest.TestAttempt, error) {
				return ingest.TestAttempt{WebhookID: "test_1", Attempt: c.attempt}, nil
			}
			c.want.Endpoint, c.want.WebhookID = "orders", "test_1"
			w := a.want(http.StatusOK, a.call(http.MethodPost, testPath, "", nil))
			if got := decode[ingest.TestResult](t, w.Body.Bytes()); encode(t, got) != encode(t, c.want) {
				t.Errorf("the result is %+v, want %+v", got, c.want)
			}
			if events, accepts := a.queue.Stored(); len(events)+accepts > 0 {
				t.Errorf("%d events were stored", len(events))
			}
			if records := get[ingest.AuditList](a, "audit").Items; len(records) != 1 || records[0].Action != "test" || records[0].Target != "orders" {
				t.Errorf("the audit records are %+v", records)
			}
		})
	}
}

// What can't be sent to at all is refused in words, and a lane that holds its deliveries can be tested.
func TestWhatCanBeTested(t *testing.T) {
	problem := plan.Problem{Reason: "SecretNotFound", Message: "Secret orders-signing does not exist."}
	for _, c := range []struct {
		name   string
		change func(*plan.Plan)
		lane   ingest.LaneState
		status int
		words  string
	}{
		{"active", nil, ingest.LaneActive, 200, ""},
		{"suspended", nil, ingest.LaneSuspended, 200, ""},
		{"disabled", nil, ingest.LaneDisabled, 200, ""},
		{"a problem", func(p *plan.Plan) { p.Endpoints[2].Problem = &problem }, ingest.LaneUnresolved, 409, "(SecretNotFound): Secret orders-signing does not exist."},
		{"no way out of the pool", func(p *plan.Plan) { p.Pool.Egress.Problem = &problem }, ingest.LaneActive, 409, "SecretNotFound"},
		{"out of sight", nil, ingest.LaneNotInPlan, 409, "Apply it again"},
		{"gone", func(p *plan.Plan) { p.Endpoints = p.Endpoints[:2] }, ingest.LaneActive, 404, "no such endpoint"},
	} {
		a := newAPI(t)
		p := testPlan()
		if c.change != nil {
			c.change(p)
		}
		a.plan.Store(p)
		a.lanes.Set(orders, ingest.LaneView{State: c.lane})
		w := a.want(c.status, a.call(http.MethodPost, testPath, `{"reason":"new receiver"}`, nil))
		if c.status != http.StatusOK && !strings.Contains(a.problem(w).Detail, c.words) {
			t.Errorf("%s: %s", c.name, w.Body)
		}
	}
	a := newAPI(t)
	a.lanes.TestFunc = func(context.Context, plan.EndpointKey) (ingest.TestAttempt, error) {
		return ingest.TestAttempt{}, ingest.EndpointNotReady("TokenFailed", "no token can be had")
	}
	if w := a.want(http.StatusConflict, a.call(http.MethodPost, testPath, "", nil)); !strings.Contains(w.Body.String(), "TokenFailed") {
		t.Errorf("what the lane says is answered as %s", w.Body)
	}
	a.lanes.TestFunc = func(context.Context, plan.EndpointKey) (ingest.TestAttempt, error) {
		return ingest.TestAttempt{}, errors.New("at https://hooks.example.com/?token=secret")
	}
	if w := a.want(http.StatusInternalServerError, a.call(http.MethodPost, testPath, "", nil)); strings.Contains(w.Body.String(), "secret") {
		t.Errorf("a fault is answered as %s", w.Body)
	}
}

// Nobody floods a receiver by tests: one at a time.
func TestOneTestAtATime(t *testing.T) {
	a := newAPI(t)
	under, end := make(chan struct{}), make(chan struct{})
	a.lanes.TestFunc = func(_ context.Context, key plan.EndpointKey) (ingest.TestAttempt, error) {
		if key == orders {
			close(under)
			<-end
		}
		return ingest.TestAttempt{WebhookID: "test_1"}, nil
	}
	first := make(chan int)
	go func() { first <- a.call(http.MethodPost, testPath, "", nil).Code }()
	<-under
	w := a.want(http.StatusConflict, a.call(http.MethodPost, testPath, "", nil))
	if !strings.HasSuffix(a.problem(w).Type, "test-under-way") {
		t.Errorf("the second: %s", w.Body)
	}
	a.want(http.StatusOK, a.call(http.MethodPost, "/v1/namespaces/shop/endpoints/audit/test", "", nil))
	close(end)
	if code := <-first; code != http.StatusOK {
		t.Errorf("the first: %d", code)
	}
	a.lanes.TestFunc = nil
	a.want(http.StatusOK, a.call(http.MethodPost, testPath, "", nil))
}

func TestRetry(t *testing.T) {
	a := newAPI(t)
	const path = "/v1/namespaces/shop/endpoints/orders/retry"
	result := func() ingest.RetryResult {
		return decode[ingest.RetryResult](t, a.want(http.StatusOK, a.call(http.MethodPost, path, "", nil)).Body.Bytes())
	}
	if r := result(); r.Retried != 0 || len(get[ingest.AuditList](a, "audit").Items) != 0 {
		t.Errorf("with nothing to retry: %+v, and a record of it", r)
	}
	a.accepted(3, "order.created")
	for seq := range queue.Seq(3) {
		a.finish(seq+1, orders, queue.Retrying, "")
	}
	a.lanes.SetRetry(orders, 3)
	if r := result(); r.Retried != 3 || r.Endpoint != "orders" {
		t.Errorf("with three: %+v", r)
	}
	if records := get[ingest.AuditList](a, "audit?action=retry").Items; len(records) != 1 || records[0].Count != 3 {
		t.Errorf("the audit records are %+v", records)
	}
	for state, words := range map[ingest.LaneState]string{
		ingest.LaneDisabled: "enable", ingest.LaneSuspended: "suspended", ingest.LaneUnresolved: "can't be used",
	} {
		a.lanes.Set(orders, ingest.LaneView{State: state})
		w := a.want(http.StatusConflict, a.call(http.MethodPost, path, "", nil))
		if p := a.problem(w); !strings.Contains(p.Detail, words) || !strings.HasSuffix(p.Type, "/held") {
			t.Errorf("%s: %s", state, w.Body)
		}
	}
}
