package compile

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	s := deref(e.Spec.Signing)
	return len(s.Keys) == 0 && s.Scheme != v1alpha1.SignatureSchemeNone
}

// NewSigningKey makes the text of a fresh key that fits the endpoint's scheme.
func NewSigningKey(e *v1alpha1.WebhookEndpoint) string {
	scheme := schemeOf(deref(e.Spec.Signing))
	return sign.GenerateKey(&scheme)
}

// schemeOf is how an endpoint signs, with the defaults filled in, not yet checked.
func schemeOf(s v1alpha1.Signing) plan.Signing {
	out := plan.Signing{Scheme: orDefault(string(s.Scheme), string(v1alpha1.DefaultSignatureScheme))}
	if h := s.HMAC; h != nil {
		t := deref(h.Timestamp)
		out.HMAC = &plan.HMAC{
			Header:          h.Header,
			Algorithm:       orDefault(string(h.Algorithm), string(v1alpha1.HMACAlgorithmSHA256)),
			Encoding:        orDefault(string(h.Encoding), string(v1alpha1.HMACEncodingHex)),
			KeyEncoding:     orDefault(string(h.KeyEncoding), string(v1alpha1.HMACKeyEncodingText)),
			Prefix:          h.Prefix,
			Content:         orDefault(h.Content, v1alpha1.DefaultHMACContent),
			TimestampHeader: t.Header,
			TimestampUnit:   orDefault(string(t.Unit), string(v1alpha1.TimestampUnitSeconds)),
		}
	}
	return out
}

func orDefault(s, unset string) string {
	if s == "" {
		return unset
	}
	return s
}

// signing resolves how the endpoint signs: all of its keys or none, since a request
// that one key did not sign fails at the receiver that expects it.
func (r *resolver) signing() plan.Signing {
	s := deref(r.object.Spec.Signing)
	out := schemeOf(s)
	if !r.checkScheme(s, &out) {
		return plan.Signing{Scheme: out.Scheme}
	}
	if out.Scheme == plan.SchemeNone {
		return out
	}
	overlap, err := s.RotationOverlap.ParseOr(v1alpha1.DefaultRotationOverlap)
	if err == nil && overlap > maxOverlap {
		err = fmt.Errorf("rotationOverlap must be at most 720h")
	}
	if err != nil {
		r.fault("spec.signing.rotationOverlap", v1alpha1.ReasonSpecInvalid, "%s", err)
		return out
	}
	if !r.signingKeys(s, &out) {
		out.Keys = nil
		return out
	}
	r.rotate(&out, overlap)
	r.checkTimes(&out)
	return out
}

// checkScheme reports whether the scheme and its description can be used.
func (r *resolver) checkScheme(s v1alpha1.Signing, out *plan.Signing) bool {
	before := r.first
	fault := func(field, format string, args ...any) {
		r.fault("spec.signing."+field, v1alpha1.ReasonSpecInvalid, format, args...)
	}
	switch out.Scheme {
	case plan.SchemeStandardWebhooks, plan.SchemeGitHub, plan.SchemeStripe, plan.SchemeHMAC:
	case plan.SchemeNone:
		if len(s.Keys) > 0 || s.RotationOverlap != "" {
			fault("scheme", "keys and rotationOverlap have no meaning with scheme None; remove them")
		}
	default:
		fault("scheme", "scheme must be one of StandardWebhooks, GitHub, Stripe, HMAC and None")
	}
	switch isHMAC := out.Scheme == plan.SchemeHMAC; {
	case isHMAC != (s.HMAC != nil):
		fault("hmac", "hmac must be set with scheme HMAC, and with no other")
	case isHMAC:
		r.checkHMAC(out.HMAC, fault)
	}
	return r.first == before
}

