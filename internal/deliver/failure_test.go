package deliver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

// pool trusts a test server.
func pool(s *httptest.Server) *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(s.Certificate())
	return p
}

// respond is a peer that reads a request and writes these bytes.
func respond(raw string) func(net.Conn) {
	return func(conn net.Conn) {
		if readRequest(conn) == nil {
			_, _ = io.WriteString(conn, raw)
		}
	}
}

// reset ends a connection with RST.
func reset(conn net.Conn) { _ = conn.(*net.TCPConn).SetLinger(0) }

// cases RT60, RT61, RTY-07: what a broken connection or answer is called, and
// whether the receiver may have got the event.
func TestFailures(t *testing.T) {
	refused, _ := newPeer(t, func(net.Conn) {})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused = l.Addr().String()
	l.Close()
	for _, row := range []struct {
		name   string
		peer   func(net.Conn) // nil: the connection is refused
		status int
		reason string
		sent   queue.Sent
		text   string
	}{
		{"connection refused", nil, 0, ReasonConnect, queue.SentNo, "the connection was refused"},
		{"reset while the request is read", func(c net.Conn) { _, _ = c.Read(make([]byte, 1)); reset(c) }, 0, ReasonReset, queue.SentUnknown, "the connection broke before an answer came"},
		{"closed after the request", func(c net.Conn) { _ = readRequest(c) }, 0, ReasonReset, queue.SentUnknown, "the connection broke before an answer came"},
		{"reset after the request", func(c net.Conn) { _ = readRequest(c); reset(c) }, 0, ReasonReset, queue.SentUnknown, "the connection broke before an answer came"},
		{"closed within the status line", respond("HTTP/1.1 20"), 0, ReasonProtocol, queue.SentUnknown, "the answer is not HTTP"},
		{"closed after the status line", respond("HTTP/1.1 200 OK\r\n"), 0, ReasonReset, queue.SentUnknown, "the connection broke before an answer came"},
		{"status 500, then closed", respond("HTTP/1.1 500 Oh\r\nContent-Length: 9\r\n\r\nabc"), 500, ReasonServerError, queue.SentYes, "the receiver answered 500"},
		{"no HTTP", respond("SSH-2.0-OpenSSH_9.9\r\n\r\n"), 0, ReasonProtocol, queue.SentUnknown, "the answer is not HTTP"},
		{"malformed status", respond("HTTP/1.1 2x0 OK\r\n\r\n"), 0, ReasonProtocol, queue.SentUnknown, "the answer is not HTTP"},
		{"status of four digits", respond("HTTP/1.1 2000 OK\r\n\r\n"), 0, ReasonProtocol, queue.SentUnknown, "the answer is not HTTP"},
		{"malformed header", respond("HTTP/1.1 200 OK\r\nno colon\r\n\r\n"), 0, ReasonProtocol, queue.SentUnknown, "the answer is not HTTP"},
		{"status 600", respond("HTTP/1.1 600 X\r\nContent-Length: 0\r\n\r\n"), 600, ReasonProtocol, queue.SentYes, "the receiver answered with 600, which is no status code"},
		{"status 999", respond("HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n"), 999, ReasonProtocol, queue.SentYes, "the receiver answered with 999, which is no status code"},
		{"101", respond("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), 101, ReasonProtocol, queue.SentYes, "the receiver answered with 101, which ends no request"},
		{"headers of 11 MiB (case SSR-10)", respond("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 11<<20) + "\r\n\r\n"), 0, ReasonProtocol, queue.SentUnknown, "the headers of the answer are larger than 64 KiB"},
	} {
		t.Run(row.name, func(t *testing.T) {
			address := refused
			if row.peer != nil {
				address, _ = newPeer(t, row.peer)
			}
			c := newClient(t, Options{})
			res := c.Do(context.Background(), newRequest(t, "http://"+address))
			if res.Status != row.status || res.Reason != row.reason || res.Sent != row.sent || res.Message != row.text {
				t.Errorf("%+v", res)
			}
			p := retry.BuiltIn()
			want := retry.Retry
			if row.status == 101 {
				want = retry.DeadLetter
			}
			if got := res.Class(&p); got != want {
				t.Errorf("class %d, want %d", got, want)
			}
		})
	}
}

// case RT59 (and RT61): an attempt that takes too long may have been received.
func TestTimeout(t *testing.T) {
	hold := make(chan struct{})
	var before atomic.Bool
	s, _ := newServer(t, false, false, func(http.ResponseWriter, *http.Request) {
		if before.Swap(true) {
			<-hold
		}
	})
	c := newClient(t, Options{})
	// So that there is a connection: on a busy machine it may take longer than the timeout.
	if res := c.Do(context.Background(), newRequest(t, s.URL)); res.Status != 200 {
		t.Fatalf("%+v", res)
	}
	r := newRequest(t, s.URL, within(50*time.Millisecond))
	res := c.Do(context.Background(), r)
	close(hold)
	if res.Reason != ReasonTimeout || res.Sent != queue.SentUnknown || res.Status != 0 || !strings.Contains(res.Message, "may have got") {
		t.Errorf("%+v", res)
	}
	if res.Duration < 50*time.Millisecond || res.Duration > 5*time.Second {
		t.Errorf("the attempt took %v", res.Duration)
	}
	// A slow receiver is no failure as long as it stays within the timeout.
	slow, _ := newServer(t, false, false, func(http.ResponseWriter, *http.Request) { <-time.After(100 * time.Millisecond) })
	if res := c.Do(context.Background(), newRequest(t, slow.URL)); res.Status != 200 {
		t.Errorf("%+v", res)
	}
}

func TestTimeoutBeforeAConnection(t *testing.T) {
	// The peer accepts and says nothing: the TLS handshake hangs.
	hold := make(chan struct{})
	address, _ := newPeer(t, func(net.Conn) { <-hold })
	c := newClient(t, Options{})
	r := newRequest(t, "https://"+address, within(50*time.Millisecond))
	res := c.Do(context.Background(), r)
	close(hold)
	if res.Reason != ReasonTimeout || res.Sent != queue.SentNo {
		t.Errorf("%+v", res)
	}
}

func TestShutdownIsNoFaultOfTheEndpoint(t *testing.T) {
	arrived, hold := make(chan struct{}), make(chan struct{})
	s, _ := newServer(t, false, false, func(http.ResponseWriter, *http.Request) { close(arrived); <-hold })
	c := newClient(t, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-arrived; cancel() }()
	res := c.Do(ctx, newRequest(t, s.URL))
	close(hold)
	if res.Reason != ReasonShutdown || res.Sent != queue.SentUnknown {
		t.Errorf("%+v", res)
	}
	if res := c.Do(ctx, newRequest(t, s.URL)); res.Reason != ReasonShutdown || res.Sent != queue.SentNo {
		t.Errorf("begun after the shutdown: %+v", res)
	}
	p := retry.BuiltIn()
	if res.Class(&p) != retry.Held {
		t.Errorf("class %d, want Held", res.Class(&p))
	}
}

// case RT56: one request for one attempt.
func TestNoHiddenRetries(t *testing.T) {
	for name, peer := range map[string]func(net.Conn){
		"503":    respond("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"),
		"reset":  func(c net.Conn) { _ = readRequest(c); reset(c) },
		"closed": func(c net.Conn) { _ = readRequest(c) },
		// On a used connection net/http would send an idempotent request again.
		"reset of a used connection": func(c net.Conn) {
			r := newReader(c)
			for range 2 {
				req, err := http.ReadRequest(r)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				if req.Header.Get("Doorstep-Attempt") == "2" {
					reset(c)
					return
				}
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			address, connections := newPeer(t, peer)
			c := newClient(t, Options{})
			r := newRequest(t, "http://"+address)
			if name == "reset of a used connection" {
				if res := c.Do(context.Background(), r); res.Status != 200 {
					t.Fatalf("%+v", res)
				}
				r.AttemptNumber = 2
			}
			if res := c.Do(context.Background(), r); res.Status/100 == 2 {
				t.Errorf("%+v", res)
			}
			if n := connections.Load(); n != 1 {
				t.Errorf("%d connections, want 1", n)
			}
		})
	}
}

// cases RTY-02, HC113
func TestRedirectsAreNotFollowed(t *testing.T) {
	other, hits := newServer(t, false, false, func(http.ResponseWriter, *http.Request) {})
	_, port, _ := net.SplitHostPort(mustHost(t, other.URL))
	for _, status := range []int{301, 302, 303, 307, 308} {
		for location, host := range map[string]string{
			other.URL + "/x?token=hush":          ": the endpoint redirects to host 127.0.0.1",
			"https://HOOKS.example/y?k=hush":     ": the endpoint redirects to host hooks.example by https",
			"//other.example:" + port + "/x":     ": the endpoint redirects to host other.example",
			"/elsewhere?token=hush":              "",
			"":                                   "",
			"http://%zz/":                        "",
			"https://é.example/":                 "",
			"https://user:hush@a.example/#x":     ": the endpoint redirects to host a.example by https",
			"http://" + strings.Repeat("a", 300): "",
		} {
			s, _ := newServer(t, false, false, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", location)
				w.WriteHeader(status)
			})
			res := newClient(t, Options{}).Do(context.Background(), newRequest(t, s.URL))
			want := fmt.Sprintf("the receiver answered %d; redirects are not followed%s", status, host)
			if res.Status != status || res.Reason != ReasonRedirect || res.Message != want {
				t.Errorf("%d to %q: %+v", status, location, res)
			}
			p := retry.BuiltIn()
			if res.Class(&p) != retry.Retry {
				t.Errorf("%d: class %d", status, res.Class(&p))
			}
		}
	}
	if n := hits.Load(); n != 0 {
		t.Errorf("%d connections to the other host", n)
	}
}

// cases RTY-01, RT65, and the two headers a receiver may speak by
func TestAnswers(t *testing.T) {
	p := retry.BuiltIn()
	for _, row := range []struct {
		status            int
		delivery, version string
		reason            string
		class             retry.Class
		heard             string
	}{
		{200, "", "v7", "", retry.Delivered, ""},
		{201, "", "", "", retry.Delivered, ""},
		{202, "", "", "", retry.Delivered, ""},
		{204, "", "", "", retry.Delivered, ""},
		{206, "", "", "", retry.Delivered, ""},
		{299, "", "", "", retry.Delivered, ""},
		{304, "", "", ReasonRedirect, retry.Retry, ""},
		{400, "", "v7", ReasonClientError, retry.DeadLetter, ""},
		{401, "", "", ReasonAuthRejected, retry.DeadLetter, ""},
		{403, "", "", ReasonAuthRejected, retry.DeadLetter, ""},
		{404, "", "", ReasonClientError, retry.DeadLetter, ""},
		{407, "", "", ReasonAuthRejected, retry.DeadLetter, ""},
		{408, "", "", ReasonClientError, retry.Retry, ""},
		{410, "", "", ReasonClientError, retry.Disable, ""},
		{429, "", "", ReasonRateLimited, retry.Retry, ""},
		{503, "", "", ReasonServerError, retry.Retry, ""},
		{599, "", "", ReasonServerError, retry.Retry, ""},
		{500, "disable", "", ReasonServerError, retry.Disable, DeliveryDisable},
		{503, "Abort-Message", "", ReasonServerError, retry.DeadLetter, DeliveryAbort},
		{503, "other", "", ReasonServerError, retry.Retry, ""},
		{200, "disable", "", "", retry.Delivered, DeliveryDisable},
	} {
		t.Run(fmt.Sprint(row.status, row.delivery), func(t *testing.T) {
			s, _ := newServer(t, false, false, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Webhook-Delivery", row.delivery)
				w.Header().Set("X-Handler-Version", row.version)
				w.Header().Set("Retry-After", "120")
				w.WriteHeader(row.status)
			})
			res := newClient(t, Options{}).Do(context.Background(), newRequest(t, s.URL))
			if res.Status != row.status || res.Reason != row.reason || res.WebhookDelivery != row.heard || res.HandlerVersion != row.version || res.Sent != queue.SentYes {
				t.Errorf("%+v", res)
			}
			if len(res.RetryAfter) != 1 || res.RetryAfter[0] != "120" {
				t.Errorf("RetryAfter %q", res.RetryAfter)
			}
			if got := res.Class(&p); got != row.class {
				t.Errorf("class %d, want %d", got, row.class)
			}
		})
	}
	for _, bad := range []string{strings.Repeat("v", maxVersion+1), "\x01", "é"} {
		if got := handlerVersion([]string{bad}); got != "" {
			t.Errorf("handler version %q is kept", got)
		}
	}
}

// cases RTY-06, SSR-10, HC116: the status decides; the body is bounded.
func TestHostileBodies(t *testing.T) {
	for _, row := range []struct {
		name   string
		head   string
		body   func(net.Conn)
		status int
		least  time.Duration
	}{
		{"200, then reset", "Content-Length: 100\r\n", reset, 200, 0},
		{"200, then half a body", "Content-Length: 100\r\n", func(c net.Conn) { _, _ = io.WriteString(c, "half") }, 200, 0},
		{"200, broken chunks", "Transfer-Encoding: chunked\r\n", func(c net.Conn) { _, _ = io.WriteString(c, "zz\r\n") }, 200, 0},
		{"200 without an end, flooding", "", flood, 200, 0},
		{"500 without an end, flooding", "", flood, 500, 0},
		{"200 of 64 MiB by its length", "Content-Length: 67108864\r\n", flood, 200, 0},
		{"500 of 64 MiB by its length", "Content-Length: 67108864\r\n", flood, 500, 0},
		{"gzip is not inflated", "Content-Encoding: gzip\r\nContent-Length: 4\r\n", func(c net.Conn) { _, _ = io.WriteString(c, "\x1f\x8b\x08\x00") }, 500, 0},
		{"200, dripping", "", drip, 200, bodyGrace},
		{"500, dripping", "Content-Length: 1000\r\n", drip, 500, bodyGrace},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			address, _ := newPeer(t, func(c net.Conn) {
				if readRequest(c) == nil {
					_, _ = fmt.Fprintf(c, "HTTP/1.1 %d X\r\n%s\r\n", row.status, row.head)
					row.body(c)
				}
			})
			r := newRequest(t, "http://"+address, within(30*time.Second))
			res := newClient(t, Options{}).Do(context.Background(), r)
			if res.Status != row.status || res.Sent != queue.SentYes {
				t.Errorf("%+v", res)
			}
			if res.Duration < row.least || res.Duration > row.least+5*time.Second {
				t.Errorf("it took %v, want about %v", res.Duration, row.least)
			}
			if len(res.Response) > keptBytes || (row.status == 200 && res.Response != nil) || (row.status == 500 && len(res.Response) == 0) {
				t.Errorf("%d bytes are kept", len(res.Response))
			}
		})
	}
}

