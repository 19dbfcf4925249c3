package egress

import (
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/doorstep-dev/doorstep/internal/plan"
)

func entry(cidr string, ports []uint16, namespaces ...string) plan.Network {
	return plan.Network{Prefix: netip.MustParsePrefix(cidr), Ports: ports, Namespaces: namespaces}
}

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestWhatMayBeDialled(t *testing.T) {
	both := networks("127.0.0.0/8", "::1/128")
	for _, row := range []struct {
		name   string
		policy Policy
		open   []string
		shut   []string
	}{
		{"the default", Policy{},
			[]string{"1.1.1.1:443", "1.1.1.1:80", "1.1.1.1:8443", "1.1.1.1:3000", "[2606:2800::1]:443", "1.1.1.1:65535"},
			[]string{
				"1.1.1.1:22", "1.1.1.1:25", "1.1.1.1:53", "1.1.1.1:2379", "1.1.1.1:2380", "1.1.1.1:6379", "1.1.1.1:6443", "1.1.1.1:10250", "1.1.1.1:10255", "1.1.1.1:10257",
				"1.1.1.1:10259", "1.1.1.1:11211", "1.1.1.1:465", "1.1.1.1:2375", "[2606:2800::1]:22", "[::ffff:1.1.1.1]:22", "1.1.1.1:0", "10.0.0.1:443",
			}},
		{"ports around closed ones", Policy{}, []string{"1.1.1.1:21", "1.1.1.1:24", "1.1.1.1:2378", "1.1.1.1:2381", "1.1.1.1:10251", "1.1.1.1:10254", "1.1.1.1:10260"}, nil},
		{"an entry without ports", Policy{Allow: networks("10.1.0.0/16")}, []string{"10.1.2.3:443", "10.1.2.3:8080"}, []string{"10.1.2.3:22", "10.1.2.3:6379", "10.2.0.1:443"}},
		{"an entry with ports", Policy{Allow: []plan.Network{entry("10.1.0.0/16", []uint16{8080, 6379})}}, []string{"10.1.2.3:8080", "10.1.2.3:6379"}, []string{"10.1.2.3:443", "10.1.2.3:22", "1.1.1.1:6379"}},
		{"entries add up", Policy{Allow: []plan.Network{entry("10.1.0.0/16", []uint16{8080}), entry("10.1.2.0/24", nil), entry("10.1.2.3/32", []uint16{22})}},
			[]string{"10.1.0.1:8080", "10.1.2.1:443", "10.1.2.3:22", "10.1.2.3:443"}, []string{"10.1.0.1:443", "10.1.2.1:22"}},
		{"an entry's ports close no public address", Policy{Allow: []plan.Network{entry("1.1.1.0/24", []uint16{6443})}}, []string{"1.1.1.1:6443", "1.1.1.1:443"}, []string{"1.1.2.1:6443", "1.1.1.1:22"}},
		{"an entry for other namespaces", Policy{Allow: []plan.Network{entry("10.1.0.0/16", nil, "warehouse")}}, nil, []string{"10.1.2.3:443"}},
		{"an entry for this one among others", Policy{Allow: []plan.Network{entry("10.1.0.0/16", nil, "warehouse", "shop")}}, []string{"10.1.2.3:443"}, nil},
		{"deny beats allow", Policy{Allow: networks("10.0.0.0/8"), Deny: prefixes("10.1.0.0/16")},
			[]string{"10.2.0.1:443", "[::ffff:10.2.0.1]:443", "[64:ff9b::a02:1]:443"}, []string{"10.1.2.3:443", "[::ffff:10.1.2.3]:443", "[64:ff9b::a01:203]:443"}},
		{"deny beats a narrower allow", Policy{Allow: []plan.Network{entry("10.1.2.3/32", []uint16{443})}, Deny: prefixes("10.0.0.0/8")}, nil, []string{"10.1.2.3:443"}},
		{"deny of public addresses", Policy{Deny: prefixes("1.1.1.0/24", "2606:2800::/32")}, []string{"1.1.2.1:443", "[2606:2801::1]:443"}, []string{"1.1.1.1:443", "[::ffff:1.1.1.1]:443", "[64:ff9b::101:101]:443", "[2606:2800::1]:443"}},
		{"deny of all of NAT64", Policy{Deny: prefixes("64:ff9b::/96")}, []string{"1.1.1.1:443"}, []string{"[64:ff9b::101:101]:443"}},
		{"deny written as mapped addresses", Policy{Deny: prefixes("::ffff:1.1.1.0/120")}, []string{"1.1.2.1:443"}, []string{"1.1.1.1:443", "[::ffff:1.1.1.1]:443"}},
		{"deny of everything", Policy{Allow: both, Deny: prefixes("0.0.0.0/0", "::/0")}, nil, []string{"1.1.1.1:443", "[2606:2800::1]:443", "127.0.0.1:443", "[::1]:443"}},
		{"deny of loopback", Policy{Allow: both, Deny: prefixes("127.0.0.0/8")}, []string{"[::1]:443"}, []string{"127.0.0.1:443"}},
		{"loopback only", Policy{Allow: append(networks("10.0.0.0/8"), both...), LoopbackOnly: true},
			[]string{"127.0.0.1:8080", "[::1]:8080", "[::ffff:127.0.0.1]:8080"},
			[]string{"1.1.1.1:443", "10.1.2.3:443", "[2606:2800::1]:443", "0.0.0.0:443", "169.254.169.254:80"}},
		{"metadata by its own port", Policy{Allow: []plan.Network{entry("169.254.169.254/32", []uint16{80}), entry("fd00:ec2::254/128", []uint16{80})}}, nil, []string{"169.254.169.254:80", "[fd00:ec2::254]:80"}},
		{"an interface", Policy{Allow: networks("fd00::/8")}, []string{"[fd00::1]:443"}, []string{"[fd00::1%eth0]:443"}},
	} {
		v := NewGuard(row.policy, Options{}).For("shop")
		for _, a := range row.open {
			ap := netip.MustParseAddrPort(a)
			if err := v.check(ap.Addr(), ap.Port()); err != nil {
				t.Errorf("%s: %s is denied: %+v", row.name, a, err)
			}
		}
		for _, a := range row.shut {
			ap := netip.MustParseAddrPort(a)
			err := v.check(ap.Addr(), ap.Port())
			if !isDenied(err) {
				t.Errorf("%s: %s: %v, want denied", row.name, a, err)
				continue
			}
			if d := err.(*DeniedError); d.Range == "" || d.Remedy == "" || strings.Contains(d.Range+d.Remedy, ap.Addr().WithZone("").String()) {
				t.Errorf("%s: %s is explained as %+v", row.name, a, d)
			}
		}
	}
}

