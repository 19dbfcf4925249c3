package controllers

import (
	"context"
	"crypto/tls"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/compile"
)

// startDeadline is how long a pool's first worker may take until its absence is said to be
// a fault; its volume may take half of that.
const startDeadline = 2 * time.Minute

// poolInputs are what a pool's status depends on.
type poolInputs struct {
	pool        *v1alpha1.DeliveryPool
	statefulSet *appsv1.StatefulSet
	claim       *corev1.PersistentVolumeClaim
	state       PoolState
	problems    []compile.Problem
	endpoints   int
	// caCerts are what callers of ingest need; certificate is what is wrong with ingest.tls.
	caCerts     string
	certificate *verdict
	// cause is why the worker does not run.
	cause cause
	// class is the storage class of a claim that is pending; nil where there is none.
	class *storagev1.StorageClass
	// stuckOn is the image to which the workers should have been updated long since; stuckIn
	// is when that will be so of one that is under way.
	stuckOn string
	stuckIn time.Duration
	// remaking: the StatefulSet is being removed, without its pods, to be made anew.
	remaking bool
	// notGrowing is why the volume can't grow.
	notGrowing *verdict
	failed     error
	now        time.Time
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
	if err := r.lookAtCertificate(ctx, in); err != nil {
		return err
	}
	if err := r.lookAtClass(ctx, in); err != nil {
		return err
	}
	if in.state.Unavailable {
		var err error
		if in.cause, err = r.whyNotRunning(ctx, p); err != nil {
			return err
		}
	}
	return r.lookAtRollouts(ctx, in)
}

// lookAtCertificate reads the Secret of ingest.tls, whose data is kept nowhere.
func (r *PoolReconciler) lookAtCertificate(ctx context.Context, in *poolInputs) error {
	name := tlsSecret(in.pool)
	if name == "" {
		return nil
	}
	var s corev1.Secret
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: in.pool.Namespace, Name: name}, &s)
	switch {
	case apierrors.IsNotFound(err):
		in.certificate = pointer(notReady(v1alpha1.ReasonSecretNotFound, "Secret "+name+" of ingest.tls does not exist in namespace "+in.pool.Namespace+": create it, of type kubernetes.io/tls"+noIngest))
	case err != nil:
		return err
	default:
		in.caCerts = string(s.Data["ca.crt"])
		in.certificate = certificateFault(&s)
	}
	return nil
}

// noIngest is what comes of a certificate that can't be used.
const noIngest = ". Ingest takes no events until then; deliveries go on"

// certificateFault is what is wrong with a Secret that should hold a certificate and its key.
func certificateFault(s *corev1.Secret) *verdict {
	about := "Secret " + s.Name + " of ingest.tls "
	if s.Type != corev1.SecretTypeTLS {
		about += "is of type " + string(s.Type) + ", not kubernetes.io/tls, and "
	}
	for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
		if len(s.Data[key]) == 0 {
			return pointer(notReady(v1alpha1.ReasonSecretKeyMissing, about+"lacks "+key+": make it anew, of type kubernetes.io/tls"+noIngest))
		}
	}
	if _, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return pointer(notReady(v1alpha1.ReasonCertificateInvalid, about+"holds no certificate with its key: put both into it in PEM, with the chain in tls.crt"+noIngest))
	}
	return nil
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

// verdict decides about Ready, and when time alone would change it. What keeps the worker
// away comes first, then what is wrong while it works.
func (in *poolInputs) verdict() (verdict, time.Duration) {
	wait := in.stuckIn
	for _, about := range []func() (verdict, time.Duration, bool){in.aboutObjects, in.aboutClaim, in.aboutWorker} {
		v, recheck, decided := about()
		wait = soonest(wait, recheck)
		if decided {
			return v, wait
		}
	}
	switch {
	case in.notGrowing != nil:
		return *in.notGrowing, soonest(wait, growInterval)
	case in.certificate != nil:
		return *in.certificate, wait
	case len(in.problems) > 0:
		return notReady(in.problems[0].Reason, in.problems[0].Message), wait
	case len(in.state.Live) == 0 && in.claimPending() && !in.wasReady():
		return notReady(v1alpha1.ReasonProgressing, "The volume is being made"), wait
	case len(in.state.Live) == 0 && !in.wasReady():
		return notReady(v1alpha1.ReasonProgressing, "The first worker is being started"), wait
	case in.stuckOn != "":
		return notReady(v1alpha1.ReasonUpdateStuck, "A worker is there"+in.stuckNote()+": see kubectl describe statefulset "+v1alpha1.WorkerName(in.pool.Name)), wait
	}
	return verdict{metav1.ConditionTrue, v1alpha1.ReasonAccepted, "Takes and delivers events" + in.resizeNote()}, wait
}

// aboutObjects says what keeps the pool's objects from being made.
func (in *poolInputs) aboutObjects() (verdict, time.Duration, bool) {
	if in.failed == nil || transient(in.failed) {
		return verdict{}, 0, false
	}
	if taken := (*nameTaken)(nil); errors.As(in.failed, &taken) {
		return notReady(v1alpha1.ReasonNameTaken, taken.Error()), 0, true
	}
	return notReady(v1alpha1.ReasonObjectsFailed, "Objects of the pool can't be made; it is tried again: "+in.failed.Error()), 0, true
}

// wasReady: a pool that has once been Ready is not being started.
func (in *poolInputs) wasReady() bool {
	c := meta.FindStatusCondition(in.pool.Status.Conditions, v1alpha1.ConditionReady)
	return c != nil && (c.Status == metav1.ConditionTrue || c.Reason == v1alpha1.ReasonWorkerUnavailable || c.Reason == v1alpha1.ReasonWorkerFailed)
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
