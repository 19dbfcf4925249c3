package compile

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// trouble is one spec and Secret that can't be used, and what is said of it.
type trouble struct {
	name                   string
	change                 func(*v1alpha1.WebhookEndpointSpec)
	secret                 map[string]string
	field, reason, message string
}

func checkTroubles(t *testing.T, rows []trouble) {
	t.Helper()
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			in := world(row.change)
			if row.secret != nil {
				in.Secrets = append(in.Secrets, secret("shop", "s", row.secret))
			}
			r := Compile(in, nil, start, Options{})
			if len(r.Problems) != 1 {
				t.Fatalf("problems %+v, want one", r.Problems)
			}
			p := r.Problems[0]
			if p.Field != row.field || p.Reason != row.reason || !strings.Contains(p.Message, row.message) {
				t.Errorf("problem %+v, want %s %s ...%s...", p, row.field, row.reason, row.message)
			}
			// case SG40
			if strings.Contains(p.Message, "hush") {
				t.Errorf("the message shows a secret: %s", p.Message)
			}
			if e := one(t, r); e.Problem == nil {
				t.Error("the endpoint is not held")
			}
		})
	}
}

func headers(list ...v1alpha1.Header) func(*v1alpha1.WebhookEndpointSpec) {
	return func(s *v1alpha1.WebhookEndpointSpec) { s.Headers = list }
}

func fromSecret(name, key string) v1alpha1.Header {
	return v1alpha1.Header{Name: name, ValueFrom: &v1alpha1.HeaderSource{SecretKeyRef: &v1alpha1.SecretKeyReference{Name: "s", Key: key}}}
}

func fromEvent(name, event string) v1alpha1.Header {
	return v1alpha1.Header{Name: name, ValueFrom: &v1alpha1.HeaderSource{Event: event}}
}

func TestHeadersAreResolved(t *testing.T) {
	in := world(headers(v1alpha1.Header{Name: "x-team", Value: "shop & co"}, fromSecret("X-KEY", "k"), fromEvent("X-Kind", "type"), fromEvent("X-Region", "attributes.region")),
		func(s *v1alpha1.WebhookEndpointSpec) { s.Body = v1alpha1.RequestBodyData })
	in.Secrets = append(in.Secrets, secret("shop", "s", map[string]string{"k": "hush"}))
	r := Compile(in, nil, start, Options{})
	if len(r.Problems) != 0 {
		t.Fatalf("%+v", r.Problems)
	}
	e := one(t, r)
	want := []plan.Header{{Name: "X-Team", Value: "shop & co"}, {Name: "X-Key", Value: "hush"}, {Name: "X-Kind", Event: "type"}, {Name: "X-Region", Event: "attributes.region"}}
	if !reflect.DeepEqual(e.Headers, want) || !e.DataOnly {
		t.Errorf("%+v, data only %t", e.Headers, e.DataOnly)
	}
	// A Secret that changes is a change of the endpoint.
	in.Secrets[1].StringData["k"] = "hush2"
	if next := Compile(in, r.Plan, start, Options{}); next.Plan.Version != r.Plan.Version+1 || one(t, next).Hash == e.Hash {
		t.Error("another value in the Secret is no change")
	}
}

