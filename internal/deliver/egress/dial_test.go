package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
)

// cases SSR-01, SSR-02, SSR-03, SS124: written as an address of any form, it is never
// dialled and never resolved.
func TestAddressesInURLsAreNotDialled(t *testing.T) {
	for _, host := range []string{
		"127.0.0.1", "127.1", "0", "0.0.0.0", "2130706433", "0x7f000001", "0177.0.0.1", "127。0。0。1", "①②⑦.⓪.⓪.①", "127.0.0.1.", "0x7f.1", "012.1.2.3", "3232235521",
		"::1", "::", "::ffff:127.0.0.1", "0:0:0:0:0:ffff:127.0.0.1", "::127.0.0.1", "::ffff:0:127.0.0.1", "::5efe:7f00:1", "64:ff9b::7f00:1", "64:ff9b:1::7f00:1",
		"2002:7f00:1::", "2001::1", "fe80::1%eth0", "::1%lo", "fec0::1", "fd00:ec2::254", "::ffff:a9fe:a9fe",
		"169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192", "168.63.129.16", "0.1.2.3", "198.18.0.1", "240.0.0.1", "255.255.255.255",
		"10.0.0.5", "172.16.0.1", "192.168.1.1", "100.64.0.1",
	} {
		f := &fake{}
		err := f.dialFor(t, Policy{AllowHTTP: true}, "shop", net.JoinHostPort(host, "80"))
		if !isDenied(err) || len(f.asked) > 0 || len(f.dialed) > 0 {
			t.Errorf("%s: %v; asked %v, dialled %v", host, err, f.asked, f.dialed)
		}
	}
}

// cases SSR-05, SSR-06, SS125, SS127: if one answer is denied, nothing is dialled.
func TestOneDeniedAnswerDeniesTheName(t *testing.T) {
	for list, ok := range map[string]bool{
		"93.184.216.34":                           true,
		"93.184.216.34 2606:2800::1":              true,
		"64:ff9b::5db8:d822":                      true, // NAT64 of the first
		"127.0.0.1":                               false,
		"93.184.216.34 10.0.0.1":                  false,
		"10.0.0.1 93.184.216.34":                  false,
		"93.184.216.34 ::1":                       false,
		"::1 93.184.216.34":                       false,
		"93.184.216.34 1.1.1.1 169.254.1.1":       false,
		"93.184.216.34 ::ffff:10.0.0.1":           false,
		"93.184.216.34 64:ff9b::a9fe:a9fe":        false,
		"93.184.216.34 2002:7f00:1::":             false,
		"2606:2800::1 fd00::1":                    false,
		"1.1.1.1 1.1.1.2 1.1.1.3 1.1.1.4 0.0.0.0": false,
	} {
		f := answer(map[string]string{"hooks.example.com.": list})
		err := f.dialFor(t, Policy{}, "shop", "hooks.example.com:443")
		switch {
		case ok && (err != nil || len(f.dialed) == 0):
			t.Errorf("%s: %v, dialled %v", list, err, f.dialed)
		case !ok && (!isDenied(err) || len(f.dialed) > 0):
			t.Errorf("%s: %v, dialled %v", list, err, f.dialed)
		}
	}
}

// case SSR-05: beyond the first addresses that would be tried, too.
func TestAnswersThatAreNotTriedAreJudged(t *testing.T) {
	var list []string
	for i := range 3 * maxTried {
		list = append(list, fmt.Sprintf("1.1.1.%d", i))
	}
	f := answer(map[string]string{"hooks.example.com.": strings.Join(append(list, "10.0.0.1"), " ")})
	if err := f.dialFor(t, Policy{}, "shop", "hooks.example.com:443"); !isDenied(err) || len(f.dialed) > 0 {
		t.Errorf("%v, dialled %v", err, f.dialed)
	}
}

// case SSR-07: a name that answers otherwise the next time. There is no next time
// within a dial, and every dial judges anew.
func TestWhatIsDialledIsWhatWasJudged(t *testing.T) {
	f := &fake{answers: map[string][][]string{"hooks.example.com.": {{"203.0.114.5"}, {"169.254.169.254"}}}}
	if err := f.dialFor(t, Policy{}, "shop", "hooks.example.com:443"); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(f.asked, []string{"ip hooks.example.com."}) || !slices.Equal(f.dialed, []string{"tcp 203.0.114.5:443"}) {
		t.Errorf("asked %v, dialled %v", f.asked, f.dialed)
	}
	if err := f.dialFor(t, Policy{}, "shop", "hooks.example.com:443"); !isDenied(err) || len(f.dialed) != 1 {
		t.Errorf("the second time: %v, dialled %v", err, f.dialed)
	}
}

