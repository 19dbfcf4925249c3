package controllers

import (
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// staleAfter is how long a Lease may go without a renewal before its worker counts as away.
	staleAfter = 60 * time.Second
	// lostAfter is when the endpoints of a pool without a worker say so. A restart, of the
	// worker or of its node, is shorter and changes no endpoint's status.
	lostAfter = 5 * time.Minute
)

// PoolState is what is known of a pool's workers.
type PoolState struct {
	// Live are the pods that are heard of, sorted.
	Live []string
	// Settling: there was a worker before the manager began to look, and whether it still is
	// there is not known yet.
	Settling bool
	// Unavailable: no worker was heard of for a minute. Overdue: for five, be it one that was
	// there or the first. Lost: one that was there.
	Unavailable, Overdue, Lost bool
	// Recheck is how long this holds by itself; 0 while it only changes with a Lease.
	Recheck time.Duration
}

// Availability tells from the Leases of workers which of them are there. A Lease counts by
// when its renewal was seen, not by comparing clocks. So for a minute after the manager has
// begun to look at a pool, nothing is said of a worker that was there before: it is
// Settling.
type Availability struct {
	// Now is a clock that stands still while the API server can't be reached.
	Now func() time.Time

	mu sync.Mutex
	// since is when each pool was first asked about or seen.
	since map[types.NamespacedName]time.Time
	pools map[types.NamespacedName]map[string]*lease
}

// lease is one worker's.
type lease struct {
	renewed time.Time // as it says
	first   time.Time // when it was first seen
	changed time.Time // when a renewal was last seen; zero: never
}

// Observe takes note of a Lease of a pool.
func (a *Availability) Observe(pool types.NamespacedName, l *coordinationv1.Lease) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pools == nil {
		a.pools = map[types.NamespacedName]map[string]*lease{}
	}
	if a.pools[pool] == nil {
		a.pools[pool] = map[string]*lease{}
	}
	var renewed time.Time
	if t := l.Spec.RenewTime; t != nil {
		renewed = t.Time
	}
	now := a.Now()
	a.begin(pool, now)
	was := a.pools[pool][l.Name]
	if was == nil {
		a.pools[pool][l.Name] = &lease{renewed: renewed, first: now}
		return
	}
	if !renewed.IsZero() && !renewed.Equal(was.renewed) { // a Lease that was made anew is no renewal
		was.renewed, was.changed = renewed, now
	}
}

// Forget drops a pool that does not exist.
func (a *Availability) Forget(pool types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pools, pool)
	delete(a.since, pool)
}

// begin notes that a pool is looked at from now on.
func (a *Availability) begin(pool types.NamespacedName, now time.Time) time.Time {
	if a.since == nil {
		a.since = map[types.NamespacedName]time.Time{}
	}
	if _, known := a.since[pool]; !known {
		a.since[pool] = now
	}
	return a.since[pool]
}

// State tells of a pool's workers now.
func (a *Availability) State(pool types.NamespacedName) PoolState {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.Now()
	began := a.begin(pool, now)
	// heard is when a worker was last heard of; before the first time it is when looking began.
	heard, ever := began, false
	var s PoolState
	for pod, l := range a.pools[pool] {
		switch {
		case !l.changed.IsZero():
			ever = true
			if l.changed.After(heard) {
				heard = l.changed
			}
			if now.Sub(l.changed) < staleAfter {
				s.Live = append(s.Live, pod)
			}
		case !l.renewed.IsZero() && now.Sub(l.first) < staleAfter:
			// It was there before; whether it still is shows with its next renewal.
			s.Settling = true
		}
	}
	slices.Sort(s.Live)
	silent := now.Sub(heard)
	s.Settling = s.Settling && len(s.Live) == 0
	s.Unavailable = len(s.Live) == 0 && silent >= staleAfter
	// A pool that never had a worker is not lost: it is not ready yet.
	s.Overdue = len(s.Live) == 0 && silent >= lostAfter
	s.Lost = silent >= lostAfter && (ever || a.hadWorker(pool))
	for _, at := range []time.Duration{staleAfter, lostAfter} {
		if left := at - silent; left > 0 && (s.Recheck == 0 || left < s.Recheck) {
			s.Recheck = left
		}
	}
	return s
}

// hadWorker reports whether a Lease of the pool was ever renewed.
func (a *Availability) hadWorker(pool types.NamespacedName) bool {
	for _, l := range a.pools[pool] {
		if !l.renewed.IsZero() {
			return true
		}
	}
	return false
}
