package manifests

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/test/harness"
)

// request is what reached a receiver.
type request struct {
	// url is whole, with its scheme and host, as the sender had it.
	url    string
	header http.Header
	body   []byte
	// client is whether it showed a certificate of the authority's.
	client bool
}

// world is a forward proxy behind which this program answers for every host there is: by 200 as a receiver, and with a
// token where one is asked for.
type world struct {
	*harness.Authority
	// URL is the proxy's.
	URL string

	tunnels *tunnels
	mu      sync.Mutex
	got     map[string][]request // by webhook-id
}

func newWorld(t *testing.T) *world {
	t.Helper()
	authority, err := harness.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Authority: authority, tunnels: &tunnels{conns: make(chan net.Conn), done: make(chan struct{})}, got: map[string][]request{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.URL = "http://" + listener.Addr().String()
	proxy := &http.Server{Handler: http.HandlerFunc(w.proxy), ReadHeaderTimeout: time.Minute}
	hosts := &http.Server{Handler: http.HandlerFunc(w.answer), ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = proxy.Serve(listener) }) // ends with Close
	serving.Go(func() { _ = hosts.Serve(w.tunnels) })
	t.Cleanup(func() {
		_ = proxy.Close()
		_ = hosts.Close()
		serving.Wait()
	})
	return w
}

// proxy opens a tunnel, or answers a plain request at once.
func (w *world) proxy(out http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		w.answer(out, r)
		return
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	}
	conn, _, err := http.NewResponseController(out).Hijack()
	if err != nil {
		http.Error(out, err.Error(), http.StatusInternalServerError)
		return
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		_ = conn.Close()
		return
	}
	w.tunnels.add(tls.Server(conn, &tls.Config{
		MinVersion: tls.VersionTLS12,
		ClientAuth: tls.VerifyClientCertIfGiven,
		ClientCAs:  w.Pool,
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return w.Certificate(host)
		},
	}))
}

// answer is every receiver and every authorization server.
func (w *world) answer(out http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	}
	if r.Header.Get("Content-Type") == "application/x-www-form-urlencoded" {
		out.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(out, `{"access_token":"`+accessToken+`","token_type":"Bearer","expires_in":3600}`)
		return
	}
	u := *r.URL
	u.Host = r.Host
	u.Scheme = "http"
	if r.TLS != nil {
		u.Scheme = "https"
	}
	id := r.Header.Get("webhook-id")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.got[id] = append(w.got[id], request{u.String(), r.Header, body, r.TLS != nil && len(r.TLS.PeerCertificates) > 0})
}

// accessToken is what every authorization server gives.
const accessToken = "token-of-the-test"

// received is what came with a webhook-id.
func (w *world) received(id string) []request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.got[id]
}

// tunnels is a listener whose connections are the proxy's tunnels.
type tunnels struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *tunnels) add(c net.Conn) {
	select {
	case l.conns <- c:
	case <-l.done:
		_ = c.Close()
	}
}

func (l *tunnels) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *tunnels) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *tunnels) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
