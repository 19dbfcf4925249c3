package compile

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// maxEntryBytes is the most that one endpoint may take in the plan, so that a shard, which
// is one object of the API server, has room for many.
const maxEntryBytes = 32 << 10

// Namespace is a namespace of the cluster.
type Namespace struct {
	Name, UID string
	Labels    map[string]string
}

// Grant says that WebhookEndpoints of one namespace may name Services of another: what
// a ReferenceGrant of the Gateway API says of them.
type Grant struct {
	// Namespace is where the grant stands, and with it the Services.
	Namespace string
	// From is the endpoints' namespace.
	From string
	// Service is the only Service that is meant; empty: all of the namespace.
	Service string
}

// cluster is what only a cluster knows.
type cluster struct {
	services   map[plan.EndpointKey]*corev1.Service
	grants     []Grant
	namespaces map[string]Namespace
}

func newCluster(in Objects) cluster {
	c := cluster{
		services:   make(map[plan.EndpointKey]*corev1.Service, len(in.Services)),
		grants:     in.Grants,
		namespaces: make(map[string]Namespace, len(in.Namespaces)),
	}
	for i := range in.Services {
		s := &in.Services[i]
		c.services[plan.EndpointKey{Namespace: s.Namespace, Name: s.Name}] = s
	}
	for _, n := range in.Namespaces {
		c.namespaces[n.Name] = n
	}
	return c
}

// Admits reports whether a pool delivers to the endpoints of a namespace. A selector that
// can't be read admits none.
func Admits(p *v1alpha1.DeliveryPool, n Namespace) bool {
	a := p.Spec.AllowedNamespaces
	if a == nil {
		return true
	}
	switch a.From {
	case v1alpha1.NamespacesFromSame:
		return n.Name == p.Namespace
	case v1alpha1.NamespacesFromSelector:
		s, err := metav1.LabelSelectorAsSelector(a.Selector)
		return err == nil && a.Selector != nil && s.Matches(labels.Set(n.Labels))
	default:
		return true
	}
}

// admitted reports whether the pool takes an endpoint, and tells of one that it does not.
// Such an endpoint is left out of the plan and so becomes absent: what waits for it is
// held.
func (c *compiler) admitted(o *v1alpha1.WebhookEndpoint) bool {
	names := c.pool.plan.Namespaces
	if names == nil || slices.Contains(*names, o.Namespace) {
		return true
	}
	c.report(Problem{
		Kind: KindEndpoint, Namespace: o.Namespace, Name: o.Name, Field: "spec.poolRef", Reason: v1alpha1.ReasonNamespaceNotAllowed,
		Message: "DeliveryPool " + c.pool.plan.Source + " does not admit namespace " + o.Namespace +
			": have its allowedNamespaces admit it, or name another pool in a new WebhookEndpoint; events that wait are held until they are too old",
	})
	return false
}

// admittedNamespaces lists the namespaces that a pool admits, sorted; nil for all.
func (c *compiler) admittedNamespaces(o *v1alpha1.DeliveryPool) *[]string {
	a := o.Spec.AllowedNamespaces
	if !c.opts.Cluster || a == nil || a.From == v1alpha1.NamespacesFromAll {
		return nil
	}
	if a.From == v1alpha1.NamespacesFromSelector {
		if _, err := metav1.LabelSelectorAsSelector(a.Selector); err != nil {
			c.report(Problem{
				Kind: KindPool, Namespace: o.Namespace, Name: o.Name, Field: "spec.allowedNamespaces.selector", Reason: v1alpha1.ReasonSpecInvalid,
				Message: "selector can't be read: " + err.Error() + "; until it is mended no namespace is admitted",
			})
		}
	}
	names := []string{}
	for name, n := range c.cluster.namespaces {
		if Admits(o, n) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return &names
}

// fit holds an endpoint that takes too much room in the plan, or for which it has no room
// left.
func (r *resolver) fit(e *plan.Endpoint) {
	b, err := json.Marshal(e)
	switch {
	case err != nil || len(b) > maxEntryBytes:
		r.fault("spec", v1alpha1.ReasonPlanEntryTooLarge,
			"the endpoint and what it refers to take more than %d KiB: use smaller certificates (only the chain that is needed), fewer keys, headers or event types", maxEntryBytes>>10)
	case r.opts.Full[e.EndpointKey]:
		r.fault("spec.poolRef", v1alpha1.ReasonPlanFull,
			"the plan of DeliveryPool %s has no room for the endpoint and what it refers to: make another DeliveryPool and name it in a new WebhookEndpoint, or use smaller certificates and fewer keys and headers in this pool's endpoints", r.pool.plan.Source)
	default:
		return
	}
	makeSmall(e)
	e.Signing = plan.Signing{Scheme: e.Signing.Scheme}
}

// makeSmall leaves out of an endpoint what is of no use while it is held. What decides which
// events are kept for it stays.
func makeSmall(e *plan.Endpoint) { e.Headers, e.Auth, e.TLS = nil, nil, plan.TLS{} }

// reportFull tells of a pool whose plan has no room for some endpoints.
func (c *compiler) reportFull(p *plan.Plan) {
	held := 0
	for i := range p.Endpoints {
		if c.opts.Full[p.Endpoints[i].EndpointKey] {
			held++
		}
	}
	for i := range p.Absent {
		if a := &p.Absent[i]; c.opts.Full[a.EndpointKey] {
			makeSmall(&a.Endpoint) // it is compiled anew when it is to be seen again
		}
	}
	if held == 0 {
		return
	}
	namespace, name, _ := strings.Cut(c.pool.plan.Source, "/")
	c.report(Problem{
		Kind: KindPool, Namespace: namespace, Name: name, Reason: v1alpha1.ReasonPlanFull,
		Message: fmt.Sprintf("The plan has no room for %d of the pool's endpoints, which are held (their reason is PlanFull); all others go on: make another DeliveryPool for some of them, or use smaller certificates and fewer keys and headers", held),
	})
}

// keepNumbers gives each entry that is as it was the version of the plan in which it took
// that form. Workers that have acknowledged it have the entry.
func (c *compiler) keepNumbers(p *plan.Plan) {
	if !c.opts.Cluster {
		return
	}
	for i := range p.Endpoints {
		e := &p.Endpoints[i]
		if former := c.former[e.EndpointKey]; former != nil && e.Equal(former) {
			e.Version = former.Version
		}
	}
}

// numberNewEntries gives all others the plan's own version.
func (c *compiler) numberNewEntries(p *plan.Plan) {
	for i := range p.Endpoints {
		if e := &p.Endpoints[i]; c.opts.Cluster && e.Version == 0 {
			e.Version = p.Version
		}
	}
}