func flood(c net.Conn) {
	block := make([]byte, 64<<10)
	for {
		if _, err := c.Write(block); err != nil {
			return
		}
	}
}

func drip(c net.Conn) {
	for {
		if _, err := c.Write([]byte("x")); err != nil {
			return
		}
		<-time.After(20 * time.Millisecond)
	}
}

// case RTY-08: a certificate that isn't right is never accepted.
func TestBadCertificates(t *testing.T) {
	now := time.Now()
	for _, row := range []struct {
		name  string
		host  string
		until time.Time
		trust bool
		want  string
	}{
		{"good", "127.0.0.1", now.Add(time.Hour), true, ""},
		{"expired", "127.0.0.1", now.Add(-time.Hour), true, "the receiver's certificate has expired or is not yet valid"},
		{"other host", "127.0.0.2", now.Add(time.Hour), true, "the receiver's certificate is for another host"},
		{"self-signed", "127.0.0.1", now.Add(time.Hour), false, "the receiver's certificate is signed by an unknown authority"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			cert := certificate(t, row.host, row.until)
			s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
			s.Config.ErrorLog = discardLog
			s.StartTLS()
			defer s.Close()
			roots := x509.NewCertPool()
			if row.trust {
				roots.AddCert(cert.Leaf)
			}
			res := newClient(t, Options{RootCAs: roots}).Do(context.Background(), newRequest(t, s.URL))
			if row.want == "" {
				if res.Status != 200 {
					t.Errorf("%+v", res)
				}
				return
			}
			if res.Status != 0 || res.Reason != ReasonTLS || res.Sent != queue.SentNo || res.Message != row.want {
				t.Errorf("%+v", res)
			}
		})
	}
}

