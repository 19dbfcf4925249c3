package cli

import (
	"bytes"
	"context"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/ingest/ingesttest"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

var update = flag.Bool("update", false, "write the golden files")

var (
	start  = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	orders = plan.EndpointKey{Namespace: "default", Name: "orders"}
	audit  = plan.EndpointKey{Namespace: "default", Name: "audit"}
)

// world is a Doorstep behind a real server, and a person's shell in front of it.
type world struct {
	t     *testing.T
	queue *ingesttest.Queue
	lanes *ingesttest.Lanes
	plan  atomic.Pointer[plan.Plan]
	url   string
	env   map[string]string
	in    string
	// after is called after each request, from the server.
	after func(r *http.Request)
	// first is what the world asks of callers.
	auth ingest.Authorizer
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, queue: ingesttest.NewQueue(func() time.Time { return start }), lanes: ingesttest.NewLanes(), env: map[string]string{}}
	w.plan.Store(&plan.Plan{Version: 1, Endpoints: []plan.Endpoint{
		{EndpointKey: audit, FirstSeen: start.Add(-49 * time.Hour), URL: "https://audit.example.com/in?token=secret", MaxInFlight: 4},
		{EndpointKey: orders, FirstSeen: start.Add(-90 * time.Minute), URL: "https://hooks.example.com/orders",
			EventTypes: []string{"order.*"}, MaxInFlight: 16, Retry: retry.Policy{Name: "patient"}},
	}})
	w.lanes.Set(audit, ingest.LaneView{State: ingest.LaneActive})
	w.lanes.Set(orders, ingest.LaneView{State: ingest.LaneBackingOff, Reason: "Timeout", Message: "The last 5 attempts timed out.",
		Since: start.Add(-time.Minute), RetryAt: start.Add(8 * time.Second),
		LastFailure: &ingest.Failure{Time: start.Add(87 * time.Second), Reason: "timeout", Message: "no answer within 15s"}})
	w.auth = ingest.Loopback()
	api := ingest.New(ingest.Options{Queue: w.queue, Plan: w.plan.Load, Lanes: w.lanes, Authorizer: w})
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		api.ServeHTTP(rw, r)
		if w.after != nil {
			w.after(r)
		}
	}))
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

// Authorize asks the world's Authorizer.
func (w *world) Authorize(r *http.Request, q ingest.Request) (ingest.Caller, error) {
	return w.auth.Authorize(r, q)
}

// result is what a command left behind.
type result struct {
	code     int
	out, err string
}

// run runs one command against the world.
func (w *world) run(args ...string) result {
	w.t.Helper()
	return w.runContext(w.t.Context(), args...)
}

func (w *world) runContext(ctx context.Context, args ...string) result {
	w.t.Helper()
	var out, errOut bytes.Buffer
	env := map[string]string{"DOORSTEP_SERVER": w.url}
	for k, v := range w.env {
		env[k] = v
	}
	code := Run(ctx, "doorstep", args, Streams{
		In: strings.NewReader(w.in), Out: &out, Err: &errOut,
		Getenv: func(k string) string { return env[k] }, Now: func() time.Time { return start.Add(90 * time.Second) },
	})
	return result{code, out.String(), errOut.String()}
}

// want runs a command, wants an exit code, and gives what it printed.
func (w *world) want(code int, args ...string) result {
	w.t.Helper()
	r := w.run(args...)
	if r.code != code {
		w.t.Fatalf("doorstep %s: exit code %d, want %d\nstdout: %s\nstderr: %s", strings.Join(args, " "), r.code, code, r.out, r.err)
	}
	return r
}

// finish ends a delivery's attempt.
func (w *world) finish(seq queue.Seq, key plan.EndpointKey, to queue.State, reason string) {
	o := queue.Outcome{Seq: seq, Endpoint: key, To: to, Reason: reason, Attempt: queue.Attempt{
		StartedAt: start.Add(time.Second), Duration: 1500 * time.Millisecond, Status: 503, Class: retry.Retry,
		Reason: "server_error", Message: "the receiver answered 503", Sent: queue.SentYes,
		Response: []byte("\n{\"error\":\"no \x1b[31mstock\"}\nat line 7\n"),
	}}
	switch to {
	case queue.Delivered:
		o.Attempt.Status, o.Attempt.Class, o.Attempt.Reason, o.Attempt.Message = 204, retry.Delivered, "", ""
		o.Attempt.Response = nil
	case queue.Retrying:
		o.DueAt = start.Add(5 * time.Minute)
	}
	w.record(o)
}

// fail ends a delivery's attempt without an answer.
func (w *world) fail(seq queue.Seq, key plan.EndpointKey, to queue.State, reason string) {
	w.record(queue.Outcome{Seq: seq, Endpoint: key, To: to, Reason: reason, DueAt: start.Add(5 * time.Minute), Attempt: queue.Attempt{
		StartedAt: start.Add(time.Second), Duration: 15 * time.Second, Class: retry.Retry,
		Reason: "timeout", Message: "no answer within 15s", Sent: queue.SentUnknown,
	}})
}

func (w *world) record(o queue.Outcome) {
	w.queue.Record(o, func(err error) {
		if err != nil {
			w.t.Errorf("record: %v", err)
		}
	})
}

// send posts an event with an id of its own.
func (w *world) send(id, typ string) {
	w.t.Helper()
	w.want(0, "send", "--type", typ, "--id", id, "--data", `{"id":123456789012345678}`)
}

// golden compares text with a file of testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s differs (go test ./internal/cli -update writes it); got:\n%s\nwant:\n%s", path, text, want)
	}
}

// lockedBuffer is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
