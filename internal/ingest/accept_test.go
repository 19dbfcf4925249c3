package ingest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

func TestAcceptAnswersWithAReceipt(t *testing.T) {
	a := newAPI(t)
	w := a.post(http.StatusAccepted, plainEvent("evt_1", "order.created"), nil)
	if got, want := w.Body.String(), `{"id":"evt_1","source":"","webhookId":"evt_1","endpoints":2}`+"\n"; got != want {
		t.Errorf("answer is %s, want %s", got, want)
	}
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("content type is %q", got)
	}
	w = a.post(http.StatusOK, plainEvent("evt_1", "order.created"), nil)
	if got, want := w.Body.String(), `{"id":"evt_1","source":"","webhookId":"evt_1","endpoints":2,"duplicate":true}`+"\n"; got != want {
		t.Errorf("answer to a duplicate is %s, want %s", got, want)
	}
	w = a.post(http.StatusConflict, plainEvent("evt_1", "order.updated"), nil)
	if p := a.problem(w); p.Retryable || !strings.Contains(p.Detail, "evt_1") {
		t.Errorf("conflict is %+v", p)
	}
	if events, _ := a.queue.Stored(); len(events) != 1 {
		t.Errorf("%d events are stored, want 1", len(events))
	}
}

// case SS129: the same id in two namespaces is two events, each for its own endpoints.
func TestNamespacesDoNotShareIDs(t *testing.T) {
	a := newAPI(t)
	a.post(http.StatusAccepted, plainEvent("evt_1", "order.created"), nil)
	w := a.want(http.StatusAccepted, a.call(http.MethodPost, "/v1/namespaces/other/events", plainEvent("evt_1", "user.deleted"), nil))
	if r := decode[ingest.Receipt](t, w.Body.Bytes()); r.Endpoints != 1 || r.Duplicate {
		t.Errorf("receipt is %+v, want one endpoint and no duplicate", r)
	}
	if got := get[ingest.Event](a, "events/evt_1"); got.Type != "order.created" {
		t.Errorf("shop's event has type %s", got.Type)
	}
	events, _ := a.queue.Stored()
	for _, e := range events {
		for _, key := range e.Endpoints {
			if key.Namespace != e.Namespace {
				t.Errorf("an event of %s goes to %s", e.Namespace, key)
			}
		}
	}
}

func TestFanOut(t *testing.T) {
	for _, c := range []struct {
		name, typ string
		change    func(*plan.Plan)
		want      string
	}{
		{"a pattern and all", "order.created", nil, "[shop/audit shop/orders]"},
		{"all only", "user.created", nil, "[shop/audit]"},
		{"a held endpoint gets its events", "order.created", func(p *plan.Plan) {
			p.Endpoints[2].Suspend = true
			p.Endpoints[1].Problem = &plan.Problem{Reason: "SecretNotFound"}
		}, "[shop/audit shop/orders]"},
		{"nobody", "user.created", func(p *plan.Plan) { p.Endpoints = p.Endpoints[2:] }, "[]"},
		{"an empty plan", "order.created", func(p *plan.Plan) { p.Endpoints = nil }, "[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newAPI(t)
			// An event before the change, so that a fan-out that outlives its plan is seen.
			a.post(http.StatusAccepted, plainEvent("before", c.typ), nil)
			if c.change != nil {
				p := testPlan()
				c.change(p)
				a.plan.Store(p)
			}
			a.post(http.StatusAccepted, plainEvent("evt_1", c.typ), nil)
			events, _ := a.queue.Stored()
			if got := fmt.Sprint(events[1].Endpoints); got != c.want {
				t.Errorf("goes to %s, want %s", got, c.want)
			}
		})
	}
}

// cases IN4, DD80: an id is known only once it is durable.
func TestAFailedWriteLeavesNoTrace(t *testing.T) {
	a := newAPI(t)
	for _, c := range []struct {
		name   string
		err    error
		status int
	}{
		{"no space", queue.ErrNoSpace, 503},
		{"overloaded", queue.ErrOverloaded, 503},
		{"closing", queue.ErrClosed, 503},
		{"anything else", fmt.Errorf("disk 7 at /srv/secret is on fire"), 500},
	} {
		a.queue.FailAccept(c.err)
		p := a.problem(a.post(c.status, plainEvent("evt_9", "order.created"), nil))
		if !p.Retryable || strings.Contains(p.Detail, "/srv") {
			t.Errorf("%s: problem is %+v", c.name, p)
		}
	}
	a.queue.FailAccept(nil)
	w := a.post(http.StatusAccepted, plainEvent("evt_9", "order.created"), nil)
	if r := decode[ingest.Receipt](t, w.Body.Bytes()); r.Duplicate || r.Endpoints != 2 {
		t.Errorf("receipt is %+v, want a new event", r)
	}
}

