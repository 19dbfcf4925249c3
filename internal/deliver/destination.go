package deliver

import (
	"errors"
	"net/textproto"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/doorstep-dev/doorstep/internal/deliver/egress"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/sign"
)

// Destination is what all attempts to one endpoint share: read once per plan, never
// changed, safe for concurrent use.
type Destination struct {
	endpoint plan.EndpointKey
	url      *url.URL
	timeout  time.Duration
	dataOnly bool
	// service is set where url names a Service of the cluster.
	service *plan.Service
	signer  *sign.Signer
	// fixed are headers that are the same each time, fromEvent those that are not.
	fixed     []fixedHeader
	fromEvent []plan.Header
	tls       *tlsSettings
	oauth2    *oauth2Client
	// way is how the last attempt went.
	way atomic.Pointer[route]
}

// fixedHeader has its value in the form that http.Header holds it. Nobody changes it.
type fixedHeader struct {
	name   string
	values []string
}

// NewDestination reads an endpoint of the plan. Its own problem, or what can't be read,
// is the result instead: then nothing can be sent to it. All that compiling has judged is
// judged again, since the plan may be another version's.
func NewDestination(e *plan.Endpoint) (*Destination, *plan.Problem) {
	if e.Problem != nil {
		return nil, e.Problem
	}
	d := &Destination{endpoint: e.EndpointKey, timeout: e.Timeout, dataOnly: e.DataOnly, service: e.Service}
	if d.timeout <= 0 {
		d.timeout = defaultTimeout
	}
	var err error
	if d.url, err = egress.CheckURL(e.URL); err != nil {
		return nil, &plan.Problem{Reason: "URLInvalid", Message: err.Error()}
	}
	if d.service != nil && len(d.service.Addresses) == 0 {
		return nil, &plan.Problem{Reason: "ServiceNotFound", Message: "the Service has no address"}
	}
	if d.signer, err = sign.NewSigner(e.Signing); err != nil {
		if errors.Is(err, sign.ErrNoKey) {
			err = errors.New("the endpoint has no signing key, and nothing is sent unsigned")
		}
		return nil, &plan.Problem{Reason: "KeyInvalid", Message: err.Error()}
	}
	if err := d.setHeaders(e); err != nil {
		return nil, &plan.Problem{Reason: "SpecInvalid", Message: err.Error()}
	}
	if d.tls, err = newTLSSettings(&e.TLS); err != nil {
		return nil, &plan.Problem{Reason: "CertificateInvalid", Message: err.Error()}
	}
	if d.tls != nil && d.url.Scheme != "https" {
		return nil, &plan.Problem{Reason: "SpecInvalid", Message: "tls needs an https url"}
	}
	if e.Auth != nil && e.Auth.OAuth2 != nil {
		if d.oauth2, err = newOAuth2Client(e.Namespace, e.Auth.OAuth2); err != nil {
			return nil, &plan.Problem{Reason: "URLInvalid", Message: "auth.oauth2.tokenURL: " + err.Error()}
		}
	}
	return d, nil
}

// setHeaders takes the endpoint's headers and its Authorization.
func (d *Destination) setHeaders(e *plan.Endpoint) error {
	taken := map[string]bool{}
	if h := e.Signing.HMAC; h != nil {
		taken[textproto.CanonicalMIMEHeaderKey(h.Header)] = true
		taken[textproto.CanonicalMIMEHeaderKey(h.TimestampHeader)] = true
	}
	if e.Auth != nil {
		taken["Authorization"] = true
		if e.Auth.Authorization != "" {
			d.fixed = append(d.fixed, fixedHeader{"Authorization", []string{e.Auth.Authorization}})
		}
	}
	for _, h := range e.Headers {
		h.Name = textproto.CanonicalMIMEHeaderKey(h.Name)
		if err := CheckHeaderName(h.Name); err != nil {
			return errors.New("headers: " + err.Error())
		}
		if taken[h.Name] {
			return errors.New("headers: " + h.Name + " is set twice")
		}
		taken[h.Name] = true
		if h.Event != "" {
			d.fromEvent = append(d.fromEvent, h)
			continue
		}
		if err := CheckHeaderValue(h.Value); err != nil {
			return errors.New("headers: the value of " + h.Name + " " + err.Error())
		}
		d.fixed = append(d.fixed, fixedHeader{h.Name, []string{h.Value}})
	}
	return nil
}

// Host is the URL's host, with its port where it has one.
func (d *Destination) Host() string { return d.url.Host }
