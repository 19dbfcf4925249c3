package ingest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// replayMany asks for a replay by selection to orders.
func (a *api) replayMany(body string) ingest.SelectedReplayResult {
	a.t.Helper()
	w := a.want(http.StatusOK, a.call(http.MethodPost, "/v1/namespaces/shop/endpoints/orders/replay", body, nil))
	return decode[ingest.SelectedReplayResult](a.t, w.Body.Bytes())
}

// finished makes n events, one a minute, whose deliveries to both endpoints have ended: to orders as a dead letter
// (every third was rejected, and has a handler version), to audit delivered.
func (a *api) finished(n int) {
	a.t.Helper()
	now := start
	a.queue.Now = func() time.Time { return now }
	for i := range n {
		now = start.Add(time.Duration(i) * time.Minute)
		a.post(http.StatusAccepted, plainEvent(fmt.Sprint("evt_", i), []string{"order.created", "order.paid"}[i%2]), nil)
		o := queue.Outcome{Seq: queue.Seq(i + 1), Endpoint: orders, To: queue.DeadLettered, Reason: queue.ReasonOutOfAttempts,
			Attempt: queue.Attempt{Status: 503}}
		if i%3 == 0 {
			o.Reason, o.Attempt = queue.ReasonRejected, queue.Attempt{Status: 400, HandlerVersion: "v7"}
		}
		a.queue.Record(o, nil)
		a.finish(queue.Seq(i+1), audit, queue.Delivered, "")
	}
}

func at(minute int) string {
	return start.Add(time.Duration(minute) * time.Minute).Format(time.RFC3339)
}

// case UX207: what a selection picks is counted first, and then replayed, no more and no less.
func TestReplayBySelection(t *testing.T) {
	for _, c := range []struct {
		name, selection string
		want            int
	}{
		{"states", `{"states":["deadLettered"]}`, 30},
		{"a state that none has", `{"states":["filterError"]}`, 0},
		{"since", `{"since":"` + at(20) + `"}`, 10},
		{"until", `{"until":"` + at(20) + `"}`, 20},
		{"a span", `{"since":"` + at(10) + `","until":"` + at(20) + `"}`, 10},
		{"a span of the future", `{"since":"` + at(100) + `"}`, 0},
		{"types", `{"eventTypes":["order.paid"]}`, 15},
		{"a pattern", `{"eventTypes":["order.*","user.created"]}`, 30},
		{"another type", `{"eventTypes":["user.*"]}`, 0},
		{"reasons", `{"reasons":["Rejected"]}`, 10},
		{"several reasons", `{"reasons":["Rejected","OutOfAttempts"]}`, 30},
		{"status codes", `{"statusCodes":[503,500]}`, 20},
		{"handler versions", `{"handlerVersions":["v7"]}`, 10},
		{"ids", `{"eventIDs":["evt_3","evt_3","evt_4","evt_nope"]}`, 2},
		{"ids in a span", `{"eventIDs":["evt_3","evt_4"],"since":"` + at(4) + `"}`, 1},
		{"all must apply", `{"reasons":["Rejected"],"eventTypes":["order.paid"],"since":"` + at(6) + `"}`, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newAPI(t)
			a.finished(30)
			counted := a.replayMany(`{"select":` + c.selection + `,"dryRun":true}`)
			if counted.Matched != c.want || counted.Replayed != 0 || !counted.DryRun || counted.Cursor != "" {
				t.Errorf("the dry run says %+v, want %d", counted, c.want)
			}
			if n := a.queue.Counts(orders).Pending; n != 0 {
				t.Fatalf("a dry run replayed %d", n)
			}
			done := a.replayMany(`{"select":` + c.selection + `}`)
			if done.Matched != c.want || done.Replayed != c.want || done.Skipped != 0 || done.Cursor != "" {
				t.Errorf("the replay says %+v, want %d", done, c.want)
			}
			// case DL157: only this endpoint gets them again.
			if got := a.queue.Counts(orders).Pending; got != c.want || a.queue.Counts(audit).Pending != 0 {
				t.Errorf("%d wait for orders, want %d; %d for audit", got, c.want, a.queue.Counts(audit).Pending)
			}
			// case DL159: the same again finds nothing to do.
			if again := a.replayMany(`{"select":` + c.selection + `}`); again.Matched != 0 {
				t.Errorf("the second time: %+v", again)
			}
		})
	}
}

