package compile

import (
	"fmt"
	"net/netip"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// service resolves a Service to its URL and the addresses that are dialled for it. The
// pool's egress says nothing of them: that an endpoint's own namespace runs the Service,
// or a grant of the other one, is what allows it.
func (r *resolver) service(field string, ref *v1alpha1.ServiceReference) (string, *plan.Service) {
	if !r.opts.Cluster {
		r.fault(field, v1alpha1.ReasonServiceNotFound, "serviceRef needs a cluster, and there is none here: set url, or forward everything with --forward-to")
		return "", nil
	}
	key := plan.EndpointKey{Namespace: orDefault(ref.Namespace, r.object.Namespace), Name: ref.Name}
	if !r.granted(key) {
		r.fault(field+".namespace", v1alpha1.ReasonRefNotPermitted,
			"Service %s of namespace %s may not be used from namespace %s: create a ReferenceGrant in %s from kind WebhookEndpoint of group doorstep.dev, namespace %s, to kind Service; or use a Service of the endpoint's own namespace",
			key.Name, key.Namespace, r.object.Namespace, key.Namespace, r.object.Namespace)
		return "", nil
	}
	s := r.cluster.services[key]
	if s == nil {
		r.fault(field+".name", v1alpha1.ReasonServiceNotFound, "Service %s does not exist in namespace %s; create it, or mend serviceRef", key.Name, key.Namespace)
		return "", nil
	}
	port := servicePort(ref)
	out := &plan.Service{}
	switch {
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		r.fault(field+".name", v1alpha1.ReasonServiceUnusable, "Service %s is of type ExternalName, which can lead anywhere: set url instead", key)
	case s.Spec.ClusterIP == corev1.ClusterIPNone:
		r.fault(field+".name", v1alpha1.ReasonServiceUnusable, "Service %s is headless: give it a cluster IP, or name another Service", key)
	case len(s.Spec.Selector) == 0:
		r.fault(field+".name", v1alpha1.ReasonServiceUnusable, "Service %s has no selector, so that its endpoints can lead anywhere: give it one, or set url instead", key)
	case !hasPort(s, port):
		r.fault(field+".port", v1alpha1.ReasonServiceUnusable, "Service %s has no TCP port %d: name one of its ports", key, port)
	case !addresses(s, port, out):
		r.fault(field+".name", v1alpha1.ReasonServiceNotFound, "Service %s has no cluster IP yet", key)
	default:
		return serviceURL(ref, key, port), out
	}
	return "", nil
}

// granted reports whether the endpoint may name a Service.
func (r *resolver) granted(k plan.EndpointKey) bool {
	if k.Namespace == r.object.Namespace {
		return true
	}
	for _, g := range r.cluster.grants {
		if g.Namespace == k.Namespace && g.From == r.object.Namespace && (g.Service == "" || g.Service == k.Name) {
			return true
		}
	}
	return false
}

func servicePort(ref *v1alpha1.ServiceReference) int32 {
	switch {
	case ref.Port != nil:
		return *ref.Port
	case ref.Scheme == v1alpha1.ServiceSchemeHTTPS:
		return 443
	}
	return 80
}

func hasPort(s *corev1.Service, port int32) bool {
	for _, p := range s.Spec.Ports {
		if p.Port == port && (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP) {
			return true
		}
	}
	return false
}

// addresses adds the Service's cluster IPs; false if there are none.
func addresses(s *corev1.Service, port int32, to *plan.Service) bool {
	ips := s.Spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{s.Spec.ClusterIP}
	}
	for _, ip := range ips {
		if a, err := netip.ParseAddr(ip); err == nil && port > 0 && port < 1<<16 {
			to.Addresses = append(to.Addresses, netip.AddrPortFrom(a, uint16(port)))
		}
	}
	return len(to.Addresses) > 0
}

// serviceURL is the URL by the Service's name in the cluster; ports of the scheme's own are
// left out.
func serviceURL(ref *v1alpha1.ServiceReference, k plan.EndpointKey, port int32) string {
	u := url.URL{Scheme: "http", Host: fmt.Sprintf("%s.%s.svc", k.Name, k.Namespace)}
	standard := int32(80)
	if ref.Scheme == v1alpha1.ServiceSchemeHTTPS {
		u.Scheme, standard = "https", 443
	}
	if port != standard {
		u.Host += ":" + strconv.Itoa(int(port))
	}
	return u.String() + orDefault(ref.Path, "/")
}
