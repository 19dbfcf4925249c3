package controllers

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/doorstep-dev/doorstep/internal/pool"
)

// optionalKind is a kind of another project, which a cluster may have or not. Its objects
// are watched, metadata only, while it is there.
type optionalKind struct {
	gvk schema.GroupVersionKind
	// watcher gets the requests that handler makes of its objects.
	watcher    controller.Controller
	handler    handler.EventHandler
	predicates []predicate.Predicate
	// changed is called when the kind has come or goes.
	changed func(context.Context)

	there    atomic.Bool
	watching bool
}

// optionalKinds learns from CustomResourceDefinitions which of the optional kinds a cluster
// has: an informer of a kind that is not there would only fail.
type optionalKinds struct {
	client client.Client
	cache  cache.Cache
	// kinds are by the name of their CustomResourceDefinition.
	kinds map[string]*optionalKind
}

// The names of the CustomResourceDefinitions.
const (
	crdServiceMonitors = "servicemonitors.monitoring.coreos.com"
	crdReferenceGrants = "referencegrants.gateway.networking.k8s.io"
)

func newOptionalKinds(mgr ctrl.Manager) (*optionalKinds, error) {
	monitoring, err := schema.ParseGroupVersion(pool.ServiceMonitorAPIVersion)
	if err != nil {
		return nil, err
	}
	return &optionalKinds{client: mgr.GetClient(), cache: mgr.GetCache(), kinds: map[string]*optionalKind{
		crdServiceMonitors: {gvk: monitoring.WithKind(pool.ServiceMonitorKind)},
		crdReferenceGrants: {gvk: referenceGrants},
	}}, nil
}

// has reports whether the cluster has a kind now.
func (o *optionalKinds) has(crd string) bool { return o.kinds[crd].there.Load() }

// definition is a CustomResourceDefinition, of which only the name counts.
func definition() *metav1.PartialObjectMetadata {
	return partial(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
}

func partial(gvk schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(gvk)
	return o
}

// SetupWithManager watches CustomResourceDefinitions. The controllers that look at the
// kinds are set up before.
func (o *optionalKinds) SetupWithManager(mgr ctrl.Manager, options controller.Options) error {
	options.MaxConcurrentReconciles = 1
	ours := predicate.NewPredicateFuncs(func(d client.Object) bool { return o.kinds[d.GetName()] != nil })
	return ctrl.NewControllerManagedBy(mgr).Named("optional-kinds").
		For(definition(), builder.WithPredicates(ours)).
		WithOptions(options).
		Complete(o)
}

// Reconcile begins or ends the watch of one kind.
func (o *optionalKinds) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	k := o.kinds[req.Name]
	d := definition()
	err := o.client.Get(ctx, req.NamespacedName, d)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return ctrl.Result{}, err
	case err != nil:
		return ctrl.Result{}, o.end(ctx, k)
	case d.DeletionTimestamp != nil:
		// Its objects are being deleted, which the watch still tells; nothing is made any more.
		if k.there.Swap(false) {
			k.changed(ctx)
		}
		return ctrl.Result{}, nil
	case k.there.Load():
		return ctrl.Result{}, nil
	}
	return o.begin(ctx, k, d)
}

func (o *optionalKinds) begin(ctx context.Context, k *optionalKind, d *metav1.PartialObjectMetadata) (ctrl.Result, error) {
	_, err := o.client.RESTMapper().RESTMapping(k.gvk.GroupKind(), k.gvk.Version)
	if meta.IsNoMatchError(err) {
		// A definition is served a moment after it was made, or has other versions only.
		if time.Since(d.CreationTimestamp.Time) < time.Minute {
			return ctrl.Result{RequeueAfter: time.Second}, nil
		}
		return ctrl.Result{RequeueAfter: time.Minute}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("look for the kind %s: %w", k.gvk.Kind, err)
	}
	if !k.watching {
		if err := k.watcher.Watch(source.Kind(o.cache, client.Object(partial(k.gvk)), k.handler, k.predicates...)); err != nil {
			return ctrl.Result{}, fmt.Errorf("watch %ss: %w", k.gvk.Kind, err)
		}
		k.watching = true
	}
	// Nothing is made before the watch would tell of its removal.
	if _, err := o.cache.GetInformer(ctx, partial(k.gvk)); err != nil {
		return ctrl.Result{}, fmt.Errorf("watch %ss: %w", k.gvk.Kind, err)
	}
	k.there.Store(true)
	k.changed(ctx)
	log.FromContext(ctx).Info("The cluster has an optional kind", "kind", k.gvk.Kind)
	return ctrl.Result{}, nil
}

func (o *optionalKinds) end(ctx context.Context, k *optionalKind) error {
	if k.watching {
		if err := o.cache.RemoveInformer(ctx, partial(k.gvk)); err != nil {
			return fmt.Errorf("end the watch of %ss: %w", k.gvk.Kind, err)
		}
		k.watching = false
		log.FromContext(ctx).Info("An optional kind is gone", "kind", k.gvk.Kind)
	}
	k.there.Store(false)
	k.changed(ctx)
	return nil
}
