package deliver

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorstep-dev/doorstep/internal/deliver/egress"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

const (
	// Unused HTTP/1 connections, to one host (as many as an endpoint may have attempts in
	// flight, else a busy one would connect anew all the time) and in all. net/http does
	// not count HTTP/2 connections, one for each host: idleTimeout ends those.
	maxIdlePerHost = 512
	maxIdle        = 1024
	// A peer of HTTP/2 that is silent this long is pinged, and its connection closed
	// when the ping isn't answered: a vanished peer is found within half a minute.
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second
	// maxHeaderBytes bounds the headers of an answer.
	maxHeaderBytes = 64 << 10
	// maxTransports bounds the transports of a network. Where there are more kinds of
	// destination, the one that was not used for longest connects anew.
	maxTransports = 1024
	// transportLife is how long a transport that no attempt uses is kept.
	transportLife = time.Minute
)

// network is the way to receivers as the pool says: who may be dialled, by which proxy,
// trusting whom. It never changes; another pool makes another network, with connections
// of its own.
//
// A connection may be used by the attempts that would have dialled the same: those with
// the same TLS settings and the same view of what is allowed. So there is one transport
// for each such pair.
type network struct {
	egress  plan.Egress
	options *Options
	guard   *egress.Guard
	roots   *x509.CertPool // nil: the system's
	proxy   *proxy         // nil for none
	problem *plan.Problem

	mu         sync.Mutex
	transports map[transportKey]*transport
	closed     bool
}

// transportKey is what attempts that may share connections have in common.
type transportKey struct {
	tls  string
	view string
}

// transport is one net/http transport. What is left out of it matters: no Proxy of the
// environment, and no http.Client, whose redirects and cookies have no place here.
type transport struct {
	*http.Transport
	// used is when an attempt last took it, in Unix nanoseconds; users are those that have
	// it now.
	used, users atomic.Int64
	// dropped: the network doesn't know it any more.
	dropped atomic.Bool
}

// take begins a use, unless the transport was dropped.
func (t *transport) take(now int64) bool {
	t.users.Add(1)
	if t.dropped.Load() {
		t.release()
		return false
	}
	t.used.Store(now)
	return true
}

// release ends a use. The last user of a dropped transport closes its connections: while
// one is at work, net/http may close a connection whose answer is just being handed over,
// and the delivery would count as failed.
func (t *transport) release() {
	if t.users.Add(-1) == 0 && t.dropped.Load() {
		t.CloseIdleConnections()
	}
}

// drop ends the transport: nobody takes it any more.
func (t *transport) drop() {
	t.users.Add(1)
	t.dropped.Store(true)
	t.release()
}

func newNetwork(o *Options, e plan.Egress) *network {
	n := &network{egress: e, options: o, roots: o.RootCAs, problem: e.Problem, transports: map[transportKey]*transport{}}
	n.guard = egress.NewGuard(egress.PolicyOf(e), egress.Options{Resolver: o.Resolver, Timeout: connectTimeout, KeepAlive: pingAfter})
	if e.CACertificates != "" {
		n.roots = systemAnd(o.RootCAs)
		if !n.roots.AppendCertsFromPEM([]byte(e.CACertificates)) && n.problem == nil {
			n.problem = &plan.Problem{Reason: "CertificateInvalid", Message: "the pool's certificates can't be read"}
		}
	}
	if e.Proxy != nil {
		var err error
		if n.proxy, err = newProxy(n, e.Proxy); err != nil && n.problem == nil {
			n.problem = &plan.Problem{Reason: "SpecInvalid", Message: err.Error()}
		}
	}
	return n
}

// systemAnd is a pool of the authorities that are trusted without more, to add to.
func systemAnd(roots *x509.CertPool) *x509.CertPool {
	if roots != nil {
		return roots.Clone()
	}
	if system, err := x509.SystemCertPool(); err == nil {
		return system
	}
	return x509.NewCertPool()
}

func (n *network) same(e plan.Egress) bool { return reflect.DeepEqual(n.egress, e) }

// route is how one destination is reached in one network.
type route struct {
	network   *network
	transport *transport
	// denied: the URL may not be used, as far as it shows without resolving a name.
	denied error
	// direct: the pool's proxy is not on the way.
	direct bool
}

// route gives the way to a URL; settings may be nil for the defaults, and service for a
// destination that is no Service of the cluster. It is kept in remember for the next time.
// Release it.
func (n *network) route(namespace string, u *url.URL, settings *tlsSettings, service *plan.Service, remember *atomic.Pointer[route]) *route {
	now := time.Now().UnixNano()
	for {
		r := remember.Load()
		if r == nil || r.network != n || (r.denied == nil && r.transport.dropped.Load()) {
			r = &route{network: n, direct: service != nil}
			var d dialer = n.guard.For(namespace)
			if service != nil {
				d = serviceDialer(service.Addresses)
			}
			if r.denied = d.CheckURL(u); r.denied == nil {
				r.transport = n.transport(d, r.direct, settings, now)
			}
			remember.Store(r)
		}
		if r.denied != nil || r.transport.take(now) {
			return r
		}
	}
}

func (r *route) release() {
	if r.transport != nil {
		r.transport.release()
	}
}

// transport gives the transport for a dialer and settings, made on first use.
func (n *network) transport(d dialer, direct bool, settings *tlsSettings, now int64) *transport {
	k := transportKey{tls: settings.key(), view: d.Key()}
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.transports[k]
	if t == nil {
		n.drop(now)
		t = &transport{Transport: n.newTransport(d, direct, settings)}
		if n.closed {
			// For an attempt that began before the network was exchanged: nobody after it.
			t.DisableKeepAlives = true
		} else {
			n.transports[k] = t
		}
	}
	t.used.Store(now)
	return t
}

// drop forgets the transports that no attempt has used for transportLife, and beyond
// maxTransports the one that was used least recently.
func (n *network) drop(now int64) {
	var oldest transportKey
	least := now
	for k, t := range n.transports {
		used := t.used.Load()
		if now-used > int64(transportLife) {
			n.forget(k)
		} else if used <= least {
			oldest, least = k, used
		}
	}
	if len(n.transports) >= maxTransports {
		n.forget(oldest)
	}
}

func (n *network) forget(k transportKey) {
	t := n.transports[k]
	delete(n.transports, k)
	t.drop()
}

// sweep drops what isn't used any more.
func (n *network) sweep() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.drop(time.Now().UnixNano())
}

// close closes the connections that are not in use, and sees to it that those in use are
// closed when their attempts end.
func (n *network) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for k := range n.transports {
		n.forget(k)
	}
}

// newTransport sets up the net/http side.
func (n *network) newTransport(d dialer, direct bool, settings *tlsSettings) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	t := &http.Transport{
		DialContext:            d.DialContext,
		TLSClientConfig:        settings.config(n.roots),
		TLSHandshakeTimeout:    connectTimeout,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeaderBytes,
		IdleConnTimeout:        n.options.IdleTimeout,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		Protocols:              protocols,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout, WriteByteTimeout: pingTimeout},
	}
	if n.proxy != nil && !direct {
		n.proxy.use(t)
	}
	return t
}

// newTLSConfig is what all TLS has in common. Each has its own sessions: one resumed
// under other settings would skip what they check.
func newTLSConfig(roots *x509.CertPool) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ClientSessionCache: tls.NewLRUClientSessionCache(maxIdle)}
}