func TestNoPlanYet(t *testing.T) {
	a := newAPI(t, func(o *ingest.Options) { o.Plan = func() *plan.Plan { return nil } })
	a.post(http.StatusServiceUnavailable, plainEvent("evt_1", "order.created"), nil)
	a.want(http.StatusServiceUnavailable, a.call(http.MethodGet, "/readyz", "", nil))
	get[ingest.EventList](a, "events")
}

// Where endpoints of a namespace may be missing from the plan, its events are asked for again;
// those of others are taken, and all questions answered.
func TestAPlanThatLacksEndpoints(t *testing.T) {
	a := newAPI(t)
	a.post(http.StatusAccepted, plainEvent("evt_1", "order.created"), nil)
	p := testPlan()
	p.Incomplete = []string{"bank", "shop"}
	a.plan.Store(p)
	w := a.post(http.StatusServiceUnavailable, plainEvent("evt_2", "order.created"), nil)
	if w.Header().Get("Retry-After") == "" || !a.problem(w).Retryable {
		t.Errorf("the answer is %v %s", w.Header(), w.Body)
	}
	if list := get[ingest.EventList](a, "events"); len(list.Items) != 1 {
		t.Errorf("%d events are there, want 1", len(list.Items))
	}
	p = testPlan()
	p.Incomplete = []string{"bank", "shopping"}
	a.plan.Store(p)
	a.post(http.StatusAccepted, plainEvent("evt_2", "order.created"), nil)
}

const structured = `{"specversion":"1.0","id":"%s","source":"%s","type":"order.created","data":{"n":1}}`

func TestNamespacesThatThePoolAdmits(t *testing.T) {
	for _, row := range []struct {
		name     string
		admitted *[]string
		want     int
	}{
		{"all", nil, http.StatusAccepted},
		{"this one", &[]string{"bank", "shop"}, http.StatusAccepted},
		{"others", &[]string{"bank", "shopping"}, http.StatusForbidden},
		{"none", &[]string{}, http.StatusForbidden},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := newAPI(t)
			a.post(http.StatusAccepted, plainEvent("evt_before", "order.created"), nil)
			p := testPlan()
			p.Pool.Namespaces = row.admitted
			a.plan.Store(p)
			w := a.post(row.want, plainEvent("evt_1", "order.created"), nil)
			if row.want != http.StatusForbidden {
				return
			}
			if p := a.problem(w); p.Field != "namespace" || p.Retryable {
				t.Errorf("the problem is %+v", p)
			}
			if stored, _ := a.queue.Stored(); len(stored) != 1 {
				t.Errorf("%d events are stored, want the one of before", len(stored))
			}
			// What was accepted can still be looked at.
			a.want(http.StatusOK, a.call(http.MethodGet, "/v1/namespaces/shop/events/evt_before", "", nil))
		})
	}
}

