package compile

import (
	"reflect"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

func TestRateLimitAndOrdering(t *testing.T) {
	n := func(v int32) *int32 { return &v }
	for _, tc := range []struct {
		name     string
		rate     *v1alpha1.RateLimit
		ordering v1alpha1.Ordering
		want     *plan.RateLimit
		order    string
		field    string // of the problem
	}{
		{name: "neither"},
		{name: "defaults", rate: &v1alpha1.RateLimit{Requests: n(5)}, want: &plan.RateLimit{Requests: 5, Interval: time.Second, Burst: 5}},
		{name: "everything", rate: &v1alpha1.RateLimit{Requests: n(1), Interval: "60s", Burst: n(3)}, ordering: v1alpha1.OrderingPerKey,
			want: &plan.RateLimit{Requests: 1, Interval: time.Minute, Burst: 3}, order: plan.OrderingPerKey},
		{name: "all in order", ordering: v1alpha1.OrderingAll, order: plan.OrderingAll},
		{name: "no order", ordering: v1alpha1.OrderingNone},
		{name: "no requests", rate: &v1alpha1.RateLimit{}, field: "spec.rateLimit.requests"},
		{name: "too many requests", rate: &v1alpha1.RateLimit{Requests: n(1_000_001)}, field: "spec.rateLimit.requests"},
		{name: "no burst", rate: &v1alpha1.RateLimit{Requests: n(1), Burst: n(0)}, field: "spec.rateLimit.burst"},
		{name: "an interval that is too short", rate: &v1alpha1.RateLimit{Requests: n(1), Interval: "99ms"}, field: "spec.rateLimit.interval"},
		{name: "an interval that is none", rate: &v1alpha1.RateLimit{Requests: n(1), Interval: "soon"}, field: "spec.rateLimit.interval"},
		{name: "an unknown order", ordering: "Sometimes", field: "spec.ordering"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := Compile(world(func(s *v1alpha1.WebhookEndpointSpec) {
				s.RateLimit, s.Ordering = tc.rate, tc.ordering
			}), nil, start, Options{})
			e := one(t, r)
			if tc.field != "" {
				if len(r.Problems) != 1 || r.Problems[0].Field != tc.field || e.Problem == nil {
					t.Fatalf("problems %+v and problem %+v, want one of %s", r.Problems, e.Problem, tc.field)
				}
				return
			}
			if !reflect.DeepEqual(e.RateLimit, tc.want) || e.Ordering != tc.order || e.Problem != nil {
				t.Errorf("rate %+v, ordering %q, problem %+v; want %+v, %q", e.RateLimit, e.Ordering, e.Problem, tc.want, tc.order)
			}
		})
	}
}
