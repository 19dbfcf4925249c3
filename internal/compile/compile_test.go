package compile

import (
	"encoding/base64"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

var (
	start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	keyA  = "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("a", 32)))
	keyB  = "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("b", 32)))
)

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func secret(namespace, name string, data map[string]string) corev1.Secret {
	return corev1.Secret{ObjectMeta: meta(namespace, name), StringData: data}
}

func endpoint(name string, change ...func(*v1alpha1.WebhookEndpointSpec)) v1alpha1.WebhookEndpoint {
	e := v1alpha1.WebhookEndpoint{ObjectMeta: meta("shop", name)}
	e.Spec.URL = "https://hooks.example.com/" + name + "?token=s3cret"
	for _, f := range change {
		f(&e.Spec)
	}
	return e
}

// world is one endpoint, orders, with everything it needs.
func world(change ...func(*v1alpha1.WebhookEndpointSpec)) Objects {
	return Objects{
		Endpoints: []v1alpha1.WebhookEndpoint{endpoint("orders", change...)},
		Secrets:   []corev1.Secret{secret("shop", "orders-signing", map[string]string{"key": keyA})},
		Complete:  true,
	}
}

func ptr[T any](v T) *T { return &v }

func one(t *testing.T, r Result) plan.Endpoint {
	t.Helper()
	if len(r.Plan.Endpoints) != 1 {
		t.Fatalf("%d endpoints in the plan, want 1", len(r.Plan.Endpoints))
	}
	return r.Plan.Endpoints[0]
}

func TestAnEndpointWithNothingSetTakesTheDefaults(t *testing.T) {
	r := Compile(world(), nil, start, Options{})
	if len(r.Problems) != 0 || !r.NextAt.IsZero() {
		t.Errorf("problems %v and next at %v, want none", r.Problems, r.NextAt)
	}
	e := one(t, r)
	want := plan.Endpoint{
		EndpointKey: plan.EndpointKey{Namespace: "shop", Name: "orders"},
		Hash:        e.Hash,
		FirstSeen:   start,
		URL:         "https://hooks.example.com/orders?token=s3cret",
		Signing:     plan.Signing{Scheme: "StandardWebhooks", Keys: []plan.SigningKey{{Name: "generated", Ref: "orders-signing/key", Key: keyA}}},
		Timeout:     15 * time.Second,
		MaxInFlight: 16,
		Retry:       retry.BuiltIn(),
	}
	if !reflect.DeepEqual(e, want) || e.Hash == "" {
		t.Errorf("endpoint %+v, want %+v", e, want)
	}
	wantPool := plan.Pool{
		MaxInFlight: 512,
		Ingest:      plan.Ingest{MaxPayloadBytes: 262144, DedupeWindow: 24 * time.Hour},
		Limits:      plan.Limits{NamespaceWaitingPercent: 50, EndpointWaitingPercent: 25},
		Retention:   plan.Retention{Delivered: 72 * time.Hour, DeadLetters: 720 * time.Hour},
	}
	if !reflect.DeepEqual(r.Plan.Pool, wantPool) {
		t.Errorf("pool %+v, want %+v", r.Plan.Pool, wantPool)
	}
	if r.Plan.Version != 1 || r.Plan.Format != plan.Format {
		t.Errorf("version %d format %d, want 1 and %d", r.Plan.Version, r.Plan.Format, plan.Format)
	}
}

func TestTheDefaultsOfTheAPIAreTheBuiltInPolicy(t *testing.T) {
	if got := compilePolicy("", &v1alpha1.RetryPolicySpec{}); !reflect.DeepEqual(got.retry, retry.BuiltIn()) || got.fault != nil {
		t.Errorf("an empty RetryPolicy is %+v (%v), want %+v", got.retry, got.fault, retry.BuiltIn())
	}
}

func TestEndpointInTrouble(t *testing.T) {
	pool := func(change func(*v1alpha1.DeliveryPoolSpec)) []v1alpha1.DeliveryPool {
		p := v1alpha1.DeliveryPool{ObjectMeta: meta("doorstep-system", "default")}
		change(&p.Spec)
		return []v1alpha1.DeliveryPool{p}
	}
	named := func(refs ...string) func(*v1alpha1.WebhookEndpointSpec) {
		return func(s *v1alpha1.WebhookEndpointSpec) {
			s.Signing = &v1alpha1.Signing{}
			for _, ref := range refs {
				s.Signing.Keys = append(s.Signing.Keys, v1alpha1.SigningKey{Name: ref, SecretKeyRef: v1alpha1.SecretKeyReference{Name: ref, Key: "key"}})
			}
		}
	}
	for _, tc := range []struct {
		name                   string
		change                 func(*v1alpha1.WebhookEndpointSpec)
		secrets                []corev1.Secret
		policies               []v1alpha1.RetryPolicy
		pools                  []v1alpha1.DeliveryPool
		opts                   Options
		reason, field, message string
	}{
		{name: "no Secret for the generated key", secrets: []corev1.Secret{}, reason: "SecretNotFound", field: "spec.signing", message: "Secret orders-signing does not exist in namespace shop; it is made with a signing key under key, unless you create it first"},
		{name: "the Secret is in another namespace", secrets: []corev1.Secret{secret("other", "orders-signing", map[string]string{"key": keyA})}, reason: "SecretNotFound", field: "spec.signing", message: "namespace shop"},
		{name: "the Secret lacks the key", secrets: []corev1.Secret{secret("shop", "orders-signing", map[string]string{"other": keyA})}, reason: "SecretKeyMissing", field: "spec.signing", message: "has no key key; add it"},
		{name: "the second of two keys is missing", change: named("orders-signing", "next"), reason: "SecretNotFound", field: "spec.signing.keys[1].secretKeyRef", message: "Secret next"},
		// case SG42
		{name: "the key has a trailing newline", secrets: []corev1.Secret{secret("shop", "orders-signing", map[string]string{"key": keyA + "\n"})}, reason: "KeyInvalid", field: "spec.signing", message: "trailing newline"},
		// case SG38
		{name: "the key is too short", secrets: []corev1.Secret{secret("shop", "orders-signing", map[string]string{"key": "whsec_YWFhYWFhYWE="})}, reason: "KeyInvalid", field: "spec.signing", message: "must have 24 to 64"},
		{name: "the URL has a user", change: func(s *v1alpha1.WebhookEndpointSpec) { s.URL = "https://me:s3cret@example.com/" }, reason: "URLInvalid", field: "spec.url", message: "user name"},
		{name: "the URL is http", change: func(s *v1alpha1.WebhookEndpointSpec) { s.URL = "http://example.com/" }, reason: "URLInvalid", field: "spec.url", message: "egress.allowHTTP"},
		{name: "--dev refuses what is not loopback", opts: Options{Dev: true}, reason: "URLInvalid", field: "spec.url", message: "add --forward-to"},
		{name: "no such RetryPolicy", change: func(s *v1alpha1.WebhookEndpointSpec) {
			s.RetryPolicyRef = &v1alpha1.RetryPolicyReference{Name: "patient"}
		}, reason: "RetryPolicyNotFound", field: "spec.retryPolicyRef.name", message: "RetryPolicy patient does not exist"},
		{name: "the RetryPolicy can't be used", change: func(s *v1alpha1.WebhookEndpointSpec) {
			s.RetryPolicyRef = &v1alpha1.RetryPolicyReference{Name: "patient"}
		}, policies: []v1alpha1.RetryPolicy{{ObjectMeta: meta("shop", "patient"), Spec: v1alpha1.RetryPolicySpec{MaxAge: "0s"}}},
			reason: "RetryPolicyInvalid", field: "spec.retryPolicyRef.name", message: "maxAge must be at least 1s"},
		{name: "the pool's policy can't be used", pools: pool(func(p *v1alpha1.DeliveryPoolSpec) {
			p.DefaultRetryPolicy = &v1alpha1.RetryPolicySpec{Backoff: &v1alpha1.Backoff{}}
		}), reason: "RetryPolicyInvalid", field: "spec.retryPolicyRef", message: "defaultRetryPolicy of DeliveryPool doorstep-system/default"},
		{name: "a pattern that is none", change: func(s *v1alpha1.WebhookEndpointSpec) {
			s.EventTypes = []v1alpha1.EventTypePattern{"order.*", "a.*.b"}
		}, reason: "SpecInvalid", field: "spec.eventTypes[1]", message: `"*" may stand alone`},
		{name: "a timeout out of range", change: func(s *v1alpha1.WebhookEndpointSpec) { s.Timeout = "61s" }, reason: "SpecInvalid", field: "spec.timeout", message: "from 1s to 60s"},
		{name: "a timeout that is none", change: func(s *v1alpha1.WebhookEndpointSpec) { s.Timeout = "soon" }, reason: "SpecInvalid", field: "spec.timeout", message: "not a duration"},
		{name: "too many in flight", change: func(s *v1alpha1.WebhookEndpointSpec) { s.MaxInFlight = ptr[int32](1001) }, reason: "SpecInvalid", field: "spec.maxInFlight", message: "from 1 to 1000"},
		{name: "a scheme of a later release", change: func(s *v1alpha1.WebhookEndpointSpec) { s.Signing = &v1alpha1.Signing{Scheme: "Svix"} }, reason: "SpecInvalid", field: "spec.signing.scheme", message: "must be one of StandardWebhooks"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.change == nil {
				tc.change = func(*v1alpha1.WebhookEndpointSpec) {}
			}
			in := world(tc.change)
			if tc.secrets != nil {
				in.Secrets = tc.secrets
			}
			in.RetryPolicies, in.Pools = tc.policies, tc.pools
			// case QD102: a bad object affects only itself.
			other := endpoint("neighbour")
			if tc.opts.Dev {
				other.Spec.URL = "https://127.0.0.1/"
			}
			in.Secrets = append(in.Secrets, secret("shop", "neighbour-signing", map[string]string{"key": keyB}))
			in.Endpoints = append(in.Endpoints, other)

			r := Compile(in, nil, start, tc.opts)
			e := r.Plan.Index()[plan.EndpointKey{Namespace: "shop", Name: "orders"}]
			if e == nil || e.Problem == nil {
				t.Fatalf("endpoint %+v, want one with a problem", e)
			}
			if e.Problem.Reason != tc.reason || !strings.Contains(e.Problem.Message, tc.message) {
				t.Errorf("problem %+v, want %s with %q", *e.Problem, tc.reason, tc.message)
			}
			i := slices.IndexFunc(r.Problems, func(p Problem) bool { return p.Kind == KindEndpoint && p.Name == "orders" })
			if i < 0 || r.Problems[i].Field != tc.field {
				t.Errorf("problems %+v, want one of field %s", r.Problems, tc.field)
			}
			if strings.HasPrefix(tc.field, "spec.signing") && len(e.Signing.Keys) != 0 {
				t.Errorf("keys %v are in the plan, want none while one is bad", len(e.Signing.Keys))
			}
			for _, p := range r.Problems {
				if strings.Contains(p.Message, "s3cret") || strings.Contains(p.Message, "whsec_YW") {
					t.Errorf("message %q holds a secret", p.Message)
				}
			}
			n := r.Plan.Index()[plan.EndpointKey{Namespace: "shop", Name: "neighbour"}]
			if n.Problem != nil && !(tc.pools != nil) {
				t.Errorf("the neighbour has problem %+v", *n.Problem)
			}
		})
	}
}

