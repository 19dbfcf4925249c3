package compile

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// egressWorld is world with a DeliveryPool of this egress, and what that refers to.
func egressWorld(e v1alpha1.Egress, objects ...corev1.Secret) Objects {
	in := world()
	in.Pools = []v1alpha1.DeliveryPool{{ObjectMeta: meta("infra", "default"), Spec: v1alpha1.DeliveryPoolSpec{Egress: &e}}}
	in.Secrets = append(in.Secrets, objects...)
	return in
}

func authorityPEM(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: start.Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestEgressOfAPool(t *testing.T) {
	ca := authorityPEM(t)
	in := egressWorld(v1alpha1.Egress{
		Allow: []v1alpha1.EgressNetwork{
			{CIDR: "fd00:20::/64"},
			{CIDR: "10.20.0.0/16", Ports: []int32{8080, 443, 8080}, Namespaces: []string{"warehouse", "shop"}},
			{CIDR: "127.0.0.0/8"},
		},
		Deny:              []v1alpha1.DeniedNetwork{{CIDR: "2001:db8::/32"}, {CIDR: "10.20.30.0/24"}},
		AllowHTTP:         ptr(true),
		Proxy:             &v1alpha1.EgressProxy{URL: "http://Proxy.example.com:3128/", CredentialsSecretRef: &v1alpha1.SecretReference{Name: "proxy"}},
		CACertificateRefs: []v1alpha1.CACertificateReference{{Name: "ca"}, {Kind: "Secret", Name: "proxy", Key: "other.crt"}},
	}, secret("infra", "proxy", map[string]string{"username": "doorstep", "password": "s3cret", "other.crt": ca}))
	in.ConfigMaps = []corev1.ConfigMap{{ObjectMeta: meta("infra", "ca"), Data: map[string]string{"ca.crt": "a comment\n" + ca}}}
	r := Compile(in, nil, start, Options{})
	if len(r.Problems) > 0 {
		t.Errorf("problems %+v", r.Problems)
	}
	want := plan.Egress{
		Allow: []plan.Network{
			{Prefix: netip.MustParsePrefix("127.0.0.0/8")},
			{Prefix: netip.MustParsePrefix("10.20.0.0/16"), Ports: []uint16{443, 8080}, Namespaces: []string{"shop", "warehouse"}},
			{Prefix: netip.MustParsePrefix("fd00:20::/64")},
		},
		Deny:           []netip.Prefix{netip.MustParsePrefix("10.20.30.0/24"), netip.MustParsePrefix("2001:db8::/32")},
		AllowHTTP:      true,
		Proxy:          &plan.Proxy{URL: "http://proxy.example.com:3128", Username: "doorstep", Password: "s3cret"},
		CACertificates: ca + ca,
	}
	slices.SortFunc(want.Allow, plan.Network.Compare)
	if got := r.Plan.Pool.Egress; !reflect.DeepEqual(got, want) {
		t.Errorf("egress %+v, want %+v", got, want)
	}
	if e := one(t, r); e.Problem != nil {
		t.Errorf("the endpoint has problem %+v", *e.Problem)
	}
	again := Compile(in, r.Plan, start, Options{})
	if again.Plan.Version != r.Plan.Version {
		t.Error("compiling twice makes another version")
	}
}

// What can't be used of the pool's egress holds every endpoint, but for an entry of
// allow, which only opens nothing.
func TestEgressInTrouble(t *testing.T) {
	proxy := func(url string) v1alpha1.Egress { return v1alpha1.Egress{Proxy: &v1alpha1.EgressProxy{URL: url}} }
	withSecret := func(data map[string]string) Objects {
		e := proxy("http://proxy:3128")
		e.Proxy.CredentialsSecretRef = &v1alpha1.SecretReference{Name: "proxy"}
		if data == nil {
			return egressWorld(e, secret("shop", "proxy", map[string]string{"username": "u", "password": "s3cret"}))
		}
		return egressWorld(e, secret("infra", "proxy", data))
	}
	allow := func(n v1alpha1.EgressNetwork) Objects {
		return egressWorld(v1alpha1.Egress{Allow: []v1alpha1.EgressNetwork{n}})
	}
	for _, tc := range []struct {
		name                   string
		in                     Objects
		field, reason, message string
		held                   bool
	}{
		{"bits behind the prefix", allow(v1alpha1.EgressNetwork{CIDR: "10.0.0.1/8"}), "spec.egress.allow[0].cidr", "SpecInvalid", "zeros after the prefix", false},
		{"an address", allow(v1alpha1.EgressNetwork{CIDR: "10.0.0.1"}), "spec.egress.allow[0].cidr", "SpecInvalid", "must be a network", false},
		{"mapped addresses", allow(v1alpha1.EgressNetwork{CIDR: "::ffff:10.0.0.0/104"}), "spec.egress.allow[0].cidr", "SpecInvalid", "must be a network", false},
		{"link-local", allow(v1alpha1.EgressNetwork{CIDR: "169.254.169.254/32"}), "spec.egress.allow[0].cidr", "SpecInvalid", "never dialled", false},
		{"link-local of IPv6", allow(v1alpha1.EgressNetwork{CIDR: "fe80::/10"}), "spec.egress.allow[0].cidr", "SpecInvalid", "never dialled", false},
		{"a port that is none", allow(v1alpha1.EgressNetwork{CIDR: "10.0.0.0/8", Ports: []int32{443, 65536}}), "spec.egress.allow[0].ports", "SpecInvalid", "from 1 to 65535", false},
		{"port 0", allow(v1alpha1.EgressNetwork{CIDR: "10.0.0.0/8", Ports: []int32{0}}), "spec.egress.allow[0].ports", "SpecInvalid", "from 1 to 65535", false},
		{"no ports", allow(v1alpha1.EgressNetwork{CIDR: "10.0.0.0/8", Ports: []int32{}}), "spec.egress.allow[0].ports", "SpecInvalid", "leave ports out", false},
		{"no namespaces", allow(v1alpha1.EgressNetwork{CIDR: "10.0.0.0/8", Namespaces: []string{}}), "spec.egress.allow[0].namespaces", "SpecInvalid", "leave namespaces out", false},
		{"a pattern for namespaces", allow(v1alpha1.EgressNetwork{CIDR: "10.0.0.0/8", Namespaces: []string{"team-*"}}), "spec.egress.allow[0].namespaces", "SpecInvalid", "names of namespaces", false},

		{"a deny that is none", egressWorld(v1alpha1.Egress{Deny: []v1alpha1.DeniedNetwork{{CIDR: "10.0.0.0/8"}, {CIDR: "10.0.0.1/8"}}}), "spec.egress.deny[1].cidr", "SpecInvalid", "zeros after the prefix", true},
		{"a proxy without port", egressWorld(proxy("http://proxy.example.com")), "spec.egress.proxy.url", "URLInvalid", "a host and a port", true},
		{"a proxy with a path", egressWorld(proxy("http://proxy:3128/pac")), "spec.egress.proxy.url", "URLInvalid", "a host and a port", true},
		{"a proxy with a query", egressWorld(proxy("http://proxy:3128/?token=s3cret")), "spec.egress.proxy.url", "URLInvalid", "a host and a port", true},
		{"a proxy with a user", egressWorld(proxy("http://me:s3cret@proxy:3128")), "spec.egress.proxy.url", "URLInvalid", "user name", true},
		{"a proxy of another kind", egressWorld(proxy("socks5://proxy:1080")), "spec.egress.proxy.url", "URLInvalid", "https://", true},
		{"the Secret is in another namespace", withSecret(nil), "spec.egress.proxy.credentialsSecretRef", "SecretNotFound", "Secret proxy does not exist in namespace infra; create it", true},
		{"no password", withSecret(map[string]string{"username": "u"}), "spec.egress.proxy.credentialsSecretRef", "SecretKeyMissing", "has no key password", true},
		{"a password with a newline", withSecret(map[string]string{"username": "u", "password": "s3cret\n"}), "spec.egress.proxy.credentialsSecretRef", "SpecInvalid", "newline", true},
		{"a user name with a colon", withSecret(map[string]string{"username": "u:v", "password": "s3cret"}), "spec.egress.proxy.credentialsSecretRef", "SpecInvalid", "colon", true},
		{"no such ConfigMap", egressWorld(v1alpha1.Egress{CACertificateRefs: []v1alpha1.CACertificateReference{{Name: "ca"}}}), "spec.egress.caCertificateRefs[0]", "ConfigMapNotFound", "ConfigMap ca does not exist in namespace infra", true},
		{"no certificate", egressWorld(v1alpha1.Egress{CACertificateRefs: []v1alpha1.CACertificateReference{{Kind: "Secret", Name: "ca"}}}, secret("infra", "ca", map[string]string{"ca.crt": "s3cret"})),
			"spec.egress.caCertificateRefs[0]", "CertificateInvalid", "no PEM certificate", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := Compile(tc.in, nil, start, Options{})
			i := slices.IndexFunc(r.Problems, func(p Problem) bool { return p.Kind == KindPool && p.Field == tc.field })
			if i < 0 || r.Problems[i].Reason != tc.reason || !strings.Contains(r.Problems[i].Message, tc.message) {
				t.Fatalf("problems %+v, want %s of %s with %q", r.Problems, tc.reason, tc.field, tc.message)
			}
			if strings.Contains(r.Problems[i].Message, "every endpoint is held") != tc.held {
				t.Errorf("message %q, want held told: %t", r.Problems[i].Message, tc.held)
			}
			for _, p := range r.Problems {
				if strings.Contains(p.Message, "s3cret") {
					t.Errorf("message %q holds a secret", p.Message)
				}
			}
			e, held := one(t, r), r.Plan.Pool.Egress.Problem
			if (held != nil) != tc.held || (e.Problem != nil) != tc.held {
				t.Fatalf("egress problem %v, endpoint problem %v, want held %t", held, e.Problem, tc.held)
			}
			if tc.held && (*e.Problem != *held || held.Reason != tc.reason || !strings.Contains(held.Message, "DeliveryPool infra/default, "+tc.field+": ") || !strings.Contains(held.Message, tc.message)) {
				t.Errorf("the endpoint is held by %+v", *e.Problem)
			}
			if !tc.held && len(r.Plan.Pool.Egress.Allow) != 0 {
				t.Errorf("the entry allows %+v", r.Plan.Pool.Egress.Allow)
			}
			// Mended, nothing is held any more, and no endpoint counts as changed.
			mended := Compile(world(), r.Plan, start, Options{})
			now := one(t, mended)
			if tc.held {
				now = one(t, Compile(egressWorld(v1alpha1.Egress{AllowHTTP: ptr(false)}), r.Plan, start, Options{}))
			}
			if now.Problem != nil || now.Hash != e.Hash {
				t.Errorf("afterwards problem %v and hash %s, want none and %s", now.Problem, now.Hash, e.Hash)
			}
		})
	}
}

