package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"
)

const (
	// maxTried is how many of a name's addresses one dial tries: a name with thousands of
	// them must not make Doorstep knock at each.
	maxTried = 8
	// leastShare is the least time that one of several addresses is given.
	leastShare = 2 * time.Second
	// headStart is how long the addresses of one family are tried alone (RFC 8305 §5).
	headStart = 250 * time.Millisecond
)

// DialContext connects to host:port, where the policy allows it. A name is resolved
// once, as a full name (the search list of a Pod would turn hooks.example into a name
// of the cluster), and every address that it has is judged: if one is denied nothing is
// dialled, since what a tenant may not reach must not hide among what he may. Only the
// judged addresses are dialled.
//
// A destination that is not allowed is a *DeniedError, a name without addresses a
// *net.DNSError.
func (v *View) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	lookup, ok := map[string]string{"tcp": "ip", "tcp4": "ip4", "tcp6": "ip6"}[network]
	if !ok {
		return nil, &DeniedError{Range: "not TCP", Remedy: remedyNone}
	}
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, &DeniedError{Range: "not a host and port", Remedy: remedyNone}
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return nil, &DeniedError{Range: "not a port", Remedy: remedyNone}
	}
	ctx, cancel := context.WithTimeout(ctx, v.options.Timeout)
	defer cancel()
	addrs, err := v.resolve(ctx, lookup, host, uint16(port))
	if err != nil {
		return nil, err
	}
	targets := make([]netip.AddrPort, 0, len(addrs))
	for _, a := range addrs {
		if err := v.check(a, uint16(port)); err != nil {
			return nil, err
		}
		targets = append(targets, netip.AddrPortFrom(a.Unmap(), uint16(port)))
	}
	return v.dialAny(ctx, network, targets[:min(len(targets), maxTried)])
}

// resolve gives the addresses of a host, at least one. They are not judged yet.
func (v *View) resolve(ctx context.Context, lookup, host string, port uint16) ([]netip.Addr, error) {
	name, addr, kind := normalize(host)
	if addr.IsValid() {
		return []netip.Addr{addr}, nil
	}
	if denied := v.rules.checkName(name, kind, port); denied != nil {
		return nil, denied
	}
	if kind == nameLocalhost {
		open, _ := v.rules.localhost(port)
		return open, nil
	}
	addrs, err := v.options.Resolver.LookupNetIP(ctx, lookup, name+".")
	if err != nil {
		return nil, fmt.Errorf("resolve: %w", err)
	}
	if len(addrs) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return addrs, nil
}

// dialAny connects to the first of the addresses that answers. The family that comes
// first is tried first; the other joins when it takes long or has failed (RFC 8305).
func (v *View) dialAny(ctx context.Context, network string, targets []netip.AddrPort) (net.Conn, error) {
	first, second := byFamily(targets)
	if len(second) == 0 {
		return v.dialInTurn(ctx, network, first)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	results, done := make(chan result), make(chan struct{})
	defer close(done)
	race := func(targets []netip.AddrPort) {
		conn, err := v.dialInTurn(ctx, network, targets)
		select {
		case results <- result{conn, err}:
		case <-done:
			if conn != nil {
				_ = conn.Close() // the other one was faster
			}
		}
	}
	go race(first)
	wait := time.NewTimer(headStart)
	defer wait.Stop()
	var failed error
	for running, joined := 1, false; running > 0; {
		select {
		case <-wait.C:
		case r := <-results:
			if r.err == nil {
				return r.conn, nil
			}
			running--
			if failed == nil {
				failed = r.err
			}
		}
		if !joined {
			joined = true
			running++
			go race(second)
		}
	}
	return nil, failed
}

// byFamily parts the addresses of the family of the first one from the others.
func byFamily(targets []netip.AddrPort) (first, second []netip.AddrPort) {
	for _, t := range targets {
		if t.Addr().Is4() == targets[0].Addr().Is4() {
			first = append(first, t)
		} else {
			second = append(second, t)
		}
	}
	return first, second
}

// dialInTurn tries one address after the other, each for its share of the time left.
// The error is that of the first.
func (v *View) dialInTurn(ctx context.Context, network string, targets []netip.AddrPort) (net.Conn, error) {
	var failed error
	for i, target := range targets {
		conn, err := v.dialOne(ctx, network, target, len(targets)-i)
		if err == nil {
			return conn, nil
		}
		if failed == nil {
			failed = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, failed
}

// dialOne connects to one address, which is judged once more: by the address of the
// socket where the system dials.
func (v *View) dialOne(ctx context.Context, network string, target netip.AddrPort, left int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok && left > 1 {
		share := max(time.Until(deadline)/time.Duration(left), leastShare)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, share)
		defer cancel()
	}
	dial := v.options.Dial
	if dial == nil {
		dialer := net.Dialer{KeepAlive: v.options.KeepAlive, ControlContext: v.control}
		dial = dialer.DialContext
	}
	if err := v.check(target.Addr(), target.Port()); err != nil {
		return nil, err
	}
	conn, err := dial(ctx, network, target.String())
	var denied *DeniedError
	if errors.As(err, &denied) {
		return nil, denied // without the address that net puts around it
	}
	return conn, err
}
