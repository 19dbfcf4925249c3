package deliver

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"pgregory.net/rapid"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/retry"
	"github.com/doorstep-dev/doorstep/internal/sign"
)

// received is a request as a receiver got it.
type received struct {
	method, target string
	header         http.Header
	body           []byte
	length         int64
}

// recorder answers 200 and hands over what it got.
func recorder(got chan<- received) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- received{r.Method, r.URL.RequestURI(), r.Header.Clone(), body, r.ContentLength}
	}
}

func TestHeadersOfAnAttempt(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run("http2="+strconv.FormatBool(http2), func(t *testing.T) {
			got := make(chan received, 1)
			s, _ := newServer(t, true, http2, recorder(got))
			c := newClient(t, Options{RootCAs: pool(s)})
			r := newRequest(t, s.URL+"/hooks%20x?token=hush&a=%2f")
			r.AttemptNumber = 12
			r.Event.Headers = []event.Header{{Name: "ce-id", Value: "7"}, {Name: "ce-subject", Value: `"Euro%20%E2%82%AC"`}}
			res := c.Do(context.Background(), r)
			if res.Status != 200 || res.Reason != "" || res.Message != "" || res.Sent != queue.SentYes {
				t.Fatalf("%+v", res)
			}
			if !res.StartedAt.Equal(wall) || res.Duration <= 0 || res.Duration > 5*time.Second {
				t.Errorf("StartedAt %v, Duration %v", res.StartedAt, res.Duration)
			}
			req := <-got
			if req.method != "POST" || req.target != "/hooks%20x?token=hush&a=%2f" || req.length != int64(len(r.Event.Body)) {
				t.Errorf("%s %s with content-length %d", req.method, req.target, req.length)
			}
			want := map[string]string{
				"Webhook-Id": "evt_1", "Webhook-Timestamp": "1792000000", "Content-Type": "application/json", "User-Agent": "Doorstep/1.2.3",
				"Doorstep-Delivery-Id": "dlv_1", "Doorstep-Attempt": "12", "Ce-Id": "7", "Ce-Subject": `"Euro%20%E2%82%AC"`,
				"Content-Length": strconv.Itoa(len(r.Event.Body)),
			}
			for name, value := range want {
				if v := req.header[name]; len(v) != 1 || v[0] != value {
					t.Errorf("%s: %q, want %q", name, v, value)
				}
			}
			for name := range req.header {
				if _, ok := want[name]; !ok && name != "Webhook-Signature" && name != "Traceparent" {
					t.Errorf("unexpected header %s: %q", name, req.header[name])
				}
			}
			verify(t, testSecret, req)
		})
	}
}

// verify checks a request as a receiver would, its clock set to ours.
func verify(t *testing.T, secret string, req received) {
	t.Helper()
	wh, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := wh.VerifyIgnoringTimestamp(req.body, req.header); err != nil {
		t.Error(err)
	}
}

func TestReplayHeaderIsOnReplaysOnly(t *testing.T) {
	got := make(chan received, 1)
	s, _ := newServer(t, false, false, recorder(got))
	c := newClient(t, Options{})
	for _, replay := range []bool{false, true} {
		r := newRequest(t, s.URL)
		r.Replay, r.Event.ContentType = replay, ""
		c.Do(context.Background(), r)
		req := <-got
		if v, ok := req.header["Doorstep-Replay"]; ok != replay || (replay && v[0] != "true") {
			t.Errorf("replay %v: %q", replay, v)
		}
		if v, ok := req.header["Content-Type"]; ok {
			t.Errorf("an event without content type was sent with %q", v)
		}
	}
}

// cases SG33, CLK-07: every attempt is signed afresh, under the same id.
func TestEveryAttemptIsSignedAfresh(t *testing.T) {
	got := make(chan received, 1)
	s, _ := newServer(t, false, false, recorder(got))
	now := wall
	c := newClient(t, Options{Wall: func() time.Time { return now }})
	signatures := map[string]bool{}
	for attempt := 1; attempt <= 4; attempt++ {
		r := newRequest(t, s.URL)
		r.AttemptNumber, r.Replay = attempt, attempt == 4
		c.Do(context.Background(), r)
		req := <-got
		verify(t, testSecret, req)
		signatures[req.header.Get("Webhook-Signature")] = true
		if id, ts := req.header.Get("Webhook-Id"), req.header.Get("Webhook-Timestamp"); id != "evt_1" || ts != strconv.FormatInt(now.Unix(), 10) {
			t.Errorf("attempt %d: id %q, timestamp %q", attempt, id, ts)
		}
		now = now.Add(time.Minute)
	}
	if len(signatures) != 4 {
		t.Errorf("%d signatures, want 4", len(signatures))
	}
}

