package egress

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	"github.com/doorstep-dev/doorstep/internal/plan"
)

// never and special are the ranges of the specification, written down apart from the
// table that is tested: what nothing opens, and what an entry opens.
var (
	never = prefixes("0.0.0.0/8", "169.254.0.0/16", "100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32", "192.88.99.0/24", "224.0.0.0/4", "255.255.255.255/32",
		"::/8", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/32", "2002::/16", "fe80::/10", "ff00::/8", "fd00:ec2::/32", "fd20:ce::254/128",
		"fd00:c1::a9fe:a9fe/128", "fd00:42::42/128", "fd00:a9fe:a9fe::1/128", "fd00:100::100:200/128")
	special = prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.0/8", "192.0.0.0/24", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24",
		"198.18.0.0/15", "240.0.0.0/4", "192.31.196.0/24", "192.52.193.0/24", "192.175.48.0/24", "::1/128", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16", "fc00::/7", "fec0::/10")
	shutPorts = []uint16{22, 25, 53, 2379, 2380, 6379, 6443, 10250, 10255, 10256, 10257, 10258, 10259, 11211}
)

// mayBeDialled decides by those lists alone.
func mayBeDialled(p Policy, namespace string, addr netip.Addr, port uint16) bool {
	plain := addr.Unmap()
	if b := plain.As16(); plain.Is6() && netip.MustParsePrefix("64:ff9b::/96").Contains(plain) {
		plain = netip.AddrFrom4([4]byte(b[12:]))
	}
	in := func(list []netip.Prefix) bool {
		return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(plain) })
	}
	loopback := plain.IsLoopback()
	if port == 0 || (in(never) && !loopback) || in(p.Deny) || slices.ContainsFunc(p.Deny, func(d netip.Prefix) bool { return d.Contains(addr.Unmap()) }) {
		return false
	}
	opened := func(closed bool) bool {
		return slices.ContainsFunc(p.Allow, func(n plan.Network) bool {
			own := !loopback || (n.Prefix.Addr().IsLoopback() && (n.Prefix.Addr().Is6() || n.Prefix.Bits() >= 8))
			return own && n.Prefix.Contains(plain) && (len(n.Namespaces) == 0 || slices.Contains(n.Namespaces, namespace)) &&
				((len(n.Ports) == 0 && !closed) || slices.Contains(n.Ports, port))
		})
	}
	closed := slices.Contains(shutPorts, port)
	public := !in(special) && (plain.Is4() || netip.MustParsePrefix("2000::/3").Contains(plain))
	return (public && !closed) || opened(closed)
}

// whatever answers with the addresses it was made of, others at each look-up.
type whatever struct {
	raw    []byte
	dialed []netip.AddrPort
}

func (w *whatever) next(n int) []byte {
	out := make([]byte, n)
	w.raw = w.raw[copy(out, w.raw):]
	return out
}

func (w *whatever) addr() netip.Addr {
	switch kind := w.next(1)[0]; kind % 6 {
	case 0:
		return netip.AddrFrom4([4]byte(w.next(4)))
	case 1:
		return netip.AddrFrom16([16]byte(w.next(16)))
	case 2: // mapped
		return netip.AddrFrom16([16]byte(append([]byte{10: 0xff, 11: 0xff}, w.next(4)...)))
	case 3: // NAT64
		return netip.AddrFrom16([16]byte(append([]byte{1: 0x64, 2: 0xff, 3: 0x9b, 11: 0}, w.next(4)...)))
	case 4: // the edge of a range that is closed
		list := slices.Concat(never, special)
		return list[int(w.next(1)[0])%len(list)].Addr()
	}
	list := slices.Concat(never, special)
	return list[int(w.next(1)[0])%len(list)].Addr().Next()
}

func (w *whatever) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	var out []netip.Addr
	for range w.next(1)[0] % 5 {
		out = append(out, w.addr())
	}
	return out, nil
}

func (w *whatever) dial(_ context.Context, network, address string) (net.Conn, error) {
	w.dialed = append(w.dialed, netip.MustParseAddrPort(address))
	return nil, refused(network)
}

