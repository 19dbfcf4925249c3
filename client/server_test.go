package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/client"
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

// server is the real API behind a real socket, and a client with a key that may do everything.
type server struct {
	*client.Client
	t     *testing.T
	queue *ingesttest.Queue
	lanes *ingesttest.Lanes
	plan  atomic.Pointer[plan.Plan]
	url   string
	calls atomic.Int64
	// seen, when set, is called with each request.
	seen func(*http.Request)
}

func newServer(t *testing.T) *server {
	s := &server{t: t, queue: ingesttest.NewQueue(func() time.Time { return start }), lanes: ingesttest.NewLanes()}
	text, key, err := ingest.NewAPIKey("ci")
	if err != nil {
		t.Fatal(err)
	}
	p := &plan.Plan{Version: 1, Endpoints: []plan.Endpoint{
		{EndpointKey: audit, FirstSeen: start.Add(-time.Hour), URL: "https://audit.example.com/in", MaxInFlight: 4},
		{EndpointKey: orders, FirstSeen: start.Add(-time.Hour), URL: "https://hooks.example.com/orders",
			EventTypes: []string{"order.*"}, MaxInFlight: 16, Retry: retry.Policy{Name: "patient"}},
	}}
	for _, e := range p.Endpoints {
		s.lanes.Set(e.EndpointKey, ingest.LaneView{State: ingest.LaneActive, Since: start})
	}
	s.plan.Store(p)
	api := ingest.New(ingest.Options{Queue: s.queue, Plan: s.plan.Load, Lanes: s.lanes, Authorizer: ingest.PlanKeys(s.plan.Load, key)})
	web := httptest.NewServer(http.StripPrefix("/doorstep", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.calls.Add(1)
		if s.seen != nil {
			s.seen(r)
		}
		api.ServeHTTP(w, r)
	})))
	t.Cleanup(web.Close)
	s.url = web.URL + "/doorstep"
	if s.Client, err = client.New(s.url, client.Options{Key: text, Attempts: 1}); err != nil {
		t.Fatal(err)
	}
	return s
}

