package compile

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// maxFormer is how many former values of an endpoint's keys sign at once: what its
// headers, and the work of each attempt, have room for.
const maxFormer = 5

// rotate keeps the former values of keys signing for the overlap. s holds the keys as
// they are now; the former plan, what they were. Where the value under a Ref has
// changed, the old one goes on until now + overlap; those that run already end as they
// would have, or now + overlap if that is sooner.
//
// With maxFormer values running a further change waits: the value in force goes on
// signing, and the new one is taken up when one of the others ends. Nothing is dropped
// early and no delivery waits, so that a receiver is refused nothing that it knows; an
// operator is told.
//
// An entry that is removed takes its former values with it, and so does a change of
// scheme.
func (r *resolver) rotate(s *plan.Signing, overlap time.Duration) {
	last := r.lastForm(plan.EndpointKey{Namespace: r.object.Namespace, Name: r.object.Name})
	if last == nil || !signsWithEach(s.Scheme) || !sameScheme(&last.Signing, s) {
		return
	}
	running := runningOn(last.Signing.Keys, s.Keys, r.now.Add(overlap), r.now)
	seen := map[string]bool{}
	for i := range s.Keys {
		ref, text := s.Keys[i].Ref, s.Keys[i].Key
		if seen[ref] {
			continue
		}
		seen[ref] = true
		var changed []plan.SigningKey
		for _, k := range last.Signing.Keys {
			if k.Ref == ref && k.FormerUntil.IsZero() && k.Key != text {
				k.FormerUntil = r.now.Add(overlap)
				changed = append(changed, k)
			}
		}
		others := slices.DeleteFunc(slices.Clone(running), func(k plan.SigningKey) bool { return k.Ref == ref && k.Key == text })
		switch {
		case len(changed) == 0, overlap == 0:
			running = others
		case len(others)+len(changed) > maxFormer:
			r.tooMany(s.Keys, ref, changed[0].Key)
		default:
			running = slices.Concat(changed, others)
		}
	}
	s.Keys = append(s.Keys, running...)
}

// runningOn are the former values that still sign: those of a Ref that is still there,
// until until at the latest.
func runningOn(last, now []plan.SigningKey, until, at time.Time) []plan.SigningKey {
	var out []plan.SigningKey
	for _, k := range last {
		named := slices.ContainsFunc(now, func(n plan.SigningKey) bool { return n.Ref == k.Ref })
		if k.FormerUntil.IsZero() || !named {
			continue
		}
		if until.Before(k.FormerUntil) {
			k.FormerUntil = until
		}
		if k.FormerUntil.After(at) {
			out = append(out, k)
		}
	}
	return out
}

// tooMany leaves a Ref's keys as they were, and tells.
func (r *resolver) tooMany(keys []plan.SigningKey, ref, text string) {
	for i := range keys {
		if keys[i].Ref == ref {
			keys[i].Key = text
		}
	}
	r.report(Problem{
		Kind: KindEndpoint, Namespace: r.object.Namespace, Name: r.object.Name,
		Field: "spec.signing.rotationOverlap", Reason: v1alpha1.ReasonRotationPending,
		Message: fmt.Sprintf("key %s has a new value while %d former values still sign, the most there may be; "+
			"the value before it goes on until one of those ends, and then the new one is taken up: rotate less often, or shorten signing.rotationOverlap", ref, maxFormer),
	})
}

// signsWithEach reports whether a scheme has room for a signature a key.
func signsWithEach(scheme string) bool {
	return scheme == plan.SchemeStandardWebhooks || scheme == plan.SchemeStripe
}

// sameScheme reports whether keys mean the same and sign the same.
func sameScheme(a, b *plan.Signing) bool {
	return a.Scheme == b.Scheme && reflect.DeepEqual(a.HMAC, b.HMAC)
}

// running is a Signing of the former plan without the former values that have ended.
func (c *compiler) running(s plan.Signing) plan.Signing {
	ended := func(k plan.SigningKey) bool { return !k.FormerUntil.IsZero() && !k.FormerUntil.After(c.now) }
	if slices.ContainsFunc(s.Keys, ended) {
		s.Keys = slices.DeleteFunc(slices.Clone(s.Keys), ended)
	}
	return s
}
