package compile

import (
	"fmt"
	"strings"
	"time"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

// policy is a RetryPolicy made usable, or why it is not.
type policy struct {
	retry retry.Policy
	// fault names the field under spec and what is wrong with it.
	field string
	fault error
}

// compilePolicies makes every RetryPolicy usable and reports those that are not,
// whether an endpoint names them or not.
func (c *compiler) compilePolicies(in []v1alpha1.RetryPolicy) map[plan.EndpointKey]policy {
	out := make(map[plan.EndpointKey]policy, len(in))
	for i := range in {
		o := &in[i]
		p := compilePolicy(o.Name, &o.Spec)
		if p.fault != nil {
			c.report(Problem{
				Kind: KindRetryPolicy, Namespace: o.Namespace, Name: o.Name, Field: "spec" + p.field,
				Reason: v1alpha1.ReasonRetryPolicyInvalid, Message: p.fault.Error() + "; endpoints that name this policy are held until it is mended",
			})
		}
		out[plan.EndpointKey{Namespace: o.Namespace, Name: o.Name}] = p
	}
	return out
}

// Policy gives the retry policy of a RetryPolicy's spec with its defaults. An error names
// the field, and what is wrong with it.
func Policy(name string, spec *v1alpha1.RetryPolicySpec) (retry.Policy, error) {
	p := compilePolicy(name, spec)
	return p.retry, p.fault
}

// compilePolicy fills in the defaults of a RetryPolicy's spec and checks it by the
// rules of the CRD again.
func compilePolicy(name string, spec *v1alpha1.RetryPolicySpec) policy {
	r := durations{}
	p := retry.Policy{
		Name:       name,
		Backoff:    r.backoff(spec.Backoff),
		Jitter:     jitter(spec.Jitter),
		MaxAge:     r.parse(".maxAge", spec.MaxAge, v1alpha1.DefaultMaxAge),
		Responses:  responses(spec.Responses),
		RetryAfter: r.retryAfter(spec.RetryAfter),
		OnRecovery: retry.Recovery(spec.OnRecovery),
	}
	if p.OnRecovery == "" {
		p.OnRecovery = retry.Recovery(v1alpha1.DefaultOnRecovery)
	}
	if r.err != nil {
		return policy{retry: p, field: r.field, fault: r.err}
	}
	if err := p.Validate(); err != nil {
		// Validate's message begins with the field as it is written in spec.
		field, _, _ := strings.Cut(err.Error(), " ")
		return policy{retry: p, field: "." + field, fault: err}
	}
	if a := spec.RetryAfter; a != nil && a.Policy != "" && a.Policy != v1alpha1.RetryAfterHonor && a.Policy != v1alpha1.RetryAfterIgnore {
		return policy{retry: p, field: ".retryAfter.policy", fault: fmt.Errorf("retryAfter.policy must be Honor or Ignore")}
	}
	return policy{retry: p}
}

// durations parses the durations of a spec and keeps the first fault.
type durations struct {
	field string
	err   error
}

func (r *durations) parse(field string, d v1alpha1.Duration, unset time.Duration) time.Duration {
	v, err := d.ParseOr(unset)
	if err != nil && r.err == nil {
		r.field, r.err = field, err
	}
	return v
}

func (r *durations) backoff(b *v1alpha1.Backoff) retry.Backoff {
	if b == nil {
		return retry.Backoff{Schedule: v1alpha1.DefaultSchedule()}
	}
	var out retry.Backoff
	for i, d := range b.Schedule {
		out.Schedule = append(out.Schedule, r.parse(fmt.Sprintf(".backoff.schedule[%d]", i), d, 0))
	}
	if e := b.Exponential; e != nil {
		out.Exponential = &retry.Exponential{
			Initial:     r.parse(".backoff.exponential.initial", e.Initial, 0),
			Factor:      float64(e.Factor),
			Max:         r.parse(".backoff.exponential.max", e.Max, 0),
			MaxAttempts: int(e.MaxAttempts),
		}
	}
	return out
}

func (r *durations) retryAfter(a *v1alpha1.RetryAfter) retry.RetryAfter {
	if a == nil {
		a = &v1alpha1.RetryAfter{}
	}
	if a.Policy == v1alpha1.RetryAfterIgnore {
		return retry.RetryAfter{}
	}
	return retry.RetryAfter{Honor: true, Max: r.parse(".retryAfter.max", a.Max, v1alpha1.DefaultRetryAfterMax)}
}

func jitter(j *v1alpha1.Jitter) retry.Jitter {
	if j == nil {
		j = &v1alpha1.Jitter{Type: v1alpha1.DefaultJitterType}
	}
	out := retry.Jitter{Type: retry.JitterType(j.Type)}
	switch {
	case j.Type != v1alpha1.JitterProportional:
	case j.Percent != nil:
		out.Percent = int(*j.Percent)
	default:
		out.Percent = int(v1alpha1.DefaultJitterPercent)
	}
	return out
}

func responses(in *v1alpha1.Responses) retry.Responses {
	if in == nil {
		in = &v1alpha1.Responses{}
	}
	list := func(set, unset []v1alpha1.ResponsePattern) []string {
		if set == nil {
			set = unset
		}
		var out []string
		for _, s := range set {
			out = append(out, string(s))
		}
		return out
	}
	return retry.Responses{
		Retry:   list(in.Retry, v1alpha1.DefaultRetryResponses()),
		Fail:    list(in.Fail, nil),
		Disable: list(in.Disable, v1alpha1.DefaultDisableResponses()),
	}
}
