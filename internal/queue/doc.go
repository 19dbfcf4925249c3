// Package queue is the durable queue: its model, the interface that every store
// keeps, and (in queuetest) the conformance suite that every store must pass.
//
// An event enters once, with all its deliveries, in one durable step: Accept
// returns only after that step is on disk. From then on each delivery is in
// exactly one State until it is delivered or dead-lettered; each change of state
// is one atomic step, guarded by the state it leaves.
//
// A store never drops a delivery and never invents one. It knows nothing of
// networks, lanes or policies: dispatch decides, the queue remembers.
package queue
