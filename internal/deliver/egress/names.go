package egress

import (
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/idna"
)

// nameKind sorts host names by what they can only stand for. It gives better words,
// and spares the resolver names that it must not be asked for; what keeps a tenant out
// is the judgement of the addresses.
type nameKind uint8

const (
	nameOther     nameKind = iota // whatever DNS says
	nameLocal                     // of this cluster or the local network: an entry may open it
	nameShort                     // of this cluster, but no full name
	nameLocalhost                 // this machine (RFC 6761 §6.3)
	nameMetadata                  // a metadata service of a cloud
	nameInvalid                   // no name
)

// metadataNames are those of the clouds' metadata services.
var metadataNames = []string{"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"}

// localSuffixes are domains that public DNS does not have: .local (RFC 6762, and the
// usual cluster.local), .home.arpa (RFC 8375) and the reserved .internal.
var localSuffixes = []string{".local", ".internal", ".home.arpa", ".localdomain"}

// kindOf sorts a name that normalize gave.
func kindOf(name string) nameKind {
	switch {
	case slices.Contains(metadataNames, name):
		return nameMetadata
	case name == "localhost", strings.HasSuffix(name, ".localhost"):
		return nameLocalhost
	case strings.HasSuffix(name, ".svc"), name == "svc", name == "kubernetes.default":
		return nameShort
	case !strings.Contains(name, "."),
		slices.ContainsFunc(localSuffixes, func(s string) bool { return strings.HasSuffix("."+name, s) }):
		return nameLocal
	}
	return nameOther
}

// normalize gives a host as it is judged and resolved: mapped to ASCII (UTS #46), in
// lower case, without one trailing dot. An address is one also if it was written in
// full-width digits.
func normalize(host string) (name string, addr netip.Addr, kind nameKind) {
	if !ascii(host) {
		mapped, err := idna.Lookup.ToASCII(host)
		if err != nil {
			return "", netip.Addr{}, nameInvalid
		}
		host = mapped
	}
	name = strings.TrimSuffix(strings.ToLower(host), ".")
	if addr, err := netip.ParseAddr(name); err == nil {
		return name, addr, nameOther
	}
	if !isName(name) || strings.HasSuffix(name, ".") || endsInNumber(name) {
		return "", netip.Addr{}, nameInvalid
	}
	return name, netip.Addr{}, kindOf(name)
}

// loopbackAddrs are what localhost stands for. No resolver is asked: a machine without
// one has it too, and one that lies must not be heard.
var loopbackAddrs = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}

// checkName is nil if a name may be resolved, as far as the name and the port tell.
func (r *rules) checkName(name string, kind nameKind, port uint16) *DeniedError {
	switch kind {
	case nameInvalid:
		return &DeniedError{Range: "no host name", Remedy: "write a full DNS name, or an address in its usual form"}
	case nameMetadata:
		return &DeniedError{Range: "metadata service", Remedy: remedyNone}
	case nameLocalhost:
		_, err := r.localhost(port)
		return err
	}
	if len(r.allow) == 0 && kind != nameOther {
		return &DeniedError{Range: "name within the cluster or the local network", Remedy: remedyEntry}
	}
	if kind == nameShort {
		return &DeniedError{Range: "name within the cluster that is cut short", Remedy: remedyFullName}
	}
	if !r.usablePort(port) {
		return deniedPort(port)
	}
	return nil
}

// localhost gives those of loopbackAddrs that may be dialled, or says why none may.
func (r *rules) localhost(port uint16) (open []netip.Addr, denied *DeniedError) {
	for _, a := range loopbackAddrs {
		if err := r.check(a, port); err == nil {
			open = append(open, a)
		} else if denied == nil {
			denied = err
		}
	}
	if len(open) > 0 {
		return open, nil
	}
	return nil, denied
}
