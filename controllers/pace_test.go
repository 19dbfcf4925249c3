package controllers

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

// The endpoints of a pool that all ask at once get their turns one after another, whenever
// they ask again. Other pools have their own, and a turn that isn't needed holds up nobody
// that is before it.
func TestTurnsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacer{now: time.Now}
		pool, other := types.NamespacedName{Namespace: "a", Name: "pool"}, types.NamespacedName{Namespace: "b", Name: "pool"}
		begun := time.Now()
		const endpoints = 50
		var waiting []types.NamespacedName
		for i := range endpoints {
			waiting = append(waiting, types.NamespacedName{Namespace: "shop", Name: fmt.Sprint(i)})
		}
		if p.wait(other, waiting[0]) != 0 {
			t.Error("the only one has to wait")
		}
		bySecond := map[int]int{}
		for round := 0; len(waiting) > 0; round++ {
			var again []types.NamespacedName
			least := time.Duration(0)
			for _, e := range waiting {
				left := p.wait(pool, e)
				if left == 0 {
					bySecond[int(time.Since(begun)/time.Second)]++
					continue
				}
				if again = append(again, e); least == 0 || left < least {
					least = left
				}
			}
			waiting = again
			time.Sleep(least)
			if round > 2*endpoints {
				t.Fatalf("%d never get their turn", len(waiting))
			}
		}
		for second, n := range bySecond {
			if n > statusesPerSecond {
				t.Errorf("%d had their turn in second %d", n, second)
			}
		}
		if took := time.Since(begun); took > endpoints*time.Second/statusesPerSecond {
			t.Errorf("all turns took %v", took)
		}
		e := types.NamespacedName{Namespace: "shop", Name: "late"}
		p.wait(pool, types.NamespacedName{Namespace: "shop", Name: "first"})
		if p.wait(pool, e) == 0 {
			t.Error("the second one doesn't wait")
		}
		p.forget(pool, e)
		if _, kept := p.pools[pool].due[e]; kept {
			t.Error("it is not forgotten")
		}
	})
}

func TestSharedNews(t *testing.T) {
	lost := &metav1.Condition{Reason: v1alpha1.ReasonPoolUnavailable}
	live := &metav1.Condition{Reason: v1alpha1.ReasonAccepted}
	for _, row := range []struct {
		name          string
		before, after *metav1.Condition
		want          bool
	}{
		{"a new endpoint", nil, live, false},
		{"a new one of a lost pool", nil, lost, false},
		{"one that was edited", lost, &metav1.Condition{Reason: v1alpha1.ReasonAccepted, ObservedGeneration: 2}, false},
		{"the pool is lost", live, lost, true},
		{"the pool is back", lost, live, true},
		{"nothing of it", live, &metav1.Condition{Reason: v1alpha1.ReasonSecretNotFound}, false},
		{"still lost", lost, lost, false},
	} {
		if got := sharedNews(row.before, row.after); got != row.want {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
	}
}
