package compile

import (
	"cmp"
	"fmt"
	"net/netip"
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

// loopback is what --dev and --forward-to allow beside the pool's networks.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

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
	if former.Egress.Local {
		// What an earlier run allowed by its flags is not the pool's.
		former.Egress = plan.Egress{Allow: slices.DeleteFunc(slices.Clone(former.Egress.Allow), func(n plan.Network) bool {
			return slices.Contains(loopback, n.Prefix)
		})}
	}
	s := poolSettings{plan: former, retry: policy{retry: retry.BuiltIn()}}
	if former.DefaultRetry != nil {
		s.retry = policy{retry: *former.DefaultRetry}
	}
	return s, true
}

// allowLocal adds what --dev and --forward-to allow.
func (c *compiler) allowLocal(e *plan.Egress) {
	if !c.opts.local() {
		return
	}
	e.Allow = slices.DeleteFunc(e.Allow, func(n plan.Network) bool { return slices.Contains(loopback, n.Prefix) })
	for _, p := range loopback {
		e.Allow = append(e.Allow, plan.Network{Prefix: p})
	}
	slices.SortFunc(e.Allow, compareNetworks)
	e.AllowHTTP, e.Local = true, true
	// A name such as prod.localhost is judged where it is dialled.
	e.LoopbackOnly = c.opts.ForwardTo == nil
}

// settings fills in the defaults of a DeliveryPool. A field that can't be used is
// reported and takes its default; of a list, the entry is left out.
func (c *compiler) settings(o *v1alpha1.DeliveryPool) poolSettings {
	f := poolFields{func(field, message string) {
		c.report(Problem{Kind: KindPool, Namespace: o.Namespace, Name: o.Name, Field: field, Reason: v1alpha1.ReasonSpecInvalid, Message: message})
	}}
	ingest, egress := deref(o.Spec.Ingest), deref(o.Spec.Egress)
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
		Egress:    plan.Egress{Allow: c.networks(egress.Allow, f.bad), AllowHTTP: deref(egress.AllowHTTP)},
		Retention: f.retention(deref(o.Spec.Retention)),
	}
	s.plan.APIKeys = c.apiKeys(o)
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

// networks parses egress.allow, sorted.
func (c *compiler) networks(in []v1alpha1.EgressNetwork, bad func(field, message string)) []plan.Network {
	var out []plan.Network
	for i, n := range in {
		p, err := netip.ParsePrefix(n.CIDR)
		if err != nil || p != p.Masked() {
			bad(fmt.Sprintf("spec.egress.allow[%d].cidr", i), "cidr must be a network such as 10.20.0.0/16 or fd00:20::/64, with zeros after the prefix; until then the entry allows nothing")
			continue
		}
		out = append(out, plan.Network{Prefix: p})
	}
	slices.SortFunc(out, compareNetworks)
	return out
}

func compareNetworks(a, b plan.Network) int { return a.Prefix.Compare(b.Prefix) }

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
