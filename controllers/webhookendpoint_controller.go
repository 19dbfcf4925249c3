package controllers

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/compile"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// EndpointReconciler makes an endpoint's signing key where it has none, and says in its
// status what its pool's plan holds of it.
type EndpointReconciler struct {
	Client       client.Client
	Live         client.Reader
	Planner      *Planner
	Availability *Availability
	Events       events.EventRecorder
	// SystemNamespace holds the installation's own pool.
	SystemNamespace string

	pace pacer
	acks acknowledgements
}

// SetupWithManager watches endpoints, what passes over their pools say of them, and what
// workers acknowledge.
func (r *EndpointReconciler) SetupWithManager(mgr ctrl.Manager, o controller.Options) error {
	r.pace.now = time.Now
	r.acks.cache, r.acks.live = r.Client, r.Live
	return ctrl.NewControllerManagedBy(mgr).Named("webhookendpoint").
		For(&v1alpha1.WebhookEndpoint{}, builder.WithPredicates(specOrLifeChanged())).
		WatchesRawSource(source.Channel(r.Planner.Changed.Endpoints, &handler.EnqueueRequestForObject{})).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.waiting)).
		Watches(&v1alpha1.DeliveryPool{}, r.poolChanged()).
		WithOptions(o).
		Complete(patient("webhookendpoint", r))
}

// waiting brings the endpoints of a pool that are not Ready when its workers acknowledge a
// plan.
func (r *EndpointReconciler) waiting(ctx context.Context, o client.Object) []reconcile.Request {
	pool := o.GetLabels()[v1alpha1.LabelPool]
	if pool == "" || o.GetName() != v1alpha1.PlanAcksName(pool) {
		return nil
	}
	return r.ofPool(ctx, types.NamespacedName{Namespace: o.GetNamespace(), Name: pool}, func(e *v1alpha1.WebhookEndpoint) bool {
		return !readyNow(e)
	})
}

func (r *EndpointReconciler) ofPool(ctx context.Context, pool types.NamespacedName, pick func(*v1alpha1.WebhookEndpoint) bool) []reconcile.Request {
	var list v1alpha1.WebhookEndpointList
	if err := r.Client.List(ctx, &list, client.MatchingFields{indexPool: pool.String()}, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		if e := &list.Items[i]; pick(e) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e)})
		}
	}
	return out
}

// Reconcile brings one endpoint's status up to date.
func (r *EndpointReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var e v1alpha1.WebhookEndpoint
	if err := r.Client.Get(ctx, req.NamespacedName, &e); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // the planner sees to its deletion
	}
	if !e.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	in := endpointInputs{endpoint: &e, pool: poolOf(&e, r.SystemNamespace)}
	err := r.look(ctx, &in)
	if err != nil {
		return ctrl.Result{}, err
	}
	came, failed := r.ensureSigningSecret(ctx, &in) // where that fails, the status says what is missing
	status, ok := endpointStatus(&in)
	if !ok || came {
		return ctrl.Result{}, failed // the pass over its pool that sees it, or its key, brings it back
	}
	if in.settles > 0 && meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady).Reason == v1alpha1.ReasonPlanPending {
		return ctrl.Result{RequeueAfter: in.settles}, failed // most likely it is Ready before there is anything to say
	}
	result := ctrl.Result{}
	if (in.state.Unavailable || in.state.Settling) && !in.state.Lost {
		result.RequeueAfter = in.state.Recheck + r.turn(&in)
	}
	if in.state.Settling && !readyNow(&e) {
		// Its worker is most likely there, and heard of with its next renewal, which brings nothing by itself.
		result.RequeueAfter = settlingRecheck + r.turn(&in)
	}
	if !sharedNews(meta.FindStatusCondition(e.Status.Conditions, v1alpha1.ConditionReady), meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)) {
		r.pace.forget(in.pool, req.NamespacedName)
	} else if wait := r.pace.wait(in.pool, req.NamespacedName); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, failed
	}
	return result, errors.Join(failed, r.write(ctx, &e, status))
}

// turn spreads the endpoints of a pool over time, statusesPerSecond of them in each
// second, when all of them have to say something.
func (r *EndpointReconciler) turn(in *endpointInputs) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(in.endpoint.UID))
	slots := uint32(in.poolEndpoints/statusesPerSecond + 1) //nolint:gosec // a number of objects
	return time.Duration(h.Sum32()%slots) * time.Second
}

// settlingRecheck is about half of the time between two renewals of a Lease.
const settlingRecheck = 5 * time.Second

// poolChanged brings the endpoints of a pool that comes or goes or whose Ready changes.
func (r *EndpointReconciler) poolChanged() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	bring := func(ctx context.Context, o client.Object, q queue, pick func(*v1alpha1.WebhookEndpoint) bool) {
		for i, req := range r.ofPool(ctx, client.ObjectKeyFromObject(o), pick) {
			q.AddAfter(req, time.Duration(i/statusesPerSecond)*time.Second)
		}
	}
	all := func(*v1alpha1.WebhookEndpoint) bool { return true }
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			bring(ctx, e.Object, q, func(e *v1alpha1.WebhookEndpoint) bool { return !readyNow(e) })
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { bring(ctx, e.Object, q, all) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			was, is := readyReason(e.ObjectOld), readyReason(e.ObjectNew)
			switch {
			case was == is:
			case is == v1alpha1.ReasonWorkerUnavailable:
				// Nothing is written yet: they come back when the pool counts as lost.
				for _, req := range r.ofPool(ctx, client.ObjectKeyFromObject(e.ObjectNew), all) {
					q.Add(req)
				}
			default:
				bring(ctx, e.ObjectNew, q, func(e *v1alpha1.WebhookEndpoint) bool { return !readyNow(e) })
			}
		},
	}
}

