package deliver

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

// forwarder is a forward proxy. It reaches every host at the address of to, and answers
// refuse to all where that is set.
type forwarder struct {
	to      string
	refuse  int
	mu      sync.Mutex
	asked   []string // method and target
	allowed string   // Proxy-Authorization
}

func (f *forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.asked = append(f.asked, r.Method+" "+r.RequestURI)
	f.mu.Unlock()
	switch {
	case f.refuse != 0:
		w.WriteHeader(f.refuse)
		return
	case r.Header.Get("Proxy-Authorization") != f.allowed:
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	case r.Method != http.MethodConnect:
		body, _ := io.ReadAll(r.Body)
		out, _ := http.NewRequest(r.Method, "http://"+f.to+r.URL.RequestURI(), bytes.NewReader(body))
		out.Header = r.Header.Clone()
		out.Header.Del("Proxy-Authorization")
		resp, err := http.DefaultTransport.RoundTrip(out)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
		return
	}
	server, err := net.Dial("tcp", f.to)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer server.Close()
	client, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	_, _ = io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n")
	go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
	_, _ = io.Copy(client, server)
}

func (f *forwarder) seen() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.asked, ", ")
}

// through is an egress that sends everything by a proxy.
func through(url string) plan.Egress {
	return plan.Egress{AllowHTTP: true, Proxy: &plan.Proxy{URL: url}}
}

// case HC119 (an endpoint's own authority and the proxy together), and a proxy by TLS
// whose certificate is of the pool's authority.
func TestProxy(t *testing.T) {
	private, pooled := newAuthority(t, "private"), newAuthority(t, "pool")
	got := make(chan received, 1)
	s, _ := secureServer(t, private, "hooks.example.com", nil, recorder(got))
	certificate, key := private.issue("client", s.Certificate().NotAfter)
	settings := plan.TLS{CACertificates: private.pem, ClientCertificate: certificate, ClientKey: key, ServerName: "hooks.example.com"}
	for _, secure := range []bool{false, true} {
		f := &forwarder{to: mustHost(t, s.URL), allowed: "Basic " + base64.StdEncoding.EncodeToString([]byte("us er:p@:w"))}
		proxy := httptest.NewUnstartedServer(f)
		proxy.Config.ErrorLog = discardLog
		if secure {
			c, k := pooled.issue("proxy.example.com", s.Certificate().NotAfter)
			pair, err := tls.X509KeyPair([]byte(c), []byte(k))
			if err != nil {
				t.Fatal(err)
			}
			proxy.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
			proxy.StartTLS()
		} else {
			proxy.Start()
		}
		t.Cleanup(proxy.Close)
		e := through(proxy.URL)
		e.CACertificates = pooled.pem
		e.Proxy.Username, e.Proxy.Password = "us er", "p@:w"
		c := newClient(t, Options{Egress: e})
		for range 2 {
			// A name that only the proxy can resolve.
			res := c.Do(context.Background(), newRequest(t, "https://hooks.example.com/x?token=hush", trusting(settings)))
			if res.Status != 200 {
				t.Fatalf("TLS to the proxy %v: %+v", secure, res)
			}
			req := <-got
			verify(t, testSecret, req)
			if req.header.Get("Proxy-Authorization") != "" {
				t.Error("the receiver got the proxy's credentials")
			}
		}
		if got := f.seen(); got != "CONNECT hooks.example.com:443" {
			t.Errorf("the proxy was asked %q", got)
		}
	}
}

func TestProxyForHTTP(t *testing.T) {
	got := make(chan received, 1)
	s, _ := newServer(t, false, false, recorder(got))
	f := &forwarder{to: mustHost(t, s.URL)}
	proxy := httptest.NewServer(f)
	defer proxy.Close()
	c := newClient(t, Options{Egress: through(proxy.URL)})
	if res := c.Do(context.Background(), newRequest(t, "http://hooks.example.com/x")); res.Status != 200 {
		t.Fatalf("%+v", res)
	}
	verify(t, testSecret, <-got)
	http.DefaultTransport.(*http.Transport).CloseIdleConnections() // of the proxy
	if got := f.seen(); got != "POST http://hooks.example.com/x" {
		t.Errorf("the proxy was asked %q", got)
	}
}

