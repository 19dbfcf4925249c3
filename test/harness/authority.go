package harness

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"
)

// Authority issues certificates, which are good for a day.
type Authority struct {
	// PEM is its own certificate, and Pool holds it alone.
	PEM  string
	Pool *x509.CertPool

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	mu   sync.Mutex
	last int64 // serial number
	made map[string]*tls.Certificate
}

// NewAuthority makes an authority with a key of its own.
func NewAuthority() (*Authority, error) {
	a := &Authority{Pool: x509.NewCertPool(), last: 1, made: map[string]*tls.Certificate{}}
	template := template("authority of a test", a.last)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, fmt.Errorf("making an authority: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("making an authority: %w", err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("making an authority: %w", err)
	}
	a.Pool.AddCert(a.cert)
	a.PEM = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return a, nil
}

func template(name string, serial int64) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
}

// Certificate is good for a host, as a server and as a client: the same each time it is asked for.
func (a *Authority) Certificate(host string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.made[host]; c != nil {
		return c, nil
	}
	c, err := a.issue(host)
	if err != nil {
		return nil, fmt.Errorf("making a certificate for %s: %w", host, err)
	}
	a.made[host] = c
	return c, nil
}

// issue makes a certificate with a key of its own.
func (a *Authority) issue(host string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a.last++
	template := template(host, a.last)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// CertificatePEM is Certificate as a Secret of type kubernetes.io/tls holds it.
func (a *Authority) CertificatePEM(host string) (certificate, key string, err error) {
	c, err := a.Certificate(host)
	if err != nil {
		return "", "", err
	}
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		return "", "", fmt.Errorf("making a certificate for %s: %w", host, err)
	}
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return block("CERTIFICATE", c.Certificate[0]), block("PRIVATE KEY", der), nil
}