func readyReason(o client.Object) string {
	if p, ok := o.(*v1alpha1.DeliveryPool); ok {
		if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady); c != nil {
			return c.Reason
		}
	}
	return ""
}

// look collects what an endpoint's status depends on.
func (r *EndpointReconciler) look(ctx context.Context, in *endpointInputs) error {
	var pool v1alpha1.DeliveryPool
	err := r.Client.Get(ctx, in.pool, &pool)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	in.poolExists, in.poolReady = true, meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionReady)
	k := plan.EndpointKey{Namespace: in.endpoint.Namespace, Name: in.endpoint.Name}
	if o := r.Planner.Outcome(in.pool); o != nil {
		in.seen = o.Seen[k]
		in.entry, in.problems, in.unread = o.Endpoints[k], o.Problems[k], o.Unread[k]
		in.unknown = o.unknown(k)
		in.poolDefault, in.poolEndpoints = o.Plan.Pool, len(o.Endpoints)
		if in.entry != nil {
			in.settles = settleTime - r.Planner.Now().Sub(o.Written[in.entry.Version])
		}
	}
	if in.entry == nil {
		return nil
	}
	in.state = r.Availability.State(in.pool)
	if in.entry.Problem == nil && !readyNow(in.endpoint) && len(in.state.Live) > 0 {
		acks, err := r.acks.of(ctx, in.pool)
		if err != nil {
			return err
		}
		in.acknowledged = true
		for _, pod := range in.state.Live {
			in.acknowledged = in.acknowledged && acks[pod] >= in.entry.Version
		}
	}
	return nil
}

// ensureSigningSecret makes the Secret with the key of an endpoint that leaves it to
// Doorstep, once. It is never overwritten, has no owner, so that it outlives the endpoint,
// and is not made again where receivers know a key that is lost. It reports whether the
// Secret is new to the plan, which brings the endpoint back when it has it.
func (r *EndpointReconciler) ensureSigningSecret(ctx context.Context, in *endpointInputs) (bool, error) {
	e := in.endpoint
	// One that no plan knew has no key that could be lost: it needs no pass to tell.
	wanted := in.unknown || in.seen == e.Generation && in.entry != nil && !compile.HasGeneratedKey(in.entry)
	if !compile.GeneratesKey(e) || !wanted {
		return false, nil
	}
	name := types.NamespacedName{Namespace: e.Namespace, Name: compile.SigningSecretName(e.Name)}
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	if err := r.Client.Get(ctx, name, meta); !apierrors.IsNotFound(err) {
		// It is there, or can't be told. If the plan misses it, it came since.
		return err == nil && in.entry != nil && in.entry.Problem != nil && in.entry.Problem.Reason == v1alpha1.ReasonSecretNotFound, err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: name.Namespace, Name: name.Name,
			Labels: map[string]string{
				v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelName: v1alpha1.AppName, v1alpha1.LabelEndpoint: e.Name,
			},
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{compile.SigningSecretKey: []byte(compile.NewSigningKey(e))},
	}
	err := r.Client.Create(ctx, secret, client.FieldOwner(v1alpha1.FieldOwnerManager))
	switch {
	case apierrors.IsAlreadyExists(err):
		return true, nil // the cache is late
	case err != nil:
		// Such as a ResourceQuota: those who look at the endpoint can help.
		r.Events.Eventf(e, nil, corev1.EventTypeWarning, "SigningKeyNotMade", "Create", "Secret %s can't be made: %s", name.Name, err.Error())
		return false, fmt.Errorf("make the signing key of the endpoint: %w", err)
	}
	r.Planner.made.add(secret, r.Planner.Now())
	log.FromContext(ctx).Info("Made a signing key", "secret", name.String())
	r.Events.Eventf(e, nil, corev1.EventTypeNormal, "SigningKeyMade", "Create", "Made Secret %s with the signing key; its receiver needs the key", name.Name)
	return true, nil
}

// write applies a status where it differs from the one shown, and tells of a change of
// Ready.
func (r *EndpointReconciler) write(ctx context.Context, e *v1alpha1.WebhookEndpoint, status v1alpha1.WebhookEndpointStatus) error {
	if equality.Semantic.DeepEqual(managerPart(&e.Status), &status) {
		return nil
	}
	before, after := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.ConditionReady), meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	if err := r.Client.Status().Apply(ctx, endpointApply(e, &status), client.FieldOwner(v1alpha1.FieldOwnerManager), client.ForceOwnership); err != nil {
		return client.IgnoreNotFound(err)
	}
	if before == nil || before.Status != after.Status || before.Reason != after.Reason {
		kind := corev1.EventTypeNormal
		if after.Status != metav1.ConditionTrue && v1alpha1.Stalls(after.Reason) {
			kind = corev1.EventTypeWarning
		}
		r.Events.Eventf(e, nil, kind, after.Reason, "Reconcile", "%s", after.Message)
	}
	return nil
}
