package worker

import (
	"context"
	"crypto/tls"
	"errors"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
)

// certificateInterval is how soon a renewed certificate is used. The kubelet takes a minute
// or so to bring it.
const certificateInterval = 10 * time.Second

// certificates gives ingest's certificate from a folder, and the last good one while a
// new one can't be read.
type certificates struct {
	dir     string
	log     logr.Logger
	current atomic.Pointer[tls.Certificate]
	// failed: the last look found nothing to use; told: the log has that.
	failed, told bool
}

func newCertificates(dir string, log logr.Logger) *certificates {
	c := &certificates{dir: dir, log: log}
	c.load()
	return c
}

// load reads the folder.
func (c *certificates) load() {
	pair, err := tls.LoadX509KeyPair(filepath.Join(c.dir, corev1.TLSCertKey), filepath.Join(c.dir, corev1.TLSPrivateKeyKey))
	if err != nil {
		// The first time it may be that the two files were changed between the reads.
		if (c.failed || c.current.Load() == nil) && !c.told {
			c.told = true
			c.log.Error(err, "The certificate of ingest can't be read; the former one is used, and without one no event is taken")
		}
		c.failed = true
		return
	}
	c.failed, c.told = false, false
	if now := c.current.Load(); now == nil || !equal(now, &pair) {
		c.log.Info("Uses the certificate of ingest", "expires", pair.Leaf.NotAfter.Format(time.RFC3339))
		c.current.Store(&pair)
	}
}

func equal(a, b *tls.Certificate) bool {
	return len(a.Certificate) == len(b.Certificate) && a.Leaf.Equal(b.Leaf)
}

func (c *certificates) watch(ctx context.Context) error {
	t := time.NewTicker(certificateInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			c.load()
		}
	}
}

// config is that of a server of HTTP/1 and HTTP/2.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if now := c.current.Load(); now != nil {
				return now, nil
			}
			return nil, errors.New("there is no certificate yet")
		},
	}
}