// checkHMAC checks what the CRD's rules say of hmac.
func (r *resolver) checkHMAC(h *plan.HMAC, fault func(field, format string, args ...any)) {
	for _, at := range []struct{ field, name string }{{"hmac.header", h.Header}, {"hmac.timestamp.header", h.TimestampHeader}} {
		switch {
		case at.name == "": // no time is sent, or sign says so of the signature
		case len(at.name) > maxHeaderName || !headerName.MatchString(at.name):
			fault(at.field, "header must be a header name of at most %d letters, digits and dashes, without spaces or colons", maxHeaderName)
		case holdsNoSignature(at.name):
			fault(at.field, "header is reserved: headers of HTTP itself, of events and of metadata services can't hold a signature or its time; choose another name")
		case slices.ContainsFunc(r.object.Spec.Headers, func(own v1alpha1.Header) bool { return strings.EqualFold(own.Name, at.name) }):
			fault(at.field, "header stands in headers too; remove it there, or sign in another one")
		}
	}
	if len(h.Content) > maxHMACContent {
		fault("hmac.content", "content must be at most %d characters", maxHMACContent)
	}
	if len(h.Prefix) > maxHMACPrefix || !hmacPrefix.MatchString(h.Prefix) {
		fault("hmac.prefix", "prefix must be printable ASCII, at most %d characters, and not begin with a space", maxHMACPrefix)
	}
	if err := sign.CheckHMAC(h); err != nil {
		fault("hmac", "%s", err)
	}
}

// Bounds of signing, as the CRD has them.
const (
	maxOverlap     = 720 * time.Hour
	maxHeaderName  = 64
	maxHMACContent = 256
	maxHMACPrefix  = 64
)

var (
	headerName = regexp.MustCompile(`^[A-Za-z0-9!#$%&*+.^_|~-]+$`)
	hmacPrefix = regexp.MustCompile(`^([\x21-\x7e][\x20-\x7e]*)?$`)

	noSignatureHeaders = []string{
		"host", "content-length", "content-type", "content-encoding", "transfer-encoding", "connection", "upgrade", "te", "trailer",
		"expect", "keep-alive", "user-agent", "traceparent", "idempotency-key", "x-idempotency-key", "metadata", "metadata-flavor",
		"authorization", "cookie", "webhook-id", "webhook-timestamp",
	}
	noSignaturePrefixes = regexp.MustCompile(`^(doorstep-|ce-|proxy-|x-google-|x-aws-ec2-metadata)`)
)

// holdsNoSignature reports whether a header means something else to a receiver, or to
// what stands before it.
func holdsNoSignature(name string) bool {
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-") // as CGI reads it
	return slices.Contains(noSignatureHeaders, name) || noSignaturePrefixes.MatchString(name)
}

// signingKeys reads all keys of the endpoint; false if one can't be used.
func (r *resolver) signingKeys(s v1alpha1.Signing, out *plan.Signing) bool {
	if GeneratesKey(r.object) {
		ref := v1alpha1.SecretKeyReference{Name: SigningSecretName(r.object.Name), Key: SigningSecretKey}
		if !r.generatedKeyIsThere(ref) {
			return false
		}
		text, ok := r.signingKey("spec.signing", ref, out)
		out.Keys = []plan.SigningKey{{Name: GeneratedKeyName, Ref: refText(ref), Key: text}}
		return ok
	}
	if len(s.Keys) > maxKeys {
		r.fault("spec.signing.keys", v1alpha1.ReasonSpecInvalid, "signing.keys has %d entries; at most %d are allowed", len(s.Keys), maxKeys)
		return false
	}
	all := true
	for i, k := range s.Keys {
		field := fmt.Sprintf("spec.signing.keys[%d]", i)
		text, ok := r.signingKey(field+".secretKeyRef", k.SecretKeyRef, out)
		key := plan.SigningKey{Name: k.Name, Ref: refText(k.SecretKeyRef), Key: text, NotBefore: utc(k.NotBefore), ExpiresAt: utc(k.ExpiresAt)}
		if k.NotBefore != nil && k.ExpiresAt != nil && !key.NotBefore.Before(key.ExpiresAt) {
			r.fault(field+".expiresAt", v1alpha1.ReasonSpecInvalid, "expiresAt of key %s must be after its notBefore", k.Name)
			ok = false
		}
		out.Keys = append(out.Keys, key)
		all = all && ok
	}
	return all
}

