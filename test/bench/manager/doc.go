// Manager measures the control plane as a platform team meets it when it applies very
// many endpoints: `go run ./test/bench/manager` starts an API server and etcd (KUBEBUILDER_ASSETS
// names their folder), installs Doorstep, runs the real manager and a real worker as processes,
// applies endpoints at a fixed rate, and prints how long each took until it was in the plan
// and until it was Ready, and what memory and processor time the manager took. docs/bench.md says
// what each figure means. Its last line of output is one JSON object.
//
// Nothing is delivered: no event is posted. All that it starts ends with it.
package main