func TestAnInvalidPatternNeverTakesEverything(t *testing.T) {
	e := one(t, Compile(world(func(s *v1alpha1.WebhookEndpointSpec) {
		s.EventTypes = []v1alpha1.EventTypePattern{"a*"}
	}), nil, start, Options{}))
	if len(e.EventTypes) == 0 {
		t.Error("the endpoint has no event types, which means all of them")
	}
}

func TestKeysAreTakenFromDataAndStringData(t *testing.T) {
	for _, tc := range []struct {
		name   string
		secret corev1.Secret
		want   string
	}{
		{"data", corev1.Secret{Data: map[string][]byte{"key": []byte(keyA)}}, keyA},
		{"stringData", corev1.Secret{StringData: map[string]string{"key": keyA}}, keyA},
		{"stringData beats data", corev1.Secret{Data: map[string][]byte{"key": []byte(keyA)}, StringData: map[string]string{"key": keyB}}, keyB},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := world()
			tc.secret.ObjectMeta = meta("shop", "orders-signing")
			in.Secrets = []corev1.Secret{tc.secret}
			if e := one(t, Compile(in, nil, start, Options{})); len(e.Signing.Keys) != 1 || e.Signing.Keys[0].Key != tc.want {
				t.Errorf("keys do not hold the one wanted (problem %+v)", e.Problem)
			}
		})
	}
}

