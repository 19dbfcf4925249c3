package egress

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

// fake is a resolver and a dialer. Nothing leaves the process.
type fake struct {
	// answers by full name; each look-up takes the next list, and the last one stays.
	answers map[string][][]string
	// dial answers a dial; nil: every one succeeds.
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu     sync.Mutex
	asked  []string // "ip hooks.example.com."
	dialed []string // "tcp 192.0.2.1:443"
}

func (f *fake) LookupNetIP(_ context.Context, network, host string) ([]netip.Addr, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, network+" "+host)
	lists, ok := f.answers[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if len(lists) > 1 {
		f.answers[host] = lists[1:]
	}
	var out []netip.Addr
	for _, a := range lists[0] {
		out = append(out, netip.MustParseAddr(a))
	}
	return out, nil
}

func (f *fake) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	f.mu.Lock()
	f.dialed = append(f.dialed, network+" "+address)
	f.mu.Unlock()
	if f.dial != nil {
		return f.dial(ctx, network, address)
	}
	near, far := net.Pipe()
	_ = far.Close()
	return near, nil
}

// guard makes a guard that resolves and dials by the fake.
func (f *fake) guard(p Policy) *Guard {
	return NewGuard(p, Options{Resolver: f, Dial: f.Dial})
}

// dialFor dials by a policy as a namespace sees it, and closes what it gets.
func (f *fake) dialFor(t testing.TB, p Policy, namespace, address string) error {
	t.Helper()
	conn, err := f.guard(p).For(namespace).DialContext(context.Background(), "tcp", address)
	if (conn == nil) == (err == nil) {
		t.Fatalf("%s: connection %v and error %v", address, conn, err)
	}
	if conn != nil {
		_ = conn.Close()
	}
	return err
}

// answer is a fake whose names have one list of addresses each.
func answer(names map[string]string) *fake {
	f := &fake{answers: map[string][][]string{}}
	for name, list := range names {
		f.answers[name] = [][]string{strings.Fields(list)}
	}
	return f
}

// isDenied says whether an error is the one that every denial is: of one type, with one
// text.
func isDenied(err error) bool {
	d, ok := err.(*DeniedError)
	return ok && d != nil && d.Error() == "destination not allowed"
}
