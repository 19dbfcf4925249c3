package deliver

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// with sets an endpoint's headers.
func with(headers ...plan.Header) func(*plan.Endpoint) {
	return func(e *plan.Endpoint) { e.Headers = headers }
}

// case DUP-07: what an event holds becomes a header that can be sent, whatever it is.
func TestHeadersFromTheEvent(t *testing.T) {
	got := make(chan received, 1)
	s, _ := newServer(t, false, false, recorder(got))
	c := newClient(t, Options{})
	r := newRequest(t, s.URL, with(
		plan.Header{Name: "X-Team", Value: "shop & co"}, plan.Header{Name: "X-Id", Event: "id"}, plan.Header{Name: "X-Type", Event: "type"},
		plan.Header{Name: "X-Source", Event: "source"}, plan.Header{Name: "X-Subject", Event: "subject"}, plan.Header{Name: "X-Time", Event: "time"},
		plan.Header{Name: "X-Region", Event: "attributes.region"}, plan.Header{Name: "X-None", Event: "attributes.none"},
	))
	ev := r.Event
	ev.ID, ev.Type, ev.Source = "../../x\r\nX-Evil: 1", "order.created", "/a b?c=d"
	ev.Time = time.Date(2026, 11, 30, 12, 0, 0, 5_000_000, time.FixedZone("", 3600))
	ev.Attributes = []event.Attribute{{Name: "region", Value: `é"100%`}}
	if res := c.Do(context.Background(), r); res.Status != 200 {
		t.Fatalf("%+v", res)
	}
	header := (<-got).header
	for name, want := range map[string]string{
		"X-Team": "shop & co", "X-Id": "../../x%0D%0AX-Evil:%201", "X-Type": "order.created", "X-Source": "/a%20b?c=d",
		"X-Time": "2026-11-30T11:00:00.005Z", "X-Region": "%C3%A9%22100%25",
	} {
		if v := header[name]; len(v) != 1 || v[0] != want {
			t.Errorf("%s: %q, want %q", name, v, want)
		}
	}
	for _, name := range []string{"X-Subject", "X-None", "X-Evil"} {
		if v, ok := header[name]; ok {
			t.Errorf("%s: %q, want none", name, v)
		}
	}
}

func TestNoEventBreaksAHeader(t *testing.T) {
	got := make(chan received, 1)
	s, _ := newServer(t, false, false, recorder(got))
	c := newClient(t, Options{})
	r := newRequest(t, s.URL, with(plan.Header{Name: "X-Id", Event: "id"}))
	rapid.Check(t, func(rt *rapid.T) {
		r.Event.ID = rapid.StringN(1, 40, 200).Draw(rt, "id")
		if res := c.Do(context.Background(), r); res.Status != 200 {
			rt.Fatalf("%+v", res)
		}
		if v := (<-got).header["X-Id"]; len(v) != 1 || v[0] != string(event.AppendHeaderValue(nil, r.Event.ID)) {
			rt.Errorf("%q", v)
		}
	})
}

