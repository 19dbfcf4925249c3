package deliver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

// authority signs certificates of the tests.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	leaf *x509.Certificate
	pem  string
	next int64
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t, next: 2}
	a.key = newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.leaf, a.pem = a.sign(template, template, &a.key.PublicKey)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) sign(template, parent *x509.Certificate, public *ecdsa.PublicKey) (*x509.Certificate, string) {
	a.t.Helper()
	der, err := x509.CreateCertificate(crand.Reader, template, parent, public, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return leaf, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// issue makes a certificate and its key, in PEM, for a host and for 127.0.0.1.
func (a *authority) issue(name string, until time.Time) (certificate, key string) {
	a.t.Helper()
	k := newKey(a.t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.next), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: until, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	a.next++
	_, certificate = a.sign(template, a.leaf, &k.PublicKey)
	raw, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	return certificate, string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}))
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.leaf)
	return p
}

// secureServer is a receiver with a certificate of an authority; change may alter its TLS.
func secureServer(t *testing.T, a *authority, host string, change func(*tls.Config), h http.HandlerFunc) (*httptest.Server, *traffic) {
	t.Helper()
	certificate, key := a.issue(host, time.Now().Add(time.Hour))
	pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	connections := &traffic{closed: make(chan struct{}, 1000)}
	s := httptest.NewUnstartedServer(h)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	if change != nil {
		change(s.TLS)
	}
	s.EnableHTTP2 = true
	s.Config.ErrorLog = discardLog
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			connections.Add(1)
		case http.StateClosed:
			connections.closed <- struct{}{}
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, connections
}

func trusting(t plan.TLS) func(*plan.Endpoint) { return func(e *plan.Endpoint) { e.TLS = t } }

func ok(http.ResponseWriter, *http.Request) {}

// cases HC119, HC120 (the authorities of endpoint and pool)
func TestAuthorities(t *testing.T) {
	private, public := newAuthority(t, "private"), newAuthority(t, "public")
	ofPrivate, _ := secureServer(t, private, "private.example.com", nil, ok)
	ofPublic, _ := secureServer(t, public, "public.example.com", nil, ok)
	pooled := loopback()
	pooled.CACertificates = private.pem
	for _, row := range []struct {
		name     string
		server   *httptest.Server
		egress   plan.Egress
		endpoint plan.TLS
		good     bool
	}{
		{"the system's", ofPublic, loopback(), plan.TLS{}, true},
		{"unknown", ofPrivate, loopback(), plan.TLS{}, false},
		{"the endpoint's", ofPrivate, loopback(), plan.TLS{CACertificates: private.pem}, true},
		{"the endpoint's, and no others", ofPublic, loopback(), plan.TLS{CACertificates: private.pem}, false},
		{"the endpoint's, and not the pool's", ofPrivate, pooled, plan.TLS{CACertificates: public.pem}, false},
		{"the pool's", ofPrivate, pooled, plan.TLS{}, true},
		{"the pool's beside the system's", ofPublic, pooled, plan.TLS{}, true},
		{"two of the endpoint", ofPublic, loopback(), plan.TLS{CACertificates: private.pem + public.pem}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := newClient(t, Options{RootCAs: public.pool(), Egress: row.egress})
			res := c.Do(context.Background(), newRequest(t, row.server.URL, trusting(row.endpoint)))
			if good := res.Status == 200; good != row.good {
				t.Errorf("%+v", res)
			}
			if !row.good && (res.Reason != ReasonTLS || res.Message != "the receiver's certificate is signed by an unknown authority") {
				t.Errorf("%+v", res)
			}
		})
	}
}

// A certificate that changes is used for the next attempt, on a connection of its own;
// what does not change keeps its connection.
func TestCertificatesAreExchanged(t *testing.T) {
	a := newAuthority(t, "a")
	names := make(chan string, 10)
	s, connections := secureServer(t, a, "hooks.example.com", func(c *tls.Config) {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, a.pool()
	}, func(_ http.ResponseWriter, r *http.Request) { names <- r.TLS.PeerCertificates[0].Subject.CommonName })
	c := newClient(t, Options{RootCAs: a.pool()})
	settings := map[string]plan.TLS{}
	for _, name := range []string{"one", "two"} {
		certificate, key := a.issue(name, time.Now().Add(time.Hour))
		settings[name] = plan.TLS{ClientCertificate: certificate, ClientKey: key}
	}
	for n, name := range []string{"one", "one", "two", "two", "one"} {
		// Each time another destination, as each plan makes it.
		if res := c.Do(context.Background(), newRequest(t, s.URL, trusting(settings[name]))); res.Status != 200 {
			t.Fatalf("%+v", res)
		}
		if got := <-names; got != name {
			t.Errorf("request %d has certificate %s, want %s", n, got, name)
		}
	}
	if n := connections.Load(); n != 2 {
		t.Errorf("%d connections, want one for each certificate", n)
	}
	// Those that nobody uses any more go, with their connections.
	n := c.network.Load()
	for _, tr := range n.transports {
		tr.used.Add(-2 * int64(transportLife))
	}
	setPool(c, loopback())
	connections.await(t, 2)
	if len(n.transports) != 0 {
		t.Errorf("%d transports are left", len(n.transports))
	}
	r := newRequest(t, s.URL, trusting(settings["one"]))
	if res := c.Do(context.Background(), r); res.Status != 200 {
		t.Errorf("and again: %+v", res)
	}
}