// policy makes one of the entries that the bytes name.
func (w *whatever) policy() Policy {
	pool := slices.Concat(never, special, prefixes("0.0.0.0/0", "::/0", "1.0.0.0/8", "127.0.0.1/32", "10.1.0.0/16", "64:ff9b::/96"))
	pick := func() netip.Prefix { return pool[int(w.next(1)[0])%len(pool)] }
	p := Policy{}
	for range w.next(1)[0] % 4 {
		n := plan.Network{Prefix: pick()}
		if w.next(1)[0]%2 == 0 {
			n.Ports = []uint16{22, 443}
		}
		if w.next(1)[0]%3 == 0 {
			n.Namespaces = []string{"shop"}
		}
		p.Allow = append(p.Allow, n)
	}
	for range w.next(1)[0] % 3 {
		p.Deny = append(p.Deny, pick())
	}
	return p
}

// Whatever the resolver answers and the policy says, nothing is dialled that the
// specification denies.
func FuzzNothingDeniedIsDialled(f *testing.F) {
	f.Add([]byte{}, "hooks.example.com", uint16(443), "shop")
	f.Add([]byte{0, 0, 2, 0, 1, 1, 1, 1, 0, 10, 0, 0, 1}, "hooks.example.com", uint16(443), "shop")
	f.Add([]byte{1, 3, 0, 0, 0, 1, 2, 127, 0, 0, 1}, "localhost", uint16(22), "shop")
	f.Add([]byte{0, 0, 3, 3, 169, 254, 169, 254, 2, 1, 1, 1, 1}, "169.254.169.254", uint16(80), "other")
	f.Add([]byte{2, 44, 1, 1, 45, 1, 1, 1, 45, 4, 4, 1, 4, 9, 5, 9, 1}, "x.svc.cluster.local", uint16(6443), "warehouse")
	f.Fuzz(dialWhatever)
}

// The same with bytes that are made up, so that every run of the tests tries some.
func TestNothingDeniedIsDialled(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	hosts := []string{"hooks.example.com", "localhost", "orders.shop.svc.cluster.local", "intranet", "10.1.2.3", "::ffff:127.0.0.1"}
	ports := slices.Concat(shutPorts, []uint16{0, 80, 443, 8080})
	for range 20_000 {
		raw := make([]byte, rnd.IntN(60))
		for i := range raw {
			raw[i] = byte(rnd.Uint32())
		}
		dialWhatever(t, raw, hosts[rnd.IntN(len(hosts))], ports[rnd.IntN(len(ports))], []string{"shop", "warehouse"}[rnd.IntN(2)])
	}
}

// dialWhatever dials host and port with a policy and answers made of raw.
func dialWhatever(t *testing.T, raw []byte, host string, port uint16, namespace string) {
	w := &whatever{raw: raw}
	p := w.policy()
	v := NewGuard(p, Options{Resolver: w, Dial: w.dial}).For(namespace)
	address := net.JoinHostPort(host, strconv.Itoa(int(port)))
	if _, err := v.DialContext(context.Background(), "tcp", address); err == nil {
		t.Fatalf("%q is connected", address)
	}
	for _, a := range w.dialed {
		if a.Port() != port || !mayBeDialled(p, namespace, a.Addr(), port) {
			t.Fatalf("%s was dialled for %q from %s by %+v", a, address, namespace, p)
		}
	}
}

// The judgement and the lists of the specification agree, both ways.
func FuzzJudgement(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 1, 1, 1}, uint16(443))
	f.Add([]byte{1, 21, 1, 1, 1, 4, 3}, uint16(22))
	f.Add([]byte{0, 2, 1, 46, 5, 30}, uint16(8080))
	f.Fuzz(func(t *testing.T, raw []byte, port uint16) {
		w := &whatever{raw: raw}
		p, addr := w.policy(), w.addr()
		got := NewGuard(p, Options{}).For("shop").check(addr, port) == nil
		want := mayBeDialled(p, "shop", addr, port)
		if got != want && !(want && closedPort(port) != "") { // a few more ports are closed
			t.Errorf("%s port %d is allowed: %t, want %t, by %+v", addr, port, got, want, p)
		}
	})
}
