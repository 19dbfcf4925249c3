// Package worker is the data plane in a cluster: the engine, driven by the plan that the
// manager writes.
//
// It starts from the plan in the pod's volume, with neither manager nor API server, and
// then follows the plan in the API server; each version in use is acknowledged. Its Lease
// tells the manager that it is there, and decides nothing: what makes it the only one to
// deliver from a volume is the volume, which one pod mounts and one process opens.
//
// Nothing stops while the API server is away: events are taken and delivered by the plan
// at hand, callers are let in by what was last decided about them, and what is to be
// reported waits in its latest state.
package worker
