package compile

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

func compileOnePool(t *testing.T, spec v1alpha1.DeliveryPoolSpec) (plan.Pool, []string) {
	t.Helper()
	in := world()
	in.Pools = []v1alpha1.DeliveryPool{{ObjectMeta: meta("doorstep-system", "default"), Spec: spec}}
	r := Compile(in, nil, start, Options{})
	var fields []string
	for _, p := range r.Problems {
		fields = append(fields, p.Field)
	}
	return r.Plan.Pool, fields
}

func TestRetentionOfAPool(t *testing.T) {
	quantity := func(s string) *resource.Quantity { return ptr(resource.MustParse(s)) }
	unset := plan.Retention{Delivered: 72 * time.Hour, DeadLetters: 720 * time.Hour}
	with := func(change func(*plan.Retention)) plan.Retention { r := unset; change(&r); return r }
	for _, c := range []struct {
		name string
		in   v1alpha1.Retention
		want plan.Retention
		bad  string
	}{
		{"unset", v1alpha1.Retention{}, unset, ""},
		{"times", v1alpha1.Retention{Delivered: "1h", DeadLetters: "2h"}, plan.Retention{Delivered: time.Hour, DeadLetters: 2 * time.Hour}, ""},
		{"20Gi", v1alpha1.Retention{MaxBytes: quantity("20Gi")}, with(func(r *plan.Retention) { r.MaxBytes = 20 << 30 }), ""},
		{"64Mi", v1alpha1.Retention{MaxBytes: quantity("64Mi")}, with(func(r *plan.Retention) { r.MaxBytes = 64 << 20 }), ""},
		{"a plain number", v1alpha1.Retention{MaxBytes: quantity("100000000")}, with(func(r *plan.Retention) { r.MaxBytes = 100000000 }), ""},
		{"a fraction", v1alpha1.Retention{MaxBytes: quantity("1.5Gi")}, with(func(r *plan.Retention) { r.MaxBytes = 3 << 29 }), ""},
		{"a byte short of 64Mi", v1alpha1.Retention{MaxBytes: quantity("67108863")}, unset, "spec.retention.maxBytes"},
		{"a negative size", v1alpha1.Retention{MaxBytes: quantity("-1Gi")}, unset, "spec.retention.maxBytes"},
		{"more than there is", v1alpha1.Retention{MaxBytes: quantity("100E")}, with(func(r *plan.Retention) { r.MaxBytes = 1<<63 - 1 }), ""},
		{"payloads with the record", v1alpha1.Retention{Payloads: v1alpha1.PayloadsWithRecord}, unset, ""},
		{"payloads until delivered", v1alpha1.Retention{Payloads: v1alpha1.PayloadsUntilDelivered}, with(func(r *plan.Retention) { r.DropPayloads = true }), ""},
		{"another word for payloads", v1alpha1.Retention{Payloads: "Never"}, unset, "spec.retention.payloads"},
		{"bodies of failures", v1alpha1.Retention{ResponseBodies: v1alpha1.ResponseBodiesOnFailure}, unset, ""},
		{"no bodies", v1alpha1.Retention{ResponseBodies: v1alpha1.ResponseBodiesNever}, with(func(r *plan.Retention) { r.DropResponses = true }), ""},
		{"another word for bodies", v1alpha1.Retention{ResponseBodies: "Always"}, unset, "spec.retention.responseBodies"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, bad := compileOnePool(t, v1alpha1.DeliveryPoolSpec{Retention: &c.in})
			if p.Retention != c.want {
				t.Errorf("%+v, want %+v", p.Retention, c.want)
			}
			if c.bad == "" && len(bad) != 0 || c.bad != "" && !slices.Equal(bad, []string{c.bad}) {
				t.Errorf("problems with %v, want %q", bad, c.bad)
			}
		})
	}
}

func TestLimitsOfAPool(t *testing.T) {
	n := ptr[int32]
	for _, c := range []struct {
		name string
		in   v1alpha1.PoolLimits
		want plan.Limits
		bad  []string
	}{
		{"unset", v1alpha1.PoolLimits{}, plan.Limits{NamespaceWaitingPercent: 50, EndpointWaitingPercent: 25}, nil},
		{"set", v1alpha1.PoolLimits{
			PerNamespace: &v1alpha1.NamespaceLimits{EventsPerSecond: n(7), WaitingBytesPercent: n(1)},
			PerEndpoint:  &v1alpha1.EndpointLimits{WaitingBytesPercent: n(100)},
		}, plan.Limits{NamespaceEventsPerSecond: 7, NamespaceWaitingPercent: 1, EndpointWaitingPercent: 100}, nil},
		{"out of range", v1alpha1.PoolLimits{
			PerNamespace: &v1alpha1.NamespaceLimits{EventsPerSecond: n(0), WaitingBytesPercent: n(101)},
			PerEndpoint:  &v1alpha1.EndpointLimits{WaitingBytesPercent: n(0)},
		}, plan.Limits{NamespaceWaitingPercent: 50, EndpointWaitingPercent: 25}, []string{
			"spec.limits.perNamespace.eventsPerSecond", "spec.limits.perNamespace.waitingBytesPercent", "spec.limits.perEndpoint.waitingBytesPercent",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, bad := compileOnePool(t, v1alpha1.DeliveryPoolSpec{Limits: &c.in})
			slices.Sort(bad)
			slices.Sort(c.bad)
			if p.Limits != c.want || !slices.Equal(bad, c.bad) {
				t.Errorf("%+v with problems %v, want %+v with %v", p.Limits, bad, c.want, c.bad)
			}
		})
	}
}