// case BDY-09, where it is admitted
func TestHeadersInTrouble(t *testing.T) {
	const f0 = "spec.headers[0]"
	of := func(name string) func(*v1alpha1.WebhookEndpointSpec) {
		return headers(v1alpha1.Header{Name: name, Value: "x"})
	}
	value := func(v string) func(*v1alpha1.WebhookEndpointSpec) {
		return headers(v1alpha1.Header{Name: "X-A", Value: v})
	}
	key := headers(fromSecret("X-A", "k"))
	var many []v1alpha1.Header
	for i := range 21 {
		many = append(many, v1alpha1.Header{Name: fmt.Sprintf("X-%d", i), Value: "x"})
	}
	rows := []trouble{
		{"a bad name", of("Bad Name"), nil, f0 + ".name", "SpecInvalid", "must be a header name"},
		{"a line break in the name", of("X-A\r\nX-Evil"), nil, f0 + ".name", "SpecInvalid", "must be a header name"},
		{"a line break in the value", value("a\r\nX-Evil: 1"), nil, f0 + ".value", "SpecInvalid", "line breaks"},
		{"NUL", value("a\x00b"), nil, f0 + ".value", "SpecInvalid", "control characters"},
		{"not ASCII", value("é"), nil, f0 + ".value", "SpecInvalid", "outside ASCII"},
		{"nothing", headers(v1alpha1.Header{Name: "X-A"}), nil, f0, "SpecInvalid", "exactly one of"},
		{"both", headers(v1alpha1.Header{Name: "X-A", Value: "x", ValueFrom: &v1alpha1.HeaderSource{Event: "id"}}), nil, f0, "SpecInvalid", "exactly one of"},
		{"twice", headers(v1alpha1.Header{Name: "X-A", Value: "x"}, v1alpha1.Header{Name: "x-a", Value: "y"}), nil, "spec.headers[1].name", "SpecInvalid", "X-A is set by spec.headers[0] as well"},
		{"beside auth", func(s *v1alpha1.WebhookEndpointSpec) {
			of("authorization")(s)
			s.Auth = &v1alpha1.Auth{Type: v1alpha1.AuthTypeBearer, Bearer: &v1alpha1.BearerAuth{SecretKeyRef: v1alpha1.SecretKeyReference{Name: "s", Key: "k"}}}
		}, map[string]string{"k": "hush"}, f0 + ".name", "SpecInvalid", "Authorization is set by spec.auth as well"},
		{"too many", headers(many...), nil, "spec.headers", "SpecInvalid", "at most 20"},
		{"of the event, and unknown", headers(fromEvent("X-A", "data")), nil, f0 + ".valueFrom.event", "SpecInvalid", "event must be id, type"},
		{"of the event, a bad attribute", headers(fromEvent("X-A", "attributes.A")), nil, f0 + ".valueFrom.event", "SpecInvalid", "lower-case"},
		{"no Secret", key, nil, f0 + ".valueFrom.secretKeyRef", "SecretNotFound", "Secret s does not exist in namespace shop; create it with the value of header X-A under k"},
		{"no key", key, map[string]string{"other": "hush"}, f0 + ".valueFrom.secretKeyRef", "SecretKeyMissing", "Secret s has no key k"},
		{"a newline at the end", key, map[string]string{"k": "hush\n"}, f0 + ".valueFrom.secretKeyRef", "SpecInvalid", "key k of Secret s ends in a newline"},
		{"a line break in a Secret", key, map[string]string{"k": "hush\r\nX-Evil: 1"}, f0 + ".valueFrom.secretKeyRef", "SpecInvalid", "line breaks"},
		{"spaces around", key, map[string]string{"k": " hush"}, f0 + ".valueFrom.secretKeyRef", "SpecInvalid", "white space around it"},
		{"empty", key, map[string]string{"k": ""}, f0 + ".valueFrom.secretKeyRef", "SpecInvalid", "is empty"},
		{"too long", key, map[string]string{"k": strings.Repeat("x", 4097)}, f0 + ".valueFrom.secretKeyRef", "SpecInvalid", "longer than 4096"},
		{"body", func(s *v1alpha1.WebhookEndpointSpec) { s.Body = "Envelope" }, nil, "spec.body", "SpecInvalid", "body must be Event or Data"},
	}
	for _, name := range []string{"Host", "Transfer-Encoding", "content-type", "webhook-signature", "Doorstep-Attempt", "ce-id", "IDEMPOTENCY-key", "X-Idempotency-Key", "Metadata-Flavor", "Proxy-Authorization", "X-Hub-Signature-256"} {
		rows = append(rows, trouble{"reserved: " + name, of(name), nil, f0 + ".name", "SpecInvalid", "is reserved"})
	}
	checkTroubles(t, rows)
}

func basic(s *v1alpha1.WebhookEndpointSpec) {
	s.Auth = &v1alpha1.Auth{Type: v1alpha1.AuthTypeBasic, Basic: &v1alpha1.BasicAuth{SecretRef: v1alpha1.SecretReference{Name: "s"}}}
}

func bearer(s *v1alpha1.WebhookEndpointSpec) {
	s.Auth = &v1alpha1.Auth{Type: v1alpha1.AuthTypeBearer, Bearer: &v1alpha1.BearerAuth{SecretKeyRef: v1alpha1.SecretKeyReference{Name: "s", Key: "k"}}}
}

func oauth(change ...func(*v1alpha1.OAuth2ClientCredentials)) func(*v1alpha1.WebhookEndpointSpec) {
	return func(s *v1alpha1.WebhookEndpointSpec) {
		o := &v1alpha1.OAuth2ClientCredentials{TokenURL: "https://ID.example.com/token", SecretRef: v1alpha1.SecretReference{Name: "s"}}
		for _, f := range change {
			f(o)
		}
		s.Auth = &v1alpha1.Auth{Type: v1alpha1.AuthTypeOAuth2ClientCredentials, OAuth2: o}
	}
}

