package compile

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/deliver/egress"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// The keys of the Secret of a client of OAuth 2.0.
const (
	ClientIDKey     = "clientID"
	ClientSecretKey = "clientSecret"
)

const (
	maxScopes   = 20
	maxAudience = 1024
)

var (
	// bearerToken is b64token of RFC 6750 §2.1.
	bearerToken = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)
	// scopeToken is that of RFC 6749 §3.3.
	scopeToken = regexp.MustCompile(`^[\x21\x23-\x5B\x5D-\x7E]{1,256}$`)
)

// auth resolves how Doorstep identifies itself to the receiver.
func (r *resolver) auth() *plan.Auth {
	const field = "spec.auth"
	a := r.object.Spec.Auth
	if a == nil {
		return nil
	}
	wanted := map[v1alpha1.AuthType]bool{
		v1alpha1.AuthTypeBasic: a.Basic != nil, v1alpha1.AuthTypeBearer: a.Bearer != nil, v1alpha1.AuthTypeOAuth2ClientCredentials: a.OAuth2 != nil,
	}
	set := 0
	for _, is := range wanted {
		if is {
			set++
		}
	}
	if set != 1 || !wanted[a.Type] {
		r.fault(field, v1alpha1.ReasonSpecInvalid, "auth must have the field that belongs to its type, and no other: basic with Basic, bearer with Bearer, oauth2 with OAuth2ClientCredentials")
		return nil
	}
	switch {
	case a.Basic != nil:
		return r.basicAuth(field+".basic.secretRef", a.Basic.SecretRef.Name)
	case a.Bearer != nil:
		return r.bearerAuth(field+".bearer.secretKeyRef", a.Bearer.SecretKeyRef)
	}
	return r.oauth2(field+".oauth2", a.OAuth2)
}

// basicAuth is RFC 7617.
func (r *resolver) basicAuth(field, secret string) *plan.Auth {
	user, ok1 := r.credential(field, secret, corev1.BasicAuthUsernameKey, "the user name")
	password, ok2 := r.credential(field, secret, corev1.BasicAuthPasswordKey, "the password")
	if !ok1 || !ok2 {
		return nil
	}
	if strings.Contains(user, ":") {
		r.fault(field, v1alpha1.ReasonSpecInvalid, "key %s of Secret %s holds a colon, which basic authentication has no room for; use another user name", corev1.BasicAuthUsernameKey, secret)
		return nil
	}
	return &plan.Auth{Authorization: "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))}
}

func (r *resolver) bearerAuth(field string, ref v1alpha1.SecretKeyReference) *plan.Auth {
	token, ok := r.credential(field, ref.Name, ref.Key, "the token")
	if !ok {
		return nil
	}
	if !bearerToken.MatchString(token) {
		r.fault(field, v1alpha1.ReasonSpecInvalid, "key %s of Secret %s is not a bearer token: it may have letters, digits and -._~+/ only, with = at its end; leave out a leading \"Bearer\"", ref.Key, ref.Name)
		return nil
	}
	return &plan.Auth{Authorization: "Bearer " + token}
}

// credential gives one printable text of a Secret.
func (r *resolver) credential(field, secret, key, what string) (string, bool) {
	text, ok := r.secretText(field, v1alpha1.SecretKeyReference{Name: secret, Key: key}, what)
	if !ok {
		return "", false
	}
	if err := checkText(text); err != nil {
		r.fault(field, v1alpha1.ReasonSpecInvalid, "key %s of Secret %s %s", key, secret, err)
		return "", false
	}
	return text, true
}

// oauth2 resolves a client of the client credentials grant. With --forward-to nothing but
// this machine is asked for a token: the manifests of production stay on the laptop.
func (r *resolver) oauth2(field string, o *v1alpha1.OAuth2ClientCredentials) *plan.Auth {
	if u, err := egress.CheckURL(o.TokenURL); err == nil && r.opts.ForwardTo != nil && !isLoopback(u) {
		return nil
	}
	u, ok := r.destination(field+".tokenURL", o.TokenURL)
	if !ok {
		return nil
	}
	out := &plan.OAuth2{TokenURL: u.String(), Scopes: slices.Clone(o.Scopes), Audience: o.Audience}
	slices.Sort(out.Scopes)
	ok = r.oauth2Parameters(field, o)
	id, ok1 := r.credential(field+".secretRef", o.SecretRef.Name, ClientIDKey, "the client's id")
	secret, ok2 := r.credential(field+".secretRef", o.SecretRef.Name, ClientSecretKey, "the client's secret")
	if !ok || !ok1 || !ok2 {
		return nil
	}
	out.ClientID, out.ClientSecret, out.InBody = id, secret, o.ClientAuthentication == v1alpha1.ClientAuthenticationBody
	return &plan.Auth{OAuth2: out}
}

// oauth2Parameters checks what is sent beside the client's id and secret.
func (r *resolver) oauth2Parameters(field string, o *v1alpha1.OAuth2ClientCredentials) bool {
	ok := true
	bad := func(field, format string, args ...any) {
		ok = false
		r.fault(field, v1alpha1.ReasonSpecInvalid, format, args...)
	}
	if len(o.Scopes) > maxScopes {
		bad(field+".scopes", "scopes has %d entries; at most %d are allowed", len(o.Scopes), maxScopes)
	}
	for i, s := range o.Scopes {
		if !scopeToken.MatchString(s) {
			bad(fmt.Sprintf("%s.scopes[%d]", field, i), "each entry of scopes must be one scope: printable ASCII without spaces, quotes and backslashes, at most 256 characters")
		}
	}
	if len(o.Audience) > maxAudience {
		bad(field+".audience", "audience must be at most %d characters long", maxAudience)
	}
	switch o.ClientAuthentication {
	case "", v1alpha1.ClientAuthenticationHeader, v1alpha1.ClientAuthenticationBody:
	default:
		bad(field+".clientAuthentication", "clientAuthentication must be %s or %s", v1alpha1.ClientAuthenticationHeader, v1alpha1.ClientAuthenticationBody)
	}
	return ok
}
