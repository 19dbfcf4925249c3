package ingest_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/doorstep-dev/doorstep/internal/ingest"
)

func TestPathsAndMethods(t *testing.T) {
	a := newAPI(t)
	const ns = "/v1/namespaces/shop"
	for _, c := range []struct {
		method, path string
		want         int
		allow        string
	}{
		{"GET", "/", 404, ""},
		{"GET", "/v1", 404, ""},
		{"GET", ns, 404, ""},
		{"GET", ns + "/", 404, ""},
		{"GET", ns + "/events/", 404, ""},
		{"GET", ns + "/events//payload", 404, ""},
		{"GET", ns + "/events/evt_1/", 404, ""},
		{"GET", ns + "/events/evt_1/payload/", 404, ""},
		{"GET", ns + "/events/evt_1/payloads", 404, ""},
		{"GET", ns + "/deliveries/evt_1", 404, ""},
		{"GET", ns + "/secrets", 404, ""},
		{"PUT", ns + "/events", 405, "GET, HEAD, POST"},
		{"DELETE", ns + "/events/evt_1", 404, ""},
		{"DELETE", ns + "/events", 405, "GET, HEAD, POST"},
		{"POST", ns + "/events/evt_1", 405, "GET, HEAD, DELETE"},
		{"POST", ns + "/audit", 405, "GET, HEAD"},
		{"GET", ns + "/audit/1", 404, ""},
		{"GET", ns + "/endpoints/orders/test", 405, "POST"},
		{"GET", ns + "/endpoints/orders/retry", 405, "POST"},
		{"GET", ns + "/endpoints/orders/replay", 405, "POST"},
		{"POST", "/openapi.json", 405, "GET, HEAD"},
		{"GET", ns + "/events/evt_1/replay", 405, "POST"},
		{"GET", ns + "/endpoints/orders/enable", 405, "POST"},
		{"OPTIONS", ns + "/events", 405, "GET, HEAD, POST"},
		{"POST", "/healthz", 405, "GET, HEAD"},
		{"GET", "/v1/namespaces/Shop/events", 400, ""},
		{"GET", "/v1/namespaces/-shop/events", 400, ""},
		{"POST", "/v1/namespaces/sh_op/events", 400, ""},
		{"GET", "/v1/namespaces/" + strings.Repeat("a", 64) + "/events", 400, ""},
		{"GET", "/v1/namespaces//events", 400, ""},
		{"GET", ns + "/events/..", 400, ""},
		{"GET", ns + "/events/a%00b", 400, ""},
		{"GET", ns + "/events/" + strings.Repeat("a", 65), 400, ""},
		{"GET", ns + "/endpoints/Orders", 400, ""},
		{"GET", ns + "/events?limit=0", 400, ""},
		{"GET", ns + "/events?limit=501", 400, ""},
		{"GET", ns + "/events?limit=x", 400, ""},
		{"GET", ns + "/events?cursor=AAAA", 400, ""},
		{"GET", ns + "/events?cursor=%25", 400, ""},
		{"GET", ns + "/events?type=a*b", 400, ""},
		{"GET", ns + "/events?since=yesterday", 400, ""},
		{"GET", ns + "/events?until=2026-11-30", 400, ""},
		{"GET", ns + "/events?tpye=a", 400, ""},
		{"GET", ns + "/events?limit=1&limit=2", 400, ""},
		{"GET", ns + "/events?id=1&limit=2", 400, ""},
		{"GET", ns + "/events?source=1", 400, ""},
		{"GET", ns + "/events?%zz", 400, ""},
		{"GET", ns + "/deliveries?state=dead", 400, ""},
		{"GET", ns + "/endpoints/nope", 404, ""},
		{"GET", ns + "/endpoints/nope/deliveries", 404, ""},
		{"POST", ns + "/endpoints/nope/enable", 404, ""},
		{"POST", ns + "/endpoints/nope/retry", 404, ""},
		{"POST", ns + "/endpoints/nope/test", 404, ""},
		{"GET", ns + "/events?order=up", 400, ""},
		{"GET", ns + "/events?explain", 400, ""},
		{"GET", ns + "/events?since=2026-11-30T12:00:00Z&until=2026-11-30T11:00:00Z", 400, ""},
		{"GET", ns + "/deliveries?since=now", 400, ""},
		{"GET", ns + "/audit?cursor=AAAA", 400, ""},
		{"DELETE", ns + "/events/nope", 404, ""},
		{"DELETE", ns + "/events/nope?because=x", 400, ""},
		{"DELETE", ns + "/events/nope?reason=%00", 400, ""},
		{"GET", ns + "/events/nope", 404, ""},
		{"GET", ns + "/events/nope/payload", 404, ""},
		{"POST", ns + "/events/nope/replay", 404, ""},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			a.t = t
			w := a.want(c.want, a.call(c.method, c.path, "", nil))
			if got := w.Header().Get("Allow"); got != c.allow {
				t.Errorf("Allow is %q, want %q", got, c.allow)
			}
			if a.problem(w).Retryable {
				t.Errorf("bad input is called retryable: %s", w.Body)
			}
		})
	}
}

