// Bench measures a worker as its users meet it: `go run ./test/bench` builds the
// doorstep binary, runs generator, worker and sink as three processes on this
// machine, and prints what it found; docs/bench.md says what each figure means. Its
// last line of output is one JSON object.
//
// The same program is re-executed for the helpers (bench gen, bench sink, bench
// relay). Every run is bounded in events and in time; children are ended by their
// process id, and end by themselves when this program does.
package main
