package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

func TestEndpointTest(t *testing.T) {
	w := newWorld(t)
	attempt := queue.Attempt{Status: 204, Class: retry.Delivered, Duration: 12 * time.Millisecond, Sent: queue.SentYes}
	w.lanes.TestFunc = func(context.Context, plan.EndpointKey) (ingest.TestAttempt, error) {
		return ingest.TestAttempt{WebhookID: "msg_test", Attempt: attempt}, nil
	}
	if r := w.want(0, "endpoint", "test", "orders"); r.out != "endpoint/orders took the test msg_test: answer 204 after 12ms\n" {
		t.Errorf("stdout is %q", r.out)
	}
	attempt.Status, attempt.Class, attempt.Reason, attempt.Message = 401, retry.DeadLetter, "auth_rejected", "the receiver answered 401"
	attempt.Response = []byte("\nbad \x1b[31mtoken\n")
	r := w.want(2, "endpoint", "test", "orders", "--because", "a try")
	if r.out != "endpoint/orders did not take the test msg_test: auth_rejected: the receiver answered 401, after 12ms\n"+
		`  answer: bad \x1b[31mtoken`+"\n" || r.err != "" {
		t.Errorf("stdout %q, stderr %q", r.out, r.err)
	}
	if r := w.want(1, "endpoint", "test", "nope"); !strings.Contains(r.err, "There is no such endpoint") {
		t.Errorf("stderr is %q", r.err)
	}
}

func TestEndpointRetry(t *testing.T) {
	w := newWorld(t)
	for n, want := range map[int]string{
		0: "nothing waits for a next attempt", 1: "1 delivery made due now", 42: "42 deliveries made due now",
	} {
		w.lanes.SetRetry(orders, n)
		if r := w.want(0, "endpoint", "retry", "orders"); r.out != "endpoint/orders: "+want+"\n" {
			t.Errorf("stdout is %q, want %q", r.out, want)
		}
	}
	w.lanes.Set(orders, ingest.LaneView{State: ingest.LaneSuspended})
	if r := w.want(1, "endpoint", "retry", "orders"); r.out != "" || !strings.Contains(r.err, "(409)") {
		t.Errorf("stdout %q, stderr %q", r.out, r.err)
	}
}

func TestErase(t *testing.T) {
	w := history(t)
	w.in = "no\n"
	if r := w.want(1, "erase", "evt_2"); r.out != "" || r.err != "Erase the payload of event evt_2 for good? [y/N] error: nothing was erased; answer y, or give --yes\n" {
		t.Errorf("stdout %q, stderr %q", r.out, r.err)
	}
	w.in = "y\n"
	if r := w.want(0, "erase", "evt_2"); r.out != "event/evt_2 erased; no longer to be made: 2 deliveries\n" {
		t.Errorf("stdout is %q", r.out)
	}
	if r := w.want(0, "erase", "evt_2", "--yes"); r.out != "event/evt_2 had been erased before\n" {
		t.Errorf("stdout is %q", r.out)
	}
	if r := w.want(1, "erase", "nope", "--yes"); !strings.Contains(r.err, "There is no event") {
		t.Errorf("stderr is %q", r.err)
	}
	if r := w.want(0, "get", "event", "evt_2"); !strings.Contains(r.out, "\nErased:       2026-11-30T12:00:00Z (90s ago)\n") {
		t.Errorf("the event is\n%s", r.out)
	}
}

func TestAudit(t *testing.T) {
	w := history(t)
	w.want(0, "replay", "evt_1", "--because", "mended; ticket 7")
	w.want(0, "endpoint", "enable", "orders")
	w.want(0, "erase", "evt_3", "--yes")
	golden(t, "audit.txt", w.want(0, "get", "audit").out)
	golden(t, "audit.json", w.want(0, "get", "audit", "-o", "json", "--action", "replay").out)
	if r := w.want(0, "get", "audit", "--target", "orders", "--limit", "1"); strings.Count(r.out, "\n") != 2 || !strings.Contains(r.out, "enable") {
		t.Errorf("stdout is %q", r.out)
	}
	if r := w.want(0, "get", "audit", "--target", "audit"); r.out != "" {
		t.Errorf("stdout is %q", r.out)
	}
}

func TestEventsInBothOrders(t *testing.T) {
	w := history(t)
	order := func(args ...string) (ids string) {
		for line := range strings.Lines(w.want(0, append([]string{"get", "events"}, args...)...).out) {
			if id := strings.Fields(line)[0]; id != "WEBHOOK-ID" {
				ids += id + " "
			}
		}
		return ids
	}
	if got := order(); got != "evt_3 evt_2 evt_1 " {
		t.Errorf("the order is %s", got)
	}
	if got := order("--oldest-first"); got != "evt_1 evt_2 evt_3 " {
		t.Errorf("the order is %s", got)
	}
	if got := order("--oldest-first", "--limit", "2"); got != "evt_1 evt_2 " {
		t.Errorf("the order is %s", got)
	}
	if got := order("--until", "89s") + order("--until", "2026-11-30T12:00:00Z"); got != "evt_3 evt_2 evt_1 " {
		t.Errorf("until: %s", got)
	}
	if r := w.want(0, "get", "deliveries", "--endpoint", "orders", "--since", "89s"); r.out != "" {
		t.Errorf("deliveries since then: %s", r.out)
	}
	if r := w.want(0, "get", "dead-letters", "--since", "90s"); !strings.Contains(r.out, "evt_1") {
		t.Errorf("dead letters since then: %s", r.out)
	}
}
