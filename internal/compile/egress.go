package compile

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/deliver/egress"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// loopback is what --dev and --forward-to allow beside the pool's networks.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// linkLocal is never dialled, so that an entry for it is a mistake.
var linkLocal = []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10")}

const badNetwork = "cidr must be a network such as 10.20.0.0/16 or fd00:20::/64, with zeros after the prefix"

// egress resolves where a pool's deliveries may go. An entry of allow that can't be used
// opens nothing. Anything else that can't be used holds every endpoint: without it
// requests would go where the pool's owner wants none to go, or around the proxy.
func (c *compiler) egress(o *v1alpha1.DeliveryPool) plan.Egress {
	in := deref(o.Spec.Egress)
	out := plan.Egress{AllowHTTP: deref(in.AllowHTTP)}
	report := func(field, reason, message string) {
		c.report(Problem{Kind: KindPool, Namespace: o.Namespace, Name: o.Name, Field: field, Reason: reason, Message: message})
	}
	hold := func(field, reason, format string, args ...any) {
		message := fmt.Sprintf(format, args...)
		if out.Problem == nil {
			out.Problem = &plan.Problem{Reason: reason, Message: fmt.Sprintf("DeliveryPool %s/%s, %s: %s", o.Namespace, o.Name, field, message)}
		}
		if !c.opts.local() {
			message += "; until then every endpoint is held"
		}
		report(field, reason, message)
	}
	for i, n := range in.Allow {
		network, field, err := readNetwork(n)
		if err != nil {
			report(fmt.Sprintf("spec.egress.allow[%d].%s", i, field), v1alpha1.ReasonSpecInvalid, err.Error()+"; until then the entry allows nothing")
			continue
		}
		out.Allow = append(out.Allow, network)
	}
	slices.SortFunc(out.Allow, plan.Network.Compare)
	for i, n := range in.Deny {
		p, err := readPrefix(n.CIDR)
		if err != nil {
			hold(fmt.Sprintf("spec.egress.deny[%d].cidr", i), v1alpha1.ReasonSpecInvalid, "%s", err)
			continue
		}
		out.Deny = append(out.Deny, p)
	}
	slices.SortFunc(out.Deny, netip.Prefix.Compare)
	if in.Proxy != nil && !c.opts.local() {
		out.Proxy = c.proxy(o.Namespace, in.Proxy, hold)
	}
	out.CACertificates, _ = c.authorities(o.Namespace, "spec.egress.caCertificateRefs", in.CACertificateRefs, hold)
	return out
}

// readPrefix reads a network as the CRD takes it.
func readPrefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil || p != p.Masked() || p.Addr().Is4In6() {
		return netip.Prefix{}, errors.New(badNetwork)
	}
	return p, nil
}

// readNetwork reads one entry of egress.allow; an error is about the field it names.
func readNetwork(n v1alpha1.EgressNetwork) (network plan.Network, field string, err error) {
	if network.Prefix, err = readPrefix(n.CIDR); err != nil {
		return network, "cidr", err
	}
	for _, p := range linkLocal {
		if p.Overlaps(network.Prefix) && p.Bits() <= network.Prefix.Bits() {
			return network, "cidr", errors.New("cidr is link-local, which is never dialled (cloud metadata services live there); remove the entry")
		}
	}
	if n.Ports != nil && len(n.Ports) == 0 {
		return network, "ports", errors.New("ports must name at least one port; leave ports out for all that aren't closed by default")
	}
	for _, p := range n.Ports {
		if p < 1 || p > 65535 {
			return network, "ports", errors.New("ports must be from 1 to 65535")
		}
		network.Ports = append(network.Ports, uint16(p))
	}
	if n.Namespaces != nil && len(n.Namespaces) == 0 {
		return network, "namespaces", errors.New("namespaces must name at least one namespace; leave namespaces out for all")
	}
	for _, name := range n.Namespaces {
		if !namespaceName.MatchString(name) {
			return network, "namespaces", errors.New("namespaces must be names of namespaces: letters, digits and dashes in lower case, at most 63")
		}
		network.Namespaces = append(network.Namespaces, name)
	}
	slices.Sort(network.Ports)
	slices.Sort(network.Namespaces)
	network.Ports, network.Namespaces = slices.Compact(network.Ports), slices.Compact(network.Namespaces)
	return network, "", nil
}

// proxy resolves the forward proxy; nil, and a fault, where it can't be had.
func (c *compiler) proxy(namespace string, in *v1alpha1.EgressProxy, fault faultFunc) *plan.Proxy {
	const field = "spec.egress.proxy"
	out := &plan.Proxy{}
	ok := true
	u, err := egress.CheckURL(in.URL)
	switch {
	case err != nil:
		ok = false
		fault(field+".url", v1alpha1.ReasonURLInvalid, "%s", err)
	case u.Port() == "", u.Path != "" && u.Path != "/", strings.Contains(in.URL, "?"):
		ok = false
		fault(field+".url", v1alpha1.ReasonURLInvalid, "url must be http:// or https:// with a host and a port, such as http://proxy.example.com:3128, without user name, path and query")
	default:
		out.URL = u.Scheme + "://" + u.Host
	}
	if ref := in.CredentialsSecretRef; ref != nil {
		credential := func(key string) string {
			text, err := c.proxyCredential(namespace, ref.Name, key)
			if err != nil {
				ok = false
				fault(field+".credentialsSecretRef", err.reason, "%s", err.message)
			}
			return text
		}
		out.Username, out.Password = credential(corev1.BasicAuthUsernameKey), credential(corev1.BasicAuthPasswordKey)
	}
	if !ok {
		return nil
	}
	return out
}

