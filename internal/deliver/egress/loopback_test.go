package egress

import (
	"net/netip"
	"testing"
)

// A name such as prod.localhost may resolve to anywhere: what is dialled is judged.
func TestLoopbackOnlyDeniesEverythingElse(t *testing.T) {
	p := Policy{
		LoopbackOnly: true,
		Allow:        networks("127.0.0.0/8", "::1/128", "10.0.0.0/8"),
	}
	for addr, ok := range map[string]bool{
		"127.0.0.1": true, "::1": true, "::ffff:127.0.0.1": true,
		"93.184.216.34": false, "10.1.2.3": false, "2606:4700::1": false, "0.0.0.0": false, "169.254.169.254": false,
	} {
		if err := viewOf(p).check(netip.MustParseAddr(addr), 8080); (err == nil) != ok {
			t.Errorf("%s: %v, want allowed: %t", addr, err, ok)
		}
	}
}