// An endpoint whose manifest is refused goes on as before, and so is held with the pool
// and let go with it.
func TestThePoolHoldsWhatGoesOn(t *testing.T) {
	first := Compile(world(), nil, start, Options{}).Plan
	in := egressWorld(v1alpha1.Egress{Proxy: &v1alpha1.EgressProxy{URL: "http://proxy"}})
	in.Endpoints, in.Refused = nil, []plan.EndpointKey{{Namespace: "shop", Name: "orders"}}
	held := Compile(in, first, start, Options{}).Plan
	if p := held.Endpoints[0].Problem; p == nil || p.Reason != "URLInvalid" {
		t.Fatalf("problem %+v, want the pool's", p)
	}
	in.Pools[0].Spec.Egress.Proxy.URL = "http://proxy:3128"
	if p := Compile(in, held, start, Options{}).Plan.Endpoints[0].Problem; p != nil {
		t.Errorf("problem %+v, though the pool is in order", *p)
	}
}

// cases SS123, SSR-04, SSR-09, SSR-12: what shows without resolving a name holds the
// endpoint, and another pool lets it go.
func TestDestinationsThatAreNotAllowed(t *testing.T) {
	private := v1alpha1.Egress{AllowHTTP: ptr(true), Allow: []v1alpha1.EgressNetwork{{CIDR: "10.0.0.0/8", Ports: []int32{8080}, Namespaces: []string{"shop"}}}}
	others := v1alpha1.Egress{AllowHTTP: ptr(true), Allow: []v1alpha1.EgressNetwork{{CIDR: "10.0.0.0/8", Namespaces: []string{"warehouse"}}}}
	closed := v1alpha1.Egress{AllowHTTP: ptr(true), Allow: private.Allow, Deny: []v1alpha1.DeniedNetwork{{CIDR: "10.1.0.0/16"}}}
	plain := v1alpha1.Egress{AllowHTTP: ptr(true)}
	for _, tc := range []struct {
		url    string
		egress v1alpha1.Egress
		want   string // a part of the message; empty: usable
	}{
		{"http://127.0.0.1/", plain, "(loopback): open it with an entry 127.0.0.0/8 or ::1/128 of spec.egress.allow"},
		{"http://10.0.0.5/", plain, "(private): open its network with an entry of spec.egress.allow"},
		{"http://10.0.0.5:8080/", private, ""},
		{"http://10.0.0.5:9090/", private, "open on other ports only"},
		{"http://10.0.0.5:8080/", others, "(private)"},
		{"http://10.1.0.5:8080/", closed, "(denied by the pool): use another destination, or remove the entry of spec.egress.deny"},
		{"http://169.254.169.254/", private, "no setting opens it"},
		{"http://[::ffff:127.0.0.1]/", plain, "(loopback)"},
		{"http://localhost:3000/", plain, "(loopback)"},
		{"http://kubernetes.default.svc/", plain, "name within the cluster"},
		{"http://orders.shop.svc/", private, "write the full name of the Service"},
		{"http://orders.shop.svc.cluster.local:8080/", private, ""},
		{"http://metadata.google.internal/", private, "metadata service"},
		{"http://hooks.example.com:6379/", plain, "port 6379, closed for Redis"},
		{"http://127.1/", plain, "four decimal numbers"},
		{"http://hooks.example.com/", plain, ""},
		{"http://hooks.example.com/", v1alpha1.Egress{Allow: private.Allow}, "spec.egress.allowHTTP"},
	} {
		in := egressWorld(tc.egress)
		in.Endpoints[0].Spec.URL = tc.url + "?token=s3cret"
		e := one(t, Compile(in, nil, start, Options{}))
		switch {
		case tc.want == "":
			if e.Problem != nil || e.URL != in.Endpoints[0].Spec.URL {
				t.Errorf("%s: problem %+v", tc.url, e.Problem)
			}
			continue
		case e.Problem == nil || e.Problem.Reason != v1alpha1.ReasonURLInvalid || !strings.Contains(e.Problem.Message, tc.want):
			t.Errorf("%s: problem %+v, want %q", tc.url, e.Problem, tc.want)
			continue
		}
		if strings.Contains(e.Problem.Message, "s3cret") {
			t.Errorf("%s: the message holds the query", tc.url)
		}
	}
	held := Compile(func() Objects {
		in := egressWorld(plain)
		in.Endpoints[0].Spec.URL = "http://10.0.0.5:8080/"
		return in
	}(), nil, start, Options{}).Plan
	in := egressWorld(private)
	in.Endpoints[0].Spec.URL = "http://10.0.0.5:8080/"
	if e := one(t, Compile(in, held, start, Options{})); e.Problem != nil || e.URL == "" {
		t.Errorf("after the pool opened it: %+v", e)
	}
}