// What the proxy does is not the receiver's answer.
func TestProxyInTrouble(t *testing.T) {
	p := retry.BuiltIn()
	for _, row := range []struct {
		name, to string
		refuse   int
		reason   string
		want     string
	}{
		{"407", "https://hooks.example.com", 407, ReasonProxy, "the pool's proxy refuses Doorstep's credentials (407)"},
		{"407 to http", "http://hooks.example.com", 407, ReasonProxy, "the pool's proxy refuses Doorstep's credentials (407)"},
		{"403", "https://hooks.example.com", 403, ReasonProxy, "the pool's proxy does not allow this destination (403)"},
		{"410", "https://hooks.example.com", 410, ReasonProxy, "the pool's proxy did not open a connection to the receiver"},
		{"502", "https://hooks.example.com", 502, ReasonConnect, "the pool's proxy could not reach the receiver"},
		{"504", "https://hooks.example.com", 504, ReasonConnect, "the pool's proxy could not reach the receiver"},
	} {
		t.Run(row.name, func(t *testing.T) {
			proxy := httptest.NewServer(&forwarder{refuse: row.refuse})
			defer proxy.Close()
			c := newClient(t, Options{Egress: through(proxy.URL)})
			res := c.Do(context.Background(), newRequest(t, row.to))
			if res.Status != 0 || res.Reason != row.reason || res.Message != row.want || res.Sent != queue.SentNo || res.Class(&p) != retry.Retry {
				t.Errorf("%+v", res)
			}
		})
	}
	plain, _ := newServer(t, false, false, ok)
	for to, want := range map[string]string{
		"http://127.0.0.1:1":                "the pool's proxy can't be reached",
		"https://" + mustHost(t, plain.URL): "the TLS handshake with the pool's proxy failed",
	} {
		c := newClient(t, Options{Egress: through(to)})
		if res := c.Do(context.Background(), newRequest(t, "https://hooks.example.com")); res.Reason != ReasonProxy || res.Message != want || res.Class(&p) != retry.Retry {
			t.Errorf("%s: %+v", to, res)
		}
	}
	for _, bad := range []string{"http://user:pw@127.0.0.1:1", "http://127.0.0.1:1/path", "ftp://127.0.0.1:1", "127.0.0.1:1", "http://127.0.0.1:notaport", "http://127.0.0.1:1?x=1", ""} {
		c := newClient(t, Options{Egress: through(bad)})
		if res := c.Do(context.Background(), newRequest(t, "https://hooks.example.com")); res.Reason != ReasonLocal {
			t.Errorf("%q as a proxy: %+v", bad, res)
		}
	}
}

// A proxy opens no door that is shut without it, as far as a URL shows that.
func TestProxyIsNoWayAroundTheGuard(t *testing.T) {
	f := &forwarder{}
	proxy := httptest.NewServer(f)
	defer proxy.Close()
	c := newClient(t, Options{Egress: through(proxy.URL)})
	for _, to := range []string{
		"https://169.254.169.254/latest", "http://[fd00:ec2::254]/", "https://10.0.0.1/", "https://[::ffff:127.0.0.1]/", "http://localhost/",
		"https://kubernetes.default.svc/", "http://metadata.google.internal./",
	} {
		if res := c.Do(context.Background(), newRequest(t, to)); res.Reason != ReasonDenied || res.Message != messageDenied {
			t.Errorf("%s: %+v", to, res)
		}
		i := &issuer{url: to}
		if res := c.Do(context.Background(), newRequest(t, "https://hooks.example.com", i.as())); res.Reason != ReasonAuth {
			t.Errorf("%s as a token server: %+v", to, res)
		}
	}
	if got := f.seen(); got != "" {
		t.Errorf("the proxy was asked %s", got)
	}
}

// case SSR-12, second half: what one namespace may reach, another one does not reach over
// the first one's connections.
func TestConnectionsAreNotSharedBetweenNamespaces(t *testing.T) {
	s, connections := newServer(t, false, false, ok)
	e := plan.Egress{AllowHTTP: true, Allow: []plan.Network{{Prefix: loopback().Allow[0].Prefix, Namespaces: []string{"a", "b"}}}}
	c := newClient(t, Options{Egress: e})
	do := func(namespace string) Result {
		return c.Do(context.Background(), newRequest(t, s.URL, func(e *plan.Endpoint) { e.Namespace = namespace }))
	}
	if res := do("a"); res.Status != 200 {
		t.Fatalf("%+v", res)
	}
	if res := do("c"); res.Reason != ReasonDenied {
		t.Errorf("another namespace: %+v", res)
	}
	if res := do("b"); res.Status != 200 || connections.Load() != 1 {
		t.Errorf("one with the same rights: %+v, %d connections", res, connections.Load())
	}
}