func TestEachKeySigns(t *testing.T) {
	got := make(chan received, 1)
	s, _ := newServer(t, false, false, recorder(got))
	c := newClient(t, Options{})
	former := sign.NewKey()
	r := newRequest(t, s.URL, func(e *plan.Endpoint) {
		e.Signing.Keys = append(e.Signing.Keys, plan.SigningKey{Name: "former", Key: former})
	})
	c.Do(context.Background(), r)
	req := <-got
	verify(t, testSecret, req)
	verify(t, former, req)
}

// Bytes sent = bytes signed = bytes posted.
func TestBodiesArriveAsTheyAre(t *testing.T) {
	got := make(chan received, 1)
	s, _ := newServer(t, false, false, recorder(got))
	c := newClient(t, Options{})
	hostile := []string{
		"", "\x00", "\xff\x00\xfe", "\ufeff{}", `{"n":123456789012345678901234567890,"n":1e400}`, `{"s":"\ud800\u0000"}`, " { } \r\n", strings.Repeat("[", 10_000), strings.Repeat("x", 300<<10),
	}
	for i, body := range hostile {
		check(t, c, s.URL, []byte(body), got, "row "+strconv.Itoa(i))
	}
	rapid.Check(t, func(rt *rapid.T) {
		check(t, c, s.URL, rapid.SliceOf(rapid.Byte()).Draw(rt, "body"), got, "drawn")
	})
}

func check(t *testing.T, c *Client, to string, body []byte, got <-chan received, what string) {
	t.Helper()
	r := newRequest(t, to)
	r.Event.Body = body
	before := bytes.Clone(body)
	if res := c.Do(context.Background(), r); res.Status != 200 {
		t.Fatalf("%s: %+v", what, res)
	}
	req := <-got
	if !bytes.Equal(req.body, before) || !bytes.Equal(body, before) {
		t.Errorf("%s: %d bytes arrived otherwise", what, len(body))
	}
	if req.length != int64(len(body)) {
		t.Errorf("%s: content-length %d, want %d", what, req.length, len(body))
	}
	verify(t, testSecret, req)
}

