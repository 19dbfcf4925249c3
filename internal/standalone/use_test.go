package standalone

import (
	"net/netip"
	"testing"

	"github.com/doorstep-dev/doorstep/internal/deliver/egress"
)

// While one plan takes the place of another, what either allows may be dialled, and
// nothing else.
func TestTheUnionOfTwoPolicies(t *testing.T) {
	a := egress.Policy{Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	b := egress.Policy{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, AllowHTTP: true}
	u := union(a, b)
	if !u.AllowHTTP || !union(b, a).AllowHTTP || union(a, a).AllowHTTP {
		t.Error("http is allowed where neither allows it, or is not where one does")
	}
	for addr, want := range map[string]bool{"10.1.2.3": true, "127.0.0.1": true, "192.168.0.1": false, "127.0.0.2": false, "169.254.169.254": false} {
		if got := u.CheckAddr(netip.MustParseAddr(addr)) == nil; got != want {
			t.Errorf("%s is allowed: %t, want %t", addr, got, want)
		}
	}
	if !union(a, a).Equal(a) {
		t.Error("the union of a policy with itself is another one, which would close its connections")
	}
}
