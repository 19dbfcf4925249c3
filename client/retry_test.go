package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/doorstep-dev/doorstep/client"
)

// answers is a transport that gives one answer after the other, and the last one for ever.
type answers struct {
	give   []answer
	bodies []string
	at     []time.Time
}

type answer struct {
	status     int // 0: the connection fails
	retryAfter string
	body       string
	breaks     bool // while the body is read
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	a.bodies, a.at = append(a.bodies, string(b)), append(a.at, time.Now())
	now := a.give[min(len(a.at), len(a.give))-1]
	if now.status == 0 {
		return nil, errors.New("connection reset by peer")
	}
	res := &http.Response{StatusCode: now.status, Header: http.Header{}, Request: r}
	body := io.Reader(strings.NewReader(now.body))
	if now.breaks {
		body = io.MultiReader(body, errReader{})
	}
	res.Body = io.NopCloser(body)
	if now.retryAfter != "" {
		res.Header.Set("Retry-After", now.retryAfter)
	}
	if strings.Contains(now.body, `"status"`) {
		res.Header.Set("Content-Type", "application/problem+json")
	}
	return res, nil
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func newClient(t *testing.T, transport http.RoundTripper, change ...func(*client.Options)) *client.Client {
	t.Helper()
	o := client.Options{Key: "dsk_ci_secret", HTTPClient: &http.Client{Transport: transport}}
	for _, f := range change {
		f(&o)
	}
	c, err := client.New("http://127.0.0.1:8080", o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const receipt = `{"id":"evt_1","source":"","webhookId":"evt_1","endpoints":1}`

func problem(status int) string {
	return `{"type":"https://doorstep.dev/problems/x","title":"X","status":` + strconv.Itoa(status) + `,"detail":"No.","retryable":false}`
}

// What can help is tried again, with the same bytes each time, and nothing else is.
func TestWhatIsTriedAgain(t *testing.T) {
	ok := answer{status: 202, body: receipt}
	for _, row := range []struct {
		name  string
		first answer
		calls int
	}{
		{"no connection", answer{}, 2},
		{"an answer that breaks off", answer{status: 202, body: receipt[:10], breaks: true}, 2},
		{"408", answer{status: 408, body: problem(408)}, 2},
		{"429", answer{status: 429, body: problem(429)}, 2},
		{"500", answer{status: 500, body: problem(500)}, 2},
		{"503", answer{status: 503, body: problem(503), retryAfter: "7"}, 2},
		{"502 of a proxy", answer{status: 502, body: "<html>"}, 2},
		{"503 that asks for more than a minute", answer{status: 503, body: problem(503), retryAfter: "61"}, 1},
		{"302", answer{status: 302, body: ""}, 1},
		{"400", answer{status: 400, body: problem(400)}, 1},
		{"401", answer{status: 401, body: problem(401)}, 1},
		{"403", answer{status: 403, body: problem(403)}, 1},
		{"404", answer{status: 404, body: problem(404)}, 1},
		{"409", answer{status: 409, body: problem(409)}, 1},
		{"413", answer{status: 413, body: problem(413)}, 1},
		{"415", answer{status: 415, body: problem(415)}, 1},
		{"a success that is no receipt", answer{status: 200, body: `{}`}, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &answers{give: []answer{row.first, ok}}
				got, err := newClient(t, a).Send(t.Context(), "shop", client.Event{Type: "order.created", Data: 1})
				if len(a.at) != row.calls {
					t.Fatalf("%d calls, want %d; the error is %v", len(a.at), row.calls, err)
				}
				if row.calls == 1 {
					if err == nil || strings.Contains(err.Error(), "dsk_") {
						t.Errorf("the error is %v", err)
					}
					return
				}
				if err != nil || got.WebhookID != "evt_1" {
					t.Errorf("receipt %+v, error %v", got, err)
				}
				if a.bodies[0] != a.bodies[1] || !strings.HasPrefix(a.bodies[0], `{"id":"evt_`) {
					t.Errorf("the bodies are %q", a.bodies)
				}
				wait := a.at[1].Sub(a.at[0])
				if row.first.retryAfter == "7" && wait != 7*time.Second || row.first.retryAfter == "" && (wait < 100*time.Millisecond || wait > 200*time.Millisecond) {
					t.Errorf("it waited for %v", wait)
				}
			})
		})
	}
}

