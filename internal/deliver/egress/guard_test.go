package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/doorstep-dev/doorstep/internal/plan"
)

// networks are entries for every namespace and every port that isn't closed.
func networks(list ...string) []plan.Network {
	var out []plan.Network
	for _, s := range list {
		out = append(out, plan.Network{Prefix: netip.MustParsePrefix(s)})
	}
	return out
}

// viewOf is a policy as a namespace sees it that no entry names.
func viewOf(p Policy) *View { return NewGuard(p, Options{}).For("shop") }

func allowed(p Policy, host string) bool {
	err := viewOf(p).control(context.Background(), "tcp", net.JoinHostPort(host, "443"), nil)
	return err == nil
}

var everything = Policy{AllowHTTP: true, Allow: networks("0.0.0.0/0", "::/0")}

func TestPublicAddressesAreAllowed(t *testing.T) {
	for _, a := range []string{"1.1.1.1", "8.8.8.8", "93.184.216.34", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0", "11.0.0.0", "126.255.255.255", "128.0.0.0", "168.63.129.15", "168.63.129.17", "198.17.255.255", "198.20.0.0", "223.255.255.255", "2606:4700::1111", "2a00:1450::1", "2001:200::1", "2001:4860:4860::8888", "3ffe::1", "64:ff9b::101:101", "::ffff:1.1.1.1"} {
		if !allowed(Policy{}, a) {
			t.Errorf("%s is denied", a)
		}
	}
}

// cases SSR-02, SSR-03
func TestSpecialAddressesAreDenied(t *testing.T) {
	for _, a := range []string{
		// SSR-02
		"::1", "::", "::ffff:127.0.0.1", "0:0:0:0:0:ffff:127.0.0.1", "::127.0.0.1", "::ffff:0:127.0.0.1", "::5efe:7f00:1",
		"64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "2002:7f00:1::", "2001::1", "fe80::1%eth0", "fe80::1", "fec0::1", "fd00:ec2::254",
		// SSR-03
		"169.254.169.254", "169.254.170.2", "169.254.170.23", "100.100.100.200", "192.0.0.192", "168.63.129.16", "0.1.2.3", "198.18.0.1", "240.0.0.1", "255.255.255.255",
		// the rest of the table
		"0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.255.255", "100.64.0.1", "127.0.0.1", "127.255.255.255", "192.0.0.1", "192.0.2.1", "198.51.100.1", "203.0.113.1",
		"192.88.99.1", "198.19.255.255", "224.0.0.1", "239.255.255.255", "192.31.196.1", "192.52.193.1", "192.175.48.1",
		"64:ff9b::a00:1", "64:ff9b::a9fe:a9fe", "100::1", "100:0:0:1::1", "2001:2::1", "2001:10::1", "2001:20::1", "2001:1ff::1", "2001:db8::1", "3fff::1", "5f00::1",
		"fc00::1", "fd20:ce::254", "fdff::1", "febf::1", "ff02::1", "::ffff:169.254.169.254", "::ffff:10.0.0.1", "4000::1", "1000::1", "::2",
	} {
		if allowed(Policy{}, a) {
			t.Errorf("%s is allowed", a)
		}
	}
}

// case SSR-03: an exception for everything opens neither metadata nor loopback.
func TestSomeAddressesAreNeverAllowed(t *testing.T) {
	for _, a := range []string{
		"169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254", "fe80::1", "fe80::1%lo",
		"fd00:ec2::23", "fd00:c1::a9fe:a9fe", "fd00:42::42", "fd00:a9fe:a9fe::1", "fd00:100::100:200",
		"0.0.0.0", "0.1.2.3", "::", "224.0.0.1", "255.255.255.255", "ff02::1", "::127.0.0.1", "::169.254.169.254", "::ffff:0:127.0.0.1", "::5efe:7f00:1",
		"64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::", "2001::1", "::ffff:169.254.169.254", "::ffff:168.63.129.16",
		"127.0.0.1", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1",
	} {
		if allowed(everything, a) {
			t.Errorf("%s is allowed by 0.0.0.0/0 and ::/0", a)
		}
	}
	exact := Policy{Allow: networks("169.254.169.254/32", "100.100.100.200/32", "192.0.0.192/32", "168.63.129.16/32", "fd00:ec2::254/128", "fd20:ce::254/128", "fe80::/64", "0.0.0.0/32", "::/128")}
	for _, a := range []string{"169.254.169.254", "100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254", "fe80::1", "0.0.0.0", "::"} {
		if allowed(exact, a) {
			t.Errorf("%s is allowed by an entry of its own", a)
		}
	}
}

