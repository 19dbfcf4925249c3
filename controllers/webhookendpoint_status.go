package controllers

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	apply "github.com/doorstep-dev/doorstep/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/compile"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/retry"
	"github.com/doorstep-dev/doorstep/internal/ssa"
)

// endpointInputs are what an endpoint's status depends on.
type endpointInputs struct {
	endpoint *v1alpha1.WebhookEndpoint
	pool     types.NamespacedName
	// poolExists: there is such a DeliveryPool. poolReady is what it says of itself; nil for
	// nothing yet.
	poolExists bool
	poolReady  *metav1.Condition
	// seen is the generation that the last pass over the pool saw; 0 for none.
	seen int64
	// unknown: a pass was made, and the plan knows nothing of the endpoint, which it would admit.
	unknown bool
	// entry is what the plan holds of the endpoint; nil for nothing.
	entry    *plan.Endpoint
	problems []compile.Problem
	// unread says what the endpoint needs that exists and can't be read; empty for nothing.
	unread      string
	poolDefault plan.Pool
	// poolEndpoints is how many endpoints the pool has.
	poolEndpoints int
	state         PoolState
	// settles is how long workers may still take to have the entry before that is told.
	settles time.Duration
	// acknowledged: every live worker works by a plan that holds the entry.
	acknowledged bool
}

// verdict is what Ready says.
type verdict struct {
	status          metav1.ConditionStatus
	reason, message string
}

func notReady(reason, message string) verdict {
	return verdict{metav1.ConditionFalse, reason, message}
}

// endpointStatus is the manager's part of an endpoint's status; false while no pass over
// its pool has seen its present generation, and there is nothing to say yet.
func endpointStatus(in *endpointInputs) (v1alpha1.WebhookEndpointStatus, bool) {
	e := in.endpoint
	v, ok := in.verdict()
	if !ok {
		return v1alpha1.WebhookEndpointStatus{}, false
	}
	s := v1alpha1.WebhookEndpointStatus{ObservedGeneration: e.Generation, Pool: in.pool.String()}
	s.Conditions = conditions(e.Status.Conditions, e.Generation, v)
	if in.entry != nil {
		s.Host = hostOf(in.entry.URL)
		s.EffectiveRetry = in.effectiveRetry()
		s.DedupeHorizon = text(dedupeHorizon(&in.entry.Retry))
		if keys := signingKeys(in.entry); len(keys) > 0 {
			s.Signing = &v1alpha1.SigningStatus{Keys: keys}
		}
	}
	return s, true
}

// verdict decides about Ready.
func (in *endpointInputs) verdict() (verdict, bool) {
	e := in.endpoint
	if !in.poolExists {
		return notReady(v1alpha1.ReasonPoolNotFound, "DeliveryPool "+in.pool.String()+" does not exist: create it, or name another one in a new WebhookEndpoint; nothing is accepted for the endpoint meanwhile"), true
	}
	if in.seen != e.Generation {
		return verdict{}, false
	}
	if in.unread != "" {
		goesOn := "nothing is accepted for the endpoint meanwhile"
		if in.entry != nil {
			goesOn = "the endpoint goes on as it was before"
		}
		return notReady(v1alpha1.ReasonSecretNotFound, in.unread+"; "+goesOn), true
	}
	if in.entry == nil {
		for _, p := range in.problems {
			if p.Reason == v1alpha1.ReasonNamespaceNotAllowed {
				return notReady(p.Reason, p.Message), true
			}
		}
		return verdict{}, false
	}
	if p := in.entry.Problem; p != nil {
		return notReady(p.Reason, p.Message+"; events for the endpoint are held"), true
	}
	if in.state.Lost {
		return verdict{metav1.ConditionUnknown, v1alpha1.ReasonPoolUnavailable,
			"No worker of DeliveryPool " + in.pool.String() + " was heard of for minutes; what it accepted is on its volume, and deliveries go on once it runs again: see the pool's conditions"}, true
	}
	if in.acknowledged || readyNow(e) {
		return verdict{metav1.ConditionTrue, v1alpha1.ReasonAccepted, in.readyMessage()}, true
	}
	if len(in.state.Live) == 0 && !in.state.Settling {
		if c := in.poolReady; c != nil && c.Status == metav1.ConditionFalse && c.Reason != v1alpha1.ReasonProgressing {
			return notReady(v1alpha1.ReasonPoolNotReady, "DeliveryPool "+in.pool.String()+" has no worker that could take the endpoint ("+c.Reason+"): see the pool's conditions"), true
		}
		return notReady(v1alpha1.ReasonProgressing, "The endpoint is resolved, and a worker of DeliveryPool "+in.pool.String()+" is being started"), true
	}
	return notReady(v1alpha1.ReasonPlanPending, "The endpoint is resolved, and its pool's workers do not have it yet"), true
}

// readyMessage tells of what does not hold the endpoint, such as a key that signs later.
func (in *endpointInputs) readyMessage() string {
	message := "Live on the pool's workers"
	for _, p := range in.problems {
		if p.Reason == v1alpha1.ReasonRotationPending {
			message += "; " + p.Message
		}
	}
	return message
}

