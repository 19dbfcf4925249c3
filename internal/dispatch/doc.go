// Package dispatch decides what is attempted when. It has a lane for each
// endpoint, with its own concurrency, its own back-off and its own state
// (state.go), and shares the pool's open attempts fairly among them: a hanging or
// flooded endpoint never delays another.
//
// A lane holds a small window of what waits; the rest stays in the queue, so that
// memory follows configuration, not backlog (window.go).
//
// How a delivery travels:
//
//  1. Accepted (from the queue, after the event is durable) or load (from the
//     store) puts it into its lane's window, and wake puts the lane into the ready
//     ring (dispatcher.go).
//  2. A worker takes the next job: lanes in turn, and of each what pick chooses.
//  3. attempt (attempt.go) makes the request, lets the lane's state machine and the
//     retry policy judge the answer, and hands the outcome to the queue.
//  4. recorded (from the queue, after the outcome is written) forgets the delivery,
//     or notes its due time. Until then it is flying: no load gives it out again.
//
// Dispatch promises that a delivery has at most one attempt in flight, that no
// attempt is made for a lane that is held, and that on Stop each attempt either has
// been recorded or may be made again. It never drops a delivery.
//
// Locks: one mutex guards all lanes; it is held for memory operations only, never
// while a change of the queue, the network or a callback is waited for.
package dispatch
