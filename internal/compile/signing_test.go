package compile

import (
	"encoding/base64"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/sign"
)

// signedBy sets an endpoint's signing.
func signedBy(s v1alpha1.Signing) func(*v1alpha1.WebhookEndpointSpec) {
	return func(spec *v1alpha1.WebhookEndpointSpec) { spec.Signing = &s }
}

// keyRef names key "key" of a Secret.
func keyRef(secret string) v1alpha1.SecretKeyReference {
	return v1alpha1.SecretKeyReference{Name: secret, Key: "key"}
}

func at(d time.Duration) *metav1.Time { return &metav1.Time{Time: start.Add(d)} }

func TestSchemesAreResolvedWithTheirDefaults(t *testing.T) {
	for _, row := range []struct {
		name string
		in   v1alpha1.Signing
		key  string
		want plan.Signing
	}{
		{"unset", v1alpha1.Signing{}, keyA, plan.Signing{Scheme: "StandardWebhooks"}},
		{"StandardWebhooks", v1alpha1.Signing{Scheme: "StandardWebhooks"}, keyA, plan.Signing{Scheme: "StandardWebhooks"}},
		{"GitHub", v1alpha1.Signing{Scheme: "GitHub"}, "It's a Secret to Everybody", plan.Signing{Scheme: "GitHub"}},
		{"Stripe", v1alpha1.Signing{Scheme: "Stripe"}, "whsec_test_secret", plan.Signing{Scheme: "Stripe"}},
		{"HMAC, nothing set", v1alpha1.Signing{Scheme: "HMAC", HMAC: &v1alpha1.HMAC{Header: "X-Signature"}}, "k", plan.Signing{
			Scheme: "HMAC", HMAC: &plan.HMAC{Header: "X-Signature", Algorithm: "SHA256", Encoding: "Hex", KeyEncoding: "Text", Content: "{body}", TimestampUnit: "Seconds"},
		}},
		{"HMAC, everything set", v1alpha1.Signing{Scheme: "HMAC", HMAC: &v1alpha1.HMAC{
			Header: "x-sig", Algorithm: "SHA512", Encoding: "Base64", Prefix: "t={timestamp},v0=", KeyEncoding: "Hex", Content: "{id}:{timestamp}:{body}",
			Timestamp: &v1alpha1.HMACTimestamp{Header: "x-time", Unit: "RFC3339"},
		}}, "00ff", plan.Signing{
			Scheme: "HMAC", HMAC: &plan.HMAC{Header: "x-sig", Algorithm: "SHA512", Encoding: "Base64", Prefix: "t={timestamp},v0=", KeyEncoding: "Hex",
				Content: "{id}:{timestamp}:{body}", TimestampHeader: "x-time", TimestampUnit: "RFC3339"},
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			in := world(signedBy(row.in))
			in.Secrets[0].StringData["key"] = row.key
			e := one(t, Compile(in, nil, start, Options{}))
			row.want.Keys = []plan.SigningKey{{Name: "generated", Ref: "orders-signing/key", Key: row.key}}
			if e.Problem != nil || !reflect.DeepEqual(e.Signing, row.want) {
				t.Errorf("signing %+v (%+v), want %+v", e.Signing, e.Problem, row.want)
			}
			if _, err := sign.NewSigner(e.Signing); err != nil {
				t.Errorf("the plan's signing can't be used: %v", err)
			}
		})
	}
}

func TestSchemeNoneNeedsNoKey(t *testing.T) {
	in := world(signedBy(v1alpha1.Signing{Scheme: "None"}))
	in.Secrets = nil
	e := one(t, Compile(in, nil, start, Options{}))
	if e.Problem != nil || !reflect.DeepEqual(e.Signing, plan.Signing{Scheme: "None"}) {
		t.Errorf("signing %+v (%+v)", e.Signing, e.Problem)
	}
	if GeneratesKey(&in.Endpoints[0]) {
		t.Error("a key is generated, which nothing signs with")
	}
}

