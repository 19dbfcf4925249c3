// Package status writes what a worker sees back into the status of its pool and of the
// pool's endpoints: what is done with deliveries, what the receiver answers, how much
// waits.
//
// It writes only its own entries, by server-side apply as doorstep-worker, and only when
// they differ from what is shown. Transitions and first successes come before all else;
// other changes wait for 30 seconds since the endpoint's last write; five writes a second
// are the most for a pool, whatever happens. Numbers are rounded so that small changes
// cause no writes (DESIGN.md §7).
//
// Status is never the record of anything: while the API server is away nothing is kept for
// it, and afterwards the present state is written.
package status