// On a laptop neither a proxy nor a deny keeps requests from this machine, and what the
// pool's proxy needs isn't asked for.
func TestEgressOfARunOnALaptop(t *testing.T) {
	e := v1alpha1.Egress{
		Allow: []v1alpha1.EgressNetwork{{CIDR: "127.0.0.0/8", Ports: []int32{6379}}, {CIDR: "10.0.0.0/8"}},
		Deny:  []v1alpha1.DeniedNetwork{{CIDR: "0.0.0.0/0"}, {CIDR: "10.1.0.0/16"}},
		Proxy: &v1alpha1.EgressProxy{URL: "http://proxy:3128", CredentialsSecretRef: &v1alpha1.SecretReference{Name: "proxy"}},
	}
	in := egressWorld(e)
	in.Endpoints[0].Spec.URL = "http://localhost:6379/"
	r := Compile(in, nil, start, Options{Dev: true})
	got := r.Plan.Pool.Egress
	if got.Proxy != nil || got.Problem != nil || !slices.Equal(got.Deny, []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}) || len(r.Problems) > 0 {
		t.Errorf("egress %+v, problems %+v", got, r.Problems)
	}
	if p := one(t, r).Problem; p != nil {
		t.Errorf("problem %+v, though the pool's own entry opens the port", *p)
	}
	// Without the flags, and the pool out of sight, what it allowed itself is left.
	in.Pools, in.Complete = nil, false
	after := Compile(in, r.Plan, start, Options{}).Plan.Pool.Egress
	if after.Local || after.AllowHTTP || after.LoopbackOnly || len(after.Allow) != 2 || len(after.Deny) != 1 {
		t.Errorf("after the run: %+v", after)
	}
	forward, _ := url.Parse("http://127.0.0.1:6443/")
	in = world()
	if p := one(t, Compile(in, nil, start, Options{Dev: true, ForwardTo: forward})).Problem; p == nil || !strings.Contains(p.Message, "port 6443, closed for the Kubernetes API") {
		t.Errorf("forwarded to a closed port: problem %+v", p)
	}
}