func certificate(t *testing.T, host string, until time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: until.Add(-24 * time.Hour), NotAfter: until,
		IPAddresses: []net.IP{net.ParseIP(host)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(crand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func TestTLSFailures(t *testing.T) {
	plain, _ := newServer(t, false, false, func(http.ResponseWriter, *http.Request) {})
	closing, _ := newPeer(t, func(net.Conn) {})
	nonsense, _ := newPeer(t, func(c net.Conn) { _, _ = io.WriteString(c, strings.Repeat("x", 100)); _, _ = io.Copy(io.Discard, c) })
	for to, want := range map[string]string{
		mustHost(t, plain.URL): "the receiver does not speak TLS on this port",
		closing:                "",
		nonsense:               "the TLS handshake failed",
	} {
		res := newClient(t, Options{}).Do(context.Background(), newRequest(t, "https://"+to))
		if res.Reason != ReasonTLS || res.Sent != queue.SentNo || (want != "" && res.Message != want) {
			t.Errorf("%+v, want %q", res, want)
		}
	}
}

// resolver asks a name server in memory; answer gives an address, or nil for
// what the name itself says: nxdomain.*, servfail.*, silent.*.
func resolver(t testing.TB, answer func(name string) net.IP) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go serveDNS(t, server, answer)
		return client, nil
	}}
}

