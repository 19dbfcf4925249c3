package controllers

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/retry"
	"github.com/doorstep-dev/doorstep/test/gitops"
)

// What GitOps tools make of a reason of Ready.
type outlook struct {
	kstatus status.Status
	argo    string
}

var (
	inForce = outlook{status.CurrentStatus, "Healthy"}
	waiting = outlook{status.InProgressStatus, "Progressing"}
	failed  = outlook{status.FailedStatus, "Degraded"}
)

// ofReady are the reasons that Ready has, and what tools make of them on every kind but where ofKind says otherwise.
var ofReady = map[string]outlook{
	v1alpha1.ReasonAccepted: inForce,

	v1alpha1.ReasonProgressing: waiting, v1alpha1.ReasonSecretNotFound: waiting, v1alpha1.ReasonConfigMapNotFound: waiting,
	v1alpha1.ReasonRetryPolicyNotFound: waiting, v1alpha1.ReasonServiceNotFound: waiting, v1alpha1.ReasonPoolNotFound: waiting,
	v1alpha1.ReasonPoolNotReady: waiting, v1alpha1.ReasonPlanPending: waiting, v1alpha1.ReasonVolumePending: waiting,
	v1alpha1.ReasonObjectsFailed: waiting, v1alpha1.ReasonQuotaExceeded: waiting,

	v1alpha1.ReasonNamespaceNotAllowed: failed, v1alpha1.ReasonSecretKeyMissing: failed, v1alpha1.ReasonKeyInvalid: failed,
	v1alpha1.ReasonFilterInvalid: failed, v1alpha1.ReasonCertificateInvalid: failed, v1alpha1.ReasonURLInvalid: failed,
	v1alpha1.ReasonRetryPolicyInvalid: failed, v1alpha1.ReasonRefNotPermitted: failed, v1alpha1.ReasonServiceUnusable: failed,
	v1alpha1.ReasonPlanEntryTooLarge: failed, v1alpha1.ReasonPlanFull: failed, v1alpha1.ReasonSpecInvalid: failed,
	v1alpha1.ReasonVolumeNotExpandable: failed, v1alpha1.ReasonWorkerFailed: failed, v1alpha1.ReasonUpdateStuck: failed,
	v1alpha1.ReasonNameTaken: failed,
}

// ofPool and ofEndpoint are reasons that one kind alone has, and that are neither Reconciling nor Stalled: they come and go
// by themselves.
var (
	ofPool     = map[string]outlook{v1alpha1.ReasonWorkerUnavailable: {status.InProgressStatus, "Degraded"}}
	ofEndpoint = map[string]outlook{v1alpha1.ReasonPoolUnavailable: {status.InProgressStatus, "Unknown"}}
)

// besides are the reasons of conditions that speak of traffic or of a volume: they change nothing of what tools go by.
var besides = map[string]string{
	v1alpha1.ReasonActive: v1alpha1.ConditionDelivering, v1alpha1.ReasonBackingOff: v1alpha1.ConditionDelivering,
	v1alpha1.ReasonRejecting: v1alpha1.ConditionDelivering, v1alpha1.ReasonAuthFailed: v1alpha1.ConditionDelivering,
	v1alpha1.ReasonDraining: v1alpha1.ConditionDelivering, v1alpha1.ReasonDisabled: v1alpha1.ConditionDelivering,
	v1alpha1.ReasonSuspended: v1alpha1.ConditionDelivering, v1alpha1.ReasonUnresolved: v1alpha1.ConditionDelivering,
	v1alpha1.ReasonEndpointMissing: v1alpha1.ConditionDelivering, v1alpha1.ReasonNotInPlan: v1alpha1.ConditionDelivering,
	v1alpha1.ReasonSucceeding: v1alpha1.ConditionHealthy, v1alpha1.ReasonDegraded: v1alpha1.ConditionHealthy,
	v1alpha1.ReasonNoAttempts:  v1alpha1.ConditionHealthy,
	v1alpha1.ReasonEnoughSpace: v1alpha1.ConditionStorePressure, v1alpha1.ReasonLowSpace: v1alpha1.ConditionStorePressure,
	v1alpha1.ReasonRotationPending: "", // told in the message of Ready=True
}

// judge says what tools make of an object.
func judge(t *testing.T, o runtime.Object) (outlook, gitops.Health) {
	t.Helper()
	kstatus, err := gitops.KStatus(o)
	if err != nil {
		t.Fatal(err)
	}
	health, err := gitops.ArgoHealth(o)
	if err != nil {
		t.Fatal(err)
	}
	return outlook{kstatus, health.Status}, health
}

