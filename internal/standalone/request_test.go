package standalone

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/ingest"
)

// selfSigned is a certificate for 127.0.0.1, its own authority.
func selfSigned(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func configMapYAML(name, key, text string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: shop}\ndata:\n  " + key + ": |\n    " +
		strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") + "\n"
}

// case HC120: a private authority from a ConfigMap, a token from a Secret, the data alone;
// both are exchanged while it runs, and in force within 2 seconds.
func TestCertificatesAndCredentialsAreExchangedWhileItRuns(t *testing.T) {
	s, rec := newSite(t), &receiver{}
	rec.status.Store(204)
	var present atomic.Pointer[tls.Certificate]
	one, oneCA := selfSigned(t)
	two, twoCA := selfSigned(t)
	present.Store(&one)
	server := httptest.NewUnstartedServer(rec)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*present.Load()}, SessionTicketsDisabled: true}, nil
	}}
	server.StartTLS()
	defer server.Close()
	s.usual(server.URL, "body: Data", "auth: {type: Bearer, bearer: {secretKeyRef: {name: token, key: key}}}",
		"headers: [{name: X-Kind, valueFrom: {event: type}}]", "tls: {caCertificateRefs: [{name: ca}]}", "retryPolicyRef: {name: quick}")
	s.write("token.yaml", secretYAML("token", "hush-1"))
	s.write("ca.yaml", configMapYAML("ca", "ca.crt", oneCA))
	r := &reloads{running: s.start(), rec: rec}
	r.until("the first", time.Now(), func(a arrival) bool { return a.header.Get("Authorization") == "Bearer hush-1" })
	first := rec.seen()[0]
	if string(first.body) != `{"n":1}` || first.header.Get("X-Kind") == "" || verified(keyA, first) != nil {
		t.Errorf("%s with %v", first.body, first.header)
	}

	edited := time.Now()
	s.write("token.yaml", secretYAML("token", "hush-2"))
	r.until("another token", edited, func(a arrival) bool { return a.header.Get("Authorization") == "Bearer hush-2" })

	// The receiver changes its certificate to one of another authority.
	present.Store(&two)
	server.CloseClientConnections()
	await(t, "a failure for want of the authority", func() bool {
		r.n++
		r.send(fmt.Sprintf("evt_%05d", r.n))
		f := r.endpoint("orders").Lane.LastFailure
		return f != nil && f.Reason == "tls"
	})
	edited = time.Now()
	s.write("ca.yaml", configMapYAML("ca", "ca.crt", twoCA))
	before := rec.count()
	r.until("another authority", edited, func(arrival) bool { return rec.count() > before })
	r.check()
	if p := r.problems(); len(p) != 0 {
		t.Errorf("problems: %q", p)
	}
	// case SG40: what is secret is in no log.
	if text := r.log.String() + r.out.String(); strings.Contains(text, "hush") || strings.Contains(text, "BEGIN") {
		t.Error("the log shows a token or a certificate")
	}
	// A ConfigMap that is gone holds the endpoint, and harms nothing else.
	s.remove("ca.yaml")
	await(t, "the endpoint held", func() bool { return r.endpoint("orders").Lane.State == "Unresolved" })
	r.send("evt_held")
	if st := r.delivery("evt_held").State; st != ingest.StateHeld {
		t.Errorf("its delivery is %s", st)
	}
	s.write("ca.yaml", configMapYAML("ca", "ca.crt", twoCA))
	await(t, "the delivery", func() bool { return r.delivery("evt_held").State == ingest.StateDelivered })
}

// A token server that fails burns no attempt: the event waits, and goes out once there is a
// token.
func TestNoTokenBurnsNoAttempt(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	var broken atomic.Bool
	broken.Store(true)
	tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"access_token":"hush-token","token_type":"bearer","expires_in":60}`))
	}))
	defer tokens.Close()
	client := func(secret string) string {
		return "apiVersion: v1\nkind: Secret\nmetadata: {name: client, namespace: shop}\nstringData: {clientID: me, clientSecret: " + secret + "}\n"
	}
	s.usual(rec.URL, "auth: {type: OAuth2ClientCredentials, oauth2: {tokenURL: '"+tokens.URL+"', secretRef: {name: client}}}")
	s.write("client.yaml", client("hush-1"))
	r := s.start()
	r.send("evt_1")
	await(t, "the cause in the log", func() bool { return strings.Contains(r.log.String(), "the token server answered 503") })
	if d := r.delivery("evt_1"); len(d.Attempts) != 0 || d.State == ingest.StateDeadLettered {
		t.Errorf("%s after %d attempts", d.State, len(d.Attempts))
	}
	broken.Store(false)
	s.write("client.yaml", client("hush-2")) // a change ends the pause
	a := rec.await(t, 1)[0]
	if a.header.Get("Authorization") != "Bearer hush-token" {
		t.Errorf("%v", a.header)
	}
	await(t, "the delivery", func() bool { return r.delivery("evt_1").State == ingest.StateDelivered })
	if d := r.delivery("evt_1"); len(d.Attempts) != 1 {
		t.Errorf("%d attempts are recorded, want 1", len(d.Attempts))
	}
	if text := r.log.String() + r.out.String(); strings.Contains(text, "hush") {
		t.Error("the log shows a secret")
	}
}