// serveDNS answers queries in the form they have over TCP: net.Pipe is no
// net.PacketConn, and so the resolver speaks that.
func serveDNS(t testing.TB, conn net.Conn, answer func(string) net.IP) {
	defer conn.Close()
	for {
		head := make([]byte, 2)
		if _, err := io.ReadFull(conn, head); err != nil {
			return
		}
		query := make([]byte, int(head[0])<<8|int(head[1]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(query); err != nil {
			t.Errorf("query: %v", err)
			return
		}
		m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
		q := m.Questions[0]
		switch name := q.Name.String(); {
		case strings.HasPrefix(name, "nxdomain."):
			m.RCode = dnsmessage.RCodeNameError
		case strings.HasPrefix(name, "servfail."):
			m.RCode = dnsmessage.RCodeServerFailure
		case strings.HasPrefix(name, "silent."):
			continue
		case q.Type == dnsmessage.TypeA:
			m.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
				Body:   &dnsmessage.AResource{A: [4]byte(answer(name).To4())},
			}}
		}
		packed, err := m.Pack()
		if err != nil {
			t.Errorf("answer: %v", err)
			return
		}
		if _, err := conn.Write(append([]byte{byte(len(packed) >> 8), byte(len(packed))}, packed...)); err != nil {
			return
		}
	}
}