func TestPoolSettings(t *testing.T) {
	pool := func(namespace, name string, spec v1alpha1.DeliveryPoolSpec) v1alpha1.DeliveryPool {
		return v1alpha1.DeliveryPool{ObjectMeta: meta(namespace, name), Spec: spec}
	}
	suspended := v1alpha1.DeliveryPoolSpec{Suspend: ptr(true)}
	for _, tc := range []struct {
		name     string
		pools    []v1alpha1.DeliveryPool
		source   string
		suspend  bool
		problems int
	}{
		{"none: the defaults", nil, "", false, 0},
		{"any namespace will do", []v1alpha1.DeliveryPool{pool("infra", "default", suspended)}, "infra/default", true, 0},
		{"another name is not it", []v1alpha1.DeliveryPool{pool("infra", "big", suspended)}, "", false, 0},
		{"doorstep-system wins", []v1alpha1.DeliveryPool{pool("alpha", "default", v1alpha1.DeliveryPoolSpec{}), pool("doorstep-system", "default", suspended)}, "doorstep-system/default", true, 1},
		{"else the first by namespace", []v1alpha1.DeliveryPool{pool("beta", "default", v1alpha1.DeliveryPoolSpec{}), pool("alpha", "default", suspended)}, "alpha/default", true, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := world()
			in.Pools = tc.pools
			r := Compile(in, nil, start, Options{})
			if p := r.Plan.Pool; p.Source != tc.source || p.Suspend != tc.suspend || len(r.Problems) != tc.problems {
				t.Errorf("source %q suspend %t problems %v, want %q %t and %d", p.Source, p.Suspend, r.Problems, tc.source, tc.suspend, tc.problems)
			}
		})
	}
}