// credentialError says why a credential can't be had.
type credentialError struct{ reason, message string }

// proxyCredential gives the user name or the password for the proxy.
func (c *compiler) proxyCredential(namespace, name, key string) (string, *credentialError) {
	secret := c.secrets[plan.EndpointKey{Namespace: namespace, Name: name}]
	if secret == nil {
		return "", &credentialError{v1alpha1.ReasonSecretNotFound, fmt.Sprintf("Secret %s does not exist in namespace %s; create it with %s and %s for the proxy",
			name, namespace, corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)}
	}
	text, ok := secretValue(secret, key)
	if !ok {
		return "", &credentialError{v1alpha1.ReasonSecretKeyMissing, fmt.Sprintf("Secret %s has no key %s; add it for the proxy", name, key)}
	}
	if err := checkText(text); err != nil {
		return "", &credentialError{v1alpha1.ReasonSpecInvalid, fmt.Sprintf("key %s of Secret %s %s", key, name, err)}
	}
	if key == corev1.BasicAuthUsernameKey && strings.Contains(text, ":") {
		return "", &credentialError{v1alpha1.ReasonSpecInvalid, fmt.Sprintf("key %s of Secret %s holds a colon, which basic authentication has no room for; use another user name", key, name)}
	}
	return text, nil
}

// allowLocal adds what --dev and --forward-to allow, and leaves out what would keep
// requests from this machine.
func (c *compiler) allowLocal(e *plan.Egress) {
	if !c.opts.local() {
		return
	}
	e.Allow = withoutLocal(e.Allow)
	for _, p := range loopback {
		e.Allow = append(e.Allow, plan.Network{Prefix: p})
	}
	slices.SortFunc(e.Allow, plan.Network.Compare)
	e.Deny = slices.DeleteFunc(slices.Clone(e.Deny), func(p netip.Prefix) bool { return slices.ContainsFunc(loopback, p.Overlaps) })
	if len(e.Deny) == 0 {
		e.Deny = nil // as it is read back
	}
	e.AllowHTTP, e.Local = true, true
	e.Proxy, e.Problem = nil, nil
	// A name such as prod.localhost is judged where it is dialled.
	e.LoopbackOnly = c.opts.ForwardTo == nil
}

// withoutLocal is a list without the entries that allowLocal adds.
func withoutLocal(allow []plan.Network) []plan.Network {
	return slices.DeleteFunc(slices.Clone(allow), func(n plan.Network) bool {
		return slices.Contains(loopback, n.Prefix) && len(n.Ports) == 0 && len(n.Namespaces) == 0
	})
}

// poolsOwn is what a former plan knows of the pool's egress. What an earlier run allowed
// by its flags is not the pool's.
func poolsOwn(former plan.Egress) plan.Egress {
	if !former.Local {
		return former
	}
	return plan.Egress{Allow: withoutLocal(former.Allow), Deny: former.Deny, CACertificates: former.CACertificates}
}

// holdByPool holds an endpoint while the pool's egress can't be had, and no longer.
func (c *compiler) holdByPool(e *plan.Endpoint) {
	if was := c.previous.Pool.Egress.Problem; was != nil && e.Problem != nil && *e.Problem == *was {
		e.Problem = nil
	}
	if e.Problem == nil {
		e.Problem = c.pool.plan.Egress.Problem
	}
}

// destination reads a URL that is to be requested for the endpoint. One that shows
// without resolving a name that egress does not allow it holds the endpoint, with better
// words than an attempt could have; one that turns out so when it is dialled is a failed
// attempt.
func (r *resolver) destination(field, raw string) (*url.URL, bool) {
	name := lastName(field)
	u, err := egress.CheckURL(raw)
	if err != nil {
		message := err.Error()
		if name != "url" {
			message = name + ": " + message
		}
		r.fault(field, v1alpha1.ReasonURLInvalid, "%s", message)
		return nil, false
	}
	switch {
	case r.opts.Dev && !isLoopback(u):
		r.fault(field, v1alpha1.ReasonURLInvalid, "--dev sends to loopback only, and %s is not: add --forward-to with an address on this machine, or run without --dev", u.Hostname())
		return nil, false
	case u.Scheme == "http" && !r.pool.plan.Egress.AllowHTTP:
		r.fault(field, v1alpha1.ReasonURLInvalid, "%s is http, which sends events and credentials in the clear: use https, or set spec.egress.allowHTTP of the DeliveryPool", name)
		return nil, false
	}
	return u, r.allowed(field, u)
}

// allowed reports a URL of which it shows that egress does not allow it.
func (r *resolver) allowed(field string, u *url.URL) bool {
	err := r.guard.For(r.object.Namespace).CheckURL(u)
	if err == nil {
		return true
	}
	message := err.Error()
	if denied := (*egress.DeniedError)(nil); errors.As(err, &denied) {
		message = fmt.Sprintf("%s leads to a destination that is not allowed (%s): %s", lastName(field), denied.Range, denied.Remedy)
	}
	r.fault(field, v1alpha1.ReasonURLInvalid, "%s", message)
	return false
}

// isLoopback reports whether a URL names this machine without asking a resolver.
func isLoopback(u *url.URL) bool {
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}
