package compile

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

// Bounds of a WebhookEndpoint, as the CRD has them.
const (
	minTimeout    = time.Second
	maxTimeout    = 60 * time.Second
	maxInFlight   = 1000
	maxEventTypes = 100
)

// compileEndpoints gives every endpoint seen, resolved or held, sorted by key.
func (c *compiler) compileEndpoints(in Objects) []plan.Endpoint {
	out := make([]plan.Endpoint, 0, len(in.Endpoints))
	present := make(map[plan.EndpointKey]bool, len(in.Endpoints))
	for i := range in.Endpoints {
		if !c.admitted(&in.Endpoints[i]) {
			continue
		}
		e := c.compileEndpoint(&in.Endpoints[i])
		if !present[e.EndpointKey] {
			present[e.EndpointKey] = true
			out = append(out, e)
		}
	}
	for _, k := range in.Refused {
		if former := c.former[k]; former != nil && !present[k] {
			present[k] = true
			out = append(out, c.goOn(*former))
		}
	}
	slices.SortFunc(out, func(a, b plan.Endpoint) int { return a.EndpointKey.Compare(b.EndpointKey) })
	if len(out) == 0 {
		return nil // as it is read back, so that an empty plan equals itself
	}
	return out
}

// resolver collects what is wrong with one endpoint.
type resolver struct {
	*compiler
	object *v1alpha1.WebhookEndpoint
	first  *plan.Problem
}

// fault reports a problem of the endpoint; the first one is what holds it.
func (r *resolver) fault(field, reason, format string, args ...any) {
	p := Problem{
		Kind: KindEndpoint, Namespace: r.object.Namespace, Name: r.object.Name,
		Field: field, Reason: reason, Message: fmt.Sprintf(format, args...),
	}
	r.report(p)
	if r.first == nil {
		r.first = &plan.Problem{Reason: p.Reason, Message: p.Message}
	}
}

func (c *compiler) compileEndpoint(o *v1alpha1.WebhookEndpoint) plan.Endpoint {
	r := &resolver{compiler: c, object: o}
	address, service := r.address()
	e := plan.Endpoint{
		EndpointKey: plan.EndpointKey{Namespace: o.Namespace, Name: o.Name},
		UID:         string(o.UID),
		URL:         address,
		Service:     service,
		EventTypes:  r.eventTypes(),
		Timeout:     r.timeout(),
		MaxInFlight: r.maxInFlight(),
		Signing:     r.signing(),
		Retry:       r.retryPolicy(),

		MatchAttributes: r.matchAttributes(),
		Filter:          r.filter(),
		DataOnly:        r.dataOnly(),
		Headers:         r.headers(),
		Auth:            r.auth(),
		TLS:             r.tls(address),
		RateLimit:       r.rateLimit(),
		Ordering:        r.ordering(),

		Suspend: deref(o.Spec.Suspend),
	}
	if c.opts.Cluster {
		e.NamespaceUID, e.Generation = c.cluster.namespaces[o.Namespace].UID, o.Generation
	}
	r.fit(&e)
	e.Problem = r.first
	e.Hash = endpointHash(&e)
	e.FirstSeen = c.firstSeen(e.EndpointKey)
	if former := c.lastForm(e.EndpointKey); e.Problem != nil && former != nil {
		// A Secret that goes and comes back is no change: an endpoint that was disabled
		// stays so. Nor do waiting deliveries get another maxAge or other due times
		// because a RetryPolicy is out of sight.
		e.Hash, e.Signing, e.Retry = former.Hash, c.running(former.Signing), former.Retry
	}
	c.holdByPool(&e)
	return e
}

// lastForm is what the former plan knows of an endpoint, absent or not; nil if nothing.
func (c *compiler) lastForm(k plan.EndpointKey) *plan.Endpoint {
	if e := c.former[k]; e != nil {
		return e
	}
	return c.missed[k]
}

// goOn carries an endpoint over from the former plan, whose present text was
// refused. Its address is checked again: the former plan may come from a run with
// other flags, and --dev must not reach what it refuses.
func (c *compiler) goOn(e plan.Endpoint) plan.Endpoint {
	e.Signing = c.running(e.Signing)
	switch u, err := url.Parse(e.URL); {
	case c.opts.ForwardTo != nil:
		e.URL = c.opts.ForwardTo.String()
	case c.opts.local() != c.previous.Pool.Egress.Local, c.opts.Dev && (err != nil || !isLoopback(u)):
		e.Problem = &plan.Problem{
			Reason:  v1alpha1.ReasonSpecInvalid,
			Message: "the manifest can't be used, and its former version was for a run with other --dev or --forward-to flags; mend the manifest",
		}
	}
	c.holdByPool(&e)
	return e
}

// firstSeen goes on through absence, but not through deletion.
func (c *compiler) firstSeen(k plan.EndpointKey) time.Time {
	if e := c.lastForm(k); e != nil {
		return e.FirstSeen
	}
	return c.now
}

