package controllers

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/compile"
	"github.com/doorstep-dev/doorstep/internal/pool"
)

const (
	// startDeadline is how long a pool's first worker may take until its absence is said to be
	// a fault.
	startDeadline = 2 * time.Minute
	// imageInterval is how soon it is looked again whether another pool has its new image.
	imageInterval = 10 * time.Second
)

// poolInputs are what a pool's status depends on.
type poolInputs struct {
	pool        *v1alpha1.DeliveryPool
	statefulSet *appsv1.StatefulSet
	claim       *corev1.PersistentVolumeClaim
	state       PoolState
	problems    []compile.Problem
	endpoints   int
	// caCerts are what callers of ingest need; noTLS: the Secret of ingest.tls is not there.
	caCerts string
	noTLS   bool
	// waits is why the worker's container does not run, in Kubernetes's words.
	waits string
	// remaking: the StatefulSet is being removed, without its pods, to be made anew.
	remaking bool
	// notExpandable is why the volume can't grow.
	notExpandable string
	failed        error
	now           time.Time
}

// look collects what a pool's objects and status depend on.
func (r *PoolReconciler) look(ctx context.Context, in *poolInputs) error {
	p := in.pool
	in.now = r.Planner.Now()
	var set appsv1.StatefulSet
	switch err := r.Client.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: v1alpha1.WorkerName(p.Name)}, &set); {
	case err == nil:
		in.statefulSet = &set
	case !apierrors.IsNotFound(err):
		return err
	}
	var claim corev1.PersistentVolumeClaim
	switch err := r.Client.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: v1alpha1.QueuePVCName(p.Name, 0)}, &claim); {
	case err == nil:
		in.claim = &claim
	case !apierrors.IsNotFound(err):
		return err
	}
	if o := r.Planner.Outcome(client.ObjectKeyFromObject(p)); o != nil {
		in.problems, in.endpoints = o.Pool, len(o.Endpoints)
	}
	if name := tlsSecret(p); name != "" {
		var s corev1.Secret
		err := r.Live.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: name}, &s)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		in.noTLS = err != nil || len(s.Data[corev1.TLSCertKey]) == 0 || len(s.Data[corev1.TLSPrivateKeyKey]) == 0
		in.caCerts = string(s.Data["ca.crt"])
	}
	if in.state.Unavailable {
		in.waits = r.whyNotRunning(ctx, p)
	}
	return nil
}

// whyNotRunning is Kubernetes's reason for a worker that isn't there, such as
// ImagePullBackOff; empty if it gives none.
func (r *PoolReconciler) whyNotRunning(ctx context.Context, p *v1alpha1.DeliveryPool) string {
	var pod corev1.Pod
	if err := r.Live.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: v1alpha1.WorkerPodName(p.Name, 0)}, &pod); err != nil {
		return ""
	}
	for i := range pod.Status.ContainerStatuses {
		s := &pod.Status.ContainerStatuses[i]
		switch {
		case s.State.Waiting != nil && s.State.Waiting.Reason != "":
			return s.State.Waiting.Reason
		case s.State.Terminated != nil && s.State.Terminated.Reason != "":
			return s.State.Terminated.Reason
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason
		}
	}
	return ""
}

// settings decides on the image: that of the manager, unless the pool wants it only on
// request, or another pool is just getting it.
func (r *PoolReconciler) settings(ctx context.Context, in *poolInputs) (pool.Settings, time.Duration) {
	p := in.pool
	s := pool.Settings{
		Image: r.Image, Namespaces: r.Namespaces, ServiceMonitor: r.serviceMonitors(),
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
	if r.anotherIsUpdating(ctx, p) {
		s.Image, s.Restart = running, restart
		return s, imageInterval
	}
	return s, 0
}

func runningImage(s *appsv1.StatefulSet) (image, restart string) {
	if s == nil || len(s.Spec.Template.Spec.Containers) == 0 {
		return "", ""
	}
	return s.Spec.Template.Spec.Containers[0].Image, s.Spec.Template.Annotations[v1alpha1.AnnotationRestartRequestedAt]
}

// anotherIsUpdating reports whether the workers of another pool are just getting this
// image and are not ready yet.
func (r *PoolReconciler) anotherIsUpdating(ctx context.Context, p *v1alpha1.DeliveryPool) bool {
	var sets appsv1.StatefulSetList
	if err := r.Client.List(ctx, &sets, client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}); err != nil {
		return true // it can't be told: later
	}
	for i := range sets.Items {
		s := &sets.Items[i]
		if s.Namespace == p.Namespace && s.Labels[v1alpha1.LabelPool] == p.Name {
			continue
		}
		image, _ := runningImage(s)
		if image == r.Image && (s.Status.ObservedGeneration != s.Generation || s.Status.UpdatedReplicas < 1 || s.Status.ReadyReplicas < 1) {
			return true
		}
	}
	return false
}