// case BDY-09, for headers that come from events
func TestEventHeadersCannotInject(t *testing.T) {
	s, connections := newServer(t, false, false, func(http.ResponseWriter, *http.Request) {})
	c := newClient(t, Options{})
	for _, h := range []event.Header{
		{Name: "ce-x", Value: "a\r\nX-Evil: 1"}, {Name: "ce-x", Value: "a\nb"}, {Name: "ce-x", Value: "\x00"}, {Name: "ce-x", Value: "\x7f"},
		{Name: "Bad Name", Value: "a"}, {Name: "ce-bad name", Value: "a"}, {Name: "ce-x\r\nx-evil", Value: "1"}, {Name: "ce-x:", Value: "1"},
		{Name: "Host", Value: "evil.example"}, {Name: "Transfer-Encoding", Value: "chunked"}, {Name: "webhook-signature", Value: "v1,AAAA"}, {Name: "Idempotency-Key", Value: "1"},
		{Name: "ce-", Value: "a"}, {Name: "", Value: "a"},
	} {
		r := newRequest(t, s.URL)
		r.Event.Headers = []event.Header{h}
		res := c.Do(context.Background(), r)
		if res.Reason != ReasonLocal || res.Sent != queue.SentNo || strings.Contains(res.Message, h.Value) && h.Value != "a" && h.Value != "1" {
			t.Errorf("%q: %+v", h, res)
		}
	}
	if n := connections.Load(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
}

const publicKey = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="

func TestNothingIsSentUnsigned(t *testing.T) {
	s, connections := newServer(t, false, false, func(http.ResponseWriter, *http.Request) {})
	c := newClient(t, Options{})
	for name, id := range map[string]string{"id with a dot": "a.1", "no id": ""} {
		r := newRequest(t, s.URL)
		r.Event.WebhookID = id
		if res := c.Do(context.Background(), r); res.Reason != ReasonLocal || res.Sent != queue.SentNo {
			t.Errorf("%s: %+v", name, res)
		}
	}
	for name, keys := range map[string][]plan.SigningKey{"no key": nil, "empty key": {{Name: "k"}}, "public key": {{Name: "k", Key: publicKey}}} {
		e := plan.Endpoint{URL: s.URL, Signing: plan.Signing{Scheme: plan.SchemeStandardWebhooks, Keys: keys}}
		if d, problem := NewDestination(&e); problem == nil || problem.Reason != "KeyInvalid" || d != nil {
			t.Errorf("%s: problem %v", name, problem)
		}
	}
	if n := connections.Load(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
}

func TestTraceParent(t *testing.T) {
	const producer = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	child := traceParent(producer)
	if !validTraceParent(child) || child[:36] != producer[:36] || child[36:52] == producer[36:52] || child[52:] != "-01" {
		t.Errorf("traceParent(%q) = %q", producer, child)
	}
	seen := map[string]bool{}
	for _, bad := range []string{"", "x", strings.ToUpper(producer), "ff" + producer[2:], producer + "-x", strings.Replace(producer, "0af7651916cd43dd8448eb211c80319c", strings.Repeat("0", 32), 1), producer[:53] + "\r\n"} {
		fresh := traceParent(bad)
		if !validTraceParent(fresh) || fresh[52:] != "-00" || seen[fresh[3:35]] {
			t.Errorf("traceParent(%q) = %q", bad, fresh)
		}
		seen[fresh[3:35]] = true
	}
	if got := traceParent("cc" + producer[2:]); got[:36] != producer[:36] {
		t.Errorf("of a later version: %q", got)
	}
}

// case SSR-08
func TestNoProxyFromTheEnvironment(t *testing.T) {
	proxy, proxied := newServer(t, false, false, func(http.ResponseWriter, *http.Request) {})
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	// net/http never proxies loopback, so a name it doesn't know for that is needed;
	// and it reads the environment once, so that is a matter of the transport's field too.
	c := newClient(t, Options{Resolver: resolver(t, localhost)})
	s, direct := newServer(t, false, false, func(http.ResponseWriter, *http.Request) {})
	_, port, _ := net.SplitHostPort(mustHost(t, s.URL))
	r := newRequest(t, "http://hooks.example.com:"+port)
	if res := c.Do(context.Background(), r); res.Status != 200 {
		t.Errorf("%+v", res)
	}
	if r.Destination.way.Load().transport.Proxy != nil {
		t.Error("the transport has a proxy")
	}
	if proxied.Load() != 0 || direct.Load() != 1 {
		t.Errorf("%d connections to the proxy, %d to the receiver", proxied.Load(), direct.Load())
	}
}

// case HC108 (and HC116's first half): connections are used again.
func TestConnectionsAreReused(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, http2 := range []bool{false, true} {
		t.Run("http2="+strconv.FormatBool(http2), func(t *testing.T) {
			body := make([]byte, maxBody-1)
			s, connections := newServer(t, true, http2, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				n, _ := strconv.Atoi(r.Header.Get("Doorstep-Attempt"))
				if n%2 == 0 {
					w.WriteHeader(500)
				}
				_, _ = w.Write(body[:n])
			})
			c := newClient(t, Options{RootCAs: pool(s)})
			for range 1000 {
				r := newRequest(t, s.URL)
				r.AttemptNumber = random.IntN(len(body))
				res := c.Do(context.Background(), r)
				if res.Status == 0 {
					t.Fatalf("%+v", res)
				}
				if want := min(r.AttemptNumber, keptBytes); res.Status == 500 && len(res.Response) != want || res.Status == 200 && res.Response != nil {
					t.Fatalf("%d bytes are kept of an answer %d of %d bytes", len(res.Response), res.Status, r.AttemptNumber)
				}
			}
			if n := connections.Load(); n != 1 {
				t.Errorf("%d connections for 1000 attempts, want 1", n)
			}
		})
	}
}

// case HC107: we close an unused connection before common receivers do.
func TestIdleConnectionsAreClosedFirst(t *testing.T) {
	if idleTimeout >= 5*time.Second {
		t.Errorf("unused connections are kept for %v", idleTimeout)
	}
	for _, http2 := range []bool{false, true} {
		s, connections := newServer(t, true, http2, func(http.ResponseWriter, *http.Request) {})
		c := newClient(t, Options{RootCAs: pool(s), IdleTimeout: 10 * time.Millisecond})
		if res := c.Do(context.Background(), newRequest(t, s.URL)); res.Status != 200 {
			t.Fatalf("%+v", res)
		}
		connections.await(t, 1)
	}
}

// case HC114: one attempt each to many hosts leaves no more connections open than
// the cap.
func TestIdleConnectionsAreCapped(t *testing.T) {
	const over = 40
	s, connections := newServer(t, false, false, func(http.ResponseWriter, *http.Request) {})
	c := newClient(t, Options{Resolver: resolver(t, localhost), IdleTimeout: time.Hour})
	knock(t, c, s.URL, "http", maxIdle+over)
	connections.await(t, over)
	c.Close()
	connections.await(t, maxIdle)
}

// case HC114: net/http's cap does not reach HTTP/2 connections, so that it is time
// alone which bounds them.
func TestIdleHTTP2ConnectionsTimeOut(t *testing.T) {
	const hosts = 50
	s, connections := newServer(t, true, true, func(http.ResponseWriter, *http.Request) {})
	c := newClient(t, Options{Resolver: resolver(t, localhost), RootCAs: pool(s), IdleTimeout: 50 * time.Millisecond})
	knock(t, c, s.URL, "https", hosts)
	connections.await(t, hosts)
}

// knock makes one attempt to each of many hosts, all of them one server.
func knock(t *testing.T, c *Client, server, scheme string, hosts int) {
	t.Helper()
	_, port, _ := net.SplitHostPort(mustHost(t, server))
	for i := range hosts {
		if res := c.Do(context.Background(), newRequest(t, scheme+"://h"+strconv.Itoa(i)+".example.com:"+port)); res.Status != 200 {
			t.Fatalf("%+v", res)
		}
	}
}

func localhost(string) net.IP { return net.IPv4(127, 0, 0, 1) }

// case HC109: an HTTP/2 peer that vanished without a word is found by a ping, and
// the next attempt uses a new connection.
func TestVanishedHTTP2Peer(t *testing.T) {
	s, _ := newServer(t, true, true, func(http.ResponseWriter, *http.Request) {})
	vanished := make(chan struct{})
	address, connections := newPeer(t, proxyUntil(mustHost(t, s.URL), vanished))
	c := newClient(t, Options{RootCAs: pool(s)})
	r := newRequest(t, "https://"+address)
	way := c.network.Load().route("default", r.Destination.url, nil, nil, &r.Destination.way)
	way.release()
	o := way.transport.HTTP2
	if o.SendPingTimeout <= 0 || o.SendPingTimeout+o.PingTimeout > 30*time.Second {
		t.Errorf("pinged after %v, closed after another %v", o.SendPingTimeout, o.PingTimeout)
	}
	o.SendPingTimeout, o.PingTimeout = 50*time.Millisecond, 50*time.Millisecond
	if res := c.Do(context.Background(), r); res.Status != 200 {
		t.Fatalf("%+v", res)
	}
	close(vanished)
	if res := c.Do(context.Background(), r); res.Reason != ReasonReset || res.Sent != queue.SentUnknown || res.Duration >= r.Destination.timeout {
		t.Errorf("on the dead connection: %+v", res)
	}
	if res := c.Do(context.Background(), r); res.Status != 200 || connections.Load() != 2 {
		t.Errorf("after it, with %d connections: %+v", connections.Load(), res)
	}
}

// proxyUntil passes connections on. The first one takes bytes and passes nothing
// on any more once vanished is closed, as when packets are dropped.
func proxyUntil(to string, vanished <-chan struct{}) func(net.Conn) {
	var first atomic.Bool
	first.Store(true)
	return func(client net.Conn) {
		server, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer server.Close()
		mayVanish := first.Swap(false)
		pass := func(dst, src net.Conn) {
			buf := make([]byte, 32<<10)
			for {
				n, err := src.Read(buf)
				if err != nil {
					_ = dst.Close()
					return
				}
				select {
				case <-vanished:
					if mayVanish {
						continue
					}
				default:
				}
				_, _ = dst.Write(buf[:n])
			}
		}
		done := make(chan struct{})
		go func() { pass(client, server); close(done) }()
		pass(server, client)
		<-done
	}
}

func TestSetPoolLeavesNoConnectionOfTheFormerOne(t *testing.T) {
	s, connections := newServer(t, false, false, func(http.ResponseWriter, *http.Request) {})
	c := newClient(t, Options{})
	r := newRequest(t, s.URL)
	do := func() Result { return c.Do(context.Background(), r) }
	do()
	setPool(c, loopback())
	if res := do(); res.Status != 200 || connections.Load() != 1 {
		t.Errorf("the same pool again costs the connection: %d, %+v", connections.Load(), res)
	}
	setPool(c, plan.Egress{AllowHTTP: true})
	if res := do(); res.Reason != ReasonDenied {
		t.Errorf("loopback denied: %+v", res)
	}
	setPool(c, loopback())
	if res := do(); res.Status != 200 || connections.Load() != 2 {
		t.Errorf("allowed again: %d connections, %+v", connections.Load(), res)
	}
	noHTTP := loopback()
	noHTTP.AllowHTTP = false
	setPool(c, noHTTP)
	if res := do(); res.Reason != ReasonDenied || res.Sent != queue.SentNo {
		t.Errorf("http denied: %+v", res)
	}
}

// While a plan is applied, the networks of the new one say nothing of an endpoint of the
// former one.
func TestADenialDuringAChangeOfThePoolIsAFaultOfOurs(t *testing.T) {
	s, _ := newServer(t, false, false, func(http.ResponseWriter, *http.Request) {})
	c := newClient(t, Options{})
	var during Result
	c.SetPool(plan.Egress{AllowHTTP: true}, func() { during = c.Do(context.Background(), newRequest(t, s.URL)) })
	p := retry.BuiltIn()
	if during.Reason != ReasonLocal || during.Class(&p) != retry.Held {
		t.Errorf("%+v", during)
	}
	if res := c.Do(context.Background(), newRequest(t, s.URL)); res.Reason != ReasonDenied {
		t.Errorf("after it: %+v", res)
	}
}

// Nothing goes out where the pool's proxy or certificates can't be had.
func TestAProblemOfThePoolHoldsAll(t *testing.T) {
	s, connections := newServer(t, false, false, func(http.ResponseWriter, *http.Request) {})
	for name, change := range map[string]func(*plan.Egress){
		"of the plan":  func(e *plan.Egress) { e.Problem = &plan.Problem{Reason: "SecretNotFound", Message: "no proxy"} },
		"certificates": func(e *plan.Egress) { e.CACertificates = "nonsense" },
		"proxy":        func(e *plan.Egress) { e.Proxy = &plan.Proxy{URL: "socks5://127.0.0.1:1"} },
	} {
		e := loopback()
		change(&e)
		c := newClient(t, Options{Egress: e})
		if res := c.Do(context.Background(), newRequest(t, s.URL)); res.Reason != ReasonLocal || res.Sent != queue.SentNo || res.Message == "" {
			t.Errorf("%s: %+v", name, res)
		}
	}
	if n := connections.Load(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

// case SG40, for what an attempt leaves behind
func TestResultsHoldNoSecrets(t *testing.T) {
	raw, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(testSecret, "whsec_"))
	s, _ := newServer(t, false, false, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	c := newClient(t, Options{})
	for _, to := range []string{s.URL + "/x?token=hush", "http://127.0.0.1:1/x?token=hush", "http://10.0.0.1/?token=hush"} {
		res := c.Do(context.Background(), newRequest(t, to))
		for _, secret := range []string{"hush", "127.0.0.1", "10.0.0.1", testSecret[6:], string(raw)} {
			if strings.Contains(res.Message, secret) {
				t.Errorf("%s: the message %q holds %q", to, res.Message, secret)
			}
		}
	}
}
