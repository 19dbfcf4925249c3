package controllers

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/pool"
)

const (
	// rolloutDeadline is how long a pool that gets a new image holds back the others; after that
	// it counts as stuck, and they go on.
	rolloutDeadline = 10 * time.Minute
	// imageInterval is how soon it is looked again whether another pool has its new image.
	imageInterval = 10 * time.Second
)

// rollouts notes since when each pool whose workers should run an image has had none that
// is ready. It is kept in memory: with a new image comes a new manager.
type rollouts struct {
	since map[types.NamespacedName]time.Time
}

// observe looks at all StatefulSets of pools, and what they are to run is image.
func (r *rollouts) observe(sets []appsv1.StatefulSet, image string, now time.Time) {
	since := make(map[types.NamespacedName]time.Time, len(r.since))
	for i := range sets {
		s := &sets[i]
		if running, _ := runningImage(s); running != image || settled(s) {
			continue
		}
		k := types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[v1alpha1.LabelPool]}
		since[k] = now
		if began, known := r.since[k]; known {
			since[k] = began
		}
	}
	r.since = since
}

// settled reports whether a StatefulSet's workers are ready as it says.
func settled(s *appsv1.StatefulSet) bool {
	return s.Status.ObservedGeneration == s.Generation && s.Status.UpdatedReplicas >= 1 && s.Status.ReadyReplicas >= 1
}

// another reports whether the workers of another pool are just getting the image.
func (r *rollouts) another(pool types.NamespacedName, now time.Time) bool {
	for k, began := range r.since {
		if k != pool && now.Sub(began) < rolloutDeadline {
			return true
		}
	}
	return false
}

// stuck reports whether a pool has been getting the image for too long, and if not yet,
// when it will have been; 0 for never.
func (r *rollouts) stuck(pool types.NamespacedName, now time.Time) (bool, time.Duration) {
	began, known := r.since[pool]
	if !known {
		return false, 0
	}
	left := rolloutDeadline - now.Sub(began)
	return left <= 0, max(left, 0)
}

// lookAtRollouts brings the notes up to date, and says of a pool whose workers are being
// updated whether that is stuck.
func (r *PoolReconciler) lookAtRollouts(ctx context.Context, in *poolInputs) error {
	var sets appsv1.StatefulSetList
	if err := r.Client.List(ctx, &sets, client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	now := r.Availability.Now()
	r.rollouts.observe(sets.Items, r.Image, now)
	if s := in.statefulSet; s != nil && (s.Status.ObservedGeneration != s.Generation || s.Status.CurrentRevision != s.Status.UpdateRevision) {
		if stuck, left := r.rollouts.stuck(client.ObjectKeyFromObject(in.pool), now); stuck {
			in.stuckOn = r.Image
		} else {
			in.stuckIn = left
		}
	}
	return nil
}

// settings decides on the image: that of the manager, unless the pool wants it only on
// request, or another pool is just getting it.
func (r *PoolReconciler) settings(in *poolInputs) (pool.Settings, time.Duration) {
	p := in.pool
	s := pool.Settings{
		Image: r.Image, Namespaces: r.Namespaces, ServiceMonitor: r.Optional.has(crdServiceMonitors),
		Restart: p.Annotations[v1alpha1.AnnotationRestartRequestedAt],
	}
	running, restart := runningImage(in.statefulSet)
	if running == "" || running == r.Image {
		return s, 0
	}
	if p.Spec.UpdatePolicy == v1alpha1.UpdateOnRequest && restart == s.Restart {
		s.Image = running
		return s, 0
	}
	if r.rollouts.another(client.ObjectKeyFromObject(p), r.Availability.Now()) {
		s.Image, s.Restart = running, restart
		return s, imageInterval
	}
	return s, 0
}

// runningImage is the image that the manager last gave a pool's workers, and the text of the
// restart that was requested then.
func runningImage(s *appsv1.StatefulSet) (image, restart string) {
	if s == nil || len(s.Spec.Template.Spec.Containers) == 0 {
		return "", ""
	}
	restart = s.Spec.Template.Annotations[v1alpha1.AnnotationRestartRequestedAt]
	if image = s.Annotations[v1alpha1.AnnotationImage]; image != "" {
		return image, restart
	}
	return s.Spec.Template.Spec.Containers[0].Image, restart
}
