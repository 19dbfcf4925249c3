package controllers

import (
	"context"
	"errors"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	apply "github.com/doorstep-dev/doorstep/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/pool"
	"github.com/doorstep-dev/doorstep/internal/ssa"
)

// PoolReconciler owns the objects of DeliveryPools, and says in their status how they are.
type PoolReconciler struct {
	Client       client.Client
	Live         client.Reader
	Planner      *Planner
	Availability *Availability
	Events       events.EventRecorder
	// Image is the workers' image.
	Image string
	// Namespaces are those that the manager watches; empty: all.
	Namespaces []string
	// Optional knows whether there are ServiceMonitors.
	Optional *optionalKinds

	children children
	rollouts rollouts
	// known are the pools that this process has seen.
	known map[types.NamespacedName]bool

	mu sync.Mutex
	// last are the pools that were deleted, as they were last seen.
	last map[types.NamespacedName]*v1alpha1.DeliveryPool
}

// SetupWithManager watches pools and everything that belongs to one.
func (r *PoolReconciler) SetupWithManager(mgr ctrl.Manager, o controller.Options) error {
	r.children = children{client: r.Client, live: r.Live, applied: map[childKey]childState{}}
	r.known, r.last = map[types.NamespacedName]bool{}, map[types.NamespacedName]*v1alpha1.DeliveryPool{}
	o.MaxConcurrentReconciles = 1 // children keeps notes, and images change one pool at a time
	b := ctrl.NewControllerManagedBy(mgr).Named("deliverypool").
		For(&v1alpha1.DeliveryPool{}, builder.WithPredicates(r.deleted(), predicate.Or(specOrLifeChanged(), predicate.AnnotationChangedPredicate{}))).
		WatchesRawSource(source.Channel(r.Planner.Changed.Pools, &handler.EnqueueRequestForObject{})).
		Watches(&appsv1.StatefulSet{}, handler.EnqueueRequestsFromMapFunc(poolOfChild)).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(poolOfChild)).
		Watches(&coordinationv1.Lease{}, handler.EnqueueRequestsFromMapFunc(r.observed)).
		Watches(&coordinationv1.Lease{}, handler.EnqueueRequestsFromMapFunc(poolOfChild), builder.WithPredicates(appearanceChanged("Lease"))).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(poolOfChild), builder.WithPredicates(appearanceChanged("Service"))).
		// What ingest's certificate and API keys say is checked when they change.
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.poolOfCertificate))
	for kind, o := range map[string]client.Object{
		"ServiceAccount": &corev1.ServiceAccount{}, "Role": &rbacv1.Role{}, "RoleBinding": &rbacv1.RoleBinding{},
		"NetworkPolicy": &networkingv1.NetworkPolicy{}, "ConfigMap": &corev1.ConfigMap{},
	} {
		b = b.WatchesMetadata(o, handler.EnqueueRequestsFromMapFunc(poolOfChild), builder.WithPredicates(appearanceChanged(kind)))
	}
	if len(r.Namespaces) == 0 {
		b = b.WatchesMetadata(&rbacv1.ClusterRoleBinding{}, handler.EnqueueRequestsFromMapFunc(poolOfBinding), builder.WithPredicates(appearanceChanged("ClusterRoleBinding")))
	}
	c, err := b.WithOptions(o).Build(patient("deliverypool", r))
	if err != nil {
		return err
	}
	monitors := r.Optional.kinds[crdServiceMonitors]
	monitors.watcher, monitors.handler, monitors.changed = c, handler.EnqueueRequestsFromMapFunc(poolOfChild), r.all
	monitors.predicates = []predicate.Predicate{appearanceChanged(pool.ServiceMonitorKind)}
	return nil
}

// all brings every pool.
func (r *PoolReconciler) all(ctx context.Context) {
	var pools v1alpha1.DeliveryPoolList
	if err := r.Client.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return // the cache is there, or nothing would be reconciled
	}
	for i := range pools.Items {
		r.Planner.Changed.pool(client.ObjectKeyFromObject(&pools.Items[i]))
	}
}

// poolOfChild is the pool of an object that the manager made. A worker's binding in a
// watched namespace names it.
func poolOfChild(ctx context.Context, o client.Object) []reconcile.Request {
	if strings.HasPrefix(o.GetName(), v1alpha1.WorkerClusterRole+":") {
		return poolOfBinding(ctx, o)
	}
	name := o.GetLabels()[v1alpha1.LabelPool]
	if name == "" || o.GetLabels()[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}

// poolOfBinding reads the pool from a binding's name: it lives in no namespace.
func poolOfBinding(_ context.Context, o client.Object) []reconcile.Request {
	parts := strings.Split(o.GetName(), ":")
	if len(parts) != 3 || parts[0] != v1alpha1.WorkerClusterRole {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: parts[1], Name: parts[2]}}}
}