// case SS129: what one namespace may dial, another of the same names may not, and no
// connection passes between them.
func TestNamespacesAreApart(t *testing.T) {
	g := NewGuard(Policy{Allow: []plan.Network{entry("10.1.0.0/16", nil, "shop"), entry("10.2.0.0/16", nil, "warehouse"), entry("10.3.0.0/16", nil)}}, Options{})
	for namespace, open := range map[string]string{"shop": "10.1.0.1", "warehouse": "10.2.0.1", "other": ""} {
		for _, a := range []string{"10.1.0.1", "10.2.0.1"} {
			if got := g.For(namespace).check(netip.MustParseAddr(a), 443) == nil; got != (a == open) {
				t.Errorf("%s from %s: %t", a, namespace, got)
			}
		}
		if err := g.For(namespace).check(netip.MustParseAddr("10.3.0.1"), 443); err != nil {
			t.Errorf("the entry of all, from %s: %v", namespace, err)
		}
	}
	if g.For("shop").Key() == g.For("warehouse").Key() || g.For("shop").Key() == g.For("other").Key() {
		t.Error("two namespaces that may dial other networks share a key")
	}
	shop := g.For("shop")
	if g.For("other") != g.For("third") || g.For("shop") != shop {
		t.Error("views are made anew each time")
	}
}

