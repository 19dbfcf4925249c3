package egress

import (
	"context"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
)

// View is a policy as it holds for one namespace. It never changes, and is safe for
// concurrent use.
type View struct {
	rules   rules
	key     string
	options Options
}

// Key is equal for views that allow the same destinations: connections may be shared
// between them, and must not be between others.
func (v *View) Key() string { return v.key }

// CheckURL is nil if a URL that the package's CheckURL gave may be requested, as far as
// its scheme, port and host show without resolving anything. An error is a *DeniedError,
// or says in plain words what is wrong with the scheme. Where a proxy makes the
// connections this is all that is judged here.
func (v *View) CheckURL(u *url.URL) error {
	switch {
	case u.Scheme == "https", u.Scheme == "http" && v.rules.http:
		return v.checkHost(u.Hostname(), portOf(u))
	case u.Scheme == "http":
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
	return asError(v.rules.checkName(name, kind, port))
}

// check is nil if an address and port may be dialled.
func (v *View) check(addr netip.Addr, port uint16) error { return asError(v.rules.check(addr, port)) }

// asError keeps a nil a nil.
func asError(denied *DeniedError) error {
	if denied == nil {
		return nil
	}
	return denied
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
