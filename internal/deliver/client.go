package deliver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doorstep-dev/doorstep/internal/deliver/egress"
	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

const (
	// defaultTimeout is the timeout of an endpoint that has none.
	defaultTimeout = 15 * time.Second
	// connectTimeout bounds connecting and, apart, the TLS handshake. net/http goes
	// on with both after their attempt has ended, for a later one to use.
	connectTimeout = 10 * time.Second
	// idleTimeout is how long an unused connection is kept. Common receivers close
	// theirs after 5 s (Node.js, Apache); a request that crosses such a close on its
	// way can't be told from one that was received, and would count as a failure. So
	// we close first. A busy endpoint never gets here, a quiet one pays a handshake.
	idleTimeout = 4 * time.Second
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
	// maxReplays bounds how often net/http may send a request that the receiver is
	// guaranteed not to have got (see attempt.getBody).
	maxReplays = 10
)

// Options configure a Client. The zero value is usable.
type Options struct {
	// Policy says what may be dialled beside the public internet.
	Policy egress.Policy
	// Version is sent as user-agent: Doorstep/<version>; "dev" if empty.
	Version string
	// Wall is the wall clock, for webhook-timestamp and StartedAt; nil: time.Now.
	Wall func() time.Time
	// RootCAs are the authorities trusted for https; nil: the system's.
	RootCAs *x509.CertPool
	// Resolver resolves names; nil: the system's.
	Resolver *net.Resolver
	// IdleTimeout is how long an unused connection is kept; 0: 4 s.
	IdleTimeout time.Duration
}

// Request is one attempt to be made. It is only read.
type Request struct {
	Destination *Destination
	Event       *event.Event
	DeliveryID  string
	// AttemptNumber counts from 1 through the delivery's life.
	AttemptNumber int
	// Replay tells the receiver that a person sent the event again.
	Replay bool
	// TraceParent is the producer's W3C traceparent, or empty.
	TraceParent string
	// Steady is the steady time of the attempt, by which former signing keys end.
	Steady time.Time
}

// Result is what came of an attempt.
type Result struct {
	// StartedAt is wall time; its Unix seconds were sent as webhook-timestamp.
	StartedAt time.Time
	Duration  time.Duration
	// Status is the answer's code, 0 without an answer.
	Status int
	// Reason is one of the Reason constants; empty on success.
	Reason string
	// Message is one plain sentence, the same each time; empty on success.
	Message string
	Sent    queue.Sent
	// RetryAfter holds the values of that header as they came.
	RetryAfter []string
	// WebhookDelivery is DeliveryDisable, DeliveryAbort or empty.
	WebhookDelivery string
	// HandlerVersion is the receiver's x-handler-version.
	HandlerVersion string
	// Response is the beginning of the body of an answer that isn't 2xx.
	Response []byte
}

// Client makes attempts. It is safe for concurrent use.
type Client struct {
	guard     *egress.Guard
	userAgent string
	wall      func() time.Time
	options   Options
	sessions  tls.ClientSessionCache
	buffers   sync.Pool // of *[keptBytes]byte

	mu        sync.Mutex // held while the transport is exchanged
	transport atomic.Pointer[http.Transport]
}

// New makes a Client. Close it.
func New(o Options) *Client {
	if o.Wall == nil {
		o.Wall = time.Now
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	if o.IdleTimeout <= 0 {
		o.IdleTimeout = idleTimeout
	}
	c := &Client{
		guard:     egress.NewGuard(o.Policy, egress.Options{}),
		userAgent: "Doorstep/" + o.Version,
		wall:      o.Wall,
		options:   o,
		sessions:  tls.NewLRUClientSessionCache(maxIdle),
	}
	c.buffers.New = func() any { return new([keptBytes]byte) }
	c.transport.Store(c.newTransport())
	return c
}

// newTransport sets up the net/http side. What is left out matters: no Proxy (it
// would hide the dialled address from the guard), and no Client, whose redirects
// and cookies have no place here.
func (c *Client) newTransport() *http.Transport {
	dialer := &net.Dialer{
		Timeout:        connectTimeout,
		KeepAlive:      pingAfter,
		Resolver:       c.options.Resolver,
		ControlContext: c.guard.Control,
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.options.RootCAs, ClientSessionCache: c.sessions},
		TLSHandshakeTimeout:    connectTimeout,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeaderBytes,
		IdleConnTimeout:        c.options.IdleTimeout,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		Protocols:              protocols,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout, WriteByteTimeout: pingTimeout},
	}
}

