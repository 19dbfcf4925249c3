package compile

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// keyNumber is the text of a key for Standard Webhooks, another for each n.
func keyNumber(n int) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(fmt.Sprintf("%032d", n)))
}

// rotation compiles one endpoint again and again, with other values of its Secret.
type rotation struct {
	t    *testing.T
	in   Objects
	last Result
	now  time.Time
}

func startRotation(t *testing.T, s v1alpha1.Signing) *rotation {
	r := &rotation{t: t, in: world(signedBy(s)), now: start}
	r.look(0, keyNumber(0))
	return r
}

// look compiles after a while with the Secret's value; empty: as it is.
func (r *rotation) look(after time.Duration, value string) plan.Endpoint {
	r.t.Helper()
	r.now = r.now.Add(after)
	if value != "" {
		r.in.Secrets[0].StringData["key"] = value
	}
	var previous *plan.Plan
	if r.last.Plan != nil {
		previous = r.last.Plan
	}
	r.last = Compile(r.in, previous, r.now, Options{})
	if again := Compile(r.in, r.last.Plan, r.now, Options{}); again.Plan.Version != r.last.Plan.Version || !again.NextAt.Equal(r.last.NextAt) {
		r.t.Errorf("compiling again gives another plan: %+v, then %+v", r.last.Plan, again.Plan)
	}
	return one(r.t, r.last)
}

