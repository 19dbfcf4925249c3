package compile

import (
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

// Absence is not deletion: a policy that is out of sight, or can't be used, must not
// give what waits another maxAge or other due times.
func TestALostPolicyKeepsItsFormerForm(t *testing.T) {
	in := world(func(s *v1alpha1.WebhookEndpointSpec) {
		s.RetryPolicyRef = &v1alpha1.RetryPolicyReference{Name: "patient"}
	})
	in.RetryPolicies = []v1alpha1.RetryPolicy{{
		ObjectMeta: meta("shop", "patient"),
		Spec:       v1alpha1.RetryPolicySpec{MaxAge: "720h"},
	}}
	good := Compile(in, nil, start, Options{})
	if e := one(t, good); e.Problem != nil || e.Retry.MaxAge != 720*time.Hour {
		t.Fatalf("problem %v, maxAge %v; want none and 720 h", e.Problem, e.Retry.MaxAge)
	}
	for name, lose := range map[string]func(*Objects){
		"deleted":                  func(o *Objects) { o.RetryPolicies = nil },
		"deleted, look incomplete": func(o *Objects) { o.RetryPolicies, o.Complete = nil, false },
		"invalid": func(o *Objects) {
			o.RetryPolicies = []v1alpha1.RetryPolicy{{ObjectMeta: meta("shop", "patient"), Spec: v1alpha1.RetryPolicySpec{MaxAge: "soon"}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bad := in
			lose(&bad)
			e := one(t, Compile(bad, good.Plan, start, Options{}))
			if e.Problem == nil {
				t.Error("no problem: the endpoint would be sent to by another policy")
			}
			if e.Retry.MaxAge != 720*time.Hour {
				t.Errorf("maxAge is %v, want the former 720 h", e.Retry.MaxAge)
			}
			if fresh := one(t, Compile(bad, nil, start, Options{})); fresh.Retry.MaxAge != 0 {
				t.Errorf("without a former form maxAge is %v, want 0: not known", fresh.Retry.MaxAge)
			}
		})
	}
}