// generatedKeyIsThere reports whether the Secret of the key that is made for the endpoint
// is there. It is made once; one that is lost only people can replace.
func (r *resolver) generatedKeyIsThere(ref v1alpha1.SecretKeyReference) bool {
	o := r.object
	if r.secrets[plan.EndpointKey{Namespace: o.Namespace, Name: ref.Name}] != nil {
		return true
	}
	if HasGeneratedKey(r.lastForm(plan.EndpointKey{Namespace: o.Namespace, Name: o.Name})) {
		r.fault("spec.signing", v1alpha1.ReasonSecretNotFound, "Secret %s with the signing key that was made for the endpoint is gone from namespace %s, "+
			"and no other key is made in its place, since receivers know that one; restore it, create it with a new key under %s, or name another Secret in signing.keys",
			ref.Name, o.Namespace, ref.Key)
		return false
	}
	r.fault("spec.signing", v1alpha1.ReasonSecretNotFound, "Secret %s does not exist in namespace %s; it is made with a signing key under %s, unless you create it first",
		ref.Name, o.Namespace, ref.Key)
	return false
}

// refText is a reference as plan.SigningKey has it. Neither part holds a slash.
func refText(ref v1alpha1.SecretKeyReference) string { return ref.Name + "/" + ref.Key }

func utc(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// signingKey gives the text of one key, checked for the scheme.
func (r *resolver) signingKey(field string, ref v1alpha1.SecretKeyReference, scheme *plan.Signing) (string, bool) {
	text, ok := r.secretText(field, ref, "the signing key")
	if !ok {
		return "", false
	}
	if _, err := sign.ParseKeyFor(scheme, text); err != nil {
		way := ""
		if GeneratesKey(r.object) {
			// It may have been made for the scheme of before; nothing ever overwrites it.
			way = "; mend it, or name a Secret with a key of this scheme in signing.keys"
		}
		r.fault(field, v1alpha1.ReasonKeyInvalid, "key %s of Secret %s is not a signing key for scheme %s: %s%s", ref.Key, ref.Name, scheme.Scheme, err, way)
		return "", false
	}
	return text, true
}

// checkTimes sees to it that some key signs now, and that the endpoint is looked at
// again when a key begins or ends. Keys begin and end by wall time when they sign; the
// compiler has steady time alone, which is that of the wall but for steps of its clock.
// If the two differ, the endpoint is held a little early, or its deliveries wait a
// little for a key: nothing is sent unsigned.
func (r *resolver) checkTimes(s *plan.Signing) {
	timed := false
	for i := range s.Keys {
		for _, t := range []time.Time{s.Keys[i].NotBefore, s.Keys[i].ExpiresAt} {
			timed = timed || !t.IsZero()
			if t.After(r.now) {
				r.lookAgain(t)
			}
		}
	}
	if !timed {
		return
	}
	signer, err := sign.NewSigner(*s)
	switch {
	case err != nil:
		r.fault("spec.signing.keys", v1alpha1.ReasonKeyInvalid, "%s", err)
	case !signer.CanSign(r.now, r.now):
		r.fault("spec.signing.keys", v1alpha1.ReasonKeyInvalid,
			"no key signs now: each has expired or has not begun; add a key to signing.keys, or mend their notBefore and expiresAt")
	}
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

// HasGeneratedKey reports whether an endpoint of a plan signs with the key that was made
// for it. Where its Secret is gone later, it is lost, not lacking: receivers know that key,
// and no other is to be made.
func HasGeneratedKey(e *plan.Endpoint) bool {
	return e != nil && len(e.Signing.Keys) > 0 && e.Signing.Keys[0].Name == GeneratedKeyName
}
