package deliver

import (
	"net/url"
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
	keys     []sign.Key
}

// NewDestination reads an endpoint of the plan. Its own problem, or what can't be read,
// is the result instead: then nothing can be sent to it.
func NewDestination(e *plan.Endpoint) (*Destination, *plan.Problem) {
	if e.Problem != nil {
		return nil, e.Problem
	}
	d := &Destination{endpoint: e.EndpointKey, timeout: e.Timeout}
	if d.timeout <= 0 {
		d.timeout = defaultTimeout
	}
	var err error
	// Again, since the plan may be another version's: what is sent to is what was judged.
	if d.url, err = egress.CheckURL(e.URL); err != nil {
		return nil, &plan.Problem{Reason: "URLInvalid", Message: err.Error()}
	}
	if e.Signing.Scheme != plan.SchemeStandardWebhooks {
		return nil, &plan.Problem{Reason: "KeyInvalid", Message: "this worker can't sign by scheme " + e.Signing.Scheme}
	}
	for _, k := range e.Signing.Keys {
		key, err := sign.ParseKey(k.Key)
		if err != nil {
			return nil, &plan.Problem{Reason: "KeyInvalid", Message: "signing key " + k.Name + ": " + err.Error()}
		}
		d.keys = append(d.keys, key)
	}
	if len(d.keys) == 0 {
		return nil, &plan.Problem{Reason: "KeyInvalid", Message: "the endpoint has no signing key, and nothing is sent unsigned"}
	}
	return d, nil
}

// Host is the URL's host, with its port where it has one.
func (d *Destination) Host() string { return d.url.Host }