func TestCloudEvents(t *testing.T) {
	ce := func(id, source string) string { return fmt.Sprintf(structured, id, source) }
	binary := header{"Content-Type": "text/xml", "Ce-Specversion": "1.0", "Ce-Id": "b1", "Ce-Source": "/s", "Ce-Type": "order.created"}
	with := func(h header, name, value string) header {
		out := header{}
		for k, v := range h {
			out[k] = v
		}
		if value == "" {
			delete(out, name)
		} else {
			out[name] = value
		}
		return out
	}
	jsonType := header{"Content-Type": "application/cloudevents+json"}
	batchType := header{"Content-Type": "application/cloudevents-batch+json"}
	for _, c := range []struct {
		name   string
		body   string
		header header
		status int
		field  string
		stored int
	}{
		// case CEH-01
		{"structured with a charset", ce("1", "/s"), header{"Content-Type": "application/cloudevents+json; charset=utf-8"}, 202, "", 1},
		{"structured in another case", ce("1", "/s"), header{"Content-Type": "APPLICATION/CloudEvents+JSON"}, 202, "", 1},
		// cases CEH-02, IN11
		{"empty batch", `[]`, batchType, 202, "", 0},
		{"batch of three", "[" + ce("1", "/s") + "," + ce("2", "/s") + "," + ce("3", "/s") + "]", batchType, 202, "", 3},
		{"batch with a bad second", "[" + ce("1", "/s") + `,{"specversion":"1.0","id":"2","source":"/s"}]`, batchType, 400, "[1].type", 0},
		{"an array as plain JSON", "[" + plainEvent("1", "a") + "]", nil, 400, "body", 0},
		// case CEH-03
		{"percent-encoded subject", "<a/>", with(binary, "Ce-Subject", "Euro%20%E2%82%AC"), 202, "", 1},
		{"subject not UTF-8", "<a/>", with(binary, "Ce-Subject", "%C0%A0"), 400, "ce-subject", 0},
		// cases CEH-04, IN12
		{"binary without type", "<a/>", with(binary, "Ce-Type", ""), 400, "ce-type", 0},
		{"structured without source", `{"specversion":"1.0","id":"1","type":"a"}`, jsonType, 400, "source", 0},
		{"empty id", ce("", "/s"), jsonType, 400, "id", 0},
		{"specversion 0.3", strings.Replace(ce("1", "/s"), "1.0", "0.3", 1), jsonType, 400, "specversion", 0},
		// case CEH-05
		{"data twice", `{"specversion":"1.0","id":"1","source":"/s","type":"a","data":1,"data_base64":"AA=="}`, jsonType, 400, "data_base64", 0},
		{"data null", `{"specversion":"1.0","id":"1","source":"/s","type":"a","data":null}`, jsonType, 202, "", 1},
		// case IN13
		{"required attributes only", `{"specversion":"1.0","id":"1","source":"/s","type":"a"}`, jsonType, 202, "", 1},
		{"a type of Doorstep's own", plainEvent("1", "doorstep.endpoint.disabled"), nil, 400, "type", 0},
		{"not JSON", `{"id":`, nil, 400, "body", 0},
		{"no body", ``, nil, 400, "body", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newAPI(t)
			w := a.post(c.status, c.body, c.header)
			if c.status >= 400 {
				if p := a.problem(w); p.Field != c.field || p.Retryable {
					t.Errorf("problem is %+v, want field %s", p, c.field)
				}
			}
			if events, _ := a.queue.Stored(); len(events) != c.stored {
				t.Errorf("%d events are stored, want %d", len(events), c.stored)
			}
		})
	}
}

// cases IN11, DESIGN.md §5: a batch is answered element by element, and is one step for the store.
func TestBatchReceipts(t *testing.T) {
	a := newAPI(t)
	batch := header{"Content-Type": "application/cloudevents-batch+json"}
	two := "[" + fmt.Sprintf(structured, "1", "/s") + "," + fmt.Sprintf(structured, `\"q`, "/s") + "]"
	w := a.post(http.StatusAccepted, two, batch)
	r := decode[ingest.BatchReceipt](t, w.Body.Bytes())
	if len(r.Results) != 2 || r.Results[1].ID != `"q` || r.Results[0].Source != "/s" || !strings.HasPrefix(r.Results[0].WebhookID, "msg_") {
		t.Fatalf("receipts are %+v", r)
	}
	if _, accepts := a.queue.Stored(); accepts != 1 {
		t.Errorf("Accept was called %d times, want once", accepts)
	}
	w = a.post(http.StatusOK, two, batch)
	if r = decode[ingest.BatchReceipt](t, w.Body.Bytes()); !r.Results[0].Duplicate || !r.Results[1].Duplicate {
		t.Errorf("receipts of the same batch again are %+v", r)
	}
	taken := "[" + fmt.Sprintf(structured, "new", "/s") + "," + strings.Replace(fmt.Sprintf(structured, "1", "/s"), `"n":1`, `"n":2`, 1) + "]"
	a.post(http.StatusConflict, taken, batch)
	if events, _ := a.queue.Stored(); len(events) != 2 {
		t.Errorf("%d events are stored, want 2: a batch with a conflict stores nothing", len(events))
	}
}

// case CEH-06: identity is source and id.
func TestIdentity(t *testing.T) {
	a := newAPI(t)
	ce := header{"Content-Type": "application/cloudevents+json"}
	a.post(http.StatusAccepted, fmt.Sprintf(structured, "1", "/a"), ce)
	a.post(http.StatusAccepted, fmt.Sprintf(structured, "1", "/b"), ce)
	a.post(http.StatusOK, fmt.Sprintf(structured, "1", "/a"), ce)
	if got := get[ingest.Event](a, "events?id=1&source=/b"); got.Source != "/b" || got.ID != "1" {
		t.Errorf("found %+v", got)
	}
	a.want(http.StatusNotFound, a.call(http.MethodGet, "/v1/namespaces/shop/events?id=1", "", nil))
}

