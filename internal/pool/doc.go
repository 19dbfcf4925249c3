// Package pool turns a DeliveryPool into the Kubernetes objects of its workers. It
// consists of pure functions: the same pool and Settings give the same objects, and
// nothing is read or written here.
//
// The objects are apply configurations that name only what Doorstep decides, so that
// server-side apply leaves everything else to its owners: what workers write into the
// acknowledgements and the Lease, and what a cluster's own tools add.
//
// Names are those of api/v1alpha1/names.go. Everything but the volume's claim is owned by
// the DeliveryPool and goes with it; the claim stays, and with it the queue.
package pool
