package compile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

// systemNamespace is where an installation's own DeliveryPool lives.
const systemNamespace = "doorstep-system"

// poolSettings are the pool's part of the plan and the policy of endpoints that
// name none.
type poolSettings struct {
	plan  plan.Pool
	retry policy
}

// compilePool takes the settings of the DeliveryPool. One that was there and is
// not to be seen keeps its settings for AbsenceGrace of complete looks: losing
// egress.allow for a moment would dead-letter what is sent in it.
func (c *compiler) compilePool(in []v1alpha1.DeliveryPool) poolSettings {
	var s poolSettings
	if o := c.choosePool(in); o != nil {
		s = c.settings(o)
	} else if kept, ok := c.keepPool(); ok {
		s = kept
	} else {
		s = c.settings(&v1alpha1.DeliveryPool{})
		s.plan.Source = ""
	}
	c.allowLocal(&s.plan.Egress)
	return s
}

// choosePool returns the DeliveryPool in force, nil if there is none. Of several,
// it is the one of doorstep-system, or else the first by namespace; each other one
// is reported.
func (c *compiler) choosePool(in []v1alpha1.DeliveryPool) *v1alpha1.DeliveryPool {
	name := cmp.Or(c.opts.PoolName, v1alpha1.DefaultPoolName)
	var found []*v1alpha1.DeliveryPool
	for i := range in {
		if in[i].Name == name {
			found = append(found, &in[i])
		}
	}
	if len(found) == 0 {
		return nil
	}
	rank := func(p *v1alpha1.DeliveryPool) int {
		if p.Namespace == systemNamespace {
			return 0
		}
		return 1
	}
	slices.SortFunc(found, func(a, b *v1alpha1.DeliveryPool) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Namespace, b.Namespace))
	})
	for _, o := range found[1:] {
		c.report(Problem{
			Kind: KindPool, Namespace: o.Namespace, Name: o.Name, Field: "metadata.name", Reason: v1alpha1.ReasonSpecInvalid,
			Message: fmt.Sprintf("another DeliveryPool named %s is in namespace %s, and its settings are used; remove one of the two", o.Name, found[0].Namespace),
		})
	}
	return found[0]
}

// keepPool gives the former plan's settings while their DeliveryPool is absent
// without counting as deleted.
func (c *compiler) keepPool() (poolSettings, bool) {
	former := c.previous.Pool
	if former.Source == "" {
		return poolSettings{}, false
	}
	former.AbsentSince = c.missingSince(former.AbsentSince)
	if !former.AbsentSince.IsZero() && c.now.Sub(former.AbsentSince) >= AbsenceGrace {
		return poolSettings{}, false
	}
	former.Egress = poolsOwn(former.Egress)
	s := poolSettings{plan: former, retry: policy{retry: retry.BuiltIn()}}
	if former.DefaultRetry != nil {
		s.retry = policy{retry: *former.DefaultRetry}
	}
	return s, true
}

// settings fills in the defaults of a DeliveryPool. A field that can't be used is
// reported and takes its default; of a list, the entry is left out.
func (c *compiler) settings(o *v1alpha1.DeliveryPool) poolSettings {
	f := poolFields{func(field, message string) {
		c.report(Problem{Kind: KindPool, Namespace: o.Namespace, Name: o.Name, Field: field, Reason: v1alpha1.ReasonSpecInvalid, Message: message})
	}}
	ingest := deref(o.Spec.Ingest)
	s := poolSettings{retry: policy{retry: retry.BuiltIn()}}
	s.plan = plan.Pool{
		Source:      o.Namespace + "/" + o.Name,
		Suspend:     deref(o.Spec.Suspend),
		MaxInFlight: f.number("spec.limits.maxInFlight", deref(o.Spec.Limits).MaxInFlight, 1, 10000, v1alpha1.DefaultPoolMaxInFlight),
		Ingest: plan.Ingest{
			MaxPayloadBytes: f.number("spec.ingest.maxPayloadBytes", ingest.MaxPayloadBytes, 1024, 1<<20, v1alpha1.DefaultMaxPayloadBytes),
			DedupeWindow:    f.duration("spec.ingest.dedupeWindow", ingest.DedupeWindow, v1alpha1.DefaultDedupeWindow),
		},
		Limits:    f.limits(deref(o.Spec.Limits)),
		Egress:    c.egress(o),
		Retention: f.retention(deref(o.Spec.Retention)),
	}
	s.plan.APIKeys = c.apiKeys(o)
	s.plan.Namespaces = c.admittedNamespaces(o)
	if o.Spec.DefaultRetryPolicy != nil {
		s.retry = compilePolicy("", o.Spec.DefaultRetryPolicy)
		if s.retry.fault == nil {
			s.plan.DefaultRetry = &s.retry.retry
		} else {
			c.report(Problem{
				Kind: KindPool, Namespace: o.Namespace, Name: o.Name, Field: "spec.defaultRetryPolicy" + s.retry.field, Reason: v1alpha1.ReasonRetryPolicyInvalid,
				Message: s.retry.fault.Error() + "; endpoints without retryPolicyRef are held until it is mended",
			})
		}
	}
	return s
}

// poolFields reads fields of a DeliveryPool whose default holds where they can't be used.
// bad reports that.
type poolFields struct {
	bad func(field, message string)
}

func (f poolFields) duration(field string, d v1alpha1.Duration, unset time.Duration) time.Duration {
	v, err := d.ParseOr(unset)
	if err == nil && v >= time.Second {
		return v
	}
	if err == nil {
		err = fmt.Errorf("%s must be at least 1s", lastName(field))
	}
	f.bad(field, err.Error()+fmt.Sprintf("; until then %s holds", unset))
	return unset
}

// number gives a number within its range; an unset of 0 stands for no limit.
func (f poolFields) number(field string, n *int32, least, most, unset int32) int {
	switch {
	case n == nil:
		return int(unset)
	case *n < least || *n > most:
		until := fmt.Sprintf("%d holds", unset)
		if unset == 0 {
			until = "there is no limit"
		}
		f.bad(field, fmt.Sprintf("%s must be from %d to %d; until then %s", lastName(field), least, most, until))
		return int(unset)
	}
	return int(*n)
}

// deref is *p, or the zero value where p is nil.
func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// lastName is the name of the field itself, without the path before it.
func lastName(field string) string { return field[strings.LastIndexByte(field, '.')+1:] }