var client = map[string]string{"clientID": "me", "clientSecret": "hush secret"}

func TestAuthIsResolved(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*v1alpha1.WebhookEndpointSpec)
		secret map[string]string
		want   *plan.Auth
	}{
		{"none", func(*v1alpha1.WebhookEndpointSpec) {}, nil, nil},
		{"basic", basic, map[string]string{"username": "us er", "password": "p:w "}, &plan.Auth{Authorization: "Basic " + base64.StdEncoding.EncodeToString([]byte("us er:p:w "))}},
		{"bearer", bearer, map[string]string{"k": "a-._~+/=="}, &plan.Auth{Authorization: "Bearer a-._~+/=="}},
		{"oauth2", oauth(), client, &plan.Auth{OAuth2: &plan.OAuth2{TokenURL: "https://id.example.com/token", ClientID: "me", ClientSecret: "hush secret"}}},
		{"oauth2 with everything", oauth(func(o *v1alpha1.OAuth2ClientCredentials) {
			o.Scopes, o.Audience, o.ClientAuthentication = []string{"b", "a"}, "https://aud", v1alpha1.ClientAuthenticationBody
		}), client, &plan.Auth{OAuth2: &plan.OAuth2{TokenURL: "https://id.example.com/token", ClientID: "me", ClientSecret: "hush secret", Scopes: []string{"a", "b"}, Audience: "https://aud", InBody: true}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			in := world(row.change)
			in.Secrets = append(in.Secrets, secret("shop", "s", row.secret))
			r := Compile(in, nil, start, Options{})
			if e := one(t, r); len(r.Problems) != 0 || !reflect.DeepEqual(e.Auth, row.want) {
				t.Errorf("%+v with problems %v", e.Auth, r.Problems)
			}
		})
	}
}

func TestAuthInTrouble(t *testing.T) {
	const ref = ".secretRef"
	tokenURL := func(u string) func(*v1alpha1.WebhookEndpointSpec) {
		return oauth(func(o *v1alpha1.OAuth2ClientCredentials) { o.TokenURL = u })
	}
	checkTroubles(t, []trouble{
		{"type alone", func(s *v1alpha1.WebhookEndpointSpec) { s.Auth = &v1alpha1.Auth{Type: "Basic"} }, nil, "spec.auth", "SpecInvalid", "the field that belongs to its type"},
		{"another field", func(s *v1alpha1.WebhookEndpointSpec) { basic(s); s.Auth.Type = "Bearer" }, nil, "spec.auth", "SpecInvalid", "the field that belongs to its type"},
		{"an unknown type", func(s *v1alpha1.WebhookEndpointSpec) { s.Auth = &v1alpha1.Auth{Type: "Digest"} }, nil, "spec.auth", "SpecInvalid", "the field that belongs to its type"},
		{"no password", basic, map[string]string{"username": "u"}, "spec.auth.basic" + ref, "SecretKeyMissing", "has no key password"},
		{"a colon", basic, map[string]string{"username": "hush:u", "password": "p"}, "spec.auth.basic" + ref, "SpecInvalid", "holds a colon"},
		{"a password with a newline", basic, map[string]string{"username": "u", "password": "hush\n"}, "spec.auth.basic" + ref, "SpecInvalid", "key password of Secret s ends in a newline"},
		{"no Secret", bearer, nil, "spec.auth.bearer.secretKeyRef", "SecretNotFound", "create it with the token under k"},
		{"a token with Bearer", bearer, map[string]string{"k": "Bearer hush"}, "spec.auth.bearer.secretKeyRef", "SpecInvalid", `leave out a leading "Bearer"`},
		{"a token with a line break", bearer, map[string]string{"k": "hush\r\nX-Evil: 1"}, "spec.auth.bearer.secretKeyRef", "SpecInvalid", "control characters"},
		{"no client secret", oauth(), map[string]string{"clientID": "me"}, "spec.auth.oauth2" + ref, "SecretKeyMissing", "has no key clientSecret"},
		{"a client secret with a newline", oauth(), map[string]string{"clientID": "me", "clientSecret": "hush\n"}, "spec.auth.oauth2" + ref, "SpecInvalid", "ends in a newline"},
		{"a token URL with a password", tokenURL("https://u:hush@id.example.com/"), client, "spec.auth.oauth2.tokenURL", "URLInvalid", "user name or password"},
		{"an odd token URL (case SSR-09)", tokenURL(`https://169.254.169.254\@id.example.com/`), client, "spec.auth.oauth2.tokenURL", "URLInvalid", "backslashes"},
		{"a token URL by http", tokenURL("http://id.example.com/"), client, "spec.auth.oauth2.tokenURL", "URLInvalid", "in the clear"},
		{"a scope with a space", oauth(func(o *v1alpha1.OAuth2ClientCredentials) { o.Scopes = []string{"a b"} }), client, "spec.auth.oauth2.scopes[0]", "SpecInvalid", "one scope"},
		{"client authentication", oauth(func(o *v1alpha1.OAuth2ClientCredentials) { o.ClientAuthentication = "JWT" }), client, "spec.auth.oauth2.clientAuthentication", "SpecInvalid", "must be Header or Body"},
	})
}

