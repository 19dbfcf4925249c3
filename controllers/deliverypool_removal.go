package controllers

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/pool"
)

// What is removed, and what stays.

// removeUnwanted removes what a change of spec has made superfluous. (A ServiceMonitor is
// wanted wherever its kind exists, and goes with it.)
func (r *PoolReconciler) removeUnwanted(ctx context.Context, p *v1alpha1.DeliveryPool) error {
	if p.Spec.NetworkPolicy == v1alpha1.NetworkPolicyNone {
		name := types.NamespacedName{Namespace: p.Namespace, Name: v1alpha1.WorkerName(p.Name)}
		return r.children.remove(ctx, "networking.k8s.io/v1", "NetworkPolicy", name, p.Name, p.UID)
	}
	return nil
}

// deleted keeps what a deleted pool was like: how much is in its queue is nowhere to be read
// any more.
func (r *PoolReconciler) deleted() predicate.Predicate {
	return predicate.Funcs{DeleteFunc: func(e event.DeleteEvent) bool {
		if p, ok := e.Object.(*v1alpha1.DeliveryPool); ok {
			r.mu.Lock()
			r.last[client.ObjectKeyFromObject(p)] = p
			r.mu.Unlock()
		}
		return true
	}}
}

// gone cleans up after a pool that does not exist: what it owned goes by itself, bindings
// outside its namespace don't. Its volume stays, which is said once.
func (r *PoolReconciler) gone(ctx context.Context, key types.NamespacedName) error {
	r.Availability.Forget(key)
	r.mu.Lock()
	last := r.last[key]
	r.mu.Unlock()
	binding := pool.BindingName(key.Namespace, key.Name)
	var failed []error
	if len(r.Namespaces) == 0 {
		failed = append(failed, r.children.remove(ctx, "rbac.authorization.k8s.io/v1", "ClusterRoleBinding", types.NamespacedName{Name: binding}, key.Name, ""))
	}
	for _, ns := range r.Namespaces {
		failed = append(failed, r.children.remove(ctx, "rbac.authorization.k8s.io/v1", "RoleBinding", types.NamespacedName{Namespace: ns, Name: binding}, key.Name, ""))
	}
	if r.known[key] { // else it was said when the pool went
		failed = append(failed, r.tellOfQueue(ctx, key, last))
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	delete(r.known, key)
	r.mu.Lock()
	delete(r.last, key)
	r.mu.Unlock()
	named := &v1alpha1.DeliveryPool{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	r.children.forget(pool.Build(named, pool.Settings{Namespaces: r.Namespaces, ServiceMonitor: true}).All())
	return nil
}

// tellOfQueue says of a deleted pool that its queue is kept, and how much is in it.
func (r *PoolReconciler) tellOfQueue(ctx context.Context, key types.NamespacedName, last *v1alpha1.DeliveryPool) error {
	var claim corev1.PersistentVolumeClaim
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: v1alpha1.QueuePVCName(key.Name, 0)}, &claim)
	if err != nil || !claim.DeletionTimestamp.IsZero() {
		return client.IgnoreNotFound(err)
	}
	held := holds(last)
	r.Events.Eventf(&claim, nil, corev1.EventTypeNormal, "QueueKept", "Delete",
		"DeliveryPool %s does not exist any more; its queue%s is kept on this volume: make the pool again to go on with it, or delete the claim to give it up", key.Name, held)
	log.FromContext(ctx).Info("The pool does not exist any more; its queue"+held+" is kept", "claim", claim.Name)
	return nil
}

// holds tells what a pool's status last said of its queue; empty if it said nothing.
func holds(p *v1alpha1.DeliveryPool) string {
	if p == nil || p.Status.Queue == nil {
		return ""
	}
	count := func(n *int64) int64 {
		if n == nil {
			return 0
		}
		return *n
	}
	return fmt.Sprintf(", with %d deliveries waiting and %d dead letters when it was last counted,", count(p.Status.Queue.Waiting), count(p.Status.Queue.DeadLettered))
}
