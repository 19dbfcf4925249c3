package compile

import (
	"fmt"
	"net/textproto"
	"regexp"
	"strings"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/deliver"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// maxHeaders is the most headers an endpoint adds, as the CRD has it.
const maxHeaders = 20

func (r *resolver) dataOnly() bool {
	switch b := r.object.Spec.Body; b {
	case "", v1alpha1.RequestBodyEvent:
	case v1alpha1.RequestBodyData:
		return true
	default:
		r.fault("spec.body", v1alpha1.ReasonSpecInvalid, "body must be %s or %s", v1alpha1.RequestBodyEvent, v1alpha1.RequestBodyData)
	}
	return false
}

// headers resolves the headers that are added to every request.
func (r *resolver) headers() []plan.Header {
	in := r.object.Spec.Headers
	if len(in) > maxHeaders {
		r.fault("spec.headers", v1alpha1.ReasonSpecInvalid, "headers has %d entries; at most %d are allowed", len(in), maxHeaders)
		return nil
	}
	taken := map[string]string{} // the signature's headers are judged with signing
	if r.object.Spec.Auth != nil {
		taken["Authorization"] = "spec.auth"
	}
	var out []plan.Header
	for i := range in {
		field := fmt.Sprintf("spec.headers[%d]", i)
		name := textproto.CanonicalMIMEHeaderKey(in[i].Name)
		if err := deliver.CheckHeaderName(in[i].Name); err != nil {
			r.fault(field+".name", v1alpha1.ReasonSpecInvalid, "%s", err)
			continue
		}
		if by := taken[name]; by != "" {
			r.fault(field+".name", v1alpha1.ReasonSpecInvalid, "%s is set by %s as well; remove one of the two", name, by)
			continue
		}
		taken[name] = field
		if h, ok := r.header(field, &in[i]); ok {
			h.Name = name
			out = append(out, h)
		}
	}
	return out
}

// eventSource is what valueFrom.event may be.
var eventSource = regexp.MustCompile(`^(id|type|source|subject|time|attributes\.[a-z0-9]{1,64})$`)

// header resolves one header's value.
func (r *resolver) header(field string, h *v1alpha1.Header) (plan.Header, bool) {
	from := deref(h.ValueFrom)
	set := 0
	for _, is := range []bool{h.Value != "", from.SecretKeyRef != nil, from.Event != ""} {
		if is {
			set++
		}
	}
	if set != 1 {
		r.fault(field, v1alpha1.ReasonSpecInvalid, "each header must have exactly one of value, valueFrom.secretKeyRef and valueFrom.event")
		return plan.Header{}, false
	}
	switch {
	case from.Event != "":
		if !eventSource.MatchString(from.Event) {
			r.fault(field+".valueFrom.event", v1alpha1.ReasonSpecInvalid,
				"event must be id, type, source, subject, time, or attributes. and the name of an attribute, which has lower-case letters and digits only")
			return plan.Header{}, false
		}
		return plan.Header{Event: from.Event}, true
	case from.SecretKeyRef != nil:
		value, ok := r.secretText(field+".valueFrom.secretKeyRef", *from.SecretKeyRef, "the value of header "+h.Name)
		if !ok {
			return plan.Header{}, false
		}
		if err := deliver.CheckHeaderValue(value); err != nil {
			r.fault(field+".valueFrom.secretKeyRef", v1alpha1.ReasonSpecInvalid, "key %s of Secret %s %s", from.SecretKeyRef.Key, from.SecretKeyRef.Name, err)
			return plan.Header{}, false
		}
		return plan.Header{Value: value}, true
	}
	if err := deliver.CheckHeaderValue(h.Value); err != nil {
		r.fault(field+".value", v1alpha1.ReasonSpecInvalid, "value %s", err)
		return plan.Header{}, false
	}
	return plan.Header{Value: h.Value}, true
}

// secretText gives the text under one key of a Secret of the endpoint's namespace; what
// says what it is wanted for.
func (r *resolver) secretText(field string, ref v1alpha1.SecretKeyReference, what string) (string, bool) {
	secret := r.secrets[plan.EndpointKey{Namespace: r.object.Namespace, Name: ref.Name}]
	if secret == nil {
		r.fault(field, v1alpha1.ReasonSecretNotFound, "Secret %s does not exist in namespace %s; create it with %s under %s",
			ref.Name, r.object.Namespace, what, ref.Key)
		return "", false
	}
	text, ok := secretValue(secret, ref.Key)
	if !ok {
		r.fault(field, v1alpha1.ReasonSecretKeyMissing, "Secret %s has no key %s; add it with %s", ref.Name, ref.Key, what)
	}
	return text, ok
}

// checkText says what is wrong with a secret text that must be printable; its words
// follow the name of the place it is from.
func checkText(text string) error {
	switch {
	case text == "":
		return fmt.Errorf("is empty")
	case strings.HasSuffix(text, "\n"):
		return fmt.Errorf("ends in a newline; write it without one (printf or echo -n)")
	}
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return fmt.Errorf("holds control characters or characters outside ASCII")
		}
	}
	return nil
}