// What a laptop runs asks nobody else for a token, and needs no certificate of production.
func TestForwardingNeedsNeitherTokensNorCertificates(t *testing.T) {
	in := world(oauth(), func(s *v1alpha1.WebhookEndpointSpec) {
		s.TLS = &v1alpha1.TLS{ClientCertificateRef: &v1alpha1.SecretReference{Name: "none"}}
	})
	to, _ := url.Parse("http://localhost:3000/")
	r := Compile(in, nil, start, Options{Dev: true, ForwardTo: to})
	if e := one(t, r); len(r.Problems) != 0 || e.Auth != nil || e.TLS != (plan.TLS{}) {
		t.Errorf("%+v %+v, problems %v", e.Auth, e.TLS, r.Problems)
	}
	local := world(oauth(func(o *v1alpha1.OAuth2ClientCredentials) { o.TokenURL = "http://localhost:4000/token" }))
	local.Secrets = append(local.Secrets, secret("shop", "s", client))
	if e := one(t, Compile(local, nil, start, Options{Dev: true, ForwardTo: to})); e.Auth == nil {
		t.Error("a token server on this machine is not asked")
	}
	in.Endpoints[0].Spec.URL, in.Endpoints[0].Spec.TLS = "http://localhost/", nil
	r = Compile(in, nil, start, Options{Dev: true})
	if len(r.Problems) == 0 || r.Problems[0].Field != "spec.auth.oauth2.tokenURL" || !strings.Contains(r.Problems[0].Message, "--dev sends to loopback only") {
		t.Errorf("with --dev alone: %+v", r.Problems)
	}
}

// pair is a certificate and its key, in PEM.
func pair(t *testing.T) (certificate, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, NotBefore: start, NotAfter: start.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
}

func withTLS(t v1alpha1.TLS) func(*v1alpha1.WebhookEndpointSpec) {
	return func(s *v1alpha1.WebhookEndpointSpec) { s.TLS = &t }
}

// case HC120, but for the pool's
func TestTLSIsResolved(t *testing.T) {
	a, key := pair(t)
	b, _ := pair(t)
	c, _ := pair(t)
	in := world(withTLS(v1alpha1.TLS{
		CACertificateRefs:    []v1alpha1.CACertificateReference{{Name: "ca"}, {Kind: v1alpha1.CACertificateKindSecret, Name: "s", Key: "root.pem"}},
		ClientCertificateRef: &v1alpha1.SecretReference{Name: "s"},
		ServerName:           "Hooks.example.com",
	}))
	in.ConfigMaps = []corev1.ConfigMap{{ObjectMeta: meta("shop", "ca"), Data: map[string]string{"ca.crt": "# ours\n" + a + "\n# and theirs\n" + b}}}
	in.Secrets = append(in.Secrets, secret("shop", "s", map[string]string{"root.pem": c, "tls.crt": a, "tls.key": key}))
	r := Compile(in, nil, start, Options{})
	want := plan.TLS{CACertificates: a + b + c, ClientCertificate: a, ClientKey: key, ServerName: "hooks.example.com"}
	if e := one(t, r); len(r.Problems) != 0 || e.TLS != want {
		t.Errorf("%+v, problems %+v", e.TLS, r.Problems)
	}
	in.ConfigMaps[0].Data, in.ConfigMaps[0].BinaryData = nil, map[string][]byte{"ca.crt": []byte(b)}
	if next := Compile(in, r.Plan, start, Options{}); next.Plan.Version != r.Plan.Version+1 || one(t, next).TLS.CACertificates != b+c {
		t.Errorf("after a change of the ConfigMap: %+v", one(t, next).TLS)
	}
}

