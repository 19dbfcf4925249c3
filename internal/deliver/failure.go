package deliver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/doorstep-dev/doorstep/internal/deliver/egress"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// Reasons of failed attempts: metric labels and the reason of an attempt record.
const (
	ReasonTimeout  = "timeout"
	ReasonConnect  = "connect"
	ReasonDNS      = "dns"
	ReasonTLS      = "tls"
	ReasonDenied   = "denied"
	ReasonProtocol = "protocol" // an answer that is none
	ReasonReset    = "reset"    // the connection broke
	ReasonProxy    = "proxy"    // the pool's proxy fails or refuses

	ReasonRedirect     = "redirect"
	ReasonAuthRejected = "auth_rejected" // 401, 403, 407
	ReasonClientError  = "client_error"  // other 4xx
	ReasonRateLimited  = "rate_limited"  // 429
	ReasonServerError  = "server_error"

	// These burn no attempt: nothing is wrong with what was to be delivered.
	ReasonAuth     = "auth"     // no OAuth 2.0 token can be had
	ReasonLocal    = "local"    // it can't be signed or put into a request
	ReasonShutdown = "shutdown" // we were stopped
)

// messageDenied is the one text for every destination that isn't allowed.
var messageDenied = (&egress.DeniedError{}).Error()

func (r *Result) fail(reason string, sent queue.Sent, message string) {
	r.Reason, r.Sent, r.Message = reason, sent, message
}

// explain says what an error of RoundTrip means. connected tells that there was a
// connection to write to; from then on the receiver may have got the request.
func (r *Result) explain(err error, parent, ctx context.Context, secure, connected bool) {
	sent := queue.SentNo
	if connected {
		sent = queue.SentUnknown
	}
	var denied *egress.DeniedError
	var way *proxyError
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, &denied):
		r.fail(ReasonDenied, queue.SentNo, messageDenied)
	case parent.Err() != nil:
		r.fail(ReasonShutdown, sent, "the worker was stopped during the attempt")
	case errors.As(err, &way) && ctx.Err() == nil:
		reason, message := way.explain()
		r.fail(reason, queue.SentNo, message)
	case errors.As(err, &dns):
		r.fail(ReasonDNS, queue.SentNo, dnsMessage(dns))
	case errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil:
		if connected {
			r.fail(ReasonTimeout, sent, "the receiver did not answer within the timeout; it may have got the event")
		} else {
			r.fail(ReasonTimeout, sent, "no connection was made within the timeout")
		}
	case errors.As(err, &op) && op.Op == "dial":
		reason, message := dialMessage(op)
		r.fail(reason, queue.SentNo, message)
	case isTLS(err) && strings.Contains(err.Error(), "remote error: "):
		// The receiver ends the handshake, in TLS 1.3 after our side took it for done.
		r.fail(ReasonTLS, queue.SentNo, alertMessage(err))
	case strings.Contains(err.Error(), "http2: client conn could not be established"):
		// How net/http may word the same: HTTP/2 did not begin. Its cause is lost.
		r.fail(ReasonTLS, sent, "the receiver closed the connection right after the TLS handshake; it may want another client certificate")
	case isTLS(err):
		r.fail(ReasonTLS, sent, tlsMessage(err))
	case isTimeout(err) && !connected:
		r.fail(ReasonTimeout, sent, "the TLS handshake did not end in time")
	case secure && !connected:
		r.fail(ReasonTLS, sent, "the TLS handshake failed: the receiver closed the connection")
	case isBroken(err):
		r.fail(ReasonReset, sent, "the connection broke before an answer came")
	default:
		r.fail(ReasonProtocol, sent, protocolMessage(err))
	}
}

func dnsMessage(e *net.DNSError) string {
	switch {
	case e.IsNotFound:
		return "the host name does not exist"
	case e.IsTimeout:
		return "the host name could not be resolved in time"
	}
	return "the host name could not be resolved: the name server failed"
}

func dialMessage(op *net.OpError) (reason, message string) {
	switch {
	case op.Timeout():
		return ReasonTimeout, "no connection was made in time"
	case errors.Is(op, syscall.ECONNREFUSED):
		return ReasonConnect, "the connection was refused"
	case errors.Is(op, syscall.EHOSTUNREACH), errors.Is(op, syscall.ENETUNREACH):
		return ReasonConnect, "the host can't be reached"
	}
	return ReasonConnect, "no connection could be made"
}

// isTLS finds the errors of crypto/tls and crypto/x509. Some have a type of
// their own, the rest only a prefix.
func isTLS(err error) bool {
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	return errors.As(err, &cert) || errors.As(err, &record) || errors.As(err, &alert) ||
		strings.Contains(err.Error(), "tls: ")
}

func tlsMessage(err error) string {
	var host x509.HostnameError
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &record) && string(record.RecordHeader[:]) == "HTTP/":
		return "the receiver does not speak TLS on this port"
	case errors.As(err, &host):
		return "the receiver's certificate is for another host"
	case errors.As(err, &unknown):
		return "the receiver's certificate is signed by an unknown authority"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the receiver's certificate has expired or is not yet valid"
	case errors.As(err, &invalid):
		return "the receiver's certificate is not valid"
	}
	return "the TLS handshake failed"
}

// alertMessage words what a receiver has against the handshake. The alerts have no
// exported names.
func alertMessage(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "certificate required"):
		return "the receiver wants a client certificate: set tls.clientCertificateRef"
	case strings.Contains(text, "expired certificate"):
		return "the receiver refuses the client certificate: it has expired"
	case strings.Contains(text, "certificate"): // bad, unknown, unsupported, revoked, of an unknown authority
		return "the receiver refuses the client certificate, or wants one"
	}
	return "the receiver broke off the TLS handshake"
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// isBroken finds a connection that ended too early. Where net/http has no type
// for it, its text has to do; TestFailures notices when that changes.
func isBroken(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNABORTED) ||
		strings.Contains(err.Error(), "server closed idle connection") ||
		strings.Contains(err.Error(), "client connection lost")
}

func protocolMessage(err error) string {
	switch text := err.Error(); {
	case errors.Is(err, errReplays):
		return errReplays.Error()
	case strings.Contains(text, "response headers exceeded"), strings.Contains(text, "response header list larger"):
		return "the headers of the answer are larger than 64 KiB"
	case strings.Contains(text, "stream error"), strings.Contains(text, "http2"):
		return "the receiver broke off the HTTP/2 stream"
	}
	return "the answer is not HTTP"
}