// with gives a client with a new key of the plan; its hash is made here.
func (s *server) with(key plan.APIKey) *client.Client {
	s.t.Helper()
	text, made, err := ingest.NewAPIKey(key.ID)
	if err != nil {
		s.t.Fatal(err)
	}
	key.SHA256 = made.SHA256
	next := *s.plan.Load()
	next.Version++
	next.Pool.APIKeys = []plan.APIKey{key}
	s.plan.Store(&next)
	c, err := client.New(s.url, client.Options{Key: text, Attempts: 1})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// send sends an event and wants it accepted.
func (s *server) send(e client.Event) client.Receipt {
	s.t.Helper()
	r, err := s.Send(s.t.Context(), "shop", e)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// finish ends the delivery of an event.
func (s *server) finish(seq queue.Seq, key plan.EndpointKey, to queue.State) {
	o := queue.Outcome{Seq: seq, Endpoint: key, To: to, Attempt: queue.Attempt{
		StartedAt: start, Duration: 1500 * time.Microsecond, Status: 204, Class: retry.Delivered, Sent: queue.SentYes,
	}}
	if to == queue.DeadLettered {
		o.Reason = queue.ReasonOutOfAttempts
		o.Attempt.Status, o.Attempt.Class, o.Attempt.Reason, o.Attempt.Message = 503, retry.Retry, "server_error", "the receiver answered 503"
		o.Attempt.Response = []byte("no")
	}
	s.queue.Record(o, func(err error) {
		if err != nil {
			s.t.Errorf("record: %v", err)
		}
	})
}

// What is sent is what the server stores, in each of the forms.
func TestEventsArriveAsTheyAre(t *testing.T) {
	s, ctx := newServer(t), t.Context()
	at := time.Date(2026, 11, 30, 11, 59, 58, 765000000, time.UTC)
	const raw = `{ "n": 12345678901234567890, "s":"<&>" }`
	plain := client.Event{ID: "evt_1", Type: "order.created", Source: `/shop"`, Time: at, Attributes: map[string]string{"customer": "cust_42", "a": "b"}, Data: json.RawMessage(raw)}
	if r := s.send(plain); r.WebhookID == "" || r.ID != "evt_1" || r.Source != `/shop"` || r.Endpoints != 2 || r.Duplicate {
		t.Errorf("receipt is %+v", r)
	}
	if r := s.send(plain); !r.Duplicate {
		t.Errorf("the same again: %+v", r)
	}
	batch := []client.Event{
		{Type: "order.paid", Source: "/shop", Time: at, Attributes: map[string]string{"partitionkey": "k"}, Data: map[string]int{"order": 42}},
		{ID: "b2", Type: "user.created", Source: "/shop"},
	}
	receipts, err := s.Batch(ctx, "shop", batch)
	if err != nil || len(receipts) != 2 || receipts[0].Endpoints != 2 || receipts[1].ID != "b2" || receipts[1].Endpoints != 1 {
		t.Errorf("receipts %+v, %v", receipts, err)
	}
	header := http.Header{"Content-Type": {"text/xml"}, "Ce-Specversion": {"1.0"}, "Ce-Id": {"8"}, "Ce-Source": {"/x"}, "Ce-Type": {"a.b"}}
	if r, err := s.Post(ctx, "shop", header, []byte("<x/>")); err != nil || r.ID != "8" {
		t.Errorf("receipt %+v, %v", r, err)
	}
	if r := s.send(client.Event{Type: "a.b"}); !strings.HasPrefix(r.ID, "evt_") || r.WebhookID != r.ID {
		t.Errorf("an event without an id: %+v", r)
	}

	events, _ := s.queue.Stored()
	if len(events) != 5 {
		t.Fatalf("%d events are stored", len(events))
	}
	if e := events[0]; string(e.Body) != `{"id":"evt_1","type":"order.created","source":"/shop\"","created_at":"2026-11-30T11:59:58.765Z","attributes":{"a":"b","customer":"cust_42"},"data":`+raw+`}` || !e.Time.Equal(at) {
		t.Errorf("the plain event is %s at %v", e.Body, e.Time)
	}
	if e := events[1]; !strings.HasPrefix(e.ID, "evt_") || !strings.HasSuffix(string(e.Body), `","type":"order.paid","source":"/shop","time":"2026-11-30T11:59:58.765Z","partitionkey":"k","data":{"order":42}}`) {
		t.Errorf("the first of the batch is %s", e.Body)
	}
	if e := events[3]; string(e.Body) != "<x/>" || e.ContentType != "text/xml" {
		t.Errorf("the binary event is %s of %s", e.Body, e.ContentType)
	}
	payload, err := s.Payload(ctx, "shop", events[0].WebhookID)
	if err != nil || !bytes.Equal(payload, events[0].Body) {
		t.Errorf("the payload is %s, %v", payload, err)
	}
}

func TestEventsThatAreNotSent(t *testing.T) {
	s, ctx := newServer(t), t.Context()
	s.send(client.Event{ID: "evt_1", Type: "a", Data: 1})
	before := s.calls.Load()
	for name, err := range map[string]error{
		"no source in a batch":         second(s.Batch(ctx, "shop", []client.Event{{Type: "a", Source: "/"}, {Type: "a"}})),
		"an attribute that is no such": second(s.Batch(ctx, "shop", []client.Event{{Type: "a", Source: "/", Attributes: map[string]string{"data": "x"}}})),
		"raw data that is no JSON":     second(s.Send(ctx, "shop", client.Event{Type: "a", Data: json.RawMessage("{")})),
		"data that can't be encoded":   second(s.Send(ctx, "shop", client.Event{Type: "a", Data: func() {}})),
		"no namespace":                 second(s.Send(ctx, "", client.Event{Type: "a"})),
		"a namespace of dots":          second(s.Send(ctx, "..", client.Event{Type: "a"})),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if n := s.calls.Load() - before; n != 0 {
		t.Errorf("%d calls were made", n)
	}
	for name, want := range map[string]struct {
		event client.Event
		kind  string
	}{
		"no type":       {client.Event{}, "bad-request"},
		"a taken id":    {client.Event{ID: "evt_1", Type: "a", Data: 2}, "id-taken"},
		"too much data": {client.Event{Type: "a", Data: strings.Repeat("x", 300<<10)}, "too-large"},
	} {
		_, err := s.Send(ctx, "shop", want.event)
		var p *client.Problem
		if !errors.As(err, &p) || p.Kind() != want.kind || p.Retryable {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestLookingThingsUp(t *testing.T) {
	s, ctx := newServer(t), t.Context()
	for i := range 7 {
		s.send(client.Event{ID: fmt.Sprint("evt_", i), Type: []string{"order.created", "user.created"}[i%2], Data: i})
	}
	found := s.send(client.Event{ID: "x", Source: "/shop", Type: "order.paid"})
	s.finish(1, audit, queue.Delivered)
	s.finish(1, orders, queue.DeadLettered)

	one, err := s.Get(ctx, "shop", "evt_0")
	if err != nil || one.Type != "order.created" || len(one.Deliveries) != 2 || one.Explanations != nil {
		t.Fatalf("event %+v, %v", one, err)
	}
	if d := one.Deliveries[1]; d.Endpoint != "orders" || d.State != client.StateDeadLettered || d.Attempts[0].DurationMS != 1.5 || string(d.Attempts[0].Response) != "no" {
		t.Errorf("delivery is %+v", d)
	}
	if e, err := s.Explain(ctx, "shop", "evt_1"); err != nil || len(e.Explanations) != 2 {
		t.Errorf("explained: %+v, %v", e, err)
	}
	if e, err := s.Find(ctx, "shop", "/shop", "x"); err != nil || e.WebhookID != found.WebhookID {
		t.Errorf("found %+v, %v", e, err)
	}
	if e, err := s.Find(ctx, "shop", "", "evt_0"); err != nil || e.WebhookID != "evt_0" {
		t.Errorf("found %+v, %v", e, err)
	}
	var p *client.Problem
	if _, err := s.Find(ctx, "shop", "", "x"); !errors.As(err, &p) || p.Status != 404 {
		t.Errorf("another source: %v", err)
	}
	if e, err := s.Endpoint(ctx, "shop", "orders"); err != nil || e.Lane.State != client.LaneActive || e.RetryPolicy != "patient" {
		t.Errorf("endpoint %+v, %v", e, err)
	}

	ids := idsOf(t, s.Events(ctx, "shop", client.EventFilter{PageSize: 2}))
	if want := []string{found.WebhookID, "evt_6", "evt_5", "evt_4", "evt_3", "evt_2", "evt_1", "evt_0"}; !slices.Equal(ids, want) {
		t.Errorf("events %v, want %v", ids, want)
	}
	ids = idsOf(t, s.Events(ctx, "shop", client.EventFilter{Type: "user.*", Since: start, Until: start.Add(time.Nanosecond)}))
	if want := []string{"evt_5", "evt_3", "evt_1"}; !slices.Equal(ids, want) {
		t.Errorf("events %v, want %v", ids, want)
	}
	if ids = idsOf(t, s.Events(ctx, "shop", client.EventFilter{Until: start})); len(ids) != 0 {
		t.Errorf("events before the first: %v", ids)
	}
	// A caller that has seen enough asks for no further page.
	before := s.calls.Load()
	for _, err := range s.Events(ctx, "shop", client.EventFilter{PageSize: 2}) {
		if err != nil {
			t.Error(err)
		}
		break
	}
	if n := s.calls.Load() - before; n != 1 {
		t.Errorf("%d pages for one event", n)
	}

	count := func(f client.DeliveryFilter) (n int) {
		for d, err := range s.Deliveries(ctx, "shop", f) {
			if err != nil {
				t.Fatal(err)
			}
			if f.Endpoint != "" && d.Endpoint != f.Endpoint {
				t.Errorf("a delivery of %s", d.Endpoint)
			}
			n++
		}
		return n
	}
	for _, row := range []struct {
		filter client.DeliveryFilter
		want   int
	}{
		{client.DeliveryFilter{PageSize: 3}, 13},
		{client.DeliveryFilter{Endpoint: "orders", PageSize: 2}, 5},
		{client.DeliveryFilter{State: client.StateWaiting}, 11},
		{client.DeliveryFilter{State: client.StateDeadLettered}, 1},
		{client.DeliveryFilter{Endpoint: "audit", State: client.StateDeadLettered}, 0},
	} {
		if got := count(row.filter); got != row.want {
			t.Errorf("%+v: %d deliveries, want %d", row.filter, got, row.want)
		}
	}
	var names []string
	for e, err := range s.Endpoints(ctx, "shop", 1) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, e.Name)
	}
	if !slices.Equal(names, []string{"audit", "orders"}) {
		t.Errorf("endpoints %v", names)
	}
}

func idsOf(t *testing.T, events func(func(client.AcceptedEvent, error) bool)) (ids []string) {
	t.Helper()
	for e, err := range events {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.WebhookID)
	}
	return ids
}

// A list that fails says so once, and ends.
func TestAListThatFails(t *testing.T) {
	s := newServer(t)
	n := 0
	for _, err := range s.Events(t.Context(), "shop", client.EventFilter{Type: "**"}) {
		n++
		var p *client.Problem
		if !errors.As(err, &p) || p.Field != "type" {
			t.Errorf("the error is %v", err)
		}
	}
	if n != 1 {
		t.Errorf("%d items", n)
	}
}

func TestKeys(t *testing.T) {
	s := newServer(t)
	s.send(client.Event{ID: "evt_1", Type: "a"})
	for _, row := range []struct {
		name   string
		o      client.Options
		status int
	}{
		{"none", client.Options{}, 401},
		{"another", client.Options{Key: "dsk_ci_00112233445566778899"}, 401},
		{"a function that fails", client.Options{KeyFunc: func(context.Context) (string, error) { return "", errors.New("the file is gone") }}, 0},
	} {
		row.o.Attempts = 1
		c, err := client.New(s.url, row.o)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Get(t.Context(), "shop", "evt_1")
		var p *client.Problem
		if errors.As(err, &p) != (row.status != 0) || p != nil && p.Status != row.status || err == nil || strings.Contains(err.Error(), row.o.Key) && row.o.Key != "" {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}

func TestAddressesThatAreRefused(t *testing.T) {
	for _, address := range []string{"", "127.0.0.1:8080", "ftp://x/", "http://", "http://x/?a=b", "http://x/#a", "http://u:p@x/", "http://\x7f/"} {
		if c, err := client.New(address, client.Options{}); err == nil || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%q: %v, %v", address, c, err)
		}
	}
}

// A redirect is not followed, whoever made the HTTP client.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var elsewhere atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			elsewhere.Add(1)
			return
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	t.Cleanup(web.Close)
	c, err := client.New(web.URL, client.Options{Key: "dsk_ci_00112233445566778899", HTTPClient: &http.Client{}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Send(t.Context(), "shop", client.Event{Type: "a"})
	var p *client.Problem
	if !errors.As(err, &p) || p.Status != 307 || elsewhere.Load() != 0 {
		t.Errorf("%v; %d calls elsewhere", err, elsewhere.Load())
	}
}

func TestActions(t *testing.T) {
	s, ctx := newServer(t), t.Context()
	for i := range 5 {
		s.send(client.Event{ID: fmt.Sprint("evt_", i), Type: []string{"order.created", "order.paid"}[i%2]})
		s.finish(queue.Seq(i+1), orders, queue.DeadLettered)
	}
	if r, err := s.Replay(ctx, "shop", "evt_0", client.ReplayRequest{Endpoint: "orders", Reason: "mended"}); err != nil || !slices.Equal(r.Replayed, []string{"orders"}) {
		t.Errorf("replay: %+v, %v", r, err)
	}
	var p *client.Problem
	if _, err := s.Replay(ctx, "shop", "evt_0", client.ReplayRequest{Endpoint: "orders"}); !errors.As(err, &p) || p.Kind() != "already-waiting" {
		t.Errorf("again: %v", err)
	}
	q := client.SelectedReplayRequest{Select: client.Selection{
		States: []client.DeliveryState{client.StateDeadLettered}, Since: start, Until: start.Add(time.Second),
		EventTypes: []string{"order.*"}, StatusCodes: []int{503}, EventIDs: []string{"evt_1", "evt_2", "evt_3"},
	}, DryRun: true}
	if r, err := s.ReplaySelection(ctx, "shop", "orders", q); err != nil || !r.DryRun || r.Matched != 3 || r.Replayed != 0 {
		t.Errorf("dry run: %+v, %v", r, err)
	}
	q.DryRun, q.Limit = false, 2
	first, err := s.ReplaySelection(ctx, "shop", "orders", q)
	if err != nil || first.Replayed != 2 || first.Cursor == "" {
		t.Fatalf("first step: %+v, %v", first, err)
	}
	q.Cursor = first.Cursor
	if r, err := s.ReplaySelection(ctx, "shop", "orders", q); err != nil || r.Replayed != 1 || r.Cursor != "" {
		t.Errorf("second step: %+v, %v", r, err)
	}
	if r, err := s.Test(ctx, "shop", "orders", "a try"); err != nil || !r.Delivered || r.Status != 204 || r.WebhookID == "" {
		t.Errorf("test: %+v, %v", r, err)
	}
	s.lanes.SetRetry(orders, 4)
	if r, err := s.Retry(ctx, "shop", "orders", ""); err != nil || r.Retried != 4 {
		t.Errorf("retry: %+v, %v", r, err)
	}
	s.lanes.Set(orders, ingest.LaneView{State: ingest.LaneDisabled})
	if r, err := s.Enable(ctx, "shop", "orders", ""); err != nil || !r.WasDisabled || r.State != client.LaneActive {
		t.Errorf("enable: %+v, %v", r, err)
	}
	if r, err := s.Erase(ctx, "shop", "evt_4", "request 4711"); err != nil || r.Again || r.ErasedAt.IsZero() {
		t.Errorf("erase: %+v, %v", r, err)
	}
	if e, err := s.Get(ctx, "shop", "evt_4"); err != nil || e.ErasedAt.IsZero() {
		t.Errorf("the erased event: %+v, %v", e, err)
	}
	var did []string
	for a, err := range s.Audit(ctx, "shop", client.AuditFilter{PageSize: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		did = append(did, a.Action)
		if a.Caller != "key:ci" {
			t.Errorf("the caller is %s", a.Caller)
		}
	}
	// The retry has found nothing to make due, and so left no record.
	if want := []string{"erase", "enable", "test", "replay", "replay", "replay"}; !slices.Equal(did, want) {
		t.Errorf("audit records %v, want %v", did, want)
	}
	for a, err := range s.Audit(ctx, "shop", client.AuditFilter{Action: "erase", Target: "evt_4"}) {
		if err != nil || !strings.Contains(a.Detail, "request 4711") {
			t.Errorf("audit record %+v, %v", a, err)
		}
	}
}

// A consumer that keeps the cursor sees each event once, in the order of acceptance, whatever arrives between.
func TestReconciling(t *testing.T) {
	s, ctx := newServer(t), t.Context()
	var seen []string
	cursor := ""
	catchUp := func() {
		for end := false; !end; {
			page, err := s.EventPage(ctx, "shop", client.EventFilter{OldestFirst: true, Cursor: cursor, PageSize: 2})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page.Items {
				seen = append(seen, e.WebhookID)
			}
			cursor, end = page.Cursor, page.AtEnd
		}
	}
	var want []string
	for i := range 9 {
		id := fmt.Sprint("evt_", i)
		s.send(client.Event{ID: id, Type: "a"})
		if want = append(want, id); i%4 == 0 {
			catchUp()
		}
	}
	catchUp()
	if !slices.Equal(seen, want) {
		t.Errorf("seen %v, want %v", seen, want)
	}
	if ids := idsOf(t, s.Events(ctx, "shop", client.EventFilter{OldestFirst: true, PageSize: 2})); !slices.Equal(ids, want) {
		t.Errorf("listed %v, want %v", ids, want)
	}
}

// A key that is bound to an endpoint sees what concerns it, and nothing of the others.
func TestAKeyBoundToAnEndpoint(t *testing.T) {
	s, ctx := newServer(t), t.Context()
	s.send(client.Event{ID: "evt_0", Type: "order.created"}) // to both
	s.send(client.Event{ID: "evt_1", Type: "user.created"})  // to audit only
	s.finish(1, audit, queue.DeadLettered)
	s.finish(1, orders, queue.DeadLettered)
	s.finish(2, audit, queue.DeadLettered)
	bound := s.with(plan.APIKey{
		ID: "partner", Namespaces: []string{"shop"}, Endpoints: []string{"orders"},
		Verbs: []string{plan.KeyRead, plan.KeyPayload, plan.KeyReplay, plan.KeyManage},
	})

	if ids := idsOf(t, bound.Events(ctx, "shop", client.EventFilter{})); !slices.Equal(ids, []string{"evt_0"}) {
		t.Errorf("it sees the events %v", ids)
	}
	if e, err := bound.Explain(ctx, "shop", "evt_0"); err != nil || len(e.Deliveries) != 1 || e.Deliveries[0].Endpoint != "orders" || len(e.Explanations) != 1 {
		t.Errorf("it sees %+v, %v", e, err)
	}
	for d, err := range bound.Deliveries(ctx, "shop", client.DeliveryFilter{}) {
		if err != nil || d.Endpoint != "orders" {
			t.Errorf("it sees a delivery %+v, %v", d, err)
		}
	}
	for e, err := range bound.Endpoints(ctx, "shop", 0) {
		if err != nil || e.Name != "orders" {
			t.Errorf("it sees an endpoint %+v, %v", e, err)
		}
	}
	if b, err := bound.Payload(ctx, "shop", "evt_0"); err != nil || len(b) == 0 {
		t.Errorf("the payload: %v", err)
	}
	if r, err := bound.Test(ctx, "shop", "orders", ""); err != nil || !r.Delivered {
		t.Errorf("a test: %+v, %v", r, err)
	}
	for name, row := range map[string]struct {
		status int
		err    error
	}{
		"an event of another endpoint": {404, second(bound.Get(ctx, "shop", "evt_1"))},
		"its payload":                  {404, second(bound.Payload(ctx, "shop", "evt_1"))},
		"another endpoint":             {403, second(bound.Endpoint(ctx, "shop", "audit"))},
		"a test of another endpoint":   {403, second(bound.Test(ctx, "shop", "audit", ""))},
		"a replay to another endpoint": {403, second(bound.Replay(ctx, "shop", "evt_0", client.ReplayRequest{Endpoint: "audit"}))},
		"a selection of another":       {403, second(bound.ReplaySelection(ctx, "shop", "audit", client.SelectedReplayRequest{}))},
		"a send":                       {403, second(bound.Send(ctx, "shop", client.Event{Type: "a"}))},
		"an erasure":                   {403, second(bound.Erase(ctx, "shop", "evt_0", ""))},
	} {
		var p *client.Problem
		if !errors.As(row.err, &p) || p.Status != row.status {
			t.Errorf("%s: %v, want %d", name, row.err, row.status)
		}
	}
	// A replay to all its dead letters is one to those it sees.
	if r, err := bound.Replay(ctx, "shop", "evt_0", client.ReplayRequest{}); err != nil || !slices.Equal(r.Replayed, []string{"orders"}) {
		t.Errorf("a replay: %+v, %v", r, err)
	}
}