func TestProbes(t *testing.T) {
	var notReady error
	a := newAPI(t, func(o *ingest.Options) { o.Authorizer, o.Ready = nil, func() error { return notReady } })
	for _, path := range []string{"/healthz", "/readyz", "/version"} {
		a.want(http.StatusOK, a.call(http.MethodGet, path, "", nil))
	}
	if got := a.call(http.MethodGet, "/version", "", nil).Body.String(); got != `{"version":"v9"}`+"\n" {
		t.Errorf("version is %s", got)
	}
	a.queue.FailHealth(errors.New("commit took 12 s on /var/secret"))
	w := a.want(http.StatusServiceUnavailable, a.call(http.MethodGet, "/healthz", "", nil))
	if strings.Contains(w.Body.String(), "/var") {
		t.Errorf("the answer tells a stranger about the machine: %s", w.Body)
	}
	notReady = errors.New("draining")
	a.want(http.StatusServiceUnavailable, a.call(http.MethodGet, "/readyz", "", nil))
}

func TestKeylessModeKeepsWebPagesOut(t *testing.T) {
	const path = "/v1/namespaces/shop/events"
	for _, c := range []struct {
		name, method, host string
		header             header
		want               int
	}{
		{"localhost", "POST", "localhost:8080", nil, 202},
		{"IPv4", "POST", "127.0.0.1", nil, 202},
		{"IPv6", "POST", "[::1]:9", nil, 202},
		{"no port, upper case", "POST", "Localhost", nil, 202},
		{"an address that begins right", "GET", "127.0.0.1.evil.example", nil, 403},
		{"IPv6 that begins right", "GET", "[::1]evil.example", nil, 403},
		{"IPv6 without a port", "POST", "[::1]", nil, 202},
		{"upper case", "POST", "LOCALHOST:1", nil, 202},
		{"a rebound name", "GET", "evil.example:8080", nil, 403},
		{"a name that begins right", "GET", "localhost.evil.example", nil, 403},
		{"another address", "GET", "10.0.0.1:8080", nil, 403},
		{"no host", "GET", "", nil, 403},
		{"a page's call", "POST", "localhost:8080", header{"Origin": "https://evil.example"}, 403},
		{"an opaque origin", "POST", "localhost:8080", header{"Origin": "null"}, 403},
		{"a form", "POST", "localhost:8080", header{"Content-Type": "application/x-www-form-urlencoded"}, 415},
		{"a text form", "POST", "localhost:8080", header{"Content-Type": "text/plain"}, 415},
		{"no type", "POST", "localhost:8080", header{"Content-Type": ""}, 415},
		{"a binary CloudEvent", "POST", "localhost:8080",
			header{"Content-Type": "text/plain", "Ce-Specversion": "1.0", "Ce-Id": "1", "Ce-Source": "/s", "Ce-Type": "a"}, 202},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newAPI(t)
			r := httptest.NewRequest(c.method, path, strings.NewReader(plainEvent("evt_1", "a")))
			r.Host = c.host
			r.Header.Set("Content-Type", "application/json")
			for name, value := range c.header {
				r.Header.Set(name, value)
			}
			w := httptest.NewRecorder()
			a.ServeHTTP(w, r)
			a.want(c.want, w)
		})
	}
}