// case SSR-12, as far as networks go
func TestEntriesOpenNetworks(t *testing.T) {
	for _, row := range []struct {
		entry string
		open  []string
		shut  []string
	}{
		{"10.1.0.0/16", []string{"10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::a01:203"}, []string{"10.2.0.1", "192.168.0.1", "::10.1.2.3"}},
		{"127.0.0.0/8", []string{"127.0.0.1", "127.1.2.3"}, []string{"::1", "10.0.0.1", "0.0.0.0"}},
		{"127.0.0.1/32", []string{"127.0.0.1"}, []string{"127.0.0.2"}},
		{"::1/128", []string{"::1"}, []string{"127.0.0.1", "::", "::2"}},
		{"126.0.0.0/7", nil, []string{"127.0.0.1"}},
		{"fd00::/8", []string{"fd00::1"}, []string{"fd00:ec2::254", "fc00::1"}},
		{"100.64.0.0/10", []string{"100.64.0.1"}, []string{"100.100.100.200"}},
		{"240.0.0.0/4", []string{"240.0.0.1"}, []string{"255.255.255.255"}},
	} {
		p := Policy{Allow: networks(row.entry)}
		for _, a := range row.open {
			if !allowed(p, a) {
				t.Errorf("%s is denied with the entry %s", a, row.entry)
			}
		}
		for _, a := range row.shut {
			if allowed(p, a) {
				t.Errorf("%s is allowed with the entry %s", a, row.entry)
			}
		}
	}
}

// case SSR-11: one text for all, and no address in it
func TestDeniedErrorsLookTheSame(t *testing.T) {
	texts := map[string]bool{}
	for _, a := range []string{"10.0.0.1", "127.0.0.1", "169.254.169.254", "fd00:ec2::254", "4000::1"} {
		err := viewOf(Policy{}).control(context.Background(), "tcp4", net.JoinHostPort(a, "80"), nil)
		var d *DeniedError
		if !errors.As(err, &d) || d.Range == "" {
			t.Fatalf("%s: %v", a, err)
		}
		texts[err.Error()] = true
	}
	if len(texts) != 1 || !texts["destination not allowed"] {
		t.Errorf("texts: %v", texts)
	}
}

func TestControlDeniesWhatIsNoTCPAddress(t *testing.T) {
	v := viewOf(Policy{})
	for _, row := range [][2]string{{"udp", "1.1.1.1:53"}, {"unix", "/var/run/x.sock"}, {"tcp", "1.1.1.1:0"}, {"tcp", "1.1.1.1"}, {"tcp", ""}, {"tcp", "localhost:80"}, {"tcp", "1.1.1.1:99999"}} {
		if err := v.control(context.Background(), row[0], row[1], nil); err == nil {
			t.Errorf("%v is allowed", row)
		}
	}
	if viewOf(Policy{}).check(netip.Addr{}, 443) == nil {
		t.Error("the zero address is allowed")
	}
}

// Every row must decide something, and say what it is.
func TestEveryRowOfTheTableCounts(t *testing.T) {
	for i, row := range table {
		if row.name == "" || row.prefix != row.prefix.Masked() {
			t.Errorf("row %v has no name or bits behind its prefix", row.prefix)
		}
		for _, before := range table[:i] {
			if before.prefix.Overlaps(row.prefix) && before.prefix.Bits() <= row.prefix.Bits() {
				t.Errorf("row %v is never reached: %v comes first", row.prefix, before.prefix)
			}
		}
		if strings.HasPrefix(row.prefix.String(), "::ffff") {
			t.Errorf("row %v can't match: mapped addresses are judged as IPv4", row.prefix)
		}
	}
}