// observed notes a Lease. It brings its pool only when that may change what is said of it.
func (r *PoolReconciler) observed(ctx context.Context, o client.Object) []reconcile.Request {
	requests := poolOfChild(ctx, o)
	l, ok := o.(*coordinationv1.Lease)
	if !ok || len(requests) == 0 {
		return nil
	}
	key := requests[0].NamespacedName
	before := r.Availability.State(key)
	r.Availability.Observe(key, l)
	if after := r.Availability.State(key); before.Unavailable == after.Unavailable && before.Settling == after.Settling && len(before.Live) == len(after.Live) {
		return nil
	}
	return requests
}

// poolOfCertificate brings the pools whose ingest uses a Secret.
func (r *PoolReconciler) poolOfCertificate(ctx context.Context, o client.Object) []reconcile.Request {
	var pools v1alpha1.DeliveryPoolList
	if err := r.Client.List(ctx, &pools, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var out []reconcile.Request
	for i := range pools.Items {
		if p := &pools.Items[i]; tlsSecret(p) == o.GetName() {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)})
		}
	}
	return out
}

func tlsSecret(p *v1alpha1.DeliveryPool) string {
	if in := p.Spec.Ingest; in != nil && in.TLS != nil {
		return in.TLS.SecretRef.Name
	}
	return ""
}

// Reconcile makes one pool's objects be as they should, and brings its status up to date.
// What can't be done is said there, and the rest is done all the same.
func (r *PoolReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var p v1alpha1.DeliveryPool
	if err := r.Client.Get(ctx, req.NamespacedName, &p); err != nil {
		if apierrors.IsNotFound(err) {
			return ctrl.Result{}, r.gone(ctx, req.NamespacedName)
		}
		return ctrl.Result{}, err
	}
	if !p.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	in := poolInputs{pool: &p, state: r.Availability.State(req.NamespacedName)}
	if err := r.look(ctx, &in); err != nil {
		return ctrl.Result{}, err
	}
	r.known[req.NamespacedName] = true
	settings, wait := r.settings(&in)
	failed := r.grow(ctx, &in, &settings)
	objects := pool.Build(&p, settings).All()
	if in.remaking {
		// The StatefulSet, which comes last, is on its way out: nothing is applied to it.
		objects, wait = objects[:len(objects)-1], remakeInterval
	}
	failed = errors.Join(failed, r.children.all(ctx, objects), r.removeUnwanted(ctx, &p))
	in.failed = failed
	status, recheck, ok := poolStatus(&in)
	if ok {
		failed = errors.Join(failed, r.write(ctx, &p, status))
	}
	if failed != nil {
		return ctrl.Result{}, failed // tried again within a minute, all of it
	}
	return ctrl.Result{RequeueAfter: soonest(wait, recheck, in.state.Recheck)}, nil
}

// write applies a status where it differs, and tells of a change of Ready.
func (r *PoolReconciler) write(ctx context.Context, p *v1alpha1.DeliveryPool, s v1alpha1.DeliveryPoolStatus) error {
	shown := v1alpha1.DeliveryPoolStatus{
		ObservedGeneration: p.Status.ObservedGeneration, Conditions: ours(p.Status.Conditions), Address: p.Status.Address,
		Endpoints: p.Status.Endpoints, ReadyReplicas: p.Status.ReadyReplicas,
	}
	if equality.Semantic.DeepEqual(shown, s) {
		return nil
	}
	a := apply.DeliveryPool(p.Name, p.Namespace).WithUID(p.UID).WithStatus(ssa.Configuration[apply.DeliveryPoolStatusApplyConfiguration](&s))
	if err := r.Client.Status().Apply(ctx, a, client.FieldOwner(v1alpha1.FieldOwnerManager), client.ForceOwnership); err != nil {
		return client.IgnoreNotFound(err)
	}
	was, is := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady), meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
	if was == nil || was.Status != is.Status || was.Reason != is.Reason {
		kind := corev1.EventTypeNormal
		if is.Status != metav1.ConditionTrue && is.Reason != v1alpha1.ReasonProgressing {
			kind = corev1.EventTypeWarning
		}
		r.Events.Eventf(p, nil, kind, is.Reason, "Reconcile", "%s", is.Message)
	}
	return nil
}
