package egress

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"

	"github.com/doorstep-dev/doorstep/internal/plan"
)

// Policy says what may be dialled beside the public internet. The zero Policy
// allows https to the public internet, on the ports that aren't closed, and nothing
// else.
type Policy struct {
	// Allow opens networks, each for its namespaces and on its ports, and closed ports
	// where it names them. Loopback is opened only by an entry within 127.0.0.0/8 or ::1
	// itself, so that 0.0.0.0/0 does not hand out the worker's own ports. Link-local,
	// metadata and the like stay closed whatever the entries say.
	Allow []plan.Network
	// Deny closes networks, whatever Allow says.
	Deny []netip.Prefix
	// AllowHTTP permits http URLs beside https.
	AllowHTTP bool
	// LoopbackOnly denies every address that is not this machine's own, whatever else is
	// allowed.
	LoopbackOnly bool
}

// PolicyOf is the policy that a plan states.
func PolicyOf(e plan.Egress) Policy {
	return Policy{Allow: e.Allow, Deny: e.Deny, AllowHTTP: e.AllowHTTP, LoopbackOnly: e.LoopbackOnly}
}

// network is an entry of Allow as it holds for one namespace.
type network struct {
	prefix netip.Prefix
	ports  []uint16 // sorted; empty: every port that isn't closed
}

func (n network) compare(o network) int {
	return cmp.Or(n.prefix.Compare(o.prefix), slices.Compare(n.ports, o.ports))
}

// rules are one policy as it holds for one namespace.
type rules struct {
	allow        []network
	deny         []netip.Prefix
	http         bool
	loopbackOnly bool
}

// rulesFor picks the entries that hold for a namespace, in an order of their own.
func (p *Policy) rulesFor(namespace string) rules {
	r := rules{http: p.AllowHTTP, loopbackOnly: p.LoopbackOnly}
	for _, n := range p.Allow {
		if len(n.Namespaces) == 0 || slices.Contains(n.Namespaces, namespace) {
			ports := slices.Clone(n.Ports)
			slices.Sort(ports)
			r.allow = append(r.allow, network{unmapped(n.Prefix), slices.Compact(ports)})
		}
	}
	for _, d := range p.Deny {
		r.deny = append(r.deny, unmapped(d))
	}
	slices.SortFunc(r.allow, network.compare)
	r.allow = slices.CompactFunc(r.allow, func(a, b network) bool { return a.compare(b) == 0 })
	slices.SortFunc(r.deny, netip.Prefix.Compare)
	r.deny = slices.Compact(r.deny)
	return r
}

// unmapped writes a network of IPv4-mapped addresses as the IPv4 network it is, by
// which the addresses are judged.
func unmapped(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}

// hash is equal for equal rules, and short.
func (r *rules) hash() string {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%t %t\n", r.http, r.loopbackOnly)
	for _, n := range r.allow {
		_, _ = fmt.Fprintf(h, "allow %s %v\n", n.prefix, n.ports)
	}
	for _, p := range r.deny {
		_, _ = fmt.Fprintf(h, "deny %s\n", p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// check is nil if an address and port may be dialled. It says why it is not in the
// order in which a person could do something about it.
func (r *rules) check(addr netip.Addr, port uint16) *DeniedError {
	if !addr.IsValid() || addr.Zone() != "" {
		return &DeniedError{Range: "no plain address", Remedy: remedyNone}
	}
	a := judged(addr)
	row := find(a)
	if row != nil && row.open == byNothing {
		return &DeniedError{Range: row.name, Remedy: remedyNone}
	}
	if r.loopbackOnly && !a.IsLoopback() {
		return &DeniedError{Range: "not this machine", Remedy: "use a loopback address"}
	}
	for _, d := range r.deny {
		if d.Contains(a) || d.Contains(addr.Unmap()) {
			return &DeniedError{Range: "denied by the pool", Remedy: remedyDenied}
		}
	}
	open, covered := closedPort(port) == "", row == nil
	for _, n := range r.allow {
		if !n.opens(row, a) {
			continue
		}
		covered = true
		if slices.Contains(n.ports, port) || (len(n.ports) == 0 && open) {
			return nil
		}
	}
	switch {
	case row == nil && open:
		return nil
	case !covered && row.open == byOwnEntry:
		return &DeniedError{Range: row.name, Remedy: remedyLoopback}
	case !covered:
		return &DeniedError{Range: row.name, Remedy: remedyEntry}
	case !open:
		return deniedPort(port)
	}
	return &DeniedError{Range: row.name + ", open on other ports only", Remedy: remedyPort}
}

// opens says whether an entry covers an address, ports apart. Of what row is about it
// must be an entry of its own where the row asks for one.
func (n network) opens(row *denied, a netip.Addr) bool {
	if row != nil && row.open == byOwnEntry && (!row.prefix.Contains(n.prefix.Addr()) || row.prefix.Bits() > n.prefix.Bits()) {
		return false
	}
	return n.prefix.Contains(a)
}