func TestAPIKeys(t *testing.T) {
	text, key, err := ingest.NewAPIKey("shop1")
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := ingest.NewAPIKey("shop1")
	if err != nil || other == text {
		t.Fatalf("two keys are alike: %v", err)
	}
	unknown, _, err := ingest.NewAPIKey("shop2")
	if err != nil {
		t.Fatal(err)
	}
	a := newAPI(t, func(o *ingest.Options) { o.Authorizer = ingest.Keys(key) })
	for _, c := range []struct {
		name, authorization string
		want                int
	}{
		{"the key", "Bearer " + text, 202},
		{"scheme in lower case", "bearer " + text, 200},
		{"nothing", "", 401},
		{"another key of this id", "Bearer " + other, 401},
		{"an unknown id", "Bearer " + unknown, 401},
		{"another scheme", "Basic " + text, 401},
		{"the key alone", text, 401},
		{"cut off", "Bearer " + text[:len(text)-1], 401},
		{"no key at all", "Bearer token", 401},
		{"an empty id", "Bearer dsk__0123456789abcdef0123456789abcdef", 401},
	} {
		w := a.call(http.MethodPost, "/v1/namespaces/shop/events", plainEvent("evt_1", "a"), header{"Authorization": c.authorization})
		if w.Code != c.want {
			t.Errorf("%s: status is %d, want %d", c.name, w.Code, c.want)
		}
		if w.Code == 401 && (w.Header().Get("Www-Authenticate") == "" || strings.Contains(w.Body.String(), "0123456789")) {
			t.Errorf("%s: answer is %v %s", c.name, w.Header(), w.Body)
		}
	}
	if _, _, err := ingest.NewAPIKey("Not_OK"); err == nil || strings.Contains(err.Error(), "Not_OK_") {
		t.Errorf("an id with an underscore gives %v", err)
	}
}

func TestNeverOpenByDefault(t *testing.T) {
	a := newAPI(t, func(o *ingest.Options) { o.Authorizer = nil })
	a.post(http.StatusUnauthorized, plainEvent("evt_1", "a"), nil)
	a.want(http.StatusUnauthorized, a.call(http.MethodGet, "/v1/namespaces/shop/events", "", nil))
}

type undecided struct{}

func (undecided) Authorize(*http.Request, ingest.Request) (ingest.Caller, error) {
	return ingest.Caller{}, errors.New("the API server is away")
}

// DESIGN.md §5: what can't be decided is 503, never 401.
func TestUndecidedIsUnavailable(t *testing.T) {
	a := newAPI(t, func(o *ingest.Options) { o.Authorizer = undecided{} })
	a.post(http.StatusServiceUnavailable, plainEvent("evt_1", "a"), nil)
}

// listen runs the API behind real sockets.
func listen(t *testing.T, a *api) string {
	s := httptest.NewUnstartedServer(a)
	s.Config = ingest.NewServer(a)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// raw sends bytes and reads the answer until the connection closes or n answers are there.
func raw(t *testing.T, addr, text string) (*http.Response, string, error) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return nil, "", err
	}
	reader := bufio.NewReader(conn)
	res, err := http.ReadResponse(reader, nil)
	if err != nil {
		return nil, "", err
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, "", err
	}
	_, err = reader.ReadByte() // what follows on the connection
	return res, string(body), err
}

const postHead = "POST /v1/namespaces/shop/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

