package controllers

import (
	"reflect"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A worker is missed after a minute and lost after five, by when its renewals were seen.
func TestAvailability(t *testing.T) {
	pool := types.NamespacedName{Namespace: "doorstep-system", Name: "default"}
	const pod = "default-worker-0"
	type step struct {
		at     time.Duration
		renew  time.Duration // the Lease's own time, apart from the manager's clock; 0: none is seen
		state  PoolState
		unseen bool // the Lease is there and was never renewed
	}
	there := PoolState{Live: []string{pod}}
	for name, steps := range map[string][]step{
		"a new pool": {
			{at: 0, unseen: true, state: PoolState{}},
			{at: 30 * time.Second, state: PoolState{}},
			{at: 61 * time.Second, state: PoolState{Unavailable: true}},
			{at: 10 * time.Minute, state: PoolState{Unavailable: true, Overdue: true}}, // not ready yet is not lost
			{at: 11 * time.Minute, renew: 1, state: there},
		},
		"a pool that nothing is seen of": {
			{at: 0, state: PoolState{}},
			{at: 10 * time.Minute, state: PoolState{Unavailable: true, Overdue: true}},
		},
		"a worker that dies": {
			{at: 0, renew: time.Hour, state: PoolState{Settling: true}},
			{at: 10 * time.Second, renew: time.Hour + 10*time.Second, state: there},
			{at: 69 * time.Second, state: there},
			{at: 71 * time.Second, state: PoolState{Unavailable: true}},
			{at: 10*time.Second + 5*time.Minute, state: PoolState{Unavailable: true, Overdue: true, Lost: true}},
			{at: 10 * time.Minute, renew: 2 * time.Hour, state: there},
		},
		"a worker that dies, and its Lease is deleted and made anew": {
			{at: 0, renew: time.Hour, state: PoolState{Settling: true}},
			{at: 10 * time.Second, renew: time.Hour + 10*time.Second, state: there},
			{at: 71 * time.Second, unseen: true, state: PoolState{Unavailable: true}},
		},
		"a manager that restarts while the worker's clock is behind": {
			{at: 0, renew: -time.Hour, state: PoolState{Settling: true}},
			{at: 9 * time.Second, state: PoolState{Settling: true}},
			{at: 10 * time.Second, renew: -time.Hour + 10*time.Second, state: there},
		},
		"a manager that restarts while the worker is dead": {
			{at: 0, renew: -time.Hour, state: PoolState{Settling: true}},
			{at: 59 * time.Second, state: PoolState{Settling: true}},
			{at: 61 * time.Second, state: PoolState{Unavailable: true}},
			{at: 5 * time.Minute, state: PoolState{Unavailable: true, Overdue: true, Lost: true}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
			now := begin
			a := &Availability{Now: func() time.Time { return now }}
			for _, s := range steps {
				now = begin.Add(s.at)
				l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: pool.Namespace, Name: pod}}
				if s.renew != 0 {
					at := metav1.NewMicroTime(begin.Add(s.renew))
					l.Spec.RenewTime = &at
				}
				if s.renew != 0 || s.unseen {
					a.Observe(pool, l)
				}
				got := a.State(pool)
				got.Recheck = 0
				if !reflect.DeepEqual(got, s.state) {
					t.Errorf("after %v: %+v, want %+v", s.at, got, s.state)
				}
			}
		})
	}
}
