package controllers

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

// SetupWithManager watches everything that a plan depends on.
func (p *Planner) SetupWithManager(mgr ctrl.Manager, o controller.Options) error {
	c, err := ctrl.NewControllerManagedBy(mgr).Named("plan").
		For(&v1alpha1.DeliveryPool{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.WebhookEndpoint{}, p.poolOfEndpoint(), builder.WithPredicates(specOrLifeChanged())).
		Watches(&v1alpha1.RetryPolicy{}, handler.EnqueueRequestsFromMapFunc(p.poolsOfPolicy), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(&corev1.Secret{}, p.secretChanged()).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(p.poolsOf(indexConfigMap))).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(p.poolsOfService), builder.WithPredicates(serviceChanged())).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(p.allPools), builder.WithPredicates(labelsOrLifeChanged())).
		WithOptions(o).
		Build(patient("plan", p))
	if err != nil {
		return err
	}
	// Grants are read past the cache; their watch only brings the pools that need one.
	grants := p.Optional.kinds[crdReferenceGrants]
	grants.watcher, grants.handler, grants.changed = c, handler.EnqueueRequestsFromMapFunc(p.poolsOfGrant), func(context.Context) {}
	return nil
}

// poolsOfGrant brings the pools with endpoints of other namespaces that post to a Service of
// the grant's.
func (p *Planner) poolsOfGrant(ctx context.Context, o client.Object) []reconcile.Request {
	found := map[types.NamespacedName]bool{}
	p.addPoolsOfEndpoints(ctx, indexGrants, o.GetNamespace(), found)
	return requests(found)
}

// poolOfEndpoint brings the pool of an endpoint, and both where that changed because the
// endpoint was made anew.
func (p *Planner) poolOfEndpoint() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: poolOf(o.(*v1alpha1.WebhookEndpoint), p.SystemNamespace)}}
	})
}

// poolsOf brings the pools that need an object themselves or through an endpoint.
func (p *Planner) poolsOf(index string) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		key := client.ObjectKeyFromObject(o).String()
		found := map[types.NamespacedName]bool{}
		p.addPoolsOfEndpoints(ctx, index, key, found)
		var pools v1alpha1.DeliveryPoolList
		if err := p.Client.List(ctx, &pools, client.MatchingFields{index: key}); err == nil {
			for i := range pools.Items {
				found[client.ObjectKeyFromObject(&pools.Items[i])] = true
			}
		}
		return requests(found)
	}
}

func (p *Planner) addPoolsOfEndpoints(ctx context.Context, index, key string, found map[types.NamespacedName]bool) {
	var endpoints v1alpha1.WebhookEndpointList
	if err := p.Client.List(ctx, &endpoints, client.MatchingFields{index: key}, client.UnsafeDisableDeepCopy); err != nil {
		return // the cache is there, or there would be no event
	}
	for i := range endpoints.Items {
		found[poolOf(&endpoints.Items[i], p.SystemNamespace)] = true
	}
}

// secretChanged brings the pools that need a Secret. Of an update only what is now counts,
// since what was is our own write where a plan's Secret is concerned; and what is deleted
// has no version, also where its deletion was missed and it is shown as it was last seen.
func (p *Planner) secretChanged() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	bring := func(ctx context.Context, o client.Object, q queue) {
		for _, request := range p.poolsOfSecret(ctx, o) {
			q.Add(request)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { bring(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { bring(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			if o, ok := e.Object.DeepCopyObject().(client.Object); ok {
				o.SetResourceVersion("")
				bring(ctx, o, q)
			}
		},
	}
}

// poolsOfSecret tells Secrets that hold a plan, which nobody else has to write, from those
// that endpoints and pools need.
func (p *Planner) poolsOfSecret(ctx context.Context, o client.Object) []reconcile.Request {
	pool, _ := v1alpha1.PoolOfPlan(o.GetName())
	k := types.NamespacedName{Namespace: o.GetNamespace(), Name: pool}
	writer := p.writer(k)
	switch {
	case writer == nil:
		return p.poolsOf(indexSecret)(ctx, o)
	case writer.Foreign(o.GetName(), o.GetResourceVersion()):
		return []reconcile.Request{{NamespacedName: k}}
	}
	return nil
}

func (p *Planner) poolsOfService(ctx context.Context, o client.Object) []reconcile.Request {
	found := map[types.NamespacedName]bool{}
	p.addPoolsOfEndpoints(ctx, indexService, client.ObjectKeyFromObject(o).String(), found)
	return requests(found)
}

func (p *Planner) poolsOfPolicy(ctx context.Context, o client.Object) []reconcile.Request {
	found := map[types.NamespacedName]bool{}
	p.addPoolsOfEndpoints(ctx, indexPolicy, client.ObjectKeyFromObject(o).String(), found)
	return requests(found)
}

func (p *Planner) allPools(ctx context.Context, _ client.Object) []reconcile.Request {
	var pools v1alpha1.DeliveryPoolList
	if err := p.Client.List(ctx, &pools); err != nil {
		return nil
	}
	found := map[types.NamespacedName]bool{}
	for i := range pools.Items {
		found[client.ObjectKeyFromObject(&pools.Items[i])] = true
	}
	return requests(found)
}

func requests(keys map[types.NamespacedName]bool) []reconcile.Request {
	out := make([]reconcile.Request, 0, len(keys))
	for k := range keys {
		out = append(out, reconcile.Request{NamespacedName: k})
	}
	return out
}

// specOrLifeChanged passes what changes an object's meaning over, and not what a status
// says.
func specOrLifeChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || e.ObjectOld.GetUID() != e.ObjectNew.GetUID()
	}}
}

func labelsOrLifeChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() || !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
	}}
}

// serviceChanged leaves out what load balancers write into a Service's status.
func serviceChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok1 := e.ObjectOld.(*corev1.Service)
		is, ok2 := e.ObjectNew.(*corev1.Service)
		return !ok1 || !ok2 || was.UID != is.UID || was.Spec.String() != is.Spec.String()
	}}
}