func TestKeysTellWhatIsAllowed(t *testing.T) {
	base := func() Policy {
		return Policy{Allow: []plan.Network{entry("10.1.0.0/16", []uint16{80, 443}), entry("10.2.0.0/16", nil, "shop")}, Deny: prefixes("1.1.1.0/24", "1.1.2.0/24")}
	}
	key := func(p Policy, namespace string) string { return NewGuard(p, Options{}).For(namespace).Key() }
	change := func(f func(*Policy)) Policy {
		p := base()
		f(&p)
		return p
	}
	for name, p := range map[string]Policy{
		"other order":       change(func(p *Policy) { p.Allow[0], p.Allow[1] = p.Allow[1], p.Allow[0] }),
		"other port order":  change(func(p *Policy) { p.Allow[0].Ports = []uint16{443, 80} }),
		"an entry twice":    change(func(p *Policy) { p.Allow = append(p.Allow, p.Allow[0]) }),
		"other deny order":  change(func(p *Policy) { p.Deny = prefixes("1.1.2.0/24", "1.1.1.0/24") }),
		"another namespace": change(func(p *Policy) { p.Allow = append(p.Allow, entry("10.9.0.0/16", nil, "warehouse")) }),
	} {
		if key(p, "shop") != key(base(), "shop") {
			t.Errorf("%s: another key, and the same is allowed", name)
		}
	}
	for name, p := range map[string]Policy{
		"a network less": change(func(p *Policy) { p.Allow = p.Allow[:1] }),
		"a network more": change(func(p *Policy) { p.Allow = append(p.Allow, entry("10.9.0.0/16", nil)) }),
		"a port more":    change(func(p *Policy) { p.Allow[0].Ports = []uint16{80, 443, 8080} }),
		"any port":       change(func(p *Policy) { p.Allow[0].Ports = nil }),
		"a deny less":    change(func(p *Policy) { p.Deny = p.Deny[:1] }),
		"http":           change(func(p *Policy) { p.AllowHTTP = true }),
		"loopback only":  change(func(p *Policy) { p.LoopbackOnly = true }),
		"nothing at all": {},
		"the namespace":  change(func(p *Policy) { p.Allow[1].Namespaces = []string{"warehouse"} }),
	} {
		if key(p, "shop") == key(base(), "shop") {
			t.Errorf("%s: the same key", name)
		}
	}
}

func TestPolicyOfAPlan(t *testing.T) {
	e := plan.Egress{Allow: networks("10.0.0.0/8"), Deny: prefixes("10.1.0.0/16"), AllowHTTP: true, LoopbackOnly: true}
	want := Policy{Allow: e.Allow, Deny: e.Deny, AllowHTTP: true, LoopbackOnly: true}
	if p := PolicyOf(e); !reflect.DeepEqual(p, want) {
		t.Errorf("%+v, want %+v", p, want)
	}
}

