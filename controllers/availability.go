package controllers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/planstore"
)

const (
	// staleAfter is how long a Lease may go without a renewal before its worker counts as away.
	staleAfter = 60 * time.Second
	// lostAfter is when the endpoints of a pool without a worker say so. A restart, of the
	// worker or of its node, is shorter and changes no endpoint's status.
	lostAfter = 5 * time.Minute
	// settleTime is longer than the time between two renewals: what a Lease that is seen for
	// the first time says of now is known after it.
	settleTime = 15 * time.Second
)

// PoolState is what is known of a pool's workers.
type PoolState struct {
	// Live are the pods that are heard of, sorted.
	Live []string
	// Settling: the manager has not looked for long enough to say that none is there.
	Settling bool
	// Unavailable: no worker was heard of for a minute. Lost: for five.
	Unavailable, Lost bool
	// Recheck is how long this holds by itself; 0 while it only changes with a Lease.
	Recheck time.Duration
}

// Availability tells from the Leases of workers which of them are there. A Lease counts by
// when its renewal was seen, not by comparing clocks; only of one that has not been renewed
// since the manager began to look does its own time say how long it has been silent.
type Availability struct {
	// Now is the wall clock.
	Now func() time.Time

	mu    sync.Mutex
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
	was := a.pools[pool][l.Name]
	if was == nil {
		a.pools[pool][l.Name] = &lease{renewed: renewed, first: now}
		return
	}
	if !renewed.Equal(was.renewed) {
		was.renewed, was.changed = renewed, now
	}
}

// Forget drops a pool that does not exist.
func (a *Availability) Forget(pool types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pools, pool)
}

// State tells of a pool's workers now.
func (a *Availability) State(pool types.NamespacedName) PoolState {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.Now()
	s := PoolState{Unavailable: true, Lost: true}
	for pod, l := range a.pools[pool] {
		silent, settling := l.silent(now)
		s.Settling = s.Settling || settling
		if silent < staleAfter {
			s.Live = append(s.Live, pod)
			s.Unavailable = false
		}
		s.Lost = s.Lost && silent >= lostAfter
		for _, at := range []time.Duration{staleAfter, lostAfter} {
			if left := at - silent; left > 0 && (s.Recheck == 0 || left < s.Recheck) {
				s.Recheck = left
			}
		}
	}
	if s.Settling {
		s.Unavailable, s.Lost, s.Recheck = false, false, settleTime
	}
	slices.Sort(s.Live)
	return s
}

// silent is how long a worker has not been heard of.
func (l *lease) silent(now time.Time) (d time.Duration, settling bool) {
	if !l.changed.IsZero() {
		return now.Sub(l.changed), false
	}
	if l.renewed.IsZero() {
		return now.Sub(l.first), false // made for a worker that has never been there
	}
	if now.Sub(l.first) < settleTime {
		return max(now.Sub(l.renewed), 0), true
	}
	return max(now.Sub(l.renewed), now.Sub(l.first)), false
}

// acknowledged gives the plan version that each worker of a pool works by.
func acknowledged(ctx context.Context, r client.Reader, pool types.NamespacedName) (map[string]uint64, error) {
	var m corev1.ConfigMap
	err := r.Get(ctx, types.NamespacedName{Namespace: pool.Namespace, Name: v1alpha1.PlanAcksName(pool.Name)}, &m)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read the acknowledgements of DeliveryPool %s: %w", pool, err)
	}
	return planstore.Acknowledged(&m), nil
}
