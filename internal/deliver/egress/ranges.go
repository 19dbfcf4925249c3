package egress

import "net/netip"

// openBy says what opens a denied range.
type openBy uint8

const (
	byEntry    openBy = iota // an Allow entry that covers the address
	byOwnEntry               // an Allow entry that lies within the range
	byNothing
)

// denied is one row of the table: a range that is not the public internet.
type denied struct {
	prefix netip.Prefix
	name   string
	open   openBy
}

// table holds the special ranges of the IANA registries for IPv4 and IPv6 and
// the metadata addresses that lie outside them. The first row that matches
// decides, so what is never dialled comes first. IPv4-mapped addresses and
// 64:ff9b::/96 are judged by the IPv4 address within and have no row.
var table = []denied{
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local, metadata services", byNothing},
	{netip.MustParsePrefix("100.100.100.200/32"), "Alibaba Cloud metadata service", byNothing},
	{netip.MustParsePrefix("192.0.0.192/32"), "Oracle Cloud metadata service", byNothing},
	{netip.MustParsePrefix("168.63.129.16/32"), "Azure WireServer", byNothing},
	{netip.MustParsePrefix("fd00:ec2::/32"), "AWS metadata service and EKS Pod Identity", byNothing},
	{netip.MustParsePrefix("fd20:ce::254/128"), "Google Cloud metadata service", byNothing},
	{netip.MustParsePrefix("fd00:c1::a9fe:a9fe/128"), "Oracle Cloud metadata service", byNothing},
	{netip.MustParsePrefix("fd00:42::42/128"), "Scaleway metadata service", byNothing},
	{netip.MustParsePrefix("fd00:a9fe:a9fe::1/128"), "Akamai metadata service", byNothing},
	{netip.MustParsePrefix("fd00:100::100:200/128"), "Alibaba Cloud metadata service", byNothing},
	{netip.MustParsePrefix("fe80::/10"), "link-local", byNothing},
	{netip.MustParsePrefix("0.0.0.0/8"), "this network", byNothing},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast", byNothing},
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast", byNothing},
	{netip.MustParsePrefix("ff00::/8"), "multicast", byNothing},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "local NAT64", byNothing},
	{netip.MustParsePrefix("100::/64"), "discard", byNothing},
	{netip.MustParsePrefix("100:0:0:1::/64"), "dummy prefix", byNothing},
	{netip.MustParsePrefix("2001::/32"), "Teredo", byNothing},
	{netip.MustParsePrefix("2002::/16"), "6to4", byNothing},
	{netip.MustParsePrefix("192.88.99.0/24"), "6to4 relay anycast", byNothing},

	{netip.MustParsePrefix("127.0.0.0/8"), "loopback", byOwnEntry},
	{netip.MustParsePrefix("::1/128"), "loopback", byOwnEntry},

	// IPv4-compatible (::/96), translated (::ffff:0:0:0/96), ISATAP (::5efe:a.b.c.d)
	// and the unspecified address.
	{netip.MustParsePrefix("::/8"), "reserved, embedded IPv4", byNothing},

	{netip.MustParsePrefix("10.0.0.0/8"), "private", byEntry},
	{netip.MustParsePrefix("172.16.0.0/12"), "private", byEntry},
	{netip.MustParsePrefix("192.168.0.0/16"), "private", byEntry},
	{netip.MustParsePrefix("100.64.0.0/10"), "carrier-grade NAT", byEntry},
	{netip.MustParsePrefix("192.0.0.0/24"), "protocol assignments", byEntry},
	{netip.MustParsePrefix("192.0.2.0/24"), "documentation", byEntry},
	{netip.MustParsePrefix("198.51.100.0/24"), "documentation", byEntry},
	{netip.MustParsePrefix("203.0.113.0/24"), "documentation", byEntry},
	{netip.MustParsePrefix("198.18.0.0/15"), "benchmarking", byEntry},
	{netip.MustParsePrefix("192.31.196.0/24"), "AS112", byEntry},
	{netip.MustParsePrefix("192.52.193.0/24"), "AMT", byEntry},
	{netip.MustParsePrefix("192.175.48.0/24"), "AS112", byEntry},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved", byEntry},
	{netip.MustParsePrefix("fc00::/7"), "unique local", byEntry},
	{netip.MustParsePrefix("fec0::/10"), "site-local", byEntry},
	{netip.MustParsePrefix("2001:2::/48"), "benchmarking", byEntry},
	{netip.MustParsePrefix("2001:10::/28"), "ORCHID", byEntry},
	{netip.MustParsePrefix("2001:20::/28"), "ORCHIDv2", byEntry},
	{netip.MustParsePrefix("2001::/23"), "protocol assignments", byEntry},
	{netip.MustParsePrefix("2001:db8::/32"), "documentation", byEntry},
	{netip.MustParsePrefix("3fff::/20"), "documentation", byEntry},
	{netip.MustParsePrefix("5f00::/16"), "SRv6 segment identifiers", byEntry},
}

var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	globalIPv6 = netip.MustParsePrefix("2000::/3")
	unassigned = denied{name: "not assigned", open: byEntry}
)

// judged is the address whose range counts: without a zone, and the IPv4 address
// where one is embedded by mapping or by the well-known NAT64 prefix (RFC 6052 §2.2).
func judged(a netip.Addr) netip.Addr {
	a = a.WithZone("").Unmap()
	if nat64.Contains(a) {
		b := a.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return a
}

// find gives the row that denies an address, nil for the public internet. IPv6
// outside the block that is handed out is denied, whatever comes to be there.
func find(a netip.Addr) *denied {
	for i := range table {
		if table[i].prefix.Contains(a) {
			return &table[i]
		}
	}
	if a.Is6() && !globalIPv6.Contains(a) {
		return &unassigned
	}
	return nil
}
