package worker

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// certificate gives a certificate for localhost with a number, and its key, as PEM.
func certificate(t *testing.T, number int64) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(number), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	c, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	d, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: d})
}

// put writes the two files as a Secret's volume has them.
func put(t *testing.T, dir string, cert, key []byte) {
	t.Helper()
	for name, b := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// served gives the number of the certificate that a handshake gets; 0 if it fails.
func served(c *certificates) int64 {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	server := tls.Server(there, c.config())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Handshake(); _ = there.Close() }()
	client := tls.Client(here, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // which one it is, is looked at
	err := client.Handshake()
	number := int64(0)
	if err == nil {
		number = client.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	_ = here.Close()
	<-ended
	return number
}

// A renewed certificate is in use within seconds, and one that can't be used changes
// nothing and is told, once.
func TestCertificatesAreReadAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		cert1, key1 := certificate(t, 1)
		cert2, key2 := certificate(t, 2)
		cert3, key3 := certificate(t, 3)
		put(t, dir, cert1, key1)
		log := &lines{}
		c := newCertificates(dir, log.logger())
		ended := make(chan error, 1)
		go func() { ended <- c.watch(t.Context()) }()
		for _, row := range []struct {
			name      string
			cert, key []byte
			want      int64
			told      int
		}{
			{"at first", cert1, key1, 1, 0},
			{"renewed", cert2, key2, 2, 0},
			{"with the key of another", cert3, key2, 2, 1},
			{"no certificate at all", []byte("none"), key2, 2, 1},
			{"mended", cert3, key3, 3, 1},
			{"broken again", nil, nil, 3, 2},
		} {
			put(t, dir, row.cert, row.key)
			time.Sleep(3*certificateInterval + 3*time.Second) // between two looks, which may see half a file
			if got := served(c); got != row.want {
				t.Errorf("%s: certificate %d is served, want %d", row.name, got, row.want)
			}
			if got := log.count("can't be read"); got != row.told {
				t.Errorf("%s: told %d times, want %d:\n%s", row.name, got, row.told, log)
			}
		}
	})
}

// Without a certificate nobody can send anything: the worker is not ready, and becomes so
// by itself.
func TestNoCertificateYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.tls = t.TempDir()
		s.publish(planOf(1, "orders"))
		s.project()
		r := s.start()
		code, body := r.get("--probes", "/readyz")
		r.want(http.StatusServiceUnavailable, "certificate", code, body)
		code, body = r.get("--probes", "/healthz")
		r.want(http.StatusOK, "ok", code, body)

		cert, key := certificate(t, 1)
		put(t, s.tls, cert, key)
		time.Sleep(2*certificateInterval + 3*time.Second) // between two looks, which may see half a file
		r.ready()
		r.stop()
	})
}
