package compile

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/sign"
)

const (
	// GeneratedKeyName is the name, within the plan, of the key of an endpoint whose
	// signing.keys is unset.
	GeneratedKeyName = "generated"
	// SigningSecretKey is the key that holds it within its Secret.
	SigningSecretKey = "key"
	// maxKeys is the most keys an endpoint signs with.
	maxKeys = 5
)

// SigningSecretName is the Secret with the signing key of an endpoint whose
// signing.keys is unset.
func SigningSecretName(endpoint string) string { return endpoint + "-signing" }

// GeneratesKey reports whether the endpoint leaves its key to Doorstep.
func GeneratesKey(e *v1alpha1.WebhookEndpoint) bool {
	return e.Spec.Signing == nil || len(e.Spec.Signing.Keys) == 0
}

// signing resolves the endpoint's keys: all of them or none, since a request that
// one key did not sign fails at the receiver that expects it.
func (r *resolver) signing() plan.Signing {
	s := deref(r.object.Spec.Signing)
	out := plan.Signing{Scheme: plan.SchemeStandardWebhooks}
	if s.Scheme != "" && s.Scheme != v1alpha1.DefaultSignatureScheme {
		r.fault("spec.signing.scheme", v1alpha1.ReasonSpecInvalid, "signing.scheme must be %s", v1alpha1.DefaultSignatureScheme)
		return out
	}
	if GeneratesKey(r.object) {
		ref := v1alpha1.SecretKeyReference{Name: SigningSecretName(r.object.Name), Key: SigningSecretKey}
		if text, ok := r.signingKey("spec.signing", ref); ok {
			out.Keys = []plan.SigningKey{{Name: GeneratedKeyName, Key: text}}
		}
		return out
	}
	if len(s.Keys) > maxKeys {
		r.fault("spec.signing.keys", v1alpha1.ReasonSpecInvalid, "signing.keys has %d entries; at most %d are allowed", len(s.Keys), maxKeys)
		return out
	}
	all := true
	for i, k := range s.Keys {
		text, ok := r.signingKey(fmt.Sprintf("spec.signing.keys[%d].secretKeyRef", i), k.SecretKeyRef)
		out.Keys = append(out.Keys, plan.SigningKey{Name: k.Name, Key: text})
		all = all && ok
	}
	if !all {
		out.Keys = nil
	}
	return out
}

// signingKey gives the text of one key, checked.
func (r *resolver) signingKey(field string, ref v1alpha1.SecretKeyReference) (string, bool) {
	secret := r.secrets[plan.EndpointKey{Namespace: r.object.Namespace, Name: ref.Name}]
	if secret == nil {
		r.fault(field, v1alpha1.ReasonSecretNotFound, "Secret %s does not exist in namespace %s; create it with the signing key under %s",
			ref.Name, r.object.Namespace, ref.Key)
		return "", false
	}
	text, ok := secretValue(secret, ref.Key)
	if !ok {
		r.fault(field, v1alpha1.ReasonSecretKeyMissing, "Secret %s has no key %s; add it, or name another key in secretKeyRef", ref.Name, ref.Key)
		return "", false
	}
	if _, err := sign.ParseKey(text); err != nil {
		r.fault(field, v1alpha1.ReasonKeyInvalid, "key %s of Secret %s is not a signing key: %s", ref.Key, ref.Name, err)
		return "", false
	}
	return text, true
}

// secretValue reads a Secret as the API server would store it: stringData, which
// only ever comes from files, beats data.
func secretValue(s *corev1.Secret, key string) (string, bool) {
	if v, ok := s.StringData[key]; ok {
		return v, true
	}
	v, ok := s.Data[key]
	return string(v), ok
}