// case BDY-09, at send: whatever a plan holds, nothing is made of it that breaks, injects
// or takes the place of a header of ours.
func TestHeadersThatCanNotBeSet(t *testing.T) {
	auth := func(e *plan.Endpoint) { e.Auth = &plan.Auth{Authorization: "Bearer x"} }
	signature := func(e *plan.Endpoint) {
		e.Signing.Scheme = plan.SchemeHMAC
		e.Signing.HMAC = &plan.HMAC{Header: "x-sig", Algorithm: "SHA256", Encoding: "Hex", KeyEncoding: "Text", Content: "{body}", TimestampHeader: "X-Time", TimestampUnit: "Seconds"}
	}
	none := func(*plan.Endpoint) {}
	for _, row := range []struct {
		name, value string
		change      func(*plan.Endpoint)
	}{
		{"Host", "evil.example", none}, {"host", "evil.example", none}, {"Transfer-Encoding", "chunked", none}, {"Content-Length", "1", none},
		{"content-TYPE", "a/b", none}, {"Connection", "close", none}, {"Webhook-Signature", "v1,AAAA", none}, {"webhook-id", "x", none},
		{"webhook-anything", "x", none}, {"Doorstep-Attempt", "1", none}, {"ce-id", "1", none}, {"Idempotency-Key", "1", none},
		{"idempotency-key", "1", none}, {"X-IDEMPOTENCY-KEY", "1", none}, {"Metadata-Flavor", "Google", none}, {"X-Aws-Ec2-Metadata-Token", "x", none},
		{"Proxy-Authorization", "x", none}, {"Stripe-Signature", "x", none}, {"X-Hub-Signature-256", "x", none}, {"User-Agent", "x", none},
		{"Bad Name", "x", none}, {"X:", "x", none}, {"", "x", none}, {"X-É", "x", none}, {"X\r\nX-Evil", "x", none}, {strings.Repeat("x", 65), "x", none},
		{"X-A", "a\r\nX-Evil: 1", none}, {"X-A", "a\x00", none}, {"X-A", "a\x7f", none}, {"X-A", "é", none}, {"X-A", "", none}, {"X-A", " a", none},
		{"X-A", "a\n", none}, {"X-A", strings.Repeat("a", 4097), none},
		{"authorization", "x", auth}, {"X-Sig", "x", signature}, {"x-time", "x", signature},
	} {
		e := plan.Endpoint{URL: "https://hooks.example.com", Headers: []plan.Header{{Name: row.name, Value: row.value}}}
		e.Signing = plan.Signing{Scheme: plan.SchemeStandardWebhooks, Keys: []plan.SigningKey{{Name: "k", Key: testSecret}}}
		row.change(&e)
		if d, problem := NewDestination(&e); problem == nil || problem.Reason != "SpecInvalid" || d != nil || strings.Contains(problem.Message, "Evil") {
			t.Errorf("%q: %q: %v", row.name, row.value, problem)
		}
	}
	e := plan.Endpoint{URL: "https://hooks.example.com", Headers: []plan.Header{{Name: "X-A", Value: "1"}, {Name: "x-a", Value: "2"}}, Signing: plan.Signing{Scheme: plan.SchemeNone}}
	if _, problem := NewDestination(&e); problem == nil {
		t.Error("one header twice is taken")
	}
}

// A body of Data is the data and nothing of the event; the signature is of these bytes.
func TestDataAlone(t *testing.T) {
	const raw = `{ "n": 1e400, "s":"\u00e9" }`
	for _, row := range []struct {
		name              string
		event             event.Event
		body, contentType string
	}{
		{"plain", event.Event{Mode: event.ModePlain, ContentType: "application/json; charset=utf-8", Body: []byte(`{"id":"1","type":"t","data":` + raw + `}`)}, raw, "application/json"},
		{"structured", event.Event{Mode: event.ModeStructured, ContentType: "application/cloudevents+json", Body: []byte(`{"datacontenttype":"text/plain","data":"a\n"}`)}, "a\n", "text/plain"},
		{"binary", event.Event{Mode: event.ModeBinary, ContentType: "image/png", Body: []byte("\xff\x00"), Headers: []event.Header{{Name: "ce-id", Value: "1"}}}, "\xff\x00", "image/png"},
		{"none", event.Event{Mode: event.ModeStructured, Body: []byte(`{}`)}, "", "application/json"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := make(chan received, 1)
			s, _ := newServer(t, false, false, recorder(got))
			r := newRequest(t, s.URL, func(e *plan.Endpoint) { e.DataOnly = true })
			r.Event = &row.event
			r.Event.WebhookID, r.Event.Type = "evt_1", "t"
			if res := newClient(t, Options{}).Do(context.Background(), r); res.Status != 200 {
				t.Fatalf("%+v", res)
			}
			req := <-got
			if string(req.body) != row.body || req.length != int64(len(row.body)) || req.header.Get("Content-Type") != row.contentType {
				t.Errorf("%q (%d) as %q", req.body, req.length, req.header.Get("Content-Type"))
			}
			for name := range req.header {
				if strings.HasPrefix(name, "Ce-") {
					t.Errorf("%s is sent", name)
				}
			}
			verify(t, testSecret, req)
		})
	}
}

