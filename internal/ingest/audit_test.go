package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"

	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// Each action leaves one record of who did what to what, how many, and why; reading and counting leave none.
func TestWhatPeopleDoIsRecorded(t *testing.T) {
	var log strings.Builder
	a := newAPI(t, func(o *ingest.Options) {
		o.Log = funcr.New(func(_, args string) { log.WriteString(args + "\n") }, funcr.Options{})
	})
	a.finished(5)
	a.lanes.Set(audit, ingest.LaneView{State: ingest.LaneDisabled})
	const shop = "/v1/namespaces/shop/"
	for _, call := range []struct{ method, path, body string }{
		{"POST", "events/evt_0/replay", `{"endpoint":"orders","reason":"asked by the customer"}`},
		{"POST", "endpoints/orders/replay", `{"select":{"reasons":["OutOfAttempts"],"since":"` + at(0) + `"},"reason":"mended"}`},
		{"POST", "endpoints/orders/replay", `{"select":{"states":["deadLettered"]},"dryRun":true}`},
		{"POST", "endpoints/audit/enable", `{"reason":"mended"}`},
		{"POST", "endpoints/orders/enable", `{}`}, // nothing to do
		{"POST", "endpoints/orders/test", `{}`},
		{"DELETE", "events/evt_1?reason=GDPR+request", ""},
		{"DELETE", "events/evt_1", ""}, // erased before
		{"GET", "events/evt_1", ""},
	} {
		a.want(http.StatusOK, a.call(call.method, shop+call.path, call.body, nil))
	}
	want := []string{
		"erase evt_1 2 reason given: GDPR request",
		"test orders 1 ",
		"enable audit 1 reason given: mended",
		"replay orders 3 selected by since 2026-11-30T12:00:00Z, reasons [OutOfAttempts]; reason given: mended",
		"replay evt_0 1 to orders; reason given: asked by the customer",
	}
	var got []string
	for _, r := range get[ingest.AuditList](a, "audit").Items {
		got = append(got, fmt.Sprint(r.Action, " ", r.Target, " ", r.Count, " ", r.Detail))
		if r.Caller != "local" || r.At.IsZero() {
			t.Errorf("the record is %+v", r)
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the records are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n := strings.Count(log.String(), `"msg"="audit"`); n != len(want) {
		t.Errorf("%d lines of the log, want %d:\n%s", n, len(want), log.String())
	}
	for _, c := range []struct {
		path string
		want int
	}{{"audit?action=replay", 2}, {"audit?target=orders", 2}, {"audit?target=orders&action=test", 1}, {"audit?action=pause", 0}} {
		for _, limit := range []int{1, 2, 100} {
			items, _ := follow(a, c.path, limit, func(b []byte) ([]ingest.AuditRecord, string) {
				l := decode[ingest.AuditList](t, b)
				return l.Items, l.Cursor
			})
			if len(items) != c.want {
				t.Errorf("%s by %d: %d records, want %d", c.path, limit, len(items), c.want)
			}
		}
	}
	other := decode[ingest.AuditList](t, a.call(http.MethodGet, "/v1/namespaces/other/audit", "", nil).Body.Bytes())
	if len(other.Items) != 0 {
		t.Errorf("another namespace sees %+v", other.Items)
	}
}

// Nothing is done of which there would be no record.
func TestNothingWithoutARecord(t *testing.T) {
	failing := &failingQueue{}
	a := newAPI(t, func(o *ingest.Options) { failing.Queue, o.Queue = o.Queue, failing })
	a.finished(3)
	a.lanes.Set(audit, ingest.LaneView{State: ingest.LaneDisabled})
	a.lanes.TestFunc = func(context.Context, plan.EndpointKey) (ingest.TestAttempt, error) {
		t.Error("a test was made")
		return ingest.TestAttempt{}, nil
	}
	for err, status := range map[error]int{queue.ErrNoSpace: 503, errors.New("disk /dev/sda1 broke"): 500} {
		failing.audit = err
		for _, call := range []struct{ method, path, body string }{
			{"POST", "events/evt_0/replay", `{"endpoint":"orders"}`},
			{"POST", "endpoints/orders/replay", `{"select":{"states":["deadLettered"]}}`},
			{"POST", "endpoints/audit/enable", `{}`},
			{"POST", "endpoints/orders/test", `{}`},
			{"DELETE", "events/evt_1", ""},
		} {
			w := a.want(status, a.call(call.method, "/v1/namespaces/shop/"+call.path, call.body, nil))
			if !a.problem(w).Retryable || strings.Contains(w.Body.String(), "/dev") {
				t.Errorf("%s: %s", call.path, w.Body)
			}
		}
	}
	if n := a.queue.Counts(orders).Pending; n != 0 {
		t.Errorf("%d deliveries were replayed", n)
	}
	if e := get[ingest.Event](a, "events/evt_1"); !e.ErasedAt.IsZero() {
		t.Error("an event was erased")
	}
	if v, _ := a.lanes.View(audit); v.State != ingest.LaneDisabled {
		t.Error("an endpoint was enabled")
	}
}

// Erasing takes the payload and what receivers answered, and leaves what happened; what waits is not sent any more.
func TestErase(t *testing.T) {
	a := newAPI(t)
	a.post(http.StatusAccepted, plainEvent("evt_1", "order.created"), nil)
	a.finish(1, orders, queue.Retrying, "")
	a.finish(1, audit, queue.Delivered, "")
	const path = "/v1/namespaces/shop/events/evt_1"
	erase := func() ingest.EraseResult {
		return decode[ingest.EraseResult](t, a.want(http.StatusOK, a.call(http.MethodDelete, path, "", nil)).Body.Bytes())
	}
	if r := erase(); r.Again || r.DeadLettered != 1 || !r.ErasedAt.Equal(start) || r.WebhookID != "evt_1" {
		t.Errorf("erased: %+v", r)
	}
	if r := erase(); !r.Again || r.DeadLettered != 0 {
		t.Errorf("erased again: %+v", r)
	}
	e := get[ingest.Event](a, "events/evt_1?explain")
	if !e.ErasedAt.Equal(start) || e.PayloadBytes != nil || e.States[ingest.StateDelivered] != 1 || e.States[ingest.StateDeadLettered] != 1 {
		t.Errorf("the event is %+v", e)
	}
	for _, x := range e.Explanations {
		if x.Reason == queue.ReasonErased && (!strings.Contains(x.Message, "erased") || strings.Contains(x.Message, "replayed")) {
			t.Errorf("explained as %q", x.Message)
		}
	}
	for _, d := range e.Deliveries {
		if len(d.Attempts) != 1 || d.Attempts[0].Response != nil {
			t.Errorf("the attempts of %s are %+v", d.Endpoint, d.Attempts)
		}
	}
	if list := get[ingest.EventList](a, "events"); !list.Items[0].ErasedAt.Equal(start) {
		t.Errorf("in the list it is %+v", list.Items[0])
	}
	for _, call := range []struct{ method, path, body string }{
		{"GET", path + "/payload", ""}, {"POST", path + "/replay", `{"endpoint":"orders"}`},
	} {
		if p := a.problem(a.want(http.StatusGone, a.call(call.method, call.path, call.body, nil))); !strings.HasSuffix(p.Type, "/erased") {
			t.Errorf("%s: %+v", call.path, p)
		}
	}
	// It is still known: the producer's retry is a duplicate.
	a.post(http.StatusOK, plainEvent("evt_1", "order.created"), nil)
}