// SetPolicy exchanges the egress policy. A connection was judged when it was
// dialled, so after a change no attempt uses one made before it.
func (c *Client) SetPolicy(p egress.Policy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.guard.Policy().Equal(p) {
		return
	}
	c.guard.SetPolicy(p)
	c.transport.Swap(c.newTransport()).CloseIdleConnections()
}

// Close closes the connections that are not in use. Attempts must have ended.
func (c *Client) Close() { c.transport.Load().CloseIdleConnections() }

// Do makes one attempt. Cancelling ctx is a shutdown of ours, which is no fault of
// the endpoint; the attempt's own time limit is its Destination's.
func (c *Client) Do(ctx context.Context, r *Request) Result {
	begun := time.Now()
	res := Result{StartedAt: c.wall().Round(0)}
	c.attempt(ctx, r, &res)
	res.Duration = time.Since(begun)
	return res
}

// attempt fills in what came of the attempt.
func (c *Client) attempt(parent context.Context, r *Request, res *Result) {
	to := r.Destination
	if err := c.guard.For(to.endpoint.Namespace).CheckURL(to.url); err != nil {
		res.fail(ReasonDenied, queue.SentNo, messageDenied)
		return
	}
	ctx, cancel := context.WithTimeout(parent, to.timeout)
	defer cancel()
	a := &attempt{body: r.Event.Body}
	a.trace.GotConn = a.gotConn
	header, err := c.header(r, res.StartedAt.Unix(), &a.values)
	if err != nil {
		res.fail(ReasonLocal, queue.SentNo, err.Error())
		return
	}
	resp, err := c.transport.Load().RoundTrip(a.request(httptrace.WithClientTrace(ctx, &a.trace), to.url, header))
	if err != nil {
		res.explain(err, parent, ctx, to.url.Scheme == "https", a.connected.Load())
		return
	}
	defer resp.Body.Close()
	c.answer(res, to.url, resp, cancel)
}

// attempt is the state of one attempt, allocated in one piece. net/http may hold
// on to it after the attempt has ended, so it is not reused.
type attempt struct {
	trace     httptrace.ClientTrace
	connected atomic.Bool
	body      []byte
	replays   int
	values    [maxOwnHeaders]string
}

func (a *attempt) gotConn(httptrace.GotConnInfo) { a.connected.Store(true) }

// request wraps what net/http needs. The body is a reader that net/http knows to
// be in memory: with any other it would send the headers in a packet of their own.
func (a *attempt) request(ctx context.Context, u *url.URL, header http.Header) *http.Request {
	r := http.Request{Method: http.MethodPost, URL: u, Header: header, Body: http.NoBody}
	if len(a.body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(a.body))
		r.ContentLength = int64(len(a.body))
		r.GetBody = a.getBody
	}
	return r.WithContext(ctx)
}

// getBody is called by net/http where the receiver is guaranteed not to have got
// the request: nothing of it was written to a connection that had gone away
// meanwhile, or HTTP/2 says so (RFC 9113 §8.7: GOAWAY, REFUSED_STREAM). Without it
// every such event, which a receiver that reloads makes many of, would be a failed
// attempt. A POST is sent again in no other case, as long as it has no header
// Idempotency-Key under its canonical name: net/http takes that for a leave to.
func (a *attempt) getBody() (io.ReadCloser, error) {
	if a.replays++; a.replays > maxReplays {
		return nil, errReplays
	}
	return io.NopCloser(bytes.NewReader(a.body)), nil
}

var errReplays = errors.New("the receiver kept refusing the request unread")