// The search list of a Pod must never be used: hooks.example would be looked for in the
// namespace first.
func TestNamesAreResolvedAsFullNames(t *testing.T) {
	for host, want := range map[string]string{
		"hooks.example":      "ip hooks.example.",
		"hooks.example.":     "ip hooks.example.",
		"HOOKS.Example.COM.": "ip hooks.example.com.",
		"bücher.example":     "ip xn--bcher-kva.example.",
		"a_b.example.com":    "ip a_b.example.com.",
	} {
		f := &fake{}
		var dns *net.DNSError
		if err := f.dialFor(t, Policy{}, "shop", net.JoinHostPort(host, "443")); !errors.As(err, &dns) || !dns.IsNotFound {
			t.Errorf("%s: %v, want not found", host, err)
		}
		if !slices.Equal(f.asked, []string{want}) {
			t.Errorf("%s: asked %v, want %s", host, f.asked, want)
		}
	}
}

func TestANameWithoutAddressesIsNotFound(t *testing.T) {
	f := answer(map[string]string{"hooks.example.com.": ""})
	var dns *net.DNSError
	if err := f.dialFor(t, Policy{}, "shop", "hooks.example.com:443"); !errors.As(err, &dns) || !dns.IsNotFound {
		t.Errorf("%v, want not found", err)
	}
}

func TestTheNetworkSaysWhichAddressesAreAsked(t *testing.T) {
	for network, want := range map[string]string{"tcp": "ip h.example.", "tcp4": "ip4 h.example.", "tcp6": "ip6 h.example."} {
		f := &fake{}
		_, _ = f.guard(Policy{}).For("shop").DialContext(context.Background(), network, "h.example:443")
		if !slices.Equal(f.asked, []string{want}) {
			t.Errorf("%s: asked %v, want %s", network, f.asked, want)
		}
	}
	for _, row := range [][2]string{{"udp", "1.1.1.1:443"}, {"unix", "/run/x"}, {"tcp", "1.1.1.1"}, {"tcp", "1.1.1.1:0"}, {"tcp", "1.1.1.1:65536"}, {"tcp", "1.1.1.1:http"}, {"tcp", ":443"}, {"tcp", "a..b:443"}, {"tcp", "h.example..:443"}, {"tcp", "[h.example]x:443"}} {
		f := &fake{}
		_, err := f.guard(Policy{}).For("shop").DialContext(context.Background(), row[0], row[1])
		if !isDenied(err) || len(f.asked)+len(f.dialed) > 0 {
			t.Errorf("%v: %v; asked %v, dialled %v", row, err, f.asked, f.dialed)
		}
	}
}

// case SSR-04: no resolver is asked for names of the cluster.
func TestClusterNamesAreNotResolved(t *testing.T) {
	for _, host := range []string{"kubernetes.default.svc", "KUBERNETES.default.SVC.", "kubernetes", "x.cluster.local", "metadata.google.internal.", "localhost.", "metadata", "printer.local"} {
		f := &fake{}
		if err := f.dialFor(t, Policy{AllowHTTP: true}, "shop", net.JoinHostPort(host, "443")); !isDenied(err) || len(f.asked) > 0 {
			t.Errorf("%s: %v, asked %v", host, err, f.asked)
		}
	}
}

// case SS123: a Service of the cluster, allowed on purpose.
func TestAServiceCanBeAllowed(t *testing.T) {
	f := answer(map[string]string{"orders.shop.svc.cluster.local.": "10.96.7.8", "kubernetes.default.svc.cluster.local.": "10.96.0.1", "orders.": "10.96.7.8"})
	p := Policy{AllowHTTP: true, Allow: networks("10.96.7.0/24")}
	if err := f.dialFor(t, p, "shop", "orders.shop.svc.cluster.local:8080"); err != nil || !slices.Equal(f.dialed, []string{"tcp 10.96.7.8:8080"}) {
		t.Errorf("%v, dialled %v", err, f.dialed)
	}
	f.dialed = nil
	if err := f.dialFor(t, p, "shop", "kubernetes.default.svc.cluster.local:443"); !isDenied(err) || len(f.dialed) > 0 {
		t.Errorf("the API server: %v, dialled %v", err, f.dialed)
	}
	f.asked = nil
	if err := f.dialFor(t, p, "shop", "orders.shop.svc:8080"); !isDenied(err) || len(f.asked) > 0 {
		t.Errorf("a name cut short: %v, asked %v", err, f.asked)
	}
}