// The pauses double from about 0.2 s up to 30 s, each with a part that is left to chance.
func TestPausesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{give: []answer{{status: 503, body: problem(503)}}}
		begin := time.Now()
		_, err := newClient(t, a).Send(t.Context(), "shop", client.Event{Type: "a", Data: 1})
		var p *client.Problem
		if !errors.As(err, &p) || p.Status != 503 || len(a.at) != 10 {
			t.Fatalf("after %d calls: %v", len(a.at), err)
		}
		longest := 200 * time.Millisecond
		for i := 1; i < len(a.at); i++ {
			if wait := a.at[i].Sub(a.at[i-1]); wait < longest/2 || wait > longest {
				t.Errorf("pause %d is %v, want %v to %v", i, wait, longest/2, longest)
			}
			longest = min(2*longest, 30*time.Second)
		}
		if took := time.Since(begin); took < 40*time.Second || took > 82*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestRetryAfterAsATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now().Add(20 * time.Second).UTC()
		a := &answers{give: []answer{{status: 429, body: problem(429), retryAfter: at.Format(http.TimeFormat)}, {status: 202, body: receipt}}}
		if _, err := newClient(t, a).Send(t.Context(), "shop", client.Event{Type: "a"}); err != nil || a.at[1].Before(at.Truncate(time.Second)) {
			t.Errorf("tried at %v, told %v: %v", a.at, at, err)
		}
	})
}

// A call ends with its context, and waits for nothing that can't come any more.
func TestTheContextEndsACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{give: []answer{{status: 503, body: problem(503), retryAfter: "30"}}}
		c := newClient(t, a)
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := c.Send(ctx, "shop", client.Event{Type: "a"})
		var p *client.Problem
		if !errors.As(err, &p) || p.RetryAfter != 30*time.Second || time.Since(begin) != 0 {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err = c.Send(ctx, "shop", client.Event{Type: "a"})
		if !errors.Is(err, context.Canceled) || !errors.As(err, &p) || time.Since(begin) != time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
	})
}

// What is not safe to do twice is done once; what is, is tried again.
func TestActionsAreMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		for name, row := range map[string]struct {
			calls int
			call  func(*client.Client) error
		}{
			"replay": {1, func(c *client.Client) error {
				_, err := c.Replay(ctx, "shop", "evt_1", client.ReplayRequest{Force: true})
				return err
			}},
			"replay by selection": {1, func(c *client.Client) error {
				_, err := c.ReplaySelection(ctx, "shop", "orders", client.SelectedReplayRequest{})
				return err
			}},
			"test":   {1, func(c *client.Client) error { _, err := c.Test(ctx, "shop", "orders", ""); return err }},
			"retry":  {1, func(c *client.Client) error { _, err := c.Retry(ctx, "shop", "orders", ""); return err }},
			"enable": {1, func(c *client.Client) error { _, err := c.Enable(ctx, "shop", "orders", ""); return err }},
			"erase":  {3, func(c *client.Client) error { _, err := c.Erase(ctx, "shop", "evt_1", "why not"); return err }},
			"get":    {3, func(c *client.Client) error { _, err := c.Get(ctx, "shop", "evt_1"); return err }},
		} {
			a := &answers{give: []answer{{}}}
			err := row.call(newClient(t, a, func(o *client.Options) { o.Attempts = 3 }))
			var unreachable *client.UnreachableError
			if len(a.at) != row.calls || !errors.As(err, &unreachable) || unreachable.Host != "127.0.0.1:8080" {
				t.Errorf("%s: %d calls, want %d: %v", name, len(a.at), row.calls, err)
			}
		}
	})
}

func TestErrorsAreSentences(t *testing.T) {
	for _, row := range []struct {
		name, contentType, body string
		status                  int
		want, kind              string
	}{
		{"Doorstep's own", "application/problem+json", `{"type":"https://doorstep.dev/problems/id-taken","title":"Conflict","status":409,"detail":"It is taken.","field":"id","retryable":false}`, 409, "id: It is taken. (409)", "id-taken"},
		{"with parameters", "application/problem+json; charset=utf-8", problem(404), 404, "No. (404)", "x"},
		{"a status that isn't the answer's", "application/problem+json", problem(200), 503, "No. (503)", "x"},
		{"nothing in it", "application/problem+json", `{}`, 400, "the server gave no reason (400)", ""},
		{"of a proxy", "text/html", "<html>token=secret</html>", 502, "the server did not answer as a Doorstep API would (502)", ""},
		{"no JSON", "application/problem+json", "nope", 500, "the server did not answer as a Doorstep API would (500)", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := newClient(t, roundTrip(func(r *http.Request) *http.Response {
				return &http.Response{StatusCode: row.status, Header: http.Header{"Content-Type": {row.contentType}}, Body: io.NopCloser(strings.NewReader(row.body)), Request: r}
			}), func(o *client.Options) { o.Attempts = 1 })
			_, err := c.Get(t.Context(), "shop", "evt_1")
			var p *client.Problem
			if !errors.As(err, &p) || err.Error() != row.want || p.Kind() != row.kind || p.Status != row.status {
				t.Errorf("%v (%+v), want %q of kind %q", err, p, row.want, row.kind)
			}
		})
	}
}

type roundTrip func(*http.Request) *http.Response

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }
