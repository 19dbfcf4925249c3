// Package receivers holds the test that the sample receivers of docs/receivers take
// what a real worker delivers, each event once, and nothing else: forged, stale and
// malformed requests. They are run as they are published, by python3, node and go.
// `make interop-deps` installs the first two.
package receivers