// endpointHash covers everything that a spec, a Secret or a policy decides.
func endpointHash(e *plan.Endpoint) string {
	content := *e
	// What it is called, when it was seen and what is wrong with it are not its content.
	content.EndpointKey, content.UID, content.NamespaceUID, content.Hash, content.FirstSeen, content.Problem = plan.EndpointKey{}, "", "", "", time.Time{}, nil
	content.Generation, content.Version = 0, 0
	content.Retry.Name = "" // the same policy by another name is no change
	content.Signing.Keys = nil
	for _, k := range e.Signing.Keys {
		// A new value of a key is a change; that the one before ends is none, and no more
		// is the same value from another Secret.
		if k.FormerUntil.IsZero() {
			k.Ref = ""
			content.Signing.Keys = append(content.Signing.Keys, k)
		}
	}
	b, err := json.Marshal(&content)
	if err != nil {
		// A factor that is no number; such a policy holds its endpoint.
		b = []byte(err.Error())
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// address is the URL to post to, empty when there is none that may be used, with the
// Service's addresses where it names one.
func (r *resolver) address() (string, *plan.Service) {
	const field = "spec.url"
	spec := &r.object.Spec
	if r.opts.ForwardTo != nil {
		if !r.allowed(field, r.opts.ForwardTo) {
			return "", nil
		}
		return r.opts.ForwardTo.String(), nil
	}
	if spec.ServiceRef != nil {
		return r.service("spec.serviceRef", spec.ServiceRef)
	}
	text, where := spec.URL, field
	if spec.URLFrom != nil {
		where = "spec.urlFrom.secretKeyRef"
		ref := spec.URLFrom.SecretKeyRef
		var ok bool
		if text, ok = r.credential(where, ref.Name, ref.Key, "the URL"); !ok {
			return "", nil
		}
	}
	u, ok := r.destination(where, text)
	if !ok {
		return "", nil
	}
	return u.String(), nil
}

func (r *resolver) eventTypes() []string {
	in := r.object.Spec.EventTypes
	if len(in) > maxEventTypes {
		r.fault("spec.eventTypes", v1alpha1.ReasonSpecInvalid, "eventTypes has %d entries; at most %d are allowed: use patterns such as order.*", len(in), maxEventTypes)
	}
	var out []string
	for i, p := range in {
		if err := event.ValidPattern(string(p)); err != nil {
			// It stays in the list and matches nothing: an empty list would take all.
			r.fault(fmt.Sprintf("spec.eventTypes[%d]", i), v1alpha1.ReasonSpecInvalid, "%s", err)
		}
		out = append(out, string(p))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (r *resolver) timeout() time.Duration {
	d, err := r.object.Spec.Timeout.ParseOr(v1alpha1.DefaultTimeout)
	if err == nil && (d < minTimeout || d > maxTimeout) {
		err = fmt.Errorf("timeout must be from 1s to 60s")
	}
	if err != nil {
		r.fault("spec.timeout", v1alpha1.ReasonSpecInvalid, "%s", err)
		return v1alpha1.DefaultTimeout
	}
	return d
}

func (r *resolver) maxInFlight() int {
	n := r.object.Spec.MaxInFlight
	if n == nil {
		return int(v1alpha1.DefaultEndpointMaxInFlight)
	}
	if *n < 1 || *n > maxInFlight {
		r.fault("spec.maxInFlight", v1alpha1.ReasonSpecInvalid, "maxInFlight must be from 1 to %d", maxInFlight)
		return int(v1alpha1.DefaultEndpointMaxInFlight)
	}
	return int(*n)
}

// retryPolicy is the endpoint's own policy, else the pool's, else the built-in.
func (r *resolver) retryPolicy() retry.Policy {
	const field = "spec.retryPolicyRef"
	ref := r.object.Spec.RetryPolicyRef
	if ref == nil {
		if r.pool.retry.fault != nil {
			r.fault(field, v1alpha1.ReasonRetryPolicyInvalid, "defaultRetryPolicy of DeliveryPool %s can't be used: %s; mend it, or name a RetryPolicy in retryPolicyRef",
				r.pool.plan.Source, r.pool.retry.fault)
			return unknownPolicy()
		}
		return r.pool.retry.retry
	}
	p, ok := r.policies[plan.EndpointKey{Namespace: r.object.Namespace, Name: ref.Name}]
	switch {
	case !ok:
		r.fault(field+".name", v1alpha1.ReasonRetryPolicyNotFound, "RetryPolicy %s does not exist in namespace %s; create it, or remove retryPolicyRef", ref.Name, r.object.Namespace)
	case p.fault != nil:
		r.fault(field+".name", v1alpha1.ReasonRetryPolicyInvalid, "RetryPolicy %s can't be used: %s", ref.Name, p.fault)
	default:
		return p.retry
	}
	return unknownPolicy()
}

// unknownPolicy stands in for one that can't be had. It ends nothing: how long
// deliveries may wait isn't known.
func unknownPolicy() retry.Policy {
	p := retry.BuiltIn()
	p.MaxAge = 0
	return p
}