// cases RT49, RTY-09, HC118
func TestNamesThatDoNotResolve(t *testing.T) {
	s, _ := newServer(t, false, false, func(http.ResponseWriter, *http.Request) {})
	_, port, _ := net.SplitHostPort(mustHost(t, s.URL))
	c := newClient(t, Options{Resolver: resolver(t, localhost)})
	p := retry.BuiltIn()
	for host, want := range map[string]string{
		"nxdomain.example.com": "the host name does not exist",
		"servfail.example.com": "the host name could not be resolved: the name server failed",
		"hooks.example.com":    "",
	} {
		res := c.Do(context.Background(), newRequest(t, "http://"+host+".:"+port))
		if want == "" {
			if res.Status != 200 {
				t.Errorf("%s: %+v", host, res)
			}
			continue
		}
		if res.Reason != ReasonDNS || res.Sent != queue.SentNo || res.Message != want || res.Class(&p) != retry.Retry {
			t.Errorf("%s: %+v", host, res)
		}
	}
}

// case RTY-09, a name server that doesn't answer
func TestNameServerIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, Options{Resolver: resolver(t, localhost)})
		const to = "http://silent.example.com./"
		res := c.Do(t.Context(), newRequest(t, to, within(30*time.Second)))
		if res.Reason != ReasonDNS || res.Sent != queue.SentNo || res.Message != "the host name could not be resolved in time" {
			t.Errorf("%+v", res)
		}
		if res.Duration > connectTimeout {
			t.Errorf("it took %v", res.Duration)
		}
		if res := c.Do(t.Context(), newRequest(t, to, within(500*time.Millisecond))); res.Reason != ReasonTimeout || res.Sent != queue.SentNo || res.Duration != 500*time.Millisecond {
			t.Errorf("with a shorter timeout: %+v", res)
		}
		time.Sleep(connectTimeout) // net/http goes on with the dial
	})
}