// case SSR-12
func TestAnEntryHoldsForItsNetworkPortAndNamespace(t *testing.T) {
	p := Policy{AllowHTTP: true, Allow: []plan.Network{{Prefix: networks("10.1.0.0/16")[0].Prefix, Ports: []uint16{8080}, Namespaces: []string{"shop"}}}}
	for _, row := range []struct {
		namespace, address string
		ok                 bool
	}{
		{"shop", "10.1.2.3:8080", true},
		{"shop", "erp.example.com:8080", true},
		{"warehouse", "10.1.2.3:8080", false},
		{"warehouse", "erp.example.com:8080", false},
		{"", "10.1.2.3:8080", false},
		{"shop", "10.1.2.3:8081", false},
		{"shop", "10.2.0.1:8080", false},
	} {
		f := answer(map[string]string{"erp.example.com.": "10.1.2.3"})
		err := f.dialFor(t, p, row.namespace, row.address)
		if row.ok != (err == nil) || (!row.ok && (!isDenied(err) || len(f.dialed) > 0)) {
			t.Errorf("%s from %s: %v, dialled %v", row.address, row.namespace, err, f.dialed)
		}
	}
}

// localhost is this machine, whatever a resolver would say of it.
func TestLocalhostNeedsNoResolver(t *testing.T) {
	for _, row := range []struct {
		name    string
		allow   []plan.Network
		address string
		want    []string // nil: denied
	}{
		{"closed", nil, "localhost:8080", nil},
		{"closed to an entry for everything", networks("0.0.0.0/0", "::/0"), "localhost:8080", nil},
		{"open", networks("127.0.0.0/8", "::1/128"), "localhost:8080", []string{"tcp 127.0.0.1:8080"}},
		{"a name below it", networks("127.0.0.0/8", "::1/128"), "prod.LocalHost.:8080", []string{"tcp 127.0.0.1:8080"}},
		{"IPv4 alone", networks("127.0.0.1/32"), "localhost:8080", []string{"tcp 127.0.0.1:8080"}},
		{"IPv6 alone", networks("::1/128"), "localhost:8080", []string{"tcp [::1]:8080"}},
		{"a closed port", networks("127.0.0.0/8"), "localhost:6379", nil},
	} {
		f := answer(map[string]string{"localhost.": "93.184.216.34", "prod.localhost.": "93.184.216.34"})
		err := f.dialFor(t, Policy{Allow: row.allow}, "shop", row.address)
		if len(f.asked) > 0 || !slices.Equal(f.dialed, row.want) || (row.want == nil) != isDenied(err) {
			t.Errorf("%s: %v; asked %v, dialled %v, want %v", row.name, err, f.asked, f.dialed, row.want)
		}
	}
}

func TestLocalhostFallsBackToIPv6(t *testing.T) {
	f := &fake{}
	f.dial = func(_ context.Context, _, address string) (net.Conn, error) {
		if address == "127.0.0.1:8080" {
			return nil, refused("tcp")
		}
		near, _ := net.Pipe()
		return near, nil
	}
	if err := f.dialFor(t, Policy{Allow: networks("127.0.0.0/8", "::1/128")}, "shop", "localhost:8080"); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(f.dialed, []string{"tcp 127.0.0.1:8080", "tcp [::1]:8080"}) {
		t.Errorf("dialled %v", f.dialed)
	}
}

func refused(network string) error {
	return &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
}

// A denial by the system's dialer comes out without the address that net puts around it.
func TestALateDenialLooksLikeAnEarlyOne(t *testing.T) {
	f := answer(map[string]string{"hooks.example.com.": "1.1.1.1"})
	f.dial = func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 443}, Err: &DeniedError{Range: "private"}}
	}
	if err := f.dialFor(t, Policy{}, "shop", "hooks.example.com:443"); !isDenied(err) {
		t.Errorf("%v", err)
	}
}

func TestAddressesAreTriedInTurn(t *testing.T) {
	f := answer(map[string]string{"hooks.example.com.": "1.1.1.1 1.1.1.2 1.1.1.3"})
	f.dial = func(_ context.Context, network, address string) (net.Conn, error) {
		if address == "1.1.1.3:443" {
			near, _ := net.Pipe()
			return near, nil
		}
		return nil, refused(network)
	}
	if err := f.dialFor(t, Policy{}, "shop", "hooks.example.com:443"); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(f.dialed, []string{"tcp 1.1.1.1:443", "tcp 1.1.1.2:443", "tcp 1.1.1.3:443"}) {
		t.Errorf("dialled %v", f.dialed)
	}
}

