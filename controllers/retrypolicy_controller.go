package controllers

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	apply "github.com/doorstep-dev/doorstep/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/compile"
	"github.com/doorstep-dev/doorstep/internal/ssa"
)

// RetryPolicyReconciler says in a RetryPolicy's status what it comes to, and who uses it.
type RetryPolicyReconciler struct {
	Client client.Client
	Events events.EventRecorder
}

// SetupWithManager watches policies, and endpoints, which are counted.
func (r *RetryPolicyReconciler) SetupWithManager(mgr ctrl.Manager, o controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).Named("retrypolicy").
		For(&v1alpha1.RetryPolicy{}, builder.WithPredicates(specOrLifeChanged())).
		// Both the policy that an endpoint named before and the one it names now are brought:
		// the handler is asked for the old object and the new one.
		Watches(&v1alpha1.WebhookEndpoint{}, handler.EnqueueRequestsFromMapFunc(policyOf), builder.WithPredicates(specOrLifeChanged())).
		WithOptions(o).
		Complete(patient("retrypolicy", r))
}

func policyOf(_ context.Context, o client.Object) []reconcile.Request {
	ref := o.(*v1alpha1.WebhookEndpoint).Spec.RetryPolicyRef
	if ref == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: ref.Name}}}
}

// Reconcile brings one policy's status up to date.
func (r *RetryPolicyReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var p v1alpha1.RetryPolicy
	if err := r.Client.Get(ctx, req.NamespacedName, &p); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // its endpoints say that it is gone
	}
	if !p.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	var users v1alpha1.WebhookEndpointList
	if err := r.Client.List(ctx, &users, client.MatchingFields{indexPolicy: req.String()}, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, err
	}
	status := policyStatus(&p, len(users.Items))
	before := p.Status
	before.Conditions = ours(before.Conditions)
	if equality.Semantic.DeepEqual(before, status) {
		return ctrl.Result{}, nil
	}
	a := apply.RetryPolicy(p.Name, p.Namespace).WithUID(p.UID).WithStatus(ssa.Configuration[apply.RetryPolicyStatusApplyConfiguration](&status))
	if err := r.Client.Status().Apply(ctx, a, client.FieldOwner(v1alpha1.FieldOwnerManager), client.ForceOwnership); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	was, is := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady), meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	if is.Status != metav1.ConditionTrue && (was == nil || was.Reason != is.Reason) {
		r.Events.Eventf(&p, nil, corev1.EventTypeWarning, is.Reason, "Reconcile", "%s", is.Message)
	}
	return ctrl.Result{}, nil
}

// policyStatus is a policy's status.
func policyStatus(p *v1alpha1.RetryPolicy, users int) v1alpha1.RetryPolicyStatus {
	s := v1alpha1.RetryPolicyStatus{ObservedGeneration: p.Generation, Endpoints: pointer(int32(users))} //nolint:gosec // a number of objects
	effective, err := compile.Policy(p.Name, &p.Spec)
	if err != nil {
		s.Conditions = conditions(p.Status.Conditions, p.Generation, notReady(v1alpha1.ReasonRetryPolicyInvalid, err.Error()+"; endpoints that name this policy are held until it is mended"))
		return s
	}
	for _, step := range effective.Steps() {
		s.EffectiveSchedule = append(s.EffectiveSchedule, text(step))
	}
	s.Attempts = pointer(int32(effective.MaxAttempts())) //nolint:gosec // at most 200
	s.Span = text(effective.Span())
	s.Conditions = conditions(p.Status.Conditions, p.Generation, verdict{metav1.ConditionTrue, v1alpha1.ReasonAccepted, "Usable as it is"})
	return s
}

func pointer[T any](v T) *T { return &v }