// What a URL shows before anything is resolved.
func TestCheckURLOfAView(t *testing.T) {
	private := []plan.Network{entry("10.1.0.0/16", []uint16{8080, 22}, "shop")}
	for _, row := range []struct {
		name, url string
		policy    Policy
		want      string // a part of what is said of it; empty: allowed
	}{
		{"a public name", "https://hooks.example.com/", Policy{}, ""},
		{"a public name with a svc label", "https://api.svc.example.com/", Policy{}, ""},
		{"a public address", "https://1.1.1.1/", Policy{}, ""},
		{"a port that is closed", "https://hooks.example.com:6443/", Policy{}, "the Kubernetes API"},
		{"a closed port of an address", "https://1.1.1.1:22/", Policy{}, "port 22"},
		{"a closed port that an entry opens somewhere", "https://hooks.example.com:22/", Policy{Allow: private}, ""},
		{"a private address", "https://10.1.2.3:8080/", Policy{}, "private"},
		{"an allowed private address", "https://10.1.2.3:8080/", Policy{Allow: private}, ""},
		{"another port of it", "https://10.1.2.3/", Policy{Allow: private}, "open on other ports only"},
		{"a denied address", "https://1.1.1.1/", Policy{Deny: prefixes("1.1.1.0/24")}, "denied by the pool"},
		{"loopback", "https://127.0.0.1/", Policy{Allow: networks("0.0.0.0/0")}, "loopback"},
		{"metadata", "https://169.254.169.254/", Policy{Allow: networks("0.0.0.0/0")}, "metadata"},
		{"a metadata name", "https://metadata.google.internal/", Policy{Allow: networks("0.0.0.0/0")}, "metadata"},
		{"a metadata name of one label", "https://metadata/", Policy{Allow: networks("0.0.0.0/0")}, "metadata"},
		{"another", "https://Instance-Data./", Policy{Allow: networks("0.0.0.0/0")}, "metadata"},
		{"localhost", "https://localhost/", Policy{}, "loopback"},
		{"localhost with a dot", "https://localhost./", Policy{}, "loopback"},
		{"a name below localhost", "https://prod.localhost/", Policy{}, "loopback"},
		{"a name that begins like it", "https://localhost.example.com/", Policy{}, ""},
		{"localhost that is allowed", "https://localhost:8080/", Policy{Allow: networks("127.0.0.0/8")}, ""},
		// cases SSR-04, SS123
		{"the API server", "https://kubernetes.default.svc/", Policy{}, "within the cluster"},
		{"the API server in capitals, with a dot", "https://KUBERNETES.default.SVC./", Policy{}, "within the cluster"},
		{"the API server by one label", "https://kubernetes/", Policy{}, "within the cluster"},
		{"the API server by two", "https://kubernetes.default/", Policy{}, "within the cluster"},
		{"a Service", "https://orders.shop.svc.cluster.local/", Policy{}, "within the cluster"},
		{"a Pod", "https://10-1-2-3.shop.pod.cluster.local/", Policy{}, "within the cluster"},
		{"mDNS", "https://printer.local/", Policy{}, "local network"},
		{"internal", "https://vault.internal/", Policy{}, "local network"},
		{"home.arpa", "https://nas.home.arpa/", Policy{}, "local network"},
		{"a Service, with an entry", "https://orders.shop.svc.cluster.local:8080/", Policy{Allow: private}, ""},
		{"one label, with an entry", "https://intranet:8080/", Policy{Allow: private}, ""},
		{"a Service cut short, with an entry", "https://orders.shop.svc:8080/", Policy{Allow: private}, "cut short"},
		{"a Service, with an entry of another namespace", "https://orders.shop.svc.cluster.local/", Policy{Allow: []plan.Network{entry("10.0.0.0/8", nil, "warehouse")}}, "within the cluster"},
	} {
		u, err := CheckURL(row.url)
		if err != nil {
			t.Fatalf("%s: %v", row.url, err)
		}
		switch err := viewOf(row.policy).CheckURL(u); {
		case row.want == "":
			if err != nil {
				t.Errorf("%s: %+v", row.name, err)
			}
		case !isDenied(err):
			t.Errorf("%s: %v, want denied", row.name, err)
		default:
			if d := err.(*DeniedError); !strings.Contains(d.Range, row.want) || d.Remedy == "" {
				t.Errorf("%s: explained as %+v, want %q", row.name, d, row.want)
			}
		}
	}
	// URLs that didn't come through CheckURL.
	for _, u := range []*url.URL{{Scheme: "https", Host: "127.1"}, {Scheme: "https", Host: "a..b"}, {Scheme: "https", Host: ""}, {Scheme: "https", Host: "1.1.1.1:99999"}, {Scheme: "https", Host: "１２７.0.0.1"}} {
		if err := viewOf(Policy{}).CheckURL(u); !isDenied(err) {
			t.Errorf("%s: %v, want denied", u, err)
		}
	}
}
