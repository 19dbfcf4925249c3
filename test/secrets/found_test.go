package secrets

import (
	"crypto/tls"
	"fmt"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/test/harness"
)

// found: Secrets that others made, with no label of ours, serve in every place where one is named, and what changes in them
// is in force as soon as a signing key is. case CS180
func (s *site) found(t *testing.T) {
	const name = "found"
	authority, err := harness.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	server, err := authority.Certificate("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	r := newReceiver(t, func(h *httptest.Server) {
		h.TLS = &tls.Config{Certificates: []tls.Certificate{*server}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority.Pool, MinVersion: tls.VersionTLS12}
	})
	key, text := s.key(name, 0)
	r.learn(key)
	s.putPlain(t, "plain", "signing", text)
	s.issued(t, authority, "server", "127.0.0.1")
	s.issued(t, authority, "client", "client-1")
	values := func(n int) map[string]string {
		data := map[string]string{"url": fmt.Sprintf("%s/in?access=query-%d-of-found", r.URL, n), "token": fmt.Sprintf("bearer-%d-of-found", n), "header": fmt.Sprintf("header-%d-of-found", n)}
		for what, value := range data {
			if u, err := url.Parse(value); what == "url" && err == nil {
				value = u.RawQuery // its host is in status
			}
			s.hide(fmt.Sprintf("%s %d of endpoint found", what, n), value)
		}
		return data
	}
	s.put(t, "others", values(1))

	since := time.Now()
	s.apply(t, name, `
urlFrom: {secretKeyRef: {name: others, key: url}}
auth: {type: Bearer, bearer: {secretKeyRef: {name: others, key: token}}}
headers: [{name: X-Access, valueFrom: {secretKeyRef: {name: others, key: header}}}]
signing: {keys: [{name: main, secretKeyRef: {name: plain, key: signing}}]}
tls:
  caCertificateRefs: [{kind: Secret, name: server}]
  clientCertificateRef: {name: client}
`)
	s.says(t, name, since, v1alpha1.ReasonAccepted, "Live")
	stop := s.trickle(t, name)
	with := func(n int) func(request) bool {
		return func(q request) bool {
			return q.header.Get("Authorization") == fmt.Sprintf("Bearer bearer-%d-of-found", n) && q.header.Get("X-Access") == fmt.Sprintf("header-%d-of-found", n) &&
				q.query == fmt.Sprintf("access=query-%d-of-found", n)
		}
	}
	r.first(t, "with the first credentials", time.Now(), with(1))
	since = s.put(t, "others", values(2))
	r.first(t, "with other credentials", since, with(2))

	since = s.issued(t, authority, "client", "client-2") // renewed, under the same name
	r.first(t, "with a renewed certificate", since, func(q request) bool { return q.client.Subject.CommonName == "client-2" })
	for _, q := range r.seen() {
		if cn := q.client.Subject.CommonName; cn != "client-1" && cn != "client-2" {
			t.Errorf("a request came with a certificate for %s", cn)
		}
	}
	s.delivered(t, name, r, stop())
}

// putPlain makes a Secret as `kubectl create secret generic` does, with no labels at all.
func (s *site) putPlain(t *testing.T, name, key, value string) {
	t.Helper()
	kubectl := s.As(s.AdminKubeconfig())
	if _, err := kubectl.Run(t.Context(), "create", "secret", "generic", name, "-n", namespace, "--from-literal="+key+"="+value); err != nil {
		t.Fatal(err)
	}
}

// issued puts a certificate for a host into a Secret as cert-manager does, and returns when the API server had answered.
func (s *site) issued(t *testing.T, authority *harness.Authority, name, host string) time.Time {
	t.Helper()
	certificate, key, err := authority.CertificatePEM(host)
	if err != nil {
		t.Fatal(err)
	}
	for n, line := range strings.Split(strings.TrimSpace(key), "\n") {
		if !strings.HasPrefix(line, "-----") {
			s.hide(fmt.Sprintf("line %d of the private key of %s", n, host), line)
		}
	}
	data := map[string]string{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key, "ca.crt": authority.PEM}
	return s.put(t, name, data, func(o *corev1.Secret) {
		o.Type = corev1.SecretTypeTLS
		o.Labels = map[string]string{"controller.cert-manager.io/fao": "true"}
		o.Annotations = map[string]string{"cert-manager.io/certificate-name": name, "cert-manager.io/common-name": host, "cert-manager.io/issuer-kind": "Issuer", "cert-manager.io/issuer-name": "internal"}
	})
}