// What the CRD's rules refuse is refused here too, and names the field.
func TestSigningInTrouble(t *testing.T) {
	hmac := func(change func(*v1alpha1.HMAC)) v1alpha1.Signing {
		h := &v1alpha1.HMAC{Header: "X-Signature"}
		change(h)
		return v1alpha1.Signing{Scheme: "HMAC", HMAC: h}
	}
	header := func(name string) v1alpha1.Signing { return hmac(func(h *v1alpha1.HMAC) { h.Header = name }) }
	keys := func(scheme v1alpha1.SignatureScheme, k ...v1alpha1.SigningKey) v1alpha1.Signing {
		return v1alpha1.Signing{Scheme: scheme, Keys: k}
	}
	named := v1alpha1.SigningKey{Name: "a", SecretKeyRef: keyRef("orders-signing")}
	for _, row := range []struct {
		name                   string
		signing                v1alpha1.Signing
		key                    string // keyA if empty
		field, reason, message string
	}{
		{"HMAC without hmac", v1alpha1.Signing{Scheme: "HMAC"}, "", "hmac", "SpecInvalid", "hmac must be set with scheme HMAC"},
		{"hmac without HMAC", v1alpha1.Signing{HMAC: &v1alpha1.HMAC{Header: "x"}}, "", "hmac", "SpecInvalid", "hmac must be set with scheme HMAC"},
		{"None with keys", keys("None", named), "", "scheme", "SpecInvalid", "no meaning with scheme None"},
		{"None with an overlap", v1alpha1.Signing{Scheme: "None", RotationOverlap: "1h"}, "", "scheme", "SpecInvalid", "no meaning with scheme None"},
		{"no header", header(""), "", "hmac", "SpecInvalid", "hmac.header is empty"},
		{"a header with a space", header("X Signature"), "", "hmac.header", "SpecInvalid", "must be a header name"},
		{"a header with a line break", header("X-Signature\r\nX-Evil"), "", "hmac.header", "SpecInvalid", "must be a header name"},
		{"a header that is too long", header(strings.Repeat("x", 65)), "", "hmac.header", "SpecInvalid", "at most 64"},
		{"a header of HTTP", header("Content-Length"), "", "hmac.header", "SpecInvalid", "reserved"},
		{"a header of ours", header("doorstep-attempt"), "", "hmac.header", "SpecInvalid", "reserved"},
		{"the id's header", header("Webhook-Id"), "", "hmac.header", "SpecInvalid", "reserved"},
		{"a header of a metadata service", header("X-Google-Metadata-Request"), "", "hmac.header", "SpecInvalid", "reserved"},
		{"a header that headers has", header("x-team"), "", "hmac.header", "SpecInvalid", "stands in headers too"},
		{"a reserved header for the time", hmac(func(h *v1alpha1.HMAC) { h.Timestamp = &v1alpha1.HMACTimestamp{Header: "Host"} }), "", "hmac.timestamp.header", "SpecInvalid", "reserved"},
		{"one header for both", hmac(func(h *v1alpha1.HMAC) { h.Timestamp = &v1alpha1.HMACTimestamp{Header: "x-signature"} }), "", "hmac", "SpecInvalid", "the same header"},
		{"an unsigned body", hmac(func(h *v1alpha1.HMAC) { h.Content = "{id}" }), "", "hmac", "SpecInvalid", "{body} exactly once"},
		{"another field", hmac(func(h *v1alpha1.HMAC) { h.Content = "{url}{body}" }), "", "hmac", "SpecInvalid", "hmac.content: only"},
		{"a content that is too long", hmac(func(h *v1alpha1.HMAC) { h.Content = "{body}" + strings.Repeat("x", 251) }), "", "hmac.content", "SpecInvalid", "at most 256"},
		{"a prefix with a line break", hmac(func(h *v1alpha1.HMAC) { h.Prefix = "a\nb" }), "", "hmac.prefix", "SpecInvalid", "printable ASCII"},
		{"a prefix that is too long", hmac(func(h *v1alpha1.HMAC) { h.Prefix = strings.Repeat("x", 65) }), "", "hmac.prefix", "SpecInvalid", "at most 64"},
		{"a prefix with the body", hmac(func(h *v1alpha1.HMAC) { h.Prefix = "{body}" }), "", "hmac", "SpecInvalid", "hmac.prefix: only"},
		{"an algorithm", hmac(func(h *v1alpha1.HMAC) { h.Algorithm = "MD5" }), "", "hmac", "SpecInvalid", "hmac.algorithm"},
		{"an encoding", hmac(func(h *v1alpha1.HMAC) { h.Encoding = "Base32" }), "", "hmac", "SpecInvalid", "hmac.encoding"},
		{"a key encoding", hmac(func(h *v1alpha1.HMAC) { h.KeyEncoding = "Base32" }), "", "hmac", "SpecInvalid", "hmac.keyEncoding"},
		{"a unit", hmac(func(h *v1alpha1.HMAC) { h.Timestamp = &v1alpha1.HMACTimestamp{Header: "x-time", Unit: "Minutes"} }), "", "hmac", "SpecInvalid", "hmac.timestamp.unit"},
		{"an overlap that is none", v1alpha1.Signing{RotationOverlap: "soon"}, "", "rotationOverlap", "SpecInvalid", "not a duration"},
		{"an overlap too long", v1alpha1.Signing{RotationOverlap: "721h"}, "", "rotationOverlap", "SpecInvalid", "at most 720h"},
		{"six keys", keys("", named, named, named, named, named, named), "", "keys", "SpecInvalid", "at most 5"},
		{"a key that ends before it begins", keys("", v1alpha1.SigningKey{Name: "a", SecretKeyRef: keyRef("orders-signing"), NotBefore: at(1), ExpiresAt: at(1)}), "",
			"keys[0].expiresAt", "SpecInvalid", "expiresAt of key a must be after its notBefore"},
		// case SG42
		{"a trailing newline with GitHub", keys("GitHub", named), "secret\n", "keys[0].secretKeyRef", "KeyInvalid", "trailing newline"},
		{"a generated key that doesn't fit", hmac(func(h *v1alpha1.HMAC) { h.KeyEncoding = "Hex" }), keyA, "", "KeyInvalid", "name a Secret with a key of this scheme in signing.keys"},
		{"a key of Stripe with StandardWebhooks", keys("", named), "whsec_test_secret", "keys[0].secretKeyRef", "KeyInvalid", "for scheme StandardWebhooks: the key is not standard base64"},
		{"all keys have expired", keys("", v1alpha1.SigningKey{Name: "a", SecretKeyRef: keyRef("orders-signing"), ExpiresAt: at(0)}), "", "keys", "KeyInvalid", "no key signs now"},
		{"no key has begun", keys("GitHub", v1alpha1.SigningKey{Name: "a", SecretKeyRef: keyRef("orders-signing"), NotBefore: at(1)}), "", "keys", "KeyInvalid", "no key signs now"},
	} {
		t.Run(row.name, func(t *testing.T) {
			in := world(signedBy(row.signing), func(s *v1alpha1.WebhookEndpointSpec) { s.Headers = []v1alpha1.Header{{Name: "X-Team", Value: "shop"}} })
			if row.key != "" {
				in.Secrets[0].StringData["key"] = row.key
			}
			r := Compile(in, nil, start, Options{})
			e := one(t, r)
			field := strings.TrimSuffix("spec.signing."+row.field, ".")
			if e.Problem == nil || e.Problem.Reason != row.reason || !strings.Contains(e.Problem.Message, row.message) {
				t.Fatalf("problem %+v, want %s with %q", e.Problem, row.reason, row.message)
			}
			if r.Problems[0].Field != field {
				t.Errorf("field %s, want %s", r.Problems[0].Field, field)
			}
			if strings.Contains(e.Problem.Message, in.Secrets[0].StringData["key"]) {
				t.Errorf("the message holds the key: %s", e.Problem.Message)
			}
		})
	}
}

