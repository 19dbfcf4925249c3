package deliver

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

const (
	// keptBytes is how much of a failed answer's body is kept.
	keptBytes = 4 << 10
	// maxBody is how much of a body is read, so that its connection can be used
	// again; a longer one costs the connection.
	maxBody = 64 << 10
	// bodyGrace is how long a body may take after its status came. The outcome is
	// known by then, and a receiver that drips must not hold a slot until the timeout.
	bodyGrace = time.Second
	// maxVersion is the longest handler version that is kept.
	maxVersion = 128
)

// What a receiver may ask for in its webhook-delivery header.
const (
	DeliveryDisable = "disable"       // send nothing more to this endpoint
	DeliveryAbort   = "abort-message" // don't try this event again
)

// Class is what the result means for its delivery under a policy (the outcome
// table of DESIGN.md §4). 2xx is delivered whatever its headers say.
func (r *Result) Class(p *retry.Policy) retry.Class {
	switch {
	case r.Status == 0:
		switch r.Reason {
		case ReasonLocal, ReasonShutdown, ReasonAuth:
			return retry.Held
		case ReasonDenied:
			return retry.DeadLetter
		}
		return retry.Retry
	case r.Status >= 200 && r.Status < 300:
		return retry.Delivered
	case r.WebhookDelivery == DeliveryDisable:
		return retry.Disable
	case r.WebhookDelivery == DeliveryAbort:
		return retry.DeadLetter
	}
	return p.Classify(r.Status)
}

// answer reads an answer. cancel ends the attempt's context, and with it a body
// that is too slow.
func (c *Client) answer(res *Result, u *url.URL, resp *http.Response, cancel context.CancelFunc) {
	res.Status, res.Sent = resp.StatusCode, queue.SentYes
	res.RetryAfter = resp.Header["Retry-After"]
	res.HandlerVersion = handlerVersion(resp.Header["X-Handler-Version"])
	res.WebhookDelivery = webhookDelivery(resp.Header["Webhook-Delivery"])
	failed := resp.StatusCode < 200 || resp.StatusCode > 299
	if failed {
		res.Reason, res.Message = judge(resp, u)
	}
	res.Response = c.readBody(resp, failed, cancel)
}

// readBody drains a body within its limits, so that closing it leaves a connection
// to use again, and gives its beginning if that is to be kept. A body that goes on
// costs the connection. Errors don't matter: the status has come.
func (c *Client) readBody(resp *http.Response, keep bool, cancel context.CancelFunc) []byte {
	// After 101 the body is the bare connection.
	if resp.Body == http.NoBody || resp.StatusCode == http.StatusSwitchingProtocols {
		return nil
	}
	if !keep && resp.ContentLength > maxBody {
		return nil
	}
	slow := time.AfterFunc(bodyGrace, cancel)
	defer slow.Stop()
	buf := c.buffers.Get().(*[keptBytes]byte)
	defer c.buffers.Put(buf)
	var kept []byte
	n, end := readFull(resp, buf[:])
	if keep && n > 0 {
		kept = append(kept, buf[:n]...)
	}
	if resp.ContentLength > maxBody {
		return kept
	}
	for total := n; !end && total < maxBody; total += n {
		n, end = readFull(resp, buf[:])
	}
	return kept
}

// drain reads an answer that nobody wants, within the same limits, and closes it.
func (c *Client) drain(resp *http.Response) {
	_ = c.readBody(resp, false, func() { _ = resp.Body.Close() })
	_ = resp.Body.Close()
}

// readFull fills buf as far as the body goes; end says that it goes no further.
func readFull(resp *http.Response, buf []byte) (n int, end bool) {
	for n < len(buf) {
		m, err := resp.Body.Read(buf[n:])
		n += m
		if err != nil {
			return n, true
		}
	}
	return n, false
}

// judge gives reason and message of an answer that isn't 2xx.
func judge(resp *http.Response, u *url.URL) (reason, message string) {
	status := resp.StatusCode
	switch {
	case status < 200:
		return ReasonProtocol, "the receiver answered with " + strconv.Itoa(status) + ", which ends no request"
	case status > 599:
		return ReasonProtocol, "the receiver answered with " + strconv.Itoa(status) + ", which is no status code"
	case status < 400:
		return ReasonRedirect, redirectMessage(resp, u)
	case status == 401, status == 403, status == 407:
		reason = ReasonAuthRejected
	case status == 429:
		reason = ReasonRateLimited
	case status < 500:
		reason = ReasonClientError
	default:
		reason = ReasonServerError
	}
	return reason, "the receiver answered " + strconv.Itoa(status)
}

// redirectMessage names the host that a redirect leads to, and nothing else of
// its target: paths and query strings hold tokens.
func redirectMessage(resp *http.Response, u *url.URL) string {
	message := "the receiver answered " + strconv.Itoa(resp.StatusCode) + "; redirects are not followed"
	to, err := url.Parse(resp.Header.Get("Location"))
	if err != nil || to.Host == "" {
		return message
	}
	host := strings.ToLower(to.Hostname())
	if len(host) > 253 || strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789.-_:") != "" {
		return message
	}
	if to.Scheme != "" && to.Scheme != u.Scheme && (to.Scheme == "https" || to.Scheme == "http") {
		host += " by " + to.Scheme
	}
	return message + ": the endpoint redirects to host " + host
}

func handlerVersion(values []string) string {
	if len(values) != 1 || len(values[0]) > maxVersion {
		return ""
	}
	for i := range len(values[0]) {
		if c := values[0][i]; c < ' ' || c > '~' {
			return ""
		}
	}
	return values[0]
}

func webhookDelivery(values []string) string {
	if len(values) != 1 {
		return ""
	}
	switch v := strings.ToLower(values[0]); v {
	case DeliveryDisable, DeliveryAbort:
		return v
	}
	return ""
}