// poolStatus is the manager's part of a pool's status, and when to look again; false while
// there is nothing to say yet.
func poolStatus(in *poolInputs) (v1alpha1.DeliveryPoolStatus, time.Duration, bool) {
	p := in.pool
	if len(in.state.Live) == 0 && !in.state.Unavailable && in.wasReady() && p.Status.ObservedGeneration == p.Generation {
		return v1alpha1.DeliveryPoolStatus{}, 0, false // whether its worker is there is not known yet
	}
	v, recheck := in.verdict()
	s := v1alpha1.DeliveryPoolStatus{
		ObservedGeneration: p.Generation,
		Address:            in.address(),
		Endpoints:          pointer(int32(in.endpoints)), //nolint:gosec // a number of objects
		ReadyReplicas:      pointer(int32(0)),
	}
	if in.statefulSet != nil {
		s.ReadyReplicas = pointer(in.statefulSet.Status.ReadyReplicas)
	}
	s.Conditions = poolConditions(p.Status.Conditions, p.Generation, v)
	return s, recheck, true
}

// poolConditions are Ready and, while it is False for what may still come or waits for an
// edit, Reconciling or Stalled. A worker that is away is neither.
func poolConditions(before []metav1.Condition, generation int64, v verdict) []metav1.Condition {
	if v.reason == v1alpha1.ReasonWorkerUnavailable {
		return []metav1.Condition{next(before, v1alpha1.ConditionReady, v.status, generation, v)}
	}
	return conditions(before, generation, v)
}

// verdict decides about Ready, and when time alone would change it.
func (in *poolInputs) verdict() (verdict, time.Duration) {
	because := ""
	if in.waits != "" {
		because = " (its container: " + in.waits + ")"
	}
	age := in.now.Sub(in.pool.CreationTimestamp.Time)
	switch {
	case in.notExpandable != "":
		return notReady(v1alpha1.ReasonVolumeNotExpandable, "The volume can't be made larger: "+in.notExpandable+"; set store.embedded.size back, or let the storage class expand volumes. The worker goes on with the volume as it is"), 0
	case in.failed != nil:
		return notReady(v1alpha1.ReasonObjectsFailed, "Objects of the pool can't be made; it is tried again: "+in.failed.Error()), 0
	case in.noTLS:
		return notReady(v1alpha1.ReasonSecretNotFound, "Secret "+tlsSecret(in.pool)+" of ingest.tls does not exist in namespace "+in.pool.Namespace+" or lacks tls.crt and tls.key; create it: ingest takes no events until then, deliveries go on"), 0
	case len(in.problems) > 0:
		return notReady(in.problems[0].Reason, in.problems[0].Message), 0
	case in.claimPending() && (len(in.state.Live) == 0):
		left := startDeadline/2 - age
		if left > 0 {
			return notReady(v1alpha1.ReasonProgressing, "The volume is being made"), left
		}
		return notReady(v1alpha1.ReasonVolumePending, "The volume of the store is not there: "+in.classHint()), 0
	case in.state.Unavailable && age < startDeadline && !in.wasReady():
		return notReady(v1alpha1.ReasonProgressing, "The first worker is being started"), startDeadline - age
	case in.state.Unavailable:
		return notReady(v1alpha1.ReasonWorkerUnavailable, "No worker was heard of for a minute"+because+
			"; what it accepted is on its volume. See kubectl describe pod "+v1alpha1.WorkerPodName(in.pool.Name, 0)+" and its log"), 0
	case len(in.state.Live) == 0 && !in.wasReady():
		return notReady(v1alpha1.ReasonProgressing, "The first worker is being started"), 0
	}
	return verdict{metav1.ConditionTrue, v1alpha1.ReasonAccepted, "Takes and delivers events"}, 0
}

// wasReady: a pool that has once been Ready is not being started.
func (in *poolInputs) wasReady() bool {
	c := condition(in.pool.Status.Conditions, v1alpha1.ConditionReady)
	return c != nil && (c.Status == metav1.ConditionTrue || c.Reason == v1alpha1.ReasonWorkerUnavailable)
}

func (in *poolInputs) claimPending() bool {
	return in.claim != nil && in.claim.Status.Phase == corev1.ClaimPending
}

func (in *poolInputs) classHint() string {
	if e := in.pool.Spec.Store; e != nil && e.Embedded != nil && e.Embedded.StorageClassName != nil {
		return "check StorageClass " + *e.Embedded.StorageClassName + " and kubectl describe pvc " + in.claim.Name
	}
	if c := in.claim.Spec.StorageClassName; c == nil || *c == "" {
		return "the cluster has no default StorageClass; make one the default, or make another DeliveryPool with store.embedded.storageClassName"
	}
	return "see kubectl describe pvc " + in.claim.Name
}

// address is where events are posted.
func (in *poolInputs) address() *v1alpha1.Address {
	scheme := "http"
	if tlsSecret(in.pool) != "" {
		scheme = "https"
	}
	return &v1alpha1.Address{
		URL:      scheme + "://" + v1alpha1.IngestServiceName(in.pool.Name) + "." + in.pool.Namespace + ".svc",
		CACerts:  in.caCerts,
		Audience: v1alpha1.TokenAudience,
	}
}

// soonest is the shortest of some times to wait, of which 0 is none.
func soonest(waits ...time.Duration) time.Duration {
	var out time.Duration
	for _, d := range waits {
		if d > 0 && (out == 0 || d < out) {
			out = d
		}
	}
	return out
}
