package deliver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/doorstep-dev/doorstep/internal/plan"
)

// A Service is dialled at its own address: by no resolver, past egress and proxy.
func TestAServiceIsDialledAtItsAddress(t *testing.T) {
	var hosts []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hosts = append(hosts, r.Host) }))
	defer server.Close()
	address := netip.MustParseAddrPort(server.Listener.Addr().String())
	proxy := &forwarder{refuse: http.StatusForbidden}
	proxyServer := httptest.NewServer(proxy)
	defer proxyServer.Close()

	// Nothing but https to public addresses is allowed, and all of that by the proxy.
	c := New(Options{Egress: plan.Egress{Proxy: &plan.Proxy{URL: proxyServer.URL}}})
	defer c.Close()
	to := func(addresses ...netip.AddrPort) func(*plan.Endpoint) {
		return func(e *plan.Endpoint) { e.Service = &plan.Service{Addresses: addresses} }
	}
	const url = "http://receiver.shop.svc/in"
	if res := c.Do(context.Background(), newRequest(t, url, to(address))); res.Status != 200 {
		t.Fatalf("to the Service: %+v", res)
	}
	// The first of two families may not answer.
	closed := netip.AddrPortFrom(address.Addr(), 1)
	if res := c.Do(context.Background(), newRequest(t, url, to(closed, address))); res.Status != 200 {
		t.Errorf("to its second address: %+v", res)
	}
	if len(hosts) != 2 || hosts[0] != "receiver.shop.svc" {
		t.Errorf("the Host headers were %q", hosts)
	}
	if len(proxy.asked) != 0 {
		t.Errorf("the proxy was asked for %q", proxy.asked)
	}
	// Its connection serves nobody else: the same URL without the Service goes the pool's way.
	if res := c.Do(context.Background(), newRequest(t, url)); res.Status == 200 || len(hosts) != 2 {
		t.Errorf("without a Service: %+v", res)
	}
}

func TestAServiceWithoutAddressIsHeld(t *testing.T) {
	e := plan.Endpoint{URL: "http://receiver.shop.svc/", Service: &plan.Service{}, Signing: plan.Signing{Scheme: plan.SchemeNone}}
	if _, p := NewDestination(&e); p == nil || !strings.Contains(p.Message, "no address") {
		t.Errorf("problem %v", p)
	}
}
