package egress

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
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

// Guard holds the policy in force, which may be exchanged at any time. It is safe for
// concurrent use.
type Guard struct {
	options Options
	current atomic.Pointer[inForce]
}

// inForce is a policy with the views of it. Namespaces that no entry names share one,
// so that there are never more views than the policy names.
type inForce struct {
	policy Policy
	shared *View
	named  map[string]bool
	views  sync.Map // of *View by namespace
}

// NewGuard makes a guard with a policy.
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
	g := &Guard{options: o}
	g.SetPolicy(p)
	return g
}

// Policy is the policy in force.
func (g *Guard) Policy() Policy { return g.current.Load().policy }

// SetPolicy exchanges the policy for the views taken from now on. A connection was
// judged when it was dialled: close the idle ones whose view has another key.
func (g *Guard) SetPolicy(p Policy) {
	f := &inForce{policy: p.clone(), named: map[string]bool{}}
	for q := &f.policy; q != nil; q = q.or {
		for _, n := range q.Allow {
			for _, namespace := range n.Namespaces {
				f.named[namespace] = true
			}
		}
	}
	f.shared = g.newView(&f.policy, "")
	g.current.Store(f)
}

// clone is a policy that the caller's changes don't reach.
func (p Policy) clone() Policy {
	p.Allow, p.Deny = slices.Clone(p.Allow), slices.Clone(p.Deny)
	if p.Proxy != nil {
		proxy := *p.Proxy
		p.Proxy = &proxy
	}
	if p.or != nil {
		o := p.or.clone()
		p.or = &o
	}
	return p
}

// For is the policy in force as it holds for one namespace. It costs little: take it
// for every attempt, so that a changed policy is in force at once.
func (g *Guard) For(namespace string) *View {
	f := g.current.Load()
	if !f.named[namespace] {
		return f.shared
	}
	if v, ok := f.views.Load(namespace); ok {
		return v.(*View)
	}
	v, _ := f.views.LoadOrStore(namespace, g.newView(&f.policy, namespace))
	return v.(*View)
}

// newView makes the view of a namespace; "" is one that no entry names.
func (g *Guard) newView(p *Policy, namespace string) *View {
	v := &View{options: g.options, proxy: p.Proxy}
	var texts []string
	for q := p; q != nil; q = q.or {
		r := q.rulesFor(namespace)
		if text := hash(r.text()); !slices.Contains(texts, text) {
			texts = append(texts, text)
			v.rules = append(v.rules, r)
		}
	}
	slices.Sort(texts)
	v.key = hash([]any{texts, p.Proxy})
	return v
}

// Control is for net.Dialer.ControlContext; see View.
func (g *Guard) Control(ctx context.Context, network, address string, c syscall.RawConn) error {
	return g.For("").control(ctx, network, address, c)
}