// case BDY-03: a length over the limit is answered before a byte of the body is read, and the connection is closed.
func TestLengthOverTheLimit(t *testing.T) {
	addr := listen(t, newAPI(t))
	res, _, err := raw(t, addr, postHead+"Content-Length: 10737418240\r\n\r\n")
	if res == nil || res.StatusCode != 413 || !errors.Is(err, io.EOF) {
		t.Fatalf("answer is %v, then %v; want 413 and a closed connection", res, err)
	}
	// A client that asks first is told without sending.
	res, _, err = raw(t, addr, postHead+"Content-Length: 300000\r\nExpect: 100-continue\r\n\r\n")
	if res == nil || res.StatusCode != 413 || !errors.Is(err, io.EOF) {
		t.Fatalf("answer is %v, then %v; want 413 and a closed connection", res, err)
	}
}

// cases BDY-02, IN9: what a header claims does not count.
func TestLengthsThatLie(t *testing.T) {
	a := newAPI(t)
	addr := listen(t, a)
	event := plainEvent("evt_1", "order.created")
	low := fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s\r\n\r\n", postHead, len(event)-5, event)
	if res, _, _ := raw(t, addr, low); res == nil || res.StatusCode != 400 {
		t.Errorf("a length that is too low is answered %v, want 400", res)
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n%s", postHead, len(event)+5, event)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || res.StatusCode != 400 {
		t.Errorf("a length that is too high is answered %v, %v; want 400", res, err)
	}
	_ = conn.Close()
	if events, _ := a.queue.Stored(); len(events) != 0 {
		t.Errorf("%d events are stored", len(events))
	}
	broken := postHead + "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"id\"\r\nzz\r\n"
	if res, _, _ := raw(t, addr, broken); res == nil || res.StatusCode != 400 {
		t.Errorf("broken chunks are answered %v, want 400", res)
	}
}

// cases IN8, IN9: a body without end costs the limit, not its size.
func TestEndlessBody(t *testing.T) {
	addr := listen(t, newAPI(t))
	for name, head := range map[string]string{"plain": "", "gzip": "Content-Encoding: gzip\r\n"} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if _, err := io.WriteString(conn, postHead+head+"Transfer-Encoding: chunked\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			sent := sendChunks(conn, 64<<20)
			runtime.ReadMemStats(&after)
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 8<<20 {
				t.Errorf("%d MiB were allocated for a body that is over the limit", grown>>20)
			}
			// The server reads the limit, and net/http no more than 256 KiB behind it; the rest are socket buffers.
			if sent == 64<<20 {
				t.Error("the server read 64 MiB of a body that is over the limit")
			}
		})
	}
}

// sendChunks sends up to n bytes in chunks, and gives how many went before the connection closed.
func sendChunks(w io.Writer, n int) (sent int) {
	chunk := append([]byte("8000\r\n"), make([]byte, 0x8000+2)...)
	copy(chunk[len(chunk)-2:], "\r\n")
	for sent < n {
		if _, err := w.Write(chunk); err != nil {
			return sent
		}
		sent += 0x8000
	}
	return sent
}

// pipes is a listener of in-memory connections, whose deadlines run on a test bubble's time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// case IN9: a body of 1 byte a second is cut off by the read timeout.
func TestSlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		server := ingest.NewServer(a)
		l := pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		served := make(chan error, 1)
		go func() { served <- server.Serve(l) }()
		client, conn := net.Pipe()
		l.conns <- conn
		began := time.Now()
		dripped := make(chan struct{})
		go func() {
			defer close(dripped)
			_, err := io.WriteString(client, postHead+"Content-Length: 1000\r\n\r\n")
			for err == nil {
				time.Sleep(time.Second)
				_, err = client.Write([]byte("x"))
			}
		}()
		res, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil || res.StatusCode != http.StatusRequestTimeout {
			t.Errorf("answer is %v, %v; want 408", res, err)
		}
		if took := time.Since(began); took < 29*time.Second || took > 31*time.Second {
			t.Errorf("the answer came after %s, want 30s", took)
		}
		_ = client.Close()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-served
		<-dripped
	})
}
