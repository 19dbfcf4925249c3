// Package standalone runs Doorstep with no cluster: it reads manifests from a
// folder, compiles them to a plan as the manager would, and runs the same queue,
// lanes and deliveries as a worker does, with the API on a loopback address.
//
// It wires and orders; it decides nothing itself. Everything starts in Run and ends
// before Run returns: ingest first, then the attempts under way, then the store.
package standalone
