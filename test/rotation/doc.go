// Package rotation changes the signing keys of a real worker under load, and watches
// what a receiver refuses: nothing, as long as it learns a new key within the overlap.
package rotation