func TestPoolFieldsThatCannotBeUsedTakeTheirDefaults(t *testing.T) {
	in := world()
	in.Pools = []v1alpha1.DeliveryPool{{ObjectMeta: meta("infra", "default"), Spec: v1alpha1.DeliveryPoolSpec{
		Ingest:    &v1alpha1.Ingest{MaxPayloadBytes: ptr[int32](1), DedupeWindow: "0s"},
		Egress:    &v1alpha1.Egress{Allow: []v1alpha1.EgressNetwork{{CIDR: "10.0.0.1/8"}, {CIDR: "fd00::/8"}, {CIDR: "10.0.0.0/8"}}},
		Retention: &v1alpha1.Retention{Delivered: "soon"},
	}}}
	r := Compile(in, nil, start, Options{})
	var fields []string
	for _, p := range r.Problems {
		fields = append(fields, p.Field)
	}
	want := []string{"spec.egress.allow[0].cidr", "spec.ingest.dedupeWindow", "spec.ingest.maxPayloadBytes", "spec.retention.delivered"}
	if !slices.Equal(fields, want) {
		t.Errorf("problems of %v, want %v", fields, want)
	}
	p := r.Plan.Pool
	if !slices.Equal(prefixes(p.Egress), []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}) {
		t.Errorf("allow %v, want the two good entries", p.Egress.Allow)
	}
	if p.Ingest.MaxPayloadBytes != 262144 || p.Ingest.DedupeWindow != 24*time.Hour || p.Retention.Delivered != 72*time.Hour {
		t.Errorf("pool %+v, want the defaults", p)
	}
}

func TestLaptop(t *testing.T) {
	forward, _ := url.Parse("http://localhost:3000/webhooks")
	at := func(u string) func(*v1alpha1.WebhookEndpointSpec) {
		return func(s *v1alpha1.WebhookEndpointSpec) { s.URL = u }
	}
	for _, tc := range []struct {
		name    string
		url     string
		opts    Options
		want    string // empty: refused
		local   bool
		allowed bool
	}{
		{"as in a cluster", "https://hooks.example.com/a", Options{}, "https://hooks.example.com/a", false, false},
		{"dev, a public name", "https://hooks.example.com/a", Options{Dev: true}, "", true, true},
		{"dev, a public address", "https://192.0.2.1/a", Options{Dev: true}, "", true, true},
		{"dev, a private address", "http://10.0.0.1/a", Options{Dev: true}, "", true, true},
		{"dev, a name that begins like it", "http://localhost.example.com/a", Options{Dev: true}, "", true, true},
		{"dev, localhost", "http://localhost:3000/a", Options{Dev: true}, "http://localhost:3000/a", true, true},
		{"dev, IPv4 loopback", "http://127.0.0.9:1/a", Options{Dev: true}, "http://127.0.0.9:1/a", true, true},
		{"dev, IPv6 loopback", "http://[::1]:1/a", Options{Dev: true}, "http://[::1]:1/a", true, true},
		{"dev, forwarded", "https://hooks.example.com/a", Options{Dev: true, ForwardTo: forward}, "http://localhost:3000/webhooks", true, true},
		{"forwarded without dev", "https://hooks.example.com/a", Options{ForwardTo: forward}, "http://localhost:3000/webhooks", true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := Compile(world(at(tc.url)), nil, start, tc.opts)
			e := one(t, r)
			if e.URL != tc.want || (e.Problem == nil) != (tc.want != "") {
				t.Errorf("URL %q with problem %+v, want %q", e.URL, e.Problem, tc.want)
			}
			eg := r.Plan.Pool.Egress
			if eg.Local != tc.local || eg.AllowHTTP != tc.allowed || slices.Contains(prefixes(eg), netip.MustParsePrefix("127.0.0.0/8")) != tc.allowed {
				t.Errorf("egress %+v, want local %t and loopback and http %t", eg, tc.local, tc.allowed)
			}
		})
	}
}

