package controllers

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

// setOf is the StatefulSet of a pool that runs an image.
func setOf(pool, image string, ready int32) appsv1.StatefulSet {
	s := appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: v1alpha1.WorkerName(pool), Labels: map[string]string{v1alpha1.LabelPool: pool}}}
	s.Spec.Template.Spec.Containers = []corev1.Container{{Image: image}}
	s.Status.UpdatedReplicas, s.Status.ReadyReplicas = 1, ready
	return s
}

// One pool at a time gets a new image, and one that never gets ready on it holds back the
// others for ten minutes and no longer.
func TestRollouts(t *testing.T) {
	const old, next = "v1", "v2"
	a, b := types.NamespacedName{Namespace: "shop", Name: "a"}, types.NamespacedName{Namespace: "shop", Name: "b"}
	type step struct {
		at          time.Duration
		a           appsv1.StatefulSet
		bWaits      bool
		aStuck      bool
		aStuckAfter time.Duration
	}
	for name, steps := range map[string][]step{
		"it gets ready": {
			{at: 0, a: setOf("a", next, 0), bWaits: true, aStuckAfter: 10 * time.Minute},
			{at: time.Minute, a: setOf("a", next, 0), bWaits: true, aStuckAfter: 9 * time.Minute},
			{at: 2 * time.Minute, a: setOf("a", next, 1)},
		},
		"it never gets ready": {
			{at: 0, a: setOf("a", next, 0), bWaits: true, aStuckAfter: 10 * time.Minute},
			{at: 10*time.Minute - time.Second, a: setOf("a", next, 0), bWaits: true, aStuckAfter: time.Second},
			{at: 10 * time.Minute, a: setOf("a", next, 0), aStuck: true},
			{at: time.Hour, a: setOf("a", next, 0), aStuck: true},
		},
		"it falls over again later": {
			{at: 0, a: setOf("a", next, 0), bWaits: true, aStuckAfter: 10 * time.Minute},
			{at: 9 * time.Minute, a: setOf("a", next, 1)},
			{at: 11 * time.Minute, a: setOf("a", next, 0), bWaits: true, aStuckAfter: 10 * time.Minute},
		},
		"its old image is not its turn": {
			{at: 0, a: setOf("a", old, 0)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var r rollouts
			begin := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
			for _, s := range steps {
				now := begin.Add(s.at)
				r.observe([]appsv1.StatefulSet{s.a, setOf("b", old, 1)}, next, now)
				if got := r.another(b, now); got != s.bWaits {
					t.Errorf("after %v: b waits: %t", s.at, got)
				}
				if r.another(a, now) {
					t.Errorf("after %v: a waits for itself", s.at)
				}
				if stuck, after := r.stuck(a, now); stuck != s.aStuck || after != s.aStuckAfter {
					t.Errorf("after %v: a is stuck: %t, or will be in %v", s.at, stuck, after)
				}
			}
		})
	}
}

// What the manager gave the workers counts, not what somebody else wrote over it.
func TestRunningImage(t *testing.T) {
	s := setOf("a", "evil", 1)
	if image, _ := runningImage(&s); image != "evil" {
		t.Errorf("without a note the template counts, not %q", image)
	}
	s.Annotations = map[string]string{v1alpha1.AnnotationImage: "v1"}
	if image, _ := runningImage(&s); image != "v1" {
		t.Errorf("the image is %q", image)
	}
}
