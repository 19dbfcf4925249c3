package ingest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/ingest/ingesttest"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

var (
	start  = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	orders = plan.EndpointKey{Namespace: "shop", Name: "orders"}
	audit  = plan.EndpointKey{Namespace: "shop", Name: "audit"}
)

// api is the handler with what stands behind it.
type api struct {
	*ingest.Server
	t     testing.TB
	queue *ingesttest.Queue
	lanes *ingesttest.Lanes
	plan  atomic.Pointer[plan.Plan]
}

// testPlan has two endpoints in shop (one takes order.*, one everything) and one by the same name in another namespace.
func testPlan() *plan.Plan {
	endpoint := func(key plan.EndpointKey, types ...string) plan.Endpoint {
		return plan.Endpoint{
			EndpointKey: key, FirstSeen: start.Add(-time.Hour), URL: "https://user:secret@hooks.example.com/in?token=secret",
			EventTypes: types, MaxInFlight: 16, Retry: retry.Policy{Name: "patient"},
		}
	}
	return &plan.Plan{Version: 1, Endpoints: []plan.Endpoint{
		endpoint(plan.EndpointKey{Namespace: "other", Name: "orders"}),
		endpoint(audit),
		endpoint(orders, "order.*"),
	}}
}

func newAPI(t testing.TB, change ...func(*ingest.Options)) *api {
	a := &api{t: t, queue: ingesttest.NewQueue(func() time.Time { return start }), lanes: ingesttest.NewLanes()}
	a.plan.Store(testPlan())
	o := ingest.Options{Queue: a.queue, Plan: a.plan.Load, Lanes: a.lanes, Authorizer: ingest.Loopback(), Version: "v9"}
	for _, c := range change {
		c(&o)
	}
	a.Server = ingest.New(o)
	return a
}

type header = map[string]string

// call makes one request, and holds the answer to the API's description; a body gets a JSON content type unless h has another.
func (a *api) call(method, path, body string, h header) *httptest.ResponseRecorder {
	a.t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, path, reader)
	r.Host = "127.0.0.1:8080"
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range h {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	if err := describe(a.t).check(method, r.URL.Path, w); err != nil {
		a.t.Errorf("the answer is not as /openapi.json says: %v: %s", err, w.Body)
	}
	return w
}

// post posts an event to shop and wants a status code.
func (a *api) post(want int, body string, h header) *httptest.ResponseRecorder {
	a.t.Helper()
	return a.want(want, a.call(http.MethodPost, "/v1/namespaces/shop/events", body, h))
}

func (a *api) want(status int, w *httptest.ResponseRecorder) *httptest.ResponseRecorder {
	a.t.Helper()
	if w.Code != status {
		a.t.Fatalf("status is %d, want %d; body: %s", w.Code, status, w.Body)
	}
	if status >= 400 {
		a.problem(w)
	}
	return w
}

// get gets a path below shop and decodes the answer.
func get[T any](a *api, path string) T {
	a.t.Helper()
	w := a.want(http.StatusOK, a.call(http.MethodGet, "/v1/namespaces/shop/"+path, "", nil))
	return decode[T](a.t, w.Body.Bytes())
}

func decode[T any](t testing.TB, b []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("the answer is not JSON: %v: %s", err, b)
	}
	return v
}

// problem decodes an error, and holds it to RFC 9457.
func (a *api) problem(w *httptest.ResponseRecorder) ingest.Problem {
	a.t.Helper()
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		a.t.Fatalf("content type is %q, want application/problem+json", got)
	}
	p := decode[ingest.Problem](a.t, w.Body.Bytes())
	if p.Status != w.Code || p.Title == "" || p.Detail == "" || !strings.HasPrefix(p.Type, "https://doorstep.dev/problems/") {
		a.t.Fatalf("the problem is incomplete: %s", w.Body)
	}
	if retry := w.Header().Get("Retry-After") != ""; (w.Code == 429 || w.Code == 503) != retry {
		a.t.Fatalf("Retry-After set: %v, with status %d", retry, w.Code)
	}
	return p
}

func plainEvent(id, typ string) string {
	return `{"id":"` + id + `","type":"` + typ + `","data":{"id":123456789012345678}}`
}

// finish ends a delivery's attempt.
func (a *api) finish(seq queue.Seq, key plan.EndpointKey, to queue.State, reason string) {
	a.t.Helper()
	o := queue.Outcome{Seq: seq, Endpoint: key, To: to, Reason: reason, Attempt: queue.Attempt{
		StartedAt: start, Duration: 1500 * time.Microsecond, Status: 500, Class: retry.Retry, Reason: "server_error",
		Message: "The receiver answered 500.", Sent: queue.SentYes, Response: []byte("oops"),
	}}
	switch to {
	case queue.Delivered:
		o.Attempt.Status, o.Attempt.Class, o.Attempt.Reason, o.Attempt.Message = 204, retry.Delivered, "", ""
	case queue.Retrying:
		o.Delay, o.DueAt = time.Minute, start.Add(time.Minute)
	}
	a.queue.Record(o, func(err error) {
		if err != nil {
			a.t.Fatalf("record: %v", err)
		}
	})
}

func encode(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
