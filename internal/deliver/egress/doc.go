// Package egress says where requests may go. CheckURL judges how a URL is written. A
// Guard holds the pool's policy, and a View of it, one for each namespace, judges where a
// URL leads: CheckURL before anything is resolved, by host and port, and DialContext at
// each dial, by the addresses that the name has then. That is what keeps a tenant out of
// other networks: a name may resolve to something else every time it is asked for.
//
// It denies by default everything that is not the public internet, by a table of its own:
// the predicates of net and net/netip call many special ranges global. Operators open
// private ranges, loopback and closed ports with entries, and close public ranges;
// link-local addresses, metadata services and the ranges that smuggle one address within
// another are never dialled. If one of a name's addresses is denied, none is dialled, and
// what is dialled is what was judged: there is no second look-up.
//
// Names are resolved as full names, never by the search list of a Pod, and localhost
// without a resolver. The errors name no address: whoever reads one at a failed attempt
// learns only that the destination is not allowed.
package egress