// cases BDY-01, BDY-04: the limit is inclusive and counts bytes.
func TestPayloadLimit(t *testing.T) {
	frame := len(plainFrame("evt_1", ""))
	for _, c := range []struct {
		name string
		fill string
		size int
		want int
	}{
		{"one under", "x", 262143, 202},
		{"at the limit", "x", 262144, 202},
		{"one over", "x", 262145, 413},
		{"multi-byte characters at the limit", "é", 262144, 202},
		{"multi-byte characters over it", "é", 262146, 413},
	} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, chunked %v", c.name, chunked), func(t *testing.T) {
				a := newAPI(t)
				room := c.size - frame
				body := plainFrame("evt_1", strings.Repeat(c.fill, room/len(c.fill))+strings.Repeat("y", room%len(c.fill)))
				if len(body) != c.size {
					t.Fatalf("the body has %d bytes, want %d", len(body), c.size)
				}
				r := httptest.NewRequest(http.MethodPost, "/v1/namespaces/shop/events", strings.NewReader(body))
				r.Host = "localhost"
				r.Header.Set("Content-Type", "application/json")
				if chunked {
					r.ContentLength = -1
				}
				w := httptest.NewRecorder()
				a.ServeHTTP(w, r)
				a.want(c.want, w)
				if c.want == 413 && !strings.Contains(a.problem(w).Detail, "URL") {
					t.Errorf("the problem does not say what to do: %s", w.Body)
				}
			})
		}
	}
}

func plainFrame(id, data string) string {
	return `{"id":"` + id + `","type":"a.b","data":"` + data + `"}`
}

func TestLimitsOfThePlan(t *testing.T) {
	a := newAPI(t)
	p := testPlan()
	p.Pool.Ingest.MaxPayloadBytes = 1000
	a.plan.Store(p)
	a.post(http.StatusRequestEntityTooLarge, plainFrame("evt_1", strings.Repeat("x", 1000)), nil)
	a.post(http.StatusAccepted, plainFrame("evt_1", strings.Repeat("x", 900)), nil)
	// A batch may be larger than one event, but none of its elements.
	elements := strings.Repeat(","+strings.Replace(fmt.Sprintf(structured, "%d", "/s"), `"n":1`, `"n":"`+strings.Repeat("x", 500)+`"`, 1), 10)[1:]
	ids := make([]any, 10)
	for i := range ids {
		ids[i] = i
	}
	a.post(http.StatusAccepted, "["+fmt.Sprintf(elements, ids...)+"]", header{"Content-Type": "application/cloudevents-batch+json"})
	big := strings.Replace(fmt.Sprintf(structured, "big", "/s"), `"n":1`, `"n":"`+strings.Repeat("x", 1000)+`"`, 1)
	a.post(http.StatusRequestEntityTooLarge, "["+big+"]", header{"Content-Type": "application/cloudevents-batch+json"})
	a.post(http.StatusRequestEntityTooLarge, "["+strings.Repeat(" ", event.DefaultMaxBatchBytes)+"]",
		header{"Content-Type": "application/cloudevents-batch+json"})
}

