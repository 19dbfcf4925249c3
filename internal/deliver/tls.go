package deliver

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"

	"github.com/doorstep-dev/doorstep/internal/plan"
)

// tlsSettings are what an endpoint wants of https; nil for nothing.
type tlsSettings struct {
	hash        string
	roots       *x509.CertPool // nil: those of the network
	certificate *tls.Certificate
	serverName  string
}

// newTLSSettings reads them from the plan. Errors hold nothing of a certificate or key.
func newTLSSettings(t *plan.TLS) (*tlsSettings, error) {
	if *t == (plan.TLS{}) {
		return nil, nil //nolint:nilnil // nothing is wanted, and that is no error
	}
	s := &tlsSettings{serverName: t.ServerName}
	h := sha256.New()
	for _, part := range []string{t.CACertificates, t.ClientCertificate, t.ClientKey, t.ServerName} {
		_ = binary.Write(h, binary.BigEndian, uint64(len(part)))
		h.Write([]byte(part))
	}
	s.hash = string(h.Sum(nil))
	if t.CACertificates != "" {
		s.roots = x509.NewCertPool()
		if !s.roots.AppendCertsFromPEM([]byte(t.CACertificates)) {
			return nil, errors.New("tls.caCertificateRefs: the certificates can't be read")
		}
	}
	if t.ClientCertificate != "" || t.ClientKey != "" {
		pair, err := tls.X509KeyPair([]byte(t.ClientCertificate), []byte(t.ClientKey))
		if err != nil {
			return nil, errors.New("tls.clientCertificateRef: the certificate and its key can't be read")
		}
		s.certificate = &pair
	}
	return s, nil
}

// key tells settings apart.
func (s *tlsSettings) key() string {
	if s == nil {
		return ""
	}
	return s.hash
}

// config makes a configuration in a network that trusts roots.
func (s *tlsSettings) config(roots *x509.CertPool) *tls.Config {
	c := newTLSConfig(roots)
	if s == nil {
		return c
	}
	if s.roots != nil {
		c.RootCAs = s.roots
	}
	if s.certificate != nil {
		// Sent whichever authorities the receiver names: it knows best what it takes, and
		// says so, where no certificate at all would leave people guessing.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return s.certificate, nil }
	}
	c.ServerName = s.serverName
	return c
}
