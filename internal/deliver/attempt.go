package deliver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// maxReplays bounds how often net/http may send a request that the receiver is
// guaranteed not to have got (see attempt.getBody).
const maxReplays = 10

// Do makes one attempt. Cancelling ctx is a shutdown of ours, which is no fault of
// the endpoint; the attempt's own time limit is its Destination's.
func (c *Client) Do(ctx context.Context, r *Request) Result {
	begun := time.Now()
	res := Result{StartedAt: c.wall().Round(0)}
	c.attempt(ctx, r, &res)
	if res.Reason == ReasonDenied && c.changing.Load() {
		res.fail(ReasonLocal, queue.SentNo, "the pool's networks are being changed")
	}
	res.Duration = time.Since(begun)
	return res
}

// attempt fills in what came of the attempt. One network serves all of it.
func (c *Client) attempt(parent context.Context, r *Request, res *Result) {
	n, to := c.network.Load(), r.Destination
	if n.problem != nil {
		res.fail(ReasonLocal, queue.SentNo, n.problem.Message)
		return
	}
	way := n.route(to.endpoint.Namespace, to.url, to.tls, to.service, &to.way)
	defer way.release()
	if way.denied != nil {
		res.fail(ReasonDenied, queue.SentNo, messageDenied)
		return
	}
	p := post{client: c, request: r, way: way, parent: parent, body: r.Event.Body, contentType: r.Event.ContentType}
	if to.dataOnly {
		p.body, p.contentType = r.Event.Data().Alone()
	}
	ctx, cancel := context.WithTimeout(parent, to.timeout)
	defer cancel()
	if to.oauth2 != nil {
		p.sendWithToken(ctx, cancel, res)
		return
	}
	resp := p.send(ctx, res, "")
	if resp == nil {
		return
	}
	defer resp.Body.Close()
	c.answer(res, to.url, resp, cancel)
}

// post is what the requests of one attempt share: there is one, or two where the first
// one's token is refused.
type post struct {
	client      *Client
	request     *Request
	way         *route
	parent      context.Context
	body        []byte
	contentType string
}

// send makes one request. It returns an answer to be read and closed, or nil after
// saying in res why there is none.
func (p *post) send(ctx context.Context, res *Result, token string) *http.Response {
	u := p.request.Destination.url
	a := &attempt{body: p.body}
	a.trace.GotConn = a.gotConn
	header, err := p.header(res.StartedAt, token, &a.values)
	if err != nil {
		res.fail(ReasonLocal, queue.SentNo, err.Error())
		return nil
	}
	resp, err := p.way.transport.RoundTrip(a.request(httptrace.WithClientTrace(ctx, &a.trace), u, header))
	if err != nil {
		res.explain(err, p.parent, ctx, u.Scheme == "https", a.connected.Load())
		return nil
	}
	if p.way.network.proxy != nil && !p.way.direct && u.Scheme == "http" && resp.StatusCode == http.StatusProxyAuthRequired {
		_ = resp.Body.Close()
		reason, message := (&proxyError{status: resp.StatusCode}).explain()
		res.fail(reason, queue.SentNo, message)
		return nil
	}
	return resp
}

// sendWithToken sends with a token of the authorization server. If the receiver refuses
// that one, and a fresh one can be had, the request is made once more within the same
// attempt: tokens are revoked before their time, and the delivery is not to pay for it.
func (p *post) sendWithToken(ctx context.Context, cancel context.CancelFunc, res *Result) {
	to, c := p.request.Destination, p.client
	source := c.tokens.source(to)
	token, err := source.token(ctx, c, p.way.network)
	if err != nil {
		res.failAuth(err, p.parent, queue.SentNo)
		return
	}
	resp := p.send(ctx, res, token)
	if resp == nil {
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		c.answer(res, to.url, resp, cancel)
		return
	}
	fresh, err := source.renew(ctx, c, p.way.network, token)
	switch {
	case err != nil:
		res.failAuth(err, p.parent, queue.SentYes)
		return
	case fresh == token:
		c.answer(res, to.url, resp, cancel)
		return
	}
	c.drain(resp)
	again := p.send(ctx, res, fresh)
	if again == nil {
		return
	}
	defer again.Body.Close()
	c.answer(res, to.url, again, cancel)
	if res.Status == http.StatusUnauthorized {
		res.Message += ", to a fresh token too"
	}
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