// keysOf are an endpoint's keys as "n" for the value in force and "n until 5s" for a
// former one, counted from now.
func (r *rotation) keysOf(e plan.Endpoint) string {
	var out []string
	for _, k := range e.Signing.Keys {
		text := "?"
		for n := range 20 {
			if k.Key == keyNumber(n) {
				text = fmt.Sprint(n)
			}
		}
		if !k.FormerUntil.IsZero() {
			text += " until " + k.FormerUntil.Sub(r.now).String()
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func (r *rotation) expect(e plan.Endpoint, keys string, next time.Duration) {
	r.t.Helper()
	if got := r.keysOf(e); got != keys || e.Problem != nil {
		r.t.Errorf("keys %s (%+v), want %s", got, e.Problem, keys)
	}
	if want := r.now.Add(next); next == 0 && !r.last.NextAt.IsZero() || next != 0 && !r.last.NextAt.Equal(want) {
		r.t.Errorf("next at %v, want %v", r.last.NextAt, want)
	}
}

// cases SG43, ROT-01, ROT-02
func TestAFormerValueSignsThroughTheOverlap(t *testing.T) {
	r := startRotation(t, v1alpha1.Signing{RotationOverlap: "5s"})
	first := r.look(0, "")
	r.expect(first, "0", 0)
	second := r.look(time.Second, keyNumber(1))
	r.expect(second, "1, 0 until 5s", 5*time.Second)
	if second.Hash == first.Hash {
		t.Error("a new value of a key is no change, so that it would not bring a disabled endpoint back")
	}
	r.expect(r.look(2*time.Second, keyNumber(2)), "2, 1 until 5s, 0 until 3s", 3*time.Second)
	third := r.look(3*time.Second, "")
	r.expect(third, "2, 1 until 2s", 2*time.Second)
	last := r.look(2*time.Second, "")
	r.expect(last, "2", 0)
	if last.Hash != third.Hash {
		t.Error("the end of an overlap is a change, so that it would bring a disabled endpoint back")
	}
}

func TestTheOverlapIsADayUnlessSet(t *testing.T) {
	r := startRotation(t, v1alpha1.Signing{})
	r.expect(r.look(time.Second, keyNumber(1)), "1, 0 until 24h0m0s", 24*time.Hour)
}

func TestOverlapOfZeroChangesAtOnce(t *testing.T) {
	r := startRotation(t, v1alpha1.Signing{RotationOverlap: "0s"})
	r.expect(r.look(time.Second, keyNumber(1)), "1", 0)
}

func TestAShorterOverlapEndsWhatRuns(t *testing.T) {
	r := startRotation(t, v1alpha1.Signing{RotationOverlap: "1h"})
	r.look(time.Second, keyNumber(1))
	r.in.Endpoints[0].Spec.Signing.RotationOverlap = "10m"
	r.expect(r.look(time.Minute, ""), "1, 0 until 10m0s", 10*time.Minute)
	r.in.Endpoints[0].Spec.Signing.RotationOverlap = "2h"
	r.expect(r.look(time.Minute, ""), "1, 0 until 9m0s", 9*time.Minute)
	r.in.Endpoints[0].Spec.Signing.RotationOverlap = "0s"
	r.expect(r.look(time.Minute, ""), "1", 0)
}

func TestAValueThatComesBackIsNoFormerOne(t *testing.T) {
	r := startRotation(t, v1alpha1.Signing{RotationOverlap: "1h"})
	r.look(time.Second, keyNumber(1))
	r.expect(r.look(time.Minute, keyNumber(0)), "0, 1 until 1h0m0s", time.Hour)
}

// GitHub and HMAC have room for one signature.
func TestOneSignatureHasNoOverlap(t *testing.T) {
	for _, s := range []v1alpha1.Signing{{Scheme: "GitHub"}, {Scheme: "HMAC", HMAC: &v1alpha1.HMAC{Header: "X-Signature"}}} {
		r := startRotation(t, s)
		r.expect(r.look(time.Second, keyNumber(1)), "1", 0)
	}
	r := startRotation(t, v1alpha1.Signing{Scheme: "Stripe"})
	r.expect(r.look(time.Second, keyNumber(1)), "1, 0 until 24h0m0s", 24*time.Hour)
}

// case ROT-05: the sixth change within the overlap waits, and nothing is dropped.
func TestASixthRotationWaits(t *testing.T) {
	r := startRotation(t, v1alpha1.Signing{RotationOverlap: "1h"})
	for n := 1; n <= 5; n++ {
		r.look(time.Minute, keyNumber(n))
	}
	const running = "5, 4 until 59m0s, 3 until 58m0s, 2 until 57m0s, 1 until 56m0s, 0 until 55m0s"
	e := r.look(time.Minute, keyNumber(6))
	r.expect(e, running, 55*time.Minute)
	if len(r.last.Problems) != 1 || r.last.Problems[0].Reason != "RotationPending" || r.last.Problems[0].Field != "spec.signing.rotationOverlap" {
		t.Errorf("problems %+v, want one of RotationPending", r.last.Problems)
	}
	for _, p := range r.last.Problems {
		if !strings.Contains(p.Message, "shorten signing.rotationOverlap") || strings.Contains(p.Message, "whsec_") {
			t.Errorf("message %q, want one with the way out and without a key", p.Message)
		}
	}
	if again := r.look(0, keyNumber(7)); again.Hash != e.Hash || r.keysOf(again) != running {
		t.Errorf("a seventh value gives keys %s", r.keysOf(again))
	}
	// The oldest ends, and the newest of all is taken up; number 6 never signed.
	taken := r.look(55*time.Minute, "")
	r.expect(taken, "7, 5 until 1h0m0s, 4 until 4m0s, 3 until 3m0s, 2 until 2m0s, 1 until 1m0s", time.Minute)
	if len(r.last.Problems) != 0 || taken.Hash == e.Hash {
		t.Errorf("problems %+v once it is taken up", r.last.Problems)
	}
}

// case ROT-04: a Secret that is gone holds the endpoint; what is known of its keys stays,
// so that a new value still overlaps with the last that receivers know.
func TestRotationThroughALostSecret(t *testing.T) {
	r := startRotation(t, v1alpha1.Signing{RotationOverlap: "1h"})
	r.look(time.Second, keyNumber(1))
	lost := r.in.Secrets
	r.in.Secrets = nil
	e := r.look(time.Minute, "")
	if e.Problem == nil || e.Problem.Reason != "SecretNotFound" || r.keysOf(e) != "1, 0 until 59m0s" {
		t.Errorf("problem %+v and keys %s", e.Problem, r.keysOf(e))
	}
	if want := "is gone from namespace shop, and no other key is made in its place, since receivers know that one; restore it"; !strings.Contains(e.Problem.Message, want) {
		t.Errorf("message %q, want %q", e.Problem.Message, want)
	}
	if e = r.look(time.Hour, ""); r.keysOf(e) != "1" || !r.last.NextAt.IsZero() {
		t.Errorf("keys %s, next at %v; want 1 and never", r.keysOf(e), r.last.NextAt)
	}
	r.in.Secrets = lost
	r.expect(r.look(time.Minute, keyNumber(2)), "2, 1 until 1h0m0s", time.Hour)
}

// An unusable new value holds the endpoint, and is no former value later.
func TestABadNewValueHolds(t *testing.T) {
	r := startRotation(t, v1alpha1.Signing{RotationOverlap: "1h"})
	e := r.look(time.Second, keyNumber(1)+"\n")
	if e.Problem == nil || e.Problem.Reason != "KeyInvalid" || r.keysOf(e) != "0" {
		t.Errorf("problem %+v and keys %s", e.Problem, r.keysOf(e))
	}
	r.expect(r.look(time.Second, keyNumber(1)), "1, 0 until 1h0m0s", time.Hour)
}

// Each key has its own former values; an entry that goes takes them along, and another
// Secret is another key.
func TestFormerValuesBelongToTheirKey(t *testing.T) {
	two := v1alpha1.Signing{RotationOverlap: "1h", Keys: []v1alpha1.SigningKey{
		{Name: "a", SecretKeyRef: keyRef("orders-signing")}, {Name: "b", SecretKeyRef: keyRef("other"), ExpiresAt: at(2 * time.Hour)},
	}}
	r := &rotation{t: t, in: world(signedBy(two)), now: start}
	r.in.Secrets = append(r.in.Secrets, secret("shop", "other", map[string]string{"key": keyNumber(10)}))
	r.look(0, keyNumber(0))
	r.in.Secrets[1].StringData["key"] = keyNumber(11)
	e := r.look(time.Second, keyNumber(1))
	r.expect(e, "1, 11, 10 until 1h0m0s, 0 until 1h0m0s", time.Hour)
	if former := e.Signing.Keys[2]; !former.ExpiresAt.Equal(start.Add(2 * time.Hour)) {
		t.Errorf("the former value of b expires at %v, want the end of its key", former.ExpiresAt)
	}

	s := r.in.Endpoints[0].Spec.Signing
	s.Keys = s.Keys[:1]
	r.expect(r.look(time.Second, ""), "1, 0 until 59m59s", 59*time.Minute+59*time.Second)
	s.Keys = []v1alpha1.SigningKey{{Name: "a", SecretKeyRef: keyRef("other")}}
	r.expect(r.look(time.Second, ""), "11", 0)
}

// Another scheme begins anew: no receiver verifies one by the keys of the other.
func TestAnotherSchemeDropsFormerValues(t *testing.T) {
	r := startRotation(t, v1alpha1.Signing{RotationOverlap: "1h"})
	r.look(time.Second, keyNumber(1))
	r.in.Endpoints[0].Spec.Signing.Scheme = "Stripe"
	r.expect(r.look(time.Second, ""), "1", 0)
}

// What is refused or out of sight goes on with its former values, until they end.
func TestFormerValuesEndWhereNothingIsCompiled(t *testing.T) {
	for name, hide := range map[string]func(*Objects){
		"refused": func(o *Objects) { o.Refused = []plan.EndpointKey{{Namespace: "shop", Name: "orders"}} },
		"absent":  func(o *Objects) { o.Complete = false },
	} {
		t.Run(name, func(t *testing.T) {
			r := startRotation(t, v1alpha1.Signing{RotationOverlap: "1h"})
			r.look(time.Second, keyNumber(1))
			r.in.Endpoints = nil
			hide(&r.in)
			keys := func(after time.Duration) string {
				r.now = r.now.Add(after)
				r.last = Compile(r.in, r.last.Plan, r.now, Options{})
				for e := range r.last.Plan.Known() {
					return r.keysOf(*e)
				}
				return "nothing"
			}
			if got := keys(time.Minute); got != "1, 0 until 59m0s" || !r.last.NextAt.Equal(r.now.Add(59*time.Minute)) {
				t.Errorf("keys %s, next at %v", got, r.last.NextAt)
			}
			if got := keys(59 * time.Minute); got != "1" || !r.last.NextAt.IsZero() {
				t.Errorf("keys %s, next at %v", got, r.last.NextAt)
			}
		})
	}
}