// One guard judges every URL a user gives: an authorization server's too.
func TestTokenURLsThatAreNotAllowed(t *testing.T) {
	for tokenURL, want := range map[string]string{
		"https://login.example.com/token?a=s3cret":    "",
		"https://10.0.0.5/token?a=s3cret":             "tokenURL leads to a destination that is not allowed (private)",
		"https://localhost/token?a=s3cret":            "(loopback)",
		"https://metadata.google.internal/t?a=s3cret": "metadata service",
		"https://dex.auth.svc/token?a=s3cret":         "name within the cluster",
		"https://login.example.com:25/t?a=s3cret":     "port 25, closed for mail",
		"http://login.example.com/token?a=s3cret":     "tokenURL is http",
		"https://127.1/token?a=s3cret":                "tokenURL: url must write an IPv4 address",
	} {
		in := world(func(s *v1alpha1.WebhookEndpointSpec) {
			s.Auth = &v1alpha1.Auth{Type: v1alpha1.AuthTypeOAuth2ClientCredentials, OAuth2: &v1alpha1.OAuth2ClientCredentials{
				TokenURL: tokenURL, SecretRef: v1alpha1.SecretReference{Name: "client"},
			}}
		})
		in.Secrets = append(in.Secrets, secret("shop", "client", map[string]string{"clientID": "c", "clientSecret": "hush"}))
		r := Compile(in, nil, start, Options{})
		e := one(t, r)
		switch {
		case want == "":
			if e.Problem != nil || e.Auth == nil || e.Auth.OAuth2.TokenURL != tokenURL {
				t.Errorf("%s: %+v, problem %+v", tokenURL, e.Auth, e.Problem)
			}
			continue
		case e.Problem == nil || e.Problem.Reason != v1alpha1.ReasonURLInvalid || !strings.Contains(e.Problem.Message, want):
			t.Errorf("%s: problem %+v, want %q", tokenURL, e.Problem, want)
			continue
		}
		if strings.Contains(e.Problem.Message, "s3cret") || r.Problems[0].Field != "spec.auth.oauth2.tokenURL" {
			t.Errorf("%s: problems %+v", tokenURL, r.Problems)
		}
	}
}
