// Package engine puts the parts of the data plane together: the store, the lanes, the
// client that delivers, the API. What runs beside them, and where plans come from, is its
// caller's: standalone reads manifests, worker reads what the manager writes.
//
// It promises that events are taken only once the store is open, that nothing is attempted
// before a plan is in force, and that a stop takes no more events, gives attempts in
// flight the grace, and leaves everything that was accepted in the store.
package engine