// cases SSR-05, SSR-11: what is dialled is judged, and all denials look the same.
func TestDeniedDestinations(t *testing.T) {
	s, connections := newServer(t, false, false, func(http.ResponseWriter, *http.Request) {})
	_, port, _ := net.SplitHostPort(mustHost(t, s.URL))
	denyAll := plan.Egress{AllowHTTP: true}
	c := newClient(t, Options{Egress: denyAll, Resolver: resolver(t, localhost)})
	for _, host := range []string{"127.0.0.1", "rebound.example.com.", "10.0.0.1", "169.254.169.254", "[::1]", "[::ffff:127.0.0.1]"} {
		res := c.Do(context.Background(), newRequest(t, "http://"+host+":"+port))
		res.StartedAt, res.Duration = time.Time{}, 0
		want := Result{Reason: ReasonDenied, Message: "destination not allowed", Sent: queue.SentNo}
		if fmt.Sprint(res) != fmt.Sprint(want) {
			t.Errorf("%s: %+v", host, res)
		}
		p := retry.BuiltIn()
		if res.Class(&p) != retry.DeadLetter {
			t.Errorf("%s: class %d, want DeadLetter", host, res.Class(&p))
		}
	}
	if n := connections.Load(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
}

// case HC122: after a receiver was cut off hard, the next attempts reach its successor.
func TestReceiverComesBack(t *testing.T) {
	var mu sync.Mutex
	var open []net.Conn
	handle := func(c net.Conn) {
		mu.Lock()
		open = append(open, c)
		mu.Unlock()
		r := newReader(c)
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"); err != nil {
				return
			}
		}
	}
	address, _ := newPeer(t, handle)
	c := newClient(t, Options{})
	for i := range 5 {
		// The first attempt after the cut may meet the dead connection; no later one.
		var res Result
		for range 2 {
			if res = c.Do(context.Background(), newRequest(t, "http://"+address)); res.Status == 200 {
				break
			}
		}
		if res.Status != 200 {
			t.Fatalf("round %d: %+v", i, res)
		}
		mu.Lock()
		for _, conn := range open {
			reset(conn)
			conn.Close()
		}
		open = nil
		mu.Unlock()
	}
}

// A receiver that reloads refuses HTTP/2 requests unread: they are sent again on
// another connection, and the attempt doesn't fail.
func TestHTTP2ReceiverThatClosesGracefully(t *testing.T) {
	var mu sync.Mutex
	served := 0
	s, connections := newServer(t, true, true, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if served++; served%10 == 0 {
			// With this the server sends GOAWAY after the answer.
			w.Header().Set("Connection", "close")
		}
	})
	c := newClient(t, Options{RootCAs: pool(s)})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				if res := c.Do(context.Background(), newRequest(t, s.URL)); res.Status != 200 {
					t.Errorf("%+v", res)
				}
			}
		})
	}
	wg.Wait()
	if served != 200 {
		t.Errorf("%d requests served for 200 attempts", served)
	}
	if connections.Load() < 2 {
		t.Error("the server never closed a connection: the test shows nothing")
	}
}
