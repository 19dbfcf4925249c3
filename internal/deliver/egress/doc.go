// Package egress says where deliveries may go. CheckURL judges how a URL is
// written, when it is admitted; Guard judges the address that is dialled, each
// time one is, which is what keeps a tenant out of other networks: a name may
// resolve to something else every time it is asked for.
//
// It denies by default everything that is not the public internet, by a table of
// its own: the predicates of net and net/netip call many special ranges global.
// Operators open private ranges and loopback with Allow entries; link-local
// addresses, metadata services and the ranges that smuggle one address within
// another are never dialled.
//
// It never resolves or dials anything itself, and its errors never name an
// address: whoever reads them learns only that the destination is not allowed.
package egress
