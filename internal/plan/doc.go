// Package plan holds the one thing that passes from the control plane to the
// data plane: which endpoints exist, where they are, how they are signed for,
// and how often Doorstep knocks.
//
// A Plan is a value: it is compiled (package compile), stored, read and
// swapped whole. It promises to be complete in itself: a worker that holds a
// plan needs neither the API server nor the manifests it came from.
//
// It never holds a reference to a Kubernetes type, and it holds signing keys:
// a plan must never be logged or printed.
package plan
