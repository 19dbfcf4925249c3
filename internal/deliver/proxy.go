package deliver

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"

	"github.com/doorstep-dev/doorstep/internal/plan"
)

// proxy is the forward proxy of a pool. It is dialled unguarded, since the pool's owner
// named it, and it then decides where requests may go.
type proxy struct {
	// forward is what net/http is told: always http, for TLS to the proxy is made below it.
	// An endpoint's TLS settings are for its receiver, and net/http would use them here too.
	forward *url.URL
	address string
	dialer  *net.Dialer
	tls     *tls.Config // nil for a proxy that is spoken to in the clear
}

var errProxyURL = errors.New("the pool's proxy must be an http or https URL of a host and a port, without a path")

func newProxy(n *network, p *plan.Proxy) (*proxy, error) {
	u, err := url.Parse(p.URL)
	if err != nil || u.Hostname() == "" || u.User != nil || (u.Path != "" && u.Path != "/") || u.RawQuery != "" {
		return nil, errProxyURL
	}
	port := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	if port == "" {
		return nil, errProxyURL
	}
	if u.Port() != "" {
		port = u.Port()
	}
	out := &proxy{address: net.JoinHostPort(u.Hostname(), port), dialer: &net.Dialer{Timeout: connectTimeout, KeepAlive: pingAfter}}
	out.forward = &url.URL{Scheme: "http", Host: out.address}
	if p.Username != "" || p.Password != "" {
		out.forward.User = url.UserPassword(p.Username, p.Password)
	}
	if u.Scheme == "https" {
		out.tls = newTLSConfig(n.roots)
		out.tls.ServerName = u.Hostname()
	}
	return out, nil
}

// use makes a transport go through the proxy.
func (p *proxy) use(t *http.Transport) {
	t.Proxy = func(*http.Request) (*url.URL, error) { return p.forward, nil }
	t.DialContext = p.dial
	t.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
		if resp.StatusCode == http.StatusOK {
			return nil
		}
		return &proxyError{status: resp.StatusCode}
	}
}

// dial connects to the proxy, whatever net/http wants to reach through it.
func (p *proxy) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	conn, err := p.dialer.DialContext(ctx, network, p.address)
	if err != nil {
		return nil, &proxyError{cause: err}
	}
	if p.tls == nil {
		return conn, nil
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	secure := tls.Client(conn, p.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, &proxyError{cause: err}
	}
	return secure, nil
}

// proxyError is a failure on this side of the receiver.
type proxyError struct {
	status int // of its answer to CONNECT
	cause  error
}

// Error is for a person who knows which proxy that is.
func (e *proxyError) Error() string {
	_, message := e.explain()
	return message
}

// Unwrap gives what came of the connection to the proxy.
func (e *proxyError) Unwrap() error { return e.cause }

// explain words it for an attempt.
func (e *proxyError) explain() (reason, message string) {
	switch {
	case e.status == http.StatusProxyAuthRequired:
		return ReasonProxy, "the pool's proxy refuses Doorstep's credentials (407)"
	case e.status == http.StatusForbidden:
		return ReasonProxy, "the pool's proxy does not allow this destination (403)"
	case e.status == http.StatusBadGateway, e.status == http.StatusServiceUnavailable, e.status == http.StatusGatewayTimeout:
		return ReasonConnect, "the pool's proxy could not reach the receiver"
	case e.status != 0:
		return ReasonProxy, "the pool's proxy did not open a connection to the receiver"
	case isTLS(e.cause):
		return ReasonProxy, "the TLS handshake with the pool's proxy failed"
	}
	return ReasonProxy, "the pool's proxy can't be reached"
}
