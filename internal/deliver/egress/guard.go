package egress

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Resolver resolves names. *net.Resolver is one.
type Resolver interface {
	// LookupNetIP gives the addresses of a host, for the networks ip, ip4 and ip6.
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Options configure a Guard. The zero value is usable.
type Options struct {
	// Resolver resolves names; nil: the system's.
	Resolver Resolver
	// Dial connects to an address and port that was judged; nil: by the system, with the
	// address of the socket judged once more.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Timeout bounds one dial, resolving included; 0: 10 s.
	Timeout time.Duration
	// KeepAlive is the interval of TCP's own probes; 0: 15 s.
	KeepAlive time.Duration
}

// Guard holds a policy, which never changes: another policy is another Guard. It is safe
// for concurrent use.
type Guard struct {
	options Options
	policy  Policy
	// shared is the view of the namespaces that no entry names, and views hold those of
	// the named ones, so that there are never more views than the policy names.
	shared *View
	mu     sync.Mutex
	views  map[string]*View // nil until one is asked for
}

// NewGuard makes a guard with a policy, which is not to be changed any more.
func NewGuard(p Policy, o Options) *Guard {
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.KeepAlive <= 0 {
		o.KeepAlive = 15 * time.Second
	}
	g := &Guard{options: o, policy: p, views: map[string]*View{}}
	for _, n := range p.Allow {
		for _, namespace := range n.Namespaces {
			g.views[namespace] = nil
		}
	}
	g.shared = g.newView("")
	return g
}

// For is the policy as it holds for one namespace.
func (g *Guard) For(namespace string) *View {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, named := g.views[namespace]
	if !named {
		return g.shared
	}
	if v == nil {
		v = g.newView(namespace)
		g.views[namespace] = v
	}
	return v
}

// newView makes the view of a namespace; "" is one that no entry names.
func (g *Guard) newView(namespace string) *View {
	v := &View{rules: g.policy.rulesFor(namespace), options: g.options}
	v.key = v.rules.hash()
	return v
}