func TestTLSInTrouble(t *testing.T) {
	certificate, key := pair(t)
	_, other := pair(t)
	ca := func(refs ...v1alpha1.CACertificateReference) func(*v1alpha1.WebhookEndpointSpec) {
		return withTLS(v1alpha1.TLS{CACertificateRefs: refs})
	}
	inSecret := ca(v1alpha1.CACertificateReference{Kind: v1alpha1.CACertificateKindSecret, Name: "s"})
	mine := withTLS(v1alpha1.TLS{ClientCertificateRef: &v1alpha1.SecretReference{Name: "s"}})
	const caField, clientField = "spec.tls.caCertificateRefs[0]", "spec.tls.clientCertificateRef"
	checkTroubles(t, []trouble{
		{"no ConfigMap", ca(v1alpha1.CACertificateReference{Name: "ca"}), nil, caField, "ConfigMapNotFound", "ConfigMap ca does not exist in namespace shop; create it with the certificates under ca.crt"},
		{"no Secret", inSecret, nil, caField, "SecretNotFound", "Secret s does not exist"},
		{"another kind", ca(v1alpha1.CACertificateReference{Kind: "Pod", Name: "x"}), nil, caField + ".kind", "SpecInvalid", "kind must be ConfigMap or Secret"},
		{"no key", inSecret, map[string]string{"x": "hush"}, caField, "SecretKeyMissing", "has no key ca.crt"},
		{"no PEM", inSecret, map[string]string{"ca.crt": "hush"}, caField, "CertificateInvalid", "key ca.crt of Secret s holds no PEM certificate"},
		{"a key among them", inSecret, map[string]string{"ca.crt": certificate + key}, caField, "CertificateInvalid", "PEM block 2 is something else"},
		{"one that is cut", inSecret, map[string]string{"ca.crt": certificate + certificate[:60]}, caField, "CertificateInvalid", "a PEM block that can't be read"},
		{"one that is no certificate", inSecret, map[string]string{"ca.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("hush")}))}, caField, "CertificateInvalid", "a certificate that can't be read"},
		{"too many", ca(make([]v1alpha1.CACertificateReference, 9)...), nil, "spec.tls.caCertificateRefs", "SpecInvalid", "at most 8"},
		{"no client certificate", mine, map[string]string{"tls.key": key}, clientField, "SecretKeyMissing", "has no key tls.crt"},
		{"a key of another certificate", mine, map[string]string{"tls.crt": certificate, "tls.key": other}, clientField, "CertificateInvalid", "key tls.key of Secret s does not belong to the certificate in tls.crt"},
		{"no key in PEM", mine, map[string]string{"tls.crt": certificate, "tls.key": "hush"}, clientField, "CertificateInvalid", "holds no PEM private key"},
		{"a certificate for a key", mine, map[string]string{"tls.crt": certificate, "tls.key": certificate}, clientField, "CertificateInvalid", "can't be read as a PEM private key"},
		{"an encrypted key", mine, map[string]string{"tls.crt": certificate, "tls.key": strings.ReplaceAll(key, "PRIVATE", "ENCRYPTED PRIVATE")}, clientField, "CertificateInvalid", "without a passphrase"},
		{"a server name with a port", withTLS(v1alpha1.TLS{ServerName: "a.example:443"}), nil, "spec.tls.serverName", "SpecInvalid", "must be a host name"},
	})
}

// A client certificate that is silently not sent would be worse.
func TestTLSNeedsHTTPS(t *testing.T) {
	in := world(withTLS(v1alpha1.TLS{ServerName: "a.example"}), func(s *v1alpha1.WebhookEndpointSpec) { s.URL = "HTTP://a.example/" })
	in.Pools = []v1alpha1.DeliveryPool{{ObjectMeta: meta("doorstep-system", "default"), Spec: v1alpha1.DeliveryPoolSpec{Egress: &v1alpha1.Egress{AllowHTTP: ptr(true)}}}}
	r := Compile(in, nil, start, Options{})
	if len(r.Problems) != 1 || r.Problems[0].Field != "spec.tls" || r.Problems[0].Reason != "SpecInvalid" || !strings.Contains(r.Problems[0].Message, "tls needs an https url") {
		t.Errorf("%+v", r.Problems)
	}
}