func TestDevNeverGoesOnWithAnAddressOfARunWithoutIt(t *testing.T) {
	former := Compile(world(), nil, start, Options{}).Plan
	in := Objects{Refused: []plan.EndpointKey{{Namespace: "shop", Name: "orders"}}, Complete: true}
	if e := one(t, Compile(in, former, start, Options{Dev: true})); e.Problem == nil {
		t.Errorf("the endpoint sends to %s", e.URL)
	}
	forward, _ := url.Parse("http://localhost:3000/")
	if e := one(t, Compile(in, former, start, Options{Dev: true, ForwardTo: forward})); e.URL != "http://localhost:3000/" {
		t.Errorf("the endpoint sends to %s", e.URL)
	}
}

func TestHashChangesWithSpecSecretAndPolicyOnly(t *testing.T) {
	base := one(t, Compile(world(), nil, start, Options{}))
	for _, tc := range []struct {
		name   string
		in     func() Objects
		change bool
	}{
		{"nothing", func() Objects { return world() }, false},
		{"another label", func() Objects {
			in := world()
			in.Endpoints[0].Labels = map[string]string{"a": "b"}
			return in
		}, false},
		{"defaults written out", func() Objects {
			return world(func(s *v1alpha1.WebhookEndpointSpec) { s.Timeout, s.MaxInFlight = "15s", ptr[int32](16) })
		}, false},
		{"the URL", func() Objects { return world(func(s *v1alpha1.WebhookEndpointSpec) { s.URL += "x" }) }, true},
		{"the timeout", func() Objects { return world(func(s *v1alpha1.WebhookEndpointSpec) { s.Timeout = "16s" }) }, true},
		{"the key in the Secret", func() Objects {
			in := world()
			in.Secrets[0].StringData["key"] = keyB
			return in
		}, true},
		{"the pool's policy", func() Objects {
			in := world()
			in.Pools = []v1alpha1.DeliveryPool{{ObjectMeta: meta("x", "default"), Spec: v1alpha1.DeliveryPoolSpec{DefaultRetryPolicy: &v1alpha1.RetryPolicySpec{MaxAge: "1h"}}}}
			return in
		}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := one(t, Compile(tc.in(), nil, start, Options{}))
			if (e.Hash != base.Hash) != tc.change {
				t.Errorf("changed is %t, want %t", !tc.change, tc.change)
			}
		})
	}
}

func TestASecretThatGoesAndComesBackIsNoChange(t *testing.T) {
	first := Compile(world(), nil, start, Options{})
	in := world()
	in.Secrets = nil
	gone := Compile(in, first.Plan, start.Add(time.Second), Options{})
	if e := one(t, gone); e.Problem == nil || e.Hash != one(t, first).Hash {
		t.Errorf("endpoint without its Secret: problem %+v, hash changed %t; want held with the former hash", e.Problem, e.Hash != one(t, first).Hash)
	}
	back := Compile(world(), gone.Plan, start.Add(2*time.Second), Options{})
	if e := one(t, back); e.Problem != nil || e.Hash != one(t, first).Hash || !e.FirstSeen.Equal(start) {
		t.Errorf("endpoint %+v, want it as it was", e)
	}
}

func prefixes(e plan.Egress) []netip.Prefix {
	var out []netip.Prefix
	for _, n := range e.Allow {
		out = append(out, n.Prefix)
	}
	return out
}
