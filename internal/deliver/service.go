package deliver

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"

	"github.com/doorstep-dev/doorstep/internal/deliver/egress"
)

// dialer is a way of connecting. Key tells ways apart that lead elsewhere: attempts may
// share connections of one way only.
type dialer interface {
	// CheckURL says why a URL may not be used, as far as it shows without resolving a name.
	CheckURL(u *url.URL) error
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
	Key() string
}

// serviceDialer connects to a Service of the cluster, whatever address it is asked for.
// The egress guard has no say: the control plane has allowed these addresses, which are
// private ones, for this endpoint alone.
type serviceDialer []netip.AddrPort

func (serviceDialer) CheckURL(*url.URL) error { return nil }

// Key can't be one of the guard's views, which are text.
func (d serviceDialer) Key() string { return fmt.Sprintf("\x00service %v", []netip.AddrPort(d)) }

// DialContext takes the first address that answers: a Service has one, or one of each
// family.
func (d serviceDialer) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	nd := net.Dialer{Timeout: connectTimeout, KeepAlive: pingAfter}
	var first error
	for _, a := range d {
		conn, err := nd.DialContext(ctx, network, a.String())
		if err == nil {
			return conn, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

var (
	_ dialer = serviceDialer(nil)
	_ dialer = (*egress.View)(nil)
)