// readyNow reports whether the status says Ready of the present generation. It stays so
// while workers restart.
func readyNow(e *v1alpha1.WebhookEndpoint) bool {
	c := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.ConditionReady)
	return c != nil && c.Status == metav1.ConditionTrue && e.Status.ObservedGeneration == e.Generation && c.ObservedGeneration == e.Generation
}

// conditions are Ready and, where it is False, Reconciling or Stalled, as kstatus wants
// them: absent where they do not hold. A condition's time moves with its status only.
func conditions(before []metav1.Condition, generation int64, v verdict) []metav1.Condition {
	out := []metav1.Condition{next(before, v1alpha1.ConditionReady, v.status, generation, v)}
	if v.status != metav1.ConditionFalse {
		return out
	}
	kind := v1alpha1.ConditionReconciling
	if v1alpha1.Stalls(v.reason) {
		kind = v1alpha1.ConditionStalled
	}
	return append(out, next(before, kind, metav1.ConditionTrue, generation, v))
}

func next(before []metav1.Condition, kind string, status metav1.ConditionStatus, generation int64, v verdict) metav1.Condition {
	return ssa.Condition(before, metav1.Condition{Type: kind, Status: status, Reason: v.reason, Message: v.message, ObservedGeneration: generation}, time.Now())
}

// managerPart is what the manager owns of a status.
func managerPart(s *v1alpha1.WebhookEndpointStatus) *v1alpha1.WebhookEndpointStatus {
	out := &v1alpha1.WebhookEndpointStatus{
		ObservedGeneration: s.ObservedGeneration, Host: s.Host, Pool: s.Pool,
		EffectiveRetry: s.EffectiveRetry, DedupeHorizon: s.DedupeHorizon, Signing: s.Signing,
		Conditions: ours(s.Conditions),
	}
	return out
}

// ours are the manager's conditions, in the order in which it writes them.
func ours(list []metav1.Condition) []metav1.Condition {
	var out []metav1.Condition
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		if c := meta.FindStatusCondition(list, kind); c != nil {
			out = append(out, *c)
		}
	}
	return out
}

// hostOf is the host of a URL, with its port: never more of it.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}

func (in *endpointInputs) effectiveRetry() *v1alpha1.EffectiveRetry {
	p := &in.entry.Retry
	from := "BuiltIn"
	switch {
	case in.endpoint.Spec.RetryPolicyRef != nil:
		from = "RetryPolicy/" + in.endpoint.Spec.RetryPolicyRef.Name
	case in.poolDefault.DefaultRetry != nil:
		from = "DeliveryPool/" + in.pool.Name
	}
	attempts, span := p.MaxAttempts(), p.Span()
	return &v1alpha1.EffectiveRetry{Policy: from, Attempts: int32(attempts), Span: text(span)} //nolint:gosec // at most 200
}

// dedupeHorizon is how long after its acceptance an event may still be attempted, and with
// it its webhook-id come again: maxAge, or the whole schedule with the longest jitter and
// pauses where that is shorter, and one attempt.
func dedupeHorizon(p *retry.Policy) time.Duration {
	return p.MaxAge + time.Minute
}

// signingKeys tells of the keys that sign or will sign.
func signingKeys(e *plan.Endpoint) []v1alpha1.SigningKeyStatus {
	var out []v1alpha1.SigningKeyStatus
	for i := range e.Signing.Keys {
		k := &e.Signing.Keys[i]
		secret, _, _ := strings.Cut(k.Ref, "/")
		s := v1alpha1.SigningKeyStatus{Name: k.Name, SecretName: secret, Fingerprint: fingerprint(k.Key), Origin: v1alpha1.SigningKeyReferenced}
		switch {
		case !k.FormerUntil.IsZero():
			s.Origin = v1alpha1.SigningKeyFormer
		case k.Name == compile.GeneratedKeyName:
			s.Origin = v1alpha1.SigningKeyGenerated
		}
		s.NotBefore = timeOf(k.NotBefore)
		if s.ExpiresAt = timeOf(k.ExpiresAt); !k.FormerUntil.IsZero() {
			s.ExpiresAt = timeOf(k.FormerUntil)
		}
		out = append(out, s)
	}
	return out
}

// fingerprint tells two keys apart and gives neither away: 64 bits of a SHA-256.
func fingerprint(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:8])
}

func timeOf(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	out := metav1.NewTime(t.Truncate(time.Second).Local())
	return &out
}

// text writes a length of time as people do: 36h36m rather than 36h36m0s.
func text(d time.Duration) v1alpha1.Duration {
	if d >= time.Second {
		d = d.Round(time.Second)
	}
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return v1alpha1.Duration(s)
}

// endpointApply is the manager's part of a status as it is applied.
func endpointApply(e *v1alpha1.WebhookEndpoint, s *v1alpha1.WebhookEndpointStatus) *apply.WebhookEndpointApplyConfiguration {
	return apply.WebhookEndpoint(e.Name, e.Namespace).WithUID(e.UID).WithStatus(ssa.Configuration[apply.WebhookEndpointStatusApplyConfiguration](s))
}