// cases IN7, IN8: a compressed body is refused in words before it is read, and nothing of it comes back.
func TestCompressedBodies(t *testing.T) {
	a := newAPI(t)
	for i, c := range []struct {
		encoding string
		want     int
	}{
		{"gzip", 415}, {"br", 415}, {"gzip, gzip", 415}, {"identity, gzip", 415}, {"identity", 202}, {"", 202}, {"IDENTITY", 202},
	} {
		w := a.post(c.want, plainEvent(fmt.Sprint("evt_", i), "a"), header{"Content-Encoding": c.encoding})
		if c.want == 415 && (a.problem(w).Field != "Content-Encoding" || strings.Contains(w.Body.String(), "1234567890")) {
			t.Errorf("%s: problem is %s", c.encoding, w.Body)
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/v1/namespaces/shop/events", unreadable{t})
	r.Host = "localhost"
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Content-Encoding", "gzip")
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	a.want(415, w)
}

// unreadable is a body that must not be read.
type unreadable struct{ t *testing.T }

func (u unreadable) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, http.ErrBodyNotAllowed
}

func TestTraceParentIsKept(t *testing.T) {
	const valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, c := range []struct{ name, value, want string }{
		{"valid", valid, valid},
		{"a later version", "01" + valid[2:] + "-more", "01" + valid[2:]},
		{"version ff", "ff" + valid[2:], ""},
		{"upper case", strings.ToUpper(valid), ""},
		{"no trace", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", ""},
		{"no parent", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", ""},
		{"more behind version 00", valid + "-more", ""},
		{"short", valid[:54], ""},
		{"none", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newAPI(t)
			a.post(http.StatusAccepted, plainEvent("evt_1", "a"), header{"Traceparent": c.value})
			events, _ := a.queue.Stored()
			if got := events[0].TraceParent; got != c.want {
				t.Errorf("kept %q, want %q", got, c.want)
			}
		})
	}
}

func TestBodyBudget(t *testing.T) {
	a := newAPI(t, func(o *ingest.Options) { o.MaxBodyBytes = 40 << 10 })
	if p := a.problem(a.post(http.StatusServiceUnavailable, plainFrame("evt_1", strings.Repeat("x", 60<<10)), nil)); !p.Retryable {
		t.Errorf("problem is %+v", p)
	}
	// What was taken is given back, on every way out.
	for i := range 10 {
		a.post(http.StatusAccepted, plainFrame(fmt.Sprint("evt_", i), strings.Repeat("x", 30<<10)), nil)
		a.post(http.StatusBadRequest, strings.Repeat("x", 30<<10), nil)
	}
}

// appendReceipt must write what encoding/json reads back, whatever the id holds.
func TestReceiptsSurviveAnyID(t *testing.T) {
	for _, id := range []string{"a", `q"\`, "tab\tnl\n", "\u2028é😀", "\x7f", "<&>", strings.Repeat("é", 400)} {
		a := newAPI(t)
		body := fmt.Sprintf(`{"id":%s,"type":"a","data":{}}`, encode(t, id))
		r := decode[ingest.Receipt](t, a.post(http.StatusAccepted, body, nil).Body.Bytes())
		if r.ID != id {
			t.Errorf("id %q came back as %q", id, r.ID)
		}
	}
}

func TestAcceptedEventsHaveATime(t *testing.T) {
	a := newAPI(t)
	a.post(http.StatusAccepted, plainEvent("evt_1", "a"), nil)
	if got := get[ingest.Event](a, "events/evt_1"); !got.AcceptedAt.Equal(start) || !got.Time.Equal(time.Time{}) {
		t.Errorf("times are %v and %v", got.AcceptedAt, got.Time)
	}
}

func TestAConflictNamesItsElement(t *testing.T) {
	a := newAPI(t)
	batch := header{"Content-Type": "application/cloudevents-batch+json"}
	element := func(id, data string) string {
		return `{"specversion":"1.0","id":"` + id + `","source":"s","type":"t","data":` + data + `}`
	}
	p := a.problem(a.post(http.StatusConflict, "["+element("1", "1")+","+element("2", "1")+","+element("1", "2")+"]", batch))
	if p.Field != "[2].id" || !strings.Contains(p.Detail, "earlier element") {
		t.Errorf("field %q, %q; want [2].id and a word of the earlier element", p.Field, p.Detail)
	}
	a.post(http.StatusAccepted, "["+element("1", "1")+"]", batch)
	p = a.problem(a.post(http.StatusConflict, "["+element("2", "1")+","+element("1", "2")+"]", batch))
	if p.Field != "[1].id" || !strings.Contains(p.Detail, "already accepted") {
		t.Errorf("field %q, %q; want [1].id and a word of the accepted one", p.Field, p.Detail)
	}
}

func TestLoopbackHosts(t *testing.T) {
	a := newAPI(t)
	for host, ok := range map[string]bool{
		"localhost": true, "localhost:80": true, "127.0.0.1:1": true, "[::1]": true, "[::1]:8080": true,
		"localhost:evil.com": false, "[::1]:evil.com": false, "[::1]evil.com": false, "localhost:": false, "evil.com": false,
	} {
		r := httptest.NewRequest(http.MethodGet, "/v1/namespaces/shop/endpoints", nil)
		r.Host = host
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		if (w.Code == http.StatusOK) != ok {
			t.Errorf("Host %s: %d, want let in: %t", host, w.Code, ok)
		}
	}
}
