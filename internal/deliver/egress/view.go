package egress

import (
	"context"
	"net/netip"
	"net/url"
	"strings"
	"syscall"

	"github.com/doorstep-dev/doorstep/internal/plan"
)

// View is a policy as it holds for one namespace. It never changes, and is safe for
// concurrent use.
type View struct {
	// rules are one for each policy that is in force; what any of them allows is allowed.
	// The first says why something is denied.
	rules   []rules
	key     string
	proxy   *plan.Proxy
	options Options
}

// Key is equal for views that allow the same destinations through the same proxy:
// connections may be shared between them, and must not be between others.
func (v *View) Key() string { return v.key }

// Proxy is what all requests go through, nil for none. With one, only CheckURL is of
// use: names are resolved and addresses judged by the proxy, which is dialled without
// asking the guard.
func (v *View) Proxy() *plan.Proxy { return v.proxy }

// CheckURL is nil if a URL that the package's CheckURL gave may be requested, as far as
// its scheme, port and host show without resolving anything. An error is a *DeniedError,
// or says in plain words what is wrong with the scheme.
func (v *View) CheckURL(u *url.URL) error {
	if err := v.checkScheme(u); err != nil {
		return err
	}
	return v.checkHost(u.Hostname(), portOf(u))
}

func (v *View) checkScheme(u *url.URL) error {
	switch u.Scheme {
	case "https":
		return nil
	case "http":
		for i := range v.rules {
			if v.rules[i].http {
				return nil
			}
		}
		return errHTTP
	}
	return errScheme
}

// checkHost is nil if a host may be resolved, or dialled where it is an address.
func (v *View) checkHost(host string, port uint16) error {
	name, addr, kind := normalize(host)
	if addr.IsValid() {
		return v.check(addr, port)
	}
	return v.judge(func(r *rules) *DeniedError { return r.checkName(name, kind, port) })
}

// check is nil if an address and port may be dialled.
func (v *View) check(addr netip.Addr, port uint16) error {
	return v.judge(func(r *rules) *DeniedError { return r.check(addr, port) })
}

// judge is nil if one of the policies has no objection, else the objection of the first.
func (v *View) judge(check func(*rules) *DeniedError) error {
	var first *DeniedError
	for i := range v.rules {
		denied := check(&v.rules[i])
		if denied == nil {
			return nil
		}
		if first == nil {
			first = denied
		}
	}
	return first
}

// control is for net.Dialer.ControlContext, which calls it with the address of every
// socket just before it connects: whatever went before, what is checked here is what is
// dialled.
func (v *View) control(_ context.Context, network, address string, _ syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return &DeniedError{Range: "not TCP", Remedy: remedyNone}
	}
	ap, err := netip.ParseAddrPort(address)
	if err != nil || ap.Port() == 0 {
		return &DeniedError{Range: "not an address and port", Remedy: remedyNone}
	}
	return v.check(ap.Addr(), ap.Port())
}