// GitHub's own headers come with its scheme, beside those that all deliveries have.
func TestGitHubHeaders(t *testing.T) {
	got := make(chan received, 1)
	s, _ := newServer(t, false, false, recorder(got))
	r := newRequest(t, s.URL, func(e *plan.Endpoint) {
		e.Signing = plan.Signing{Scheme: plan.SchemeGitHub, Keys: []plan.SigningKey{{Name: "k", Key: "It's a Secret to Everybody"}}}
		e.DataOnly = true
	})
	r.Event.Body = []byte(`{"data":{"a":1}}`)
	if res := newClient(t, Options{}).Do(context.Background(), r); res.Status != 200 {
		t.Fatalf("%+v", res)
	}
	req := <-got
	mac := hmac.New(sha256.New, []byte("It's a Secret to Everybody"))
	mac.Write([]byte(`{"a":1}`))
	for name, want := range map[string]string{
		"X-Hub-Signature-256": "sha256=" + hex.EncodeToString(mac.Sum(nil)), "X-Github-Event": "order.created", "Webhook-Id": "evt_1", "Doorstep-Attempt": "1",
	} {
		if req.header.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, req.header.Get(name), want)
		}
	}
	if req.header.Get("X-Github-Delivery") == "" || req.header.Get("Webhook-Signature") != "" {
		t.Errorf("%v", req.header)
	}
}

// A former key signs until its time, and an attempt without any key that signs is none.
func TestKeysByTime(t *testing.T) {
	got := make(chan received, 1)
	s, _ := newServer(t, false, false, recorder(got))
	c := newClient(t, Options{})
	r := newRequest(t, s.URL, func(e *plan.Endpoint) { e.Signing.Keys[0].FormerUntil = wall.Add(time.Minute) })
	if res := c.Do(context.Background(), r); res.Status != 200 {
		t.Fatalf("%+v", res)
	}
	verify(t, testSecret, <-got)
	r.Steady = wall.Add(time.Minute)
	if res := c.Do(context.Background(), r); res.Reason != ReasonLocal {
		t.Errorf("after the end of the only key: %+v", res)
	}
}

func TestAuthorization(t *testing.T) {
	got := make(chan received, 1)
	s, _ := newServer(t, false, false, recorder(got))
	c := newClient(t, Options{})
	for _, want := range []string{"Basic dTpw", "Bearer hush"} {
		r := newRequest(t, s.URL, func(e *plan.Endpoint) { e.Auth = &plan.Auth{Authorization: want} })
		c.Do(context.Background(), r)
		if req := <-got; len(req.header["Authorization"]) != 1 || req.header.Get("Authorization") != want {
			t.Errorf("%q, want %q", req.header["Authorization"], want)
		}
	}
	own := newRequest(t, s.URL, with(plan.Header{Name: "Authorization", Value: "Token a b"}))
	c.Do(context.Background(), own)
	if req := <-got; req.header.Get("Authorization") != "Token a b" {
		t.Errorf("%q", req.header["Authorization"])
	}
}

// case SG40: nothing secret is in what an attempt leaves behind.
func TestResultsHoldNoCredentials(t *testing.T) {
	s, _ := newServer(t, false, false, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "http://a.example/?echo="+r.Header.Get("Authorization"))
		w.WriteHeader(302)
	})
	c := newClient(t, Options{})
	for _, to := range []string{s.URL, "http://127.0.0.1:1", "https://" + mustHost(t, s.URL), "http://10.0.0.1"} {
		res := c.Do(context.Background(), newRequest(t, to, with(plan.Header{Name: "X-Key", Value: "hush-header"}), func(e *plan.Endpoint) {
			e.Auth = &plan.Auth{Authorization: "Bearer hush-token"}
		}))
		if res.Message == "" || strings.Contains(res.Message, "hush") {
			t.Errorf("%s: %q", to, res.Message)
		}
	}
}

// case SSR-09, at send: what is no plain URL makes no destination, whatever the plan says,
// nor a token server.
func TestOddURLsAreRefusedAtSend(t *testing.T) {
	for _, odd := range []string{
		`http://169.254.169.254\@good.example/`, "http:127.0.0.1/", "http://good.example:80@127.0.0.1/", "http://good.example#@127.0.0.1/",
		"http://x:99999/", "http://x:/", "gopher://good.example/", "file:///etc/passwd", "http://[example.com]/", "http://127.1/", "",
	} {
		e := plan.Endpoint{URL: odd, Signing: plan.Signing{Scheme: plan.SchemeNone}}
		if d, problem := NewDestination(&e); d != nil || problem == nil || problem.Reason != "URLInvalid" {
			t.Errorf("%q: %v", odd, problem)
		}
		e.URL, e.Auth = "https://good.example", &plan.Auth{OAuth2: &plan.OAuth2{TokenURL: odd, ClientID: "a", ClientSecret: "b"}}
		if d, problem := NewDestination(&e); d != nil || problem == nil || problem.Reason != "URLInvalid" {
			t.Errorf("%q as a token URL: %v", odd, problem)
		}
	}
}
