package deliver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

// issuer is an authorization server that numbers its tokens.
type issuer struct {
	url    string
	asked  atomic.Int64
	mu     sync.Mutex
	last   received
	answer func(w http.ResponseWriter, n int64) // nil: a token for an hour
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{}
	s, _ := newServer(t, false, false, func(w http.ResponseWriter, r *http.Request) {
		n := i.asked.Add(1)
		body, _ := io.ReadAll(r.Body)
		i.mu.Lock()
		i.last = received{method: r.Method, target: r.URL.RequestURI(), header: r.Header.Clone(), body: body}
		answer := i.answer
		i.mu.Unlock()
		if answer == nil {
			answer = func(w http.ResponseWriter, n int64) { issue(w, n, 3600) }
		}
		answer(w, n)
	})
	i.url = s.URL + "/token"
	return i
}

func issue(w http.ResponseWriter, n int64, life int) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"access_token":"token-%d","token_type":"Bearer","expires_in":%d}`, n, life)
}

// as makes an endpoint a client of the issuer.
func (i *issuer) as(changes ...func(*plan.OAuth2)) func(*plan.Endpoint) {
	o := &plan.OAuth2{TokenURL: i.url, ClientID: "client a", ClientSecret: "hush+secret"}
	for _, change := range changes {
		change(o)
	}
	return func(e *plan.Endpoint) { e.Auth = &plan.Auth{OAuth2: o} }
}

// bearer answers by the token that a request has.
func bearer(seen chan<- string, status func(token string) int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		seen <- token
		w.WriteHeader(status(token))
	}
}

func always(status int) func(string) int { return func(string) int { return status } }

func TestATokenIsAskedForOnce(t *testing.T) {
	i := newIssuer(t)
	seen := make(chan string, 100)
	s, _ := newServer(t, false, false, bearer(seen, always(200)))
	c := newClient(t, Options{})
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if res := c.Do(context.Background(), newRequest(t, s.URL, i.as())); res.Status != 200 {
				t.Errorf("%+v", res)
			}
		})
	}
	wg.Wait()
	for range 16 {
		if token := <-seen; token != "token-1" {
			t.Errorf("token %q", token)
		}
	}
	if n := i.asked.Load(); n != 1 {
		t.Errorf("%d requests for tokens, want 1", n)
	}
	// It survives plans, and networks; not another secret, nor another namespace.
	setPool(c, plan.Egress{AllowHTTP: true, Allow: append(loopback().Allow, loopback().Allow...)})
	c.Do(context.Background(), newRequest(t, s.URL, i.as()))
	c.Do(context.Background(), newRequest(t, s.URL, i.as(func(o *plan.OAuth2) { o.ClientSecret = "other" })))
	c.Do(context.Background(), newRequest(t, s.URL, i.as(), func(e *plan.Endpoint) { e.Namespace = "other" }))
	for n, want := range []string{"token-1", "token-2", "token-3"} {
		if token := <-seen; token != want {
			t.Errorf("request %d: token %q, want %q", n, token, want)
		}
	}
}

func TestRequestForAToken(t *testing.T) {
	i := newIssuer(t)
	seen := make(chan string, 2)
	s, _ := newServer(t, false, false, bearer(seen, always(200)))
	c := newClient(t, Options{})
	c.Do(context.Background(), newRequest(t, s.URL, i.as(func(o *plan.OAuth2) { o.Scopes, o.Audience = []string{"a", "b"}, "https://aud" })))
	if got := i.last; got.method != "POST" || string(got.body) != "audience=https%3A%2F%2Faud&grant_type=client_credentials&scope=a+b" ||
		got.header.Get("Authorization") != "Basic Y2xpZW50K2E6aHVzaCUyQnNlY3JldA==" || got.header.Get("User-Agent") != "Doorstep/1.2.3" {
		t.Errorf("%+v with %s", got, got.body)
	}
	c.Do(context.Background(), newRequest(t, s.URL, i.as(func(o *plan.OAuth2) { o.InBody = true })))
	if got := i.last; string(got.body) != "client_id=client+a&client_secret=hush%2Bsecret&grant_type=client_credentials" || got.header.Get("Authorization") != "" {
		t.Errorf("%+v with %s", got, got.body)
	}
}

// sourceOf is the token source of a request.
func sourceOf(c *Client, r *Request) *tokenSource { return c.tokens.source(r.Destination) }

func TestATokenIsRefreshedBeforeItExpires(t *testing.T) {
	i := newIssuer(t)
	seen := make(chan string, 10)
	s, _ := newServer(t, false, false, bearer(seen, always(200)))
	c := newClient(t, Options{})
	r := newRequest(t, s.URL, i.as())
	do := func() string {
		if res := c.Do(context.Background(), r); res.Status != 200 {
			t.Fatalf("%+v", res)
		}
		return <-seen
	}
	do()
	source := sourceOf(c, r)
	if early := source.expires.Sub(source.refreshAt); early != tokenEarly {
		t.Errorf("a token for an hour is refreshed %v early", early)
	}
	hold := make(chan struct{})
	i.mu.Lock()
	i.answer = func(w http.ResponseWriter, n int64) { <-hold; issue(w, n, 30) }
	i.mu.Unlock()
	source.mu.Lock()
	source.refreshAt = time.Now()
	source.mu.Unlock()
	for range 3 {
		if token := do(); token != "token-1" {
			t.Errorf("during the refresh: %q", token)
		}
	}
	close(hold)
	c.tokens.wait()
	if token := do(); token != "token-2" || i.asked.Load() != 2 {
		t.Errorf("after it: %q, and %d requests", token, i.asked.Load())
	}
	if early := source.expires.Sub(source.refreshAt); early < 2*time.Second || early > 3*time.Second {
		t.Errorf("a token for 30 s is refreshed %v early", early)
	}
	// A refresh that fails costs nothing while the old one holds.
	i.mu.Lock()
	i.answer = func(w http.ResponseWriter, _ int64) { w.WriteHeader(503) }
	i.mu.Unlock()
	source.mu.Lock()
	source.refreshAt = time.Now()
	source.mu.Unlock()
	do()
	c.tokens.wait()
	if token := do(); token != "token-2" || i.asked.Load() != 3 {
		t.Errorf("after a failure: %q, and %d requests", token, i.asked.Load())
	}
	source.mu.Lock()
	source.expires = time.Now().Add(-time.Second)
	source.failedAt = time.Time{}
	source.mu.Unlock()
	if res := c.Do(context.Background(), r); res.Reason != ReasonAuth {
		t.Errorf("with an expired token: %+v", res)
	}
}

// A receiver that refuses a token is asked once more with a fresh one, in the same attempt.
func TestARefusedToken(t *testing.T) {
	i := newIssuer(t)
	seen := make(chan string, 10)
	accepted := atomic.Pointer[string]{}
	accept := func(token string) { accepted.Store(&token) }
	s, _ := newServer(t, false, false, bearer(seen, func(token string) int {
		if token == *accepted.Load() {
			return 200
		}
		return 401
	}))
	c := newClient(t, Options{})
	r := newRequest(t, s.URL, i.as())
	accept("token-2") // the first is revoked already
	if res := c.Do(context.Background(), r); res.Status != 200 || res.Message != "" {
		t.Errorf("%+v", res)
	}
	if a, b := <-seen, <-seen; a != "token-1" || b != "token-2" {
		t.Errorf("%s, then %s", a, b)
	}
	// Refused again within a minute: that is the answer.
	accept("none")
	if res := c.Do(context.Background(), r); res.Status != 401 || res.Reason != ReasonAuthRejected || len(seen) != 1 || i.asked.Load() != 2 {
		t.Errorf("%+v after %d requests and %d for tokens", res, len(seen), i.asked.Load())
	}
	<-seen
	// Later: once more, and then that is the answer.
	source := sourceOf(c, r)
	source.renewed = source.renewed.Add(-renewEvery)
	if res := c.Do(context.Background(), r); res.Status != 401 || len(seen) != 2 || i.asked.Load() != 3 || res.Message != "the receiver answered 401, to a fresh token too" {
		t.Errorf("%+v after %d requests and %d for tokens", res, len(seen), i.asked.Load())
	}
	// And where no fresh one can be had, nothing is decided.
	source.renewed = source.renewed.Add(-renewEvery)
	i.mu.Lock()
	i.answer = func(w http.ResponseWriter, _ int64) { w.WriteHeader(503) }
	i.mu.Unlock()
	p := retry.BuiltIn()
	if res := c.Do(context.Background(), r); res.Status != 0 || res.Reason != ReasonAuth || res.Class(&p) != retry.Held {
		t.Errorf("%+v", res)
	}
}

// Sixteen attempts whose token is refused at once ask for one.
func TestARefusedTokenIsRenewedOnceForAll(t *testing.T) {
	i := newIssuer(t)
	seen := make(chan string, 100)
	var arrived sync.WaitGroup
	arrived.Add(16)
	s, _ := newServer(t, false, false, bearer(seen, func(token string) int {
		if token == "token-1" {
			arrived.Done()
			arrived.Wait()
			return 401
		}
		return 200
	}))
	c := newClient(t, Options{})
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if res := c.Do(context.Background(), newRequest(t, s.URL, i.as())); res.Status != 200 {
				t.Errorf("%+v", res)
			}
		})
	}
	wg.Wait()
	if n := i.asked.Load(); n != 2 {
		t.Errorf("%d requests for tokens, want 2", n)
	}
}

// A token that can't be had is no fault of the receiver: nothing is sent to it, no
// attempt is burnt, and the message says what to mend without a word of the server's.
func TestNoToken(t *testing.T) {
	elsewhere, hits := newServer(t, false, false, func(http.ResponseWriter, *http.Request) {})
	says := func(status int, contentType, body string) func(http.ResponseWriter, int64) {
		return func(w http.ResponseWriter, _ int64) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	const js = "application/json"
	for _, row := range []struct {
		name   string
		answer func(http.ResponseWriter, int64)
		want   string
	}{
		{"invalid_client", says(401, js, `{"error":"invalid_client","error_description":"hush+secret is wrong"}`), "the token server refuses the client's id or secret (invalid_client)"},
		{"401 alone", says(401, "text/html", `<p>hush+secret`), "the token server refuses the client's id or secret (401)"},
		{"invalid_scope", says(400, js, `{"error":"invalid_scope"}`), "the token server refuses the scopes (invalid_scope)"},
		{"a code of its own", says(400, js, `{"error":"hush+secret"}`), "the token server answered 400"},
		{"an error with 200", says(200, js, `{"error":"unauthorized_client"}`), "the token server does not let this client ask for tokens by client credentials (unauthorized_client)"},
		{"500", says(500, js, `hush+secret`), "the token server answered 500"},
		{"no token", says(200, js, `{}`), "the token server's answer holds no token"},
		{"no JSON", says(200, js, `hush+secret`), "the token server's answer holds no token"},
		{"too large", says(200, js, `{"x":"`+strings.Repeat("x", maxTokenAnswer)+`","access_token":"a"}`), "the token server's answer holds no token"},
		{"a token that injects", says(200, js, `{"access_token":"a\r\nX-Evil: 1"}`), "the token server gives a token that can't be sent in a header"},
		{"a token of 17 KiB", says(200, js, `{"access_token":"`+strings.Repeat("a", 17<<10)+`"}`), "the token server gives a token that can't be sent in a header"},
		{"another type", says(200, js, `{"access_token":"a","token_type":"mac"}`), "the token server gives tokens of a type other than bearer"},
		{"a redirect (case RTY-02)", func(w http.ResponseWriter, _ int64) {
			w.Header().Set("Location", elsewhere.URL)
			w.WriteHeader(307)
		}, "the token server answered 307; redirects are not followed"},
		{"closed", func(http.ResponseWriter, int64) { panic(http.ErrAbortHandler) }, "the token server can't be reached: the connection broke before an answer came"},
	} {
		t.Run(row.name, func(t *testing.T) {
			i := newIssuer(t)
			i.answer = row.answer
			s, connections := newServer(t, false, false, func(http.ResponseWriter, *http.Request) {})
			c := newClient(t, Options{})
			res := c.Do(context.Background(), newRequest(t, s.URL, i.as()))
			p := retry.BuiltIn()
			if res.Reason != ReasonAuth || res.Status != 0 || res.Sent != queue.SentNo || res.Class(&p) != retry.Held || res.Message != "no OAuth2 token: "+row.want {
				t.Errorf("%+v", res)
			}
			// The failure stands for a moment: a lane full of attempts asks once.
			asked := i.asked.Load()
			if res := c.Do(context.Background(), newRequest(t, s.URL, i.as())); res.Reason != ReasonAuth || i.asked.Load() != asked {
				t.Errorf("%+v, and %d requests", res, i.asked.Load())
			}
			if n := connections.Load(); n != 0 {
				t.Errorf("%d connections to the receiver", n)
			}
		})
	}
	if n := hits.Load(); n != 0 {
		t.Errorf("%d connections to where the token server redirects", n)
	}
}

// The guard, the schemes and the timeout are those of every request.
func TestTokenServersAreGuarded(t *testing.T) {
	s, connections := newServer(t, false, false, func(http.ResponseWriter, *http.Request) {})
	hold := make(chan struct{})
	slow, _ := newServer(t, false, false, func(http.ResponseWriter, *http.Request) { <-hold })
	defer close(hold)
	c := newClient(t, Options{Resolver: resolver(t, localhost)})
	for to, want := range map[string]string{
		"http://169.254.169.254/token":        "the address of the token server is not allowed",
		"https://10.0.0.1/token":              "the address of the token server is not allowed",
		"http://127.0.0.1:1/token":            "the token server can't be reached: the connection was refused",
		"http://nxdomain.example.com/token":   "the token server can't be reached: the host name does not exist",
		"https://" + mustHost(t, s.URL) + "/": "the token server can't be reached: the token server does not speak TLS on this port",
		slow.URL:                              "the token server did not answer within the attempt's timeout",
	} {
		i := &issuer{url: to}
		timeout := 10 * time.Second
		if to == slow.URL {
			timeout = 200 * time.Millisecond
		}
		res := c.Do(context.Background(), newRequest(t, s.URL, i.as(), within(timeout)))
		if res.Reason != ReasonAuth || res.Message != "no OAuth2 token: "+want || res.Duration > 5*time.Second {
			t.Errorf("%s: %+v", to, res)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections, want 1, which was to be TLS", n)
	}
	for _, bad := range []string{"", "gopher://a", "http://user:pw@a.example/", "https://a.example/#x"} {
		e := plan.Endpoint{URL: s.URL, Signing: plan.Signing{Scheme: plan.SchemeNone}}
		(&issuer{url: bad}).as()(&e)
		if _, problem := NewDestination(&e); problem == nil || problem.Reason != "URLInvalid" {
			t.Errorf("%q: %v", bad, problem)
		}
	}
}

func TestShutdownWhileWaitingForAToken(t *testing.T) {
	i := newIssuer(t)
	hold := make(chan struct{})
	defer close(hold)
	ctx, cancel := context.WithCancel(context.Background())
	i.answer = func(http.ResponseWriter, int64) { cancel(); <-hold }
	c := newClient(t, Options{})
	if res := c.Do(ctx, newRequest(t, "http://127.0.0.1:1", i.as())); res.Reason != ReasonShutdown || res.Sent != queue.SentNo {
		t.Errorf("%+v", res)
	}
}

func TestTokensThatNobodyUsesAreForgotten(t *testing.T) {
	c := newClient(t, Options{})
	i := &issuer{url: "http://127.0.0.1:1/"}
	source := sourceOf(c, newRequest(t, "http://127.0.0.1:1", i.as()))
	c.tokens.sweep()
	if len(c.tokens.sources) != 1 {
		t.Fatal("a token in use is forgotten")
	}
	source.used = source.used.Add(-2 * sourceLife)
	setPool(c, loopback())
	if len(c.tokens.sources) != 0 {
		t.Error("it is still there")
	}
}