func TestFewOfManyAddressesAreTried(t *testing.T) {
	var list []string
	for i := range 200 {
		list = append(list, fmt.Sprintf("1.1.1.%d", i), fmt.Sprintf("2606:2800::%x", i+1))
	}
	f := answer(map[string]string{"hooks.example.com.": strings.Join(list, " ")})
	f.dial = func(_ context.Context, network, _ string) (net.Conn, error) { return nil, refused(network) }
	err := f.dialFor(t, Policy{}, "shop", "hooks.example.com:443")
	if !errors.Is(err, syscall.ECONNREFUSED) || len(f.dialed) != maxTried {
		t.Errorf("%v, dialled %d, want %d", err, len(f.dialed), maxTried)
	}
}

// hang is a dial that nobody answers.
func hang(ctx context.Context, network string) (net.Conn, error) {
	<-ctx.Done()
	return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
}

// One address that nobody answers leaves the next its share of the time.
func TestADeadAddressDoesNotUseUpTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := answer(map[string]string{"hooks.example.com.": "1.1.1.1 1.1.1.2"})
		f.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == "1.1.1.1:443" {
				return hang(ctx, network)
			}
			near, _ := net.Pipe()
			return near, nil
		}
		begun := time.Now()
		if err := f.dialFor(t, Policy{}, "shop", "hooks.example.com:443"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took != 5*time.Second {
			t.Errorf("took %s, want half of ten seconds", took)
		}
	})
}

// IPv6 that leads nowhere costs a quarter of a second, not the attempt.
func TestTheOtherFamilyJoinsSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended sync.WaitGroup
		f := answer(map[string]string{"hooks.example.com.": "2606:2800::1 2606:2800::2 1.1.1.1"})
		f.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			ended.Add(1)
			defer ended.Done()
			if strings.HasPrefix(address, "[") {
				return hang(ctx, network)
			}
			near, _ := net.Pipe()
			return near, nil
		}
		begun := time.Now()
		if err := f.dialFor(t, Policy{}, "shop", "hooks.example.com:443"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took != headStart {
			t.Errorf("took %s, want %s", took, headStart)
		}
		ended.Wait() // the dial that lost was called off
	})
}

// When both families fail, the error is that of the first, and the time limit holds.
func TestADialEndsInItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := answer(map[string]string{"hooks.example.com.": "2606:2800::1 1.1.1.1 1.1.1.2"})
		f.dial = func(ctx context.Context, network, _ string) (net.Conn, error) { return hang(ctx, network) }
		begun := time.Now()
		err := f.dialFor(t, Policy{}, "shop", "hooks.example.com:443")
		var op *net.OpError
		if !errors.As(err, &op) || !op.Timeout() || time.Since(begun) != 10*time.Second {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
	})
}

// lostConn notes that it was closed.
type lostConn struct {
	net.Conn
	closed chan struct{}
}

func (c *lostConn) Close() error { close(c.closed); return nil }

// A connection that comes too late is closed.
func TestTheConnectionThatLosesIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := &lostConn{closed: make(chan struct{})}
		f := answer(map[string]string{"hooks.example.com.": "2606:2800::1 1.1.1.1"})
		f.dial = func(ctx context.Context, _, address string) (net.Conn, error) {
			if strings.HasPrefix(address, "[") {
				<-ctx.Done()
				return late, nil // it came about all the same
			}
			near, _ := net.Pipe()
			return near, nil
		}
		if err := f.dialFor(t, Policy{}, "shop", "hooks.example.com:443"); err != nil {
			t.Fatal(err)
		}
		<-late.closed
	})
}

// The one test that dials: the system's own dialer, on loopback, by its guard.
func TestTheSystemsDialer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	open := NewGuard(Policy{Allow: networks("127.0.0.0/8")}, Options{})
	for _, host := range []string{"127.0.0.1", "localhost"} {
		conn, err := open.For("shop").DialContext(context.Background(), "tcp", net.JoinHostPort(host, port))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
	// What reaches the socket is judged there too.
	dialer := net.Dialer{ControlContext: NewGuard(Policy{}, Options{}).For("shop").control}
	var d *DeniedError
	if _, err := dialer.Dial("tcp", l.Addr().String()); !errors.As(err, &d) {
		t.Errorf("the socket was not judged: %v", err)
	}
}