func metaOf(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID(name), Generation: 3}
}

// Every reason that there is, with the conditions that the manager makes of it, is what kstatus and Argo CD should take it
// for: in force, under way, or failed.
func TestToolsKnowEveryReason(t *testing.T) {
	for _, reason := range reasons(t) {
		want, known := ofReady[reason]
		pool, poolOnly := ofPool[reason]
		endpoint, endpointOnly := ofEndpoint[reason]
		_, beside := besides[reason]
		switch {
		case !known && !poolOnly && !endpointOnly && !beside:
			t.Errorf("reason %s is in no table of this test: say what tools should make of it", reason)
			continue
		case beside:
			continue
		}
		v := notReady(reason, "What is so")
		switch {
		case want == inForce:
			v.status = metav1.ConditionTrue
		case endpointOnly:
			v.status = metav1.ConditionUnknown
		}
		list := conditions(nil, 3, v)
		if known || endpointOnly {
			if endpointOnly {
				want = endpoint
			}
			e := &v1alpha1.WebhookEndpoint{ObjectMeta: metaOf("e"), Status: v1alpha1.WebhookEndpointStatus{ObservedGeneration: 3, Conditions: list}}
			expect(t, reason, e, want)
		}
		if known {
			expect(t, reason, &v1alpha1.RetryPolicy{ObjectMeta: metaOf("r"), Status: v1alpha1.RetryPolicyStatus{ObservedGeneration: 3, Conditions: list}}, want)
		}
		if known || poolOnly {
			if poolOnly {
				want = pool
			}
			p := &v1alpha1.DeliveryPool{ObjectMeta: metaOf("p"), Status: v1alpha1.DeliveryPoolStatus{ObservedGeneration: 3, Conditions: poolConditions(nil, 3, v)}}
			expect(t, reason, p, want)
		}
		if v1alpha1.Stalls(reason) != (want == failed) {
			t.Errorf("Stalls(%s) is %t", reason, v1alpha1.Stalls(reason))
		}
	}
}

func expect(t *testing.T, reason string, o runtime.Object, want outlook) {
	t.Helper()
	if got, health := judge(t, o); got != want || !strings.Contains(health.Message, "What is so") {
		t.Errorf("tools make of a %T with %s: %+v, %q; want %+v", o, reason, got, health.Message, want)
	}
}

// What a receiver answers, what is done with deliveries and how full a volume is leave an object in force, and Argo CD says
// so beside it where something is not as it should be.
func TestTrafficIsNoMatterOfHealth(t *testing.T) {
	for reason, kind := range besides {
		for _, s := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
			list := conditions(nil, 3, verdict{metav1.ConditionTrue, v1alpha1.ReasonAccepted, "Fine"})
			bad := s == metav1.ConditionFalse
			if kind != "" {
				list = append(list, metav1.Condition{Type: kind, Status: s, Reason: reason, Message: "What is so", ObservedGeneration: 3})
			}
			var o runtime.Object = &v1alpha1.WebhookEndpoint{ObjectMeta: metaOf("e"), Status: v1alpha1.WebhookEndpointStatus{ObservedGeneration: 3, Conditions: list}}
			if kind == v1alpha1.ConditionStorePressure {
				bad = s == metav1.ConditionTrue
				o = &v1alpha1.DeliveryPool{ObjectMeta: metaOf("p"), Status: v1alpha1.DeliveryPoolStatus{ObservedGeneration: 3, Conditions: list}}
			}
			message := "Accepted: Fine"
			if bad && kind != "" {
				message = reason + ": What is so"
			}
			if got, health := judge(t, o); got != inForce || health.Message != message {
				t.Errorf("with %s=%s, %s tools say %+v, %q; want %+v, %q", kind, s, reason, got, health.Message, inForce, message)
			}
		}
	}
}