// A generated key fits the scheme it is made for.
func TestNewSigningKey(t *testing.T) {
	for encoding, size := range map[v1alpha1.HMACKeyEncoding]func(string) int{
		"":       func(s string) int { return len(s) - len("whsec_") - 12 },
		"Base64": func(s string) int { b, _ := base64.StdEncoding.DecodeString(s); return len(b) },
		"Hex":    func(s string) int { b, _ := hex.DecodeString(s); return len(b) },
	} {
		e := endpoint("orders", signedBy(v1alpha1.Signing{Scheme: "HMAC", HMAC: &v1alpha1.HMAC{Header: "x", KeyEncoding: encoding}}))
		text := NewSigningKey(&e)
		if n := size(text); n != 32 {
			t.Errorf("keyEncoding %q: %d random bytes, want 32", encoding, n)
		}
		in := Objects{Endpoints: []v1alpha1.WebhookEndpoint{e}, Complete: true}
		in.Secrets = append(in.Secrets, secret("shop", "orders-signing", map[string]string{"key": text}))
		if e := one(t, Compile(in, nil, start, Options{})); e.Problem != nil {
			t.Errorf("keyEncoding %q: %+v", encoding, e.Problem)
		}
	}
}

// Keys with an end: the endpoint is looked at again at each beginning and end, held while
// no key signs, and none of it is a change that brings a disabled endpoint back.
func TestKeysBeginAndEnd(t *testing.T) {
	in := world(signedBy(v1alpha1.Signing{Keys: []v1alpha1.SigningKey{
		{Name: "old", SecretKeyRef: keyRef("orders-signing"), ExpiresAt: at(time.Hour)},
		{Name: "new", SecretKeyRef: keyRef("next"), NotBefore: at(2 * time.Hour)},
	}}))
	in.Secrets = append(in.Secrets, secret("shop", "next", map[string]string{"key": keyB}))
	r := Compile(in, nil, start, Options{})
	hash := one(t, r).Hash
	for _, step := range []struct {
		after, next time.Duration
		held        bool
	}{
		{0, time.Hour, false},
		{time.Hour, 2 * time.Hour, true},
		{2 * time.Hour, 0, false},
		{3 * time.Hour, 0, false},
	} {
		r = Compile(in, r.Plan, start.Add(step.after), Options{})
		e := one(t, r)
		if (e.Problem != nil) != step.held || e.Hash != hash {
			t.Errorf("after %s: problem %+v, hash %s; want held %v and hash %s", step.after, e.Problem, e.Hash, step.held, hash)
		}
		if want := start.Add(step.next); step.next == 0 && !r.NextAt.IsZero() || step.next != 0 && !r.NextAt.Equal(want) {
			t.Errorf("after %s: next at %v, want %v", step.after, r.NextAt, want)
		}
	}
}