func TestTransportsAreBounded(t *testing.T) {
	c := newClient(t, Options{})
	n := c.network.Load()
	view := n.guard.For("default")
	for i := range maxTransports + 10 {
		n.transport(view, false, &tlsSettings{hash: strconv.Itoa(i)}, int64(i))
	}
	if len(n.transports) != maxTransports {
		t.Errorf("%d transports", len(n.transports))
	}
	if _, there := n.transports[transportKey{tls: "0", view: view.Key()}]; there {
		t.Error("the oldest is still there")
	}
	if _, there := n.transports[transportKey{tls: strconv.Itoa(maxTransports), view: view.Key()}]; !there {
		t.Error("a new one is not there")
	}
}

func TestClientCertificatesThatAreRefused(t *testing.T) {
	a, other := newAuthority(t, "a"), newAuthority(t, "other")
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		s, _ := secureServer(t, a, "hooks.example.com", func(c *tls.Config) {
			c.ClientAuth, c.ClientCAs, c.MaxVersion = tls.RequireAndVerifyClientCert, a.pool(), version
		}, ok)
		foreign, foreignKey := other.issue("x", time.Now().Add(time.Hour))
		expired, expiredKey := a.issue("x", time.Now().Add(-time.Minute))
		for name, settings := range map[string]plan.TLS{
			"none": {}, "of another authority": {ClientCertificate: foreign, ClientKey: foreignKey}, "expired": {ClientCertificate: expired, ClientKey: expiredKey},
		} {
			c := newClient(t, Options{RootCAs: a.pool()})
			res := c.Do(context.Background(), newRequest(t, s.URL, trusting(settings)))
			p := retry.BuiltIn()
			reset := version == tls.VersionTLS13 && res.Reason == ReasonReset
			if res.Reason != ReasonTLS && !reset || res.Sent == queue.SentYes || res.Class(&p) != retry.Retry {
				t.Errorf("TLS %x, %s: %+v", version, name, res)
			}
			// Which of them depends on who is faster: with TLS 1.3 our side takes the handshake for
			// done, and sends, before the receiver judges the certificate.
			if !slices.Contains([]string{
				"the receiver wants a client certificate: set tls.clientCertificateRef",
				"the receiver refuses the client certificate: it has expired",
				"the receiver refuses the client certificate, or wants one",
				"the receiver broke off the TLS handshake",
				"the receiver closed the connection right after the TLS handshake; it may want another client certificate",
				"the connection broke before an answer came",
			}, res.Message) {
				t.Errorf("TLS %x, %s: %q", version, name, res.Message)
			}
		}
	}
	for text, want := range map[string]string{
		"remote error: tls: certificate required":          "the receiver wants a client certificate: set tls.clientCertificateRef",
		"remote error: tls: expired certificate":           "the receiver refuses the client certificate: it has expired",
		"remote error: tls: unknown certificate authority": "the receiver refuses the client certificate, or wants one",
		"remote error: tls: bad certificate":               "the receiver refuses the client certificate, or wants one",
		"remote error: tls: handshake failure":             "the receiver broke off the TLS handshake",
	} {
		if got := alertMessage(errors.New(text)); got != want {
			t.Errorf("%s: %q", text, got)
		}
	}
}

func TestServerName(t *testing.T) {
	a := newAuthority(t, "a")
	names := make(chan string, 1)
	s, _ := secureServer(t, a, "hooks.example.com", nil, func(_ http.ResponseWriter, r *http.Request) { names <- r.TLS.ServerName + " " + r.Host })
	c := newClient(t, Options{RootCAs: a.pool()})
	if res := c.Do(context.Background(), newRequest(t, s.URL, trusting(plan.TLS{ServerName: "hooks.example.com"}))); res.Status != 200 {
		t.Fatalf("%+v", res)
	}
	if got, want := <-names, "hooks.example.com "+mustHost(t, s.URL); got != want {
		t.Errorf("SNI and Host are %q, want %q", got, want)
	}
	res := c.Do(context.Background(), newRequest(t, s.URL, trusting(plan.TLS{ServerName: "other.example.com"})))
	if res.Reason != ReasonTLS || res.Message != "the receiver's certificate is for another host" {
		t.Errorf("%+v", res)
	}
}

func TestOldTLSIsNotSpoken(t *testing.T) {
	a := newAuthority(t, "a")
	s, _ := secureServer(t, a, "x", func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }, ok)
	for _, settings := range []plan.TLS{{}, {CACertificates: a.pem}} {
		if res := newClient(t, Options{RootCAs: a.pool()}).Do(context.Background(), newRequest(t, s.URL, trusting(settings))); res.Reason != ReasonTLS {
			t.Errorf("%+v", res)
		}
	}
}

func TestTLSSettingsThatCanNotBeRead(t *testing.T) {
	a, b := newAuthority(t, "a"), newAuthority(t, "b")
	certificate, _ := a.issue("x", time.Now().Add(time.Hour))
	_, key := b.issue("x", time.Now().Add(time.Hour))
	for name, row := range map[string]struct {
		url, reason string
		tls         plan.TLS
	}{
		"authorities":            {"https://a.example", "CertificateInvalid", plan.TLS{CACertificates: "nonsense"}},
		"certificate alone":      {"https://a.example", "CertificateInvalid", plan.TLS{ClientCertificate: certificate}},
		"a key of another":       {"https://a.example", "CertificateInvalid", plan.TLS{ClientCertificate: certificate, ClientKey: key}},
		"a certificate for http": {"http://a.example", "SpecInvalid", plan.TLS{ServerName: "x"}},
	} {
		e := plan.Endpoint{URL: row.url, TLS: row.tls, Signing: plan.Signing{Scheme: plan.SchemeNone}}
		if _, problem := NewDestination(&e); problem == nil || problem.Reason != row.reason {
			t.Errorf("%s: %v", name, problem)
		}
	}
}