// The statuses that only time brings about: what is decided from what is seen, and what tools make of it.
func TestToolsAndStatesThatTakeTime(t *testing.T) {
	start := time.Date(2026, time.December, 1, 12, 0, 0, 0, time.UTC)
	key := types.NamespacedName{Namespace: "shop", Name: "p"}
	endpoints := map[string]struct {
		in     func(*endpointInputs)
		reason string
		want   outlook
	}{
		"no worker has it yet":   {func(in *endpointInputs) { in.state.Live = []string{"p-worker-0"} }, v1alpha1.ReasonPlanPending, waiting},
		"there is no worker yet": {func(*endpointInputs) {}, v1alpha1.ReasonProgressing, waiting},
		"its pool is starting": {func(in *endpointInputs) {
			in.poolReady = &metav1.Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonProgressing}
		}, v1alpha1.ReasonProgressing, waiting},
		"its pool isn't ready": {func(in *endpointInputs) {
			in.poolReady = &metav1.Condition{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonVolumePending}
		}, v1alpha1.ReasonPoolNotReady, waiting},
		"the pool is lost":    {func(in *endpointInputs) { in.state.Unavailable, in.state.Lost = true, true }, v1alpha1.ReasonPoolUnavailable, ofEndpoint[v1alpha1.ReasonPoolUnavailable]},
		"all workers have it": {func(in *endpointInputs) { in.state.Live, in.acknowledged = []string{"p-worker-0"}, true }, v1alpha1.ReasonAccepted, inForce},
	}
	for name, row := range endpoints {
		e := &v1alpha1.WebhookEndpoint{ObjectMeta: metaOf("e")}
		in := endpointInputs{endpoint: e, pool: key, poolExists: true, seen: 3, entry: &plan.Endpoint{URL: "https://hooks.example.com/", Retry: retry.BuiltIn()}}
		row.in(&in)
		var ok bool
		e.Status, ok = endpointStatus(&in)
		got, _ := judge(t, e)
		if c := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.ConditionReady); !ok || c.Reason != row.reason || got != row.want {
			t.Errorf("%s: the endpoint says %+v, and tools %+v; want %s and %+v", name, c, got, row.reason, row.want)
		}
	}

	pools := map[string]struct {
		in     func(*poolInputs)
		age    time.Duration
		reason string
		want   outlook
	}{
		"its first worker is being started": {func(*poolInputs) {}, time.Minute, v1alpha1.ReasonProgressing, waiting},
		// case GO185
		"its first worker never came up": {func(in *poolInputs) {
			in.state.Unavailable, in.cause = true, cause{what: "ImagePullBackOff", failed: true}
		}, 3 * time.Minute,
			v1alpha1.ReasonWorkerUnavailable, ofPool[v1alpha1.ReasonWorkerUnavailable]},
		"its first worker can't come up": {func(in *poolInputs) {
			in.state.Unavailable, in.state.Overdue, in.cause = true, true, cause{what: "ImagePullBackOff", failed: true}
		}, 6 * time.Minute, v1alpha1.ReasonWorkerFailed, failed},
		"its worker is away": {func(in *poolInputs) {
			in.state.Unavailable = true
			in.pool.Status = v1alpha1.DeliveryPoolStatus{ObservedGeneration: 3, Conditions: conditions(nil, 3, verdict{metav1.ConditionTrue, v1alpha1.ReasonAccepted, ""})}
		}, time.Hour, v1alpha1.ReasonWorkerUnavailable, ofPool[v1alpha1.ReasonWorkerUnavailable]},
		"no volume": {func(in *poolInputs) {
			in.claim = &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}}
		}, 2 * time.Minute, v1alpha1.ReasonVolumePending, waiting},
		"an object can't be made": {func(in *poolInputs) { in.failed = errors.New("over quota") }, time.Minute, v1alpha1.ReasonObjectsFailed, waiting},
		"a worker is there":       {func(in *poolInputs) { in.state.Live = []string{"p-worker-0"} }, time.Minute, v1alpha1.ReasonAccepted, inForce},
	}
	for name, row := range pools {
		p := &v1alpha1.DeliveryPool{ObjectMeta: metaOf("p")}
		p.CreationTimestamp = metav1.NewTime(start)
		in := poolInputs{pool: p, now: start.Add(row.age)}
		row.in(&in)
		status, _, ok := poolStatus(&in)
		p.Status = status
		got, _ := judge(t, p)
		if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady); !ok || c.Reason != row.reason || got != row.want {
			t.Errorf("%s: the pool says %+v, and tools %+v; want %s and %+v", name, c, got, row.reason, row.want)
		}
	}
}

// reasons are the values of all constants of the API that are reasons.
func reasons(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../api/v1alpha1/conditions.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
			return true
		}
		literal, ok := spec.Values[0].(*ast.BasicLit)
		if !ok {
			t.Fatalf("%s is no literal", spec.Names[0].Name)
		}
		value, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, value)
		return true
	})
	if len(out) < 40 {
		t.Fatalf("only %d reasons were found", len(out))
	}
	return out
}
