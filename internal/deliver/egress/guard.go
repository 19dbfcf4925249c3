package egress

import (
	"context"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
)

// Policy says what may be dialled beside the public internet. The zero Policy
// allows https to the public internet and nothing else.
type Policy struct {
	// Allow opens networks. Loopback is opened only by an entry within 127.0.0.0/8
	// or ::1 itself, so that 0.0.0.0/0 does not hand out the worker's own ports.
	// Link-local, metadata and the like stay closed whatever the entries say.
	Allow []netip.Prefix
	// AllowHTTP permits http URLs beside https.
	AllowHTTP bool
	// LoopbackOnly denies every address that is not this machine's own, whatever else is
	// allowed.
	LoopbackOnly bool
}

// Equal says whether two policies allow the same, entry by entry.
func (p Policy) Equal(o Policy) bool {
	return p.AllowHTTP == o.AllowHTTP && p.LoopbackOnly == o.LoopbackOnly && slices.Equal(p.Allow, o.Allow)
}

// DeniedError says that an address may not be dialled.
type DeniedError struct {
	// Range names the range the address is in, for the operator's eyes only: told
	// to a tenant it would map the network.
	Range string
}

// Error is the same for every destination.
func (*DeniedError) Error() string { return "destination not allowed" }

// CheckAddr is nil if the address may be dialled, else a *DeniedError.
func (p Policy) CheckAddr(addr netip.Addr) error {
	if !addr.IsValid() {
		return &DeniedError{Range: "not an address"}
	}
	a := judged(addr)
	if p.LoopbackOnly && !a.IsLoopback() {
		return &DeniedError{Range: "not loopback"}
	}
	row := find(a)
	if row == nil {
		return nil
	}
	if row.open != byNothing {
		for _, allow := range p.Allow {
			within := row.open != byOwnEntry || (row.prefix.Contains(allow.Addr()) && row.prefix.Bits() <= allow.Bits())
			if within && allow.Contains(a) {
				return nil
			}
		}
	}
	return &DeniedError{Range: row.name}
}

// CheckURL is nil if a URL that the package's CheckURL gave may be used under
// this policy, as far as that shows without resolving a name.
func (p Policy) CheckURL(u *url.URL) error {
	if err := p.CheckScheme(u); err != nil {
		return err
	}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
		return p.CheckAddr(addr)
	}
	return nil
}

// CheckScheme is nil for https, and for http where the policy allows it.
func (p Policy) CheckScheme(u *url.URL) error {
	switch {
	case u.Scheme == "https", u.Scheme == "http" && p.AllowHTTP:
		return nil
	case u.Scheme == "http":
		return errHTTP
	}
	return errScheme
}

// Guard applies a policy, which may be exchanged at any time, to every dial.
type Guard struct{ policy atomic.Pointer[Policy] }

// NewGuard makes a guard with a policy.
func NewGuard(p Policy) *Guard {
	g := &Guard{}
	g.SetPolicy(p)
	return g
}

// Policy is the policy in force.
func (g *Guard) Policy() Policy { return *g.policy.Load() }

// SetPolicy exchanges the policy. Connections that are open stay so: close the
// idle ones.
func (g *Guard) SetPolicy(p Policy) {
	p.Allow = slices.Clone(p.Allow)
	g.policy.Store(&p)
}

// Control is for net.Dialer.ControlContext, which calls it with the address of
// every socket just before it connects: what is checked is what is dialled. An
// error is a *DeniedError.
func (g *Guard) Control(_ context.Context, network, address string, _ syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return &DeniedError{Range: "not TCP"}
	}
	ap, err := netip.ParseAddrPort(address)
	if err != nil || ap.Port() == 0 {
		return &DeniedError{Range: "not an address and port"}
	}
	return g.policy.Load().CheckAddr(ap.Addr())
}