// One call takes a bounded number, and the cursor leads through the rest, each once, though what was replayed ends in
// one of the selected states again meanwhile.
func TestReplayGoesOnByCursor(t *testing.T) {
	a := newAPI(t)
	a.finished(50)
	body := func(cursor string) string {
		b, err := json.Marshal(ingest.SelectedReplayRequest{Cursor: cursor, Limit: 7, Force: true, Select: ingest.Selection{
			States: []ingest.DeliveryState{ingest.StateDeadLettered, ingest.StateDelivered}, Since: start}})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	replayed, calls, cursor := 0, 0, ""
	for calls == 0 || cursor != "" {
		r := a.replayMany(body(cursor))
		if r.Matched > 7 || r.Replayed != r.Matched {
			t.Fatalf("one call: %+v", r)
		}
		replayed, cursor, calls = replayed+r.Replayed, r.Cursor, calls+1
		// What was replayed is delivered, or fails again, at once.
		for i := range 50 {
			a.queue.Record(queue.Outcome{Seq: queue.Seq(i + 1), Endpoint: orders, Attempt: queue.Attempt{Status: 500},
				To: []queue.State{queue.Delivered, queue.DeadLettered}[i%2]}, nil)
		}
	}
	if replayed != 50 || calls != 8 {
		t.Errorf("%d replays in %d calls, want 50 in 8", replayed, calls)
	}
	counted := a.replayMany(`{"select":{"states":["deadLettered"]},"dryRun":true,"limit":7}`)
	if counted.Matched != 25 || counted.Cursor != "" {
		t.Errorf("a dry run with a limit says %+v, want all 25", counted)
	}
	for _, other := range []string{"endpoints/audit/replay", "endpoints/orders/replay"} {
		w := a.call(http.MethodPost, "/v1/namespaces/shop/"+other, strings.Replace(body(""), `"limit"`, `"cursor":"cjEKb3JkZXJzCjE","limit"`, 1), nil)
		if ok := w.Code == http.StatusOK; ok != strings.Contains(other, "orders") {
			t.Errorf("%s takes the cursor of orders: %d %s", other, w.Code, w.Body)
		}
	}
}

// A selection that is empty by mistake replays nothing, and what was delivered goes out again only when that is meant.
func TestReplayNeedsASelection(t *testing.T) {
	a := newAPI(t)
	a.finished(3)
	long := func(n int) string { return strings.TrimSuffix(strings.Repeat(`"a",`, n), ",") }
	for _, c := range []struct{ name, body, field string }{
		{"nothing", ``, "select"},
		{"no selection", `{}`, "select"},
		{"an empty selection", `{"select":{}}`, "select"},
		{"a misspelt member", `{"select":{"status":["deadLettered"]}}`, "select.status"},
		{"a misspelt member beside", `{"select":{"reasons":["x"]},"dryrun":true}`, "dryrun"},
		{"an unknown state", `{"select":{"states":["dead"]}}`, "select.states"},
		{"a state that waits", `{"select":{"states":["pending"]}}`, "select.states"},
		{"discarded", `{"select":{"states":["discarded"]},"force":true}`, "select.states"},
		{"delivered without force", `{"select":{"states":["delivered"],"eventIDs":["evt_1"]}}`, "force"},
		{"all that was delivered", `{"select":{"states":["delivered"]},"force":true}`, "select"},
		{"a wrong time", `{"select":{"since":"yesterday"}}`, "body"},
		{"a span turned round", `{"select":{"since":"` + at(2) + `","until":"` + at(1) + `"}}`, "select.until"},
		{"a bad pattern", `{"select":{"eventTypes":["a*b"]}}`, "select.eventTypes"},
		{"a bad id", `{"select":{"eventIDs":["../x"]}}`, "select.eventIDs"},
		{"a wrong kind", `{"select":{"statusCodes":["500"]}}`, "select.statusCodes"},
		{"too many reasons", `{"select":{"reasons":[` + long(65) + `]}}`, "select.reasons"},
		{"too many ids", `{"select":{"eventIDs":[` + long(501) + `]}}`, "select.eventIDs"},
		{"a reason with control characters", `{"select":{"reasons":["a\u0000"]}}`, "select.reasons"},
		{"a limit too high", `{"select":{"reasons":["x"]},"limit":1001}`, "limit"},
		{"a limit below none", `{"select":{"reasons":["x"]},"limit":-1}`, "limit"},
		{"a cursor of nothing", `{"select":{"reasons":["x"]},"cursor":"AAAA"}`, "cursor"},
		{"why, at length", `{"select":{"reasons":["x"]},"reason":"` + strings.Repeat("a", 257) + `"}`, "reason"},
	} {
		w := a.want(http.StatusBadRequest, a.call(http.MethodPost, "/v1/namespaces/shop/endpoints/orders/replay", c.body, nil))
		if got := a.problem(w).Field; got != c.field {
			t.Errorf("%s: the field is %q, want %q: %s", c.name, got, c.field, w.Body)
		}
	}
	if n := a.queue.Counts(orders).Pending; n != 0 {
		t.Errorf("%d deliveries were replayed", n)
	}
	p := testPlan()
	p.Endpoints = p.Endpoints[:2]
	a.plan.Store(p)
	w := a.want(http.StatusConflict, a.call(http.MethodPost, "/v1/namespaces/shop/endpoints/orders/replay", `{"select":{"reasons":["x"]}}`, nil))
	if !strings.HasSuffix(a.problem(w).Type, "endpoint-gone") {
		t.Errorf("to an endpoint that is gone: %s", w.Body)
	}
	a.want(http.StatusNotFound, a.call(http.MethodPost, "/v1/namespaces/shop/endpoints/nope/replay", `{"select":{"reasons":["x"]}}`, nil))
}

// case DL159: of two people who replay the same at once, each delivery goes out for one of them.
func TestTwoPeopleReplayAtOnce(t *testing.T) {
	a := newAPI(t)
	a.finished(200)
	results := make([]ingest.SelectedReplayResult, 4)
	var work sync.WaitGroup
	for i := range results {
		work.Go(func() { results[i] = a.replayMany(`{"select":{"states":["deadLettered"]}}`) })
	}
	work.Wait()
	replayed := 0
	for _, r := range results {
		replayed += r.Replayed
		if r.Replayed+r.Skipped != r.Matched {
			t.Errorf("%+v doesn't add up", r)
		}
	}
	if replayed != 200 {
		t.Errorf("%d replays of 200 deliveries", replayed)
	}
}

// What a filter could not judge is replayed like a dead letter, and what it did not want only by force, one at a time.
func TestReplayOfWhatAFilterEnded(t *testing.T) {
	a := newAPI(t)
	a.accepted(2, "order.created")
	for seq, to := range map[queue.Seq]queue.State{1: queue.FilterError, 2: queue.Discarded} {
		reason := map[queue.State]string{queue.FilterError: queue.ReasonFilterError, queue.Discarded: queue.ReasonFilterFalse}[to]
		if n, err := a.queue.Settle(t.Context(), orders, []queue.Seq{seq}, to, reason); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if e := get[ingest.Endpoint](a, "endpoints/orders"); e.Deliveries.FilterError != 1 {
		t.Errorf("the endpoint counts %+v", e.Deliveries)
	}
	a.replay(http.StatusConflict, "evt_2", `{"endpoint":"orders"}`)
	if r := a.replayMany(`{"select":{"states":["filterError","deadLettered"]}}`); r.Replayed != 1 {
		t.Errorf("the replay says %+v", r)
	}
	list := get[ingest.DeliveryList](a, "endpoints/orders/deliveries?state=pending")
	if len(list.Items) != 1 || !list.Items[0].Undecided || list.Items[0].WebhookID != "evt_1" {
		t.Errorf("what waits is %+v, want evt_1 undecided", list.Items)
	}
	a.replay(http.StatusOK, "evt_2", `{"endpoint":"orders","force":true}`)
}

// failingQueue fails what it is told to.
type failingQueue struct {
	queue.Queue
	audit, replay error
}

func TestAStoreThatFailsAReplay(t *testing.T) {
	failing := &failingQueue{}
	a := newAPI(t, func(o *ingest.Options) { failing.Queue, o.Queue = o.Queue, failing })
	a.finished(5)
	failing.replay = queue.ErrNoSpace
	a.want(http.StatusServiceUnavailable, a.call(http.MethodPost, "/v1/namespaces/shop/endpoints/orders/replay",
		`{"select":{"states":["deadLettered"]}}`, nil))
	// What can't be sent any more is passed over.
	failing.replay = fmt.Errorf("evt_1: %w", queue.ErrPayloadMissing)
	if r := a.replayMany(`{"select":{"states":["deadLettered"]}}`); r.Skipped != 5 || r.Replayed != 0 {
		t.Errorf("the replay says %+v", r)
	}
}

func (q *failingQueue) Replay(ctx context.Context, key plan.EndpointKey, seq queue.Seq, force bool) (queue.Delivery, error) {
	if q.replay != nil {
		return queue.Delivery{}, q.replay
	}
	return q.Queue.Replay(ctx, key, seq, force)
}

func (q *failingQueue) AddAudit(ctx context.Context, r queue.AuditRecord) error {
	if q.audit != nil {
		return q.audit
	}
	return q.Queue.AddAudit(ctx, r)
}
