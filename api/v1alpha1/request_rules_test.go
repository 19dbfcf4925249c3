package v1alpha1_test

import (
	"strings"
	"testing"
)

func TestHeaderRules(t *testing.T) {
	const url = "url: https://hooks.example.com/orders\n"
	const (
		reserved = "spec.headers[0].name: name is reserved"
		badName  = "spec.headers[0].name: name must be a header name"
		badValue = "spec.headers[0].value: value must be printable ASCII"
		oneOf    = "spec.headers[0]: each header must have exactly one of value and valueFrom"
	)
	name := func(n string) string { return url + "headers: [{name: '" + n + "', value: x}]" }
	value := func(v string) string { return url + `headers: [{name: X-A, value: "` + v + `"}]` }
	event := func(e string) string { return url + "headers: [{name: X-A, valueFrom: {event: '" + e + "'}}]" }
	many := func(n int) string {
		text := url + "headers:"
		for _, s := range numbered("X-", n) {
			text += "\n- {name: " + s + ", value: x}"
		}
		return text
	}
	rows := []rule{
		{"each source", url + "headers: [{name: X-Team, value: shop & co}, {name: Authorization, valueFrom: {secretKeyRef: {name: t, key: k}}}, {name: X-Kind, valueFrom: {event: type}}]", nil},
		{"an odd name", name("x!#$%&*+.^_|~-9"), nil},
		{"a tab within a value", value(`a\tb`), nil},
		{"a value of one character", value("a"), nil},
		{"20", many(20), nil},
		{"21", many(21), []string{"spec.headers: must have at most 20 items"}},
		{"an empty list", url + "headers: []", []string{"spec.headers: spec.headers in body should have at least 1 items"}},
		{"one name twice", url + "headers: [{name: X-A, value: x}, {name: X-A, value: z}]", []string{`spec.headers[1]: Duplicate value`}},
		{"a space in the name", name("Bad Name"), []string{badName}},
		{"a colon in the name", name("X-A:"), []string{badName}},
		{"a line break in the name", url + `headers: [{name: "X-A\r\nX-Evil", value: x}]`, []string{badName}},
		{"a name of 64", name(strings.Repeat("x", 64)), nil},
		{"a name of 65", name(strings.Repeat("x", 65)), []string{"spec.headers[0].name: may not be more than 64 bytes"}},
		{"a line break in the value (case BDY-09)", value(`a\r\nX-Evil: 1`), []string{badValue}},
		{"NUL", value(`a\x00b`), []string{badValue}},
		{"DEL", value(`a\x7fb`), []string{badValue}},
		{"not ASCII", value("é"), []string{badValue}},
		{"a space before it", value(" a"), []string{badValue}},
		{"a space behind it", value("a "), []string{badValue}},
		{"neither", url + "headers: [{name: X-A}]", []string{oneOf}},
		{"both", url + "headers: [{name: X-A, value: x, valueFrom: {event: id}}]", []string{oneOf}},
		{"no source", url + "headers: [{name: X-A, valueFrom: {}}]", []string{"spec.headers[0].valueFrom: exactly one of the fields in [secretKeyRef event] must be set"}},
		{"two sources", url + "headers: [{name: X-A, valueFrom: {event: id, secretKeyRef: {name: t, key: k}}}]", []string{"spec.headers[0].valueFrom: exactly one of the fields in [secretKeyRef event] must be set"}},
		{"an attribute", event("attributes.region2"), nil},
		{"the data", event("data"), []string{"spec.headers[0].valueFrom.event: "}},
		{"an attribute with a dash", event("attributes.a-b"), []string{"spec.headers[0].valueFrom.event: "}},
		{"something before it", event("xid"), []string{"spec.headers[0].valueFrom.event: "}},
	}
	for _, n := range []string{"id", "type", "source", "subject", "time"} {
		rows = append(rows, rule{"of the event: " + n, event(n), nil})
	}
	for _, n := range []string{
		"Host", "Content-Length", "content-type", "Content-Encoding", "Transfer-Encoding", "Connection", "Upgrade", "TE", "Trailer", "Expect", "Keep-Alive",
		"User-Agent", "traceparent", "Idempotency-Key", "idempotency-KEY", "X-Idempotency-Key", "Metadata", "Metadata-Flavor", "Stripe-Signature", "X-Hub-Signature",
		"X-Hub-Signature-256", "X-GitHub-Delivery", "X-GitHub-Event", "Webhook-Id", "webhook-x", "Webhook_Id", "X_Hub_Signature_256", "Content_Type", "Doorstep-Attempt", "ce-id", "CE-x", "Proxy-Authorization",
		"X-Google-Metadata-Request", "X-aws-ec2-metadata-token",
	} {
		rows = append(rows, rule{"reserved: " + n, name(n), []string{reserved}})
	}
	checkRules(t, "WebhookEndpoint", rows)
}

func TestAuthRules(t *testing.T) {
	const url = "url: https://hooks.example.com/orders\n"
	oauth := func(more string) string {
		return url + "auth: {type: OAuth2ClientCredentials, oauth2: {tokenURL: 'https://id.example.com/token', secretRef: {name: s}" + more + "}}"
	}
	token := func(u string) string {
		return url + "auth: {type: OAuth2ClientCredentials, oauth2: {tokenURL: '" + u + "', secretRef: {name: s}}}"
	}
	const badToken = "spec.auth.oauth2.tokenURL: tokenURL must be an http or https URL without user name, password, spaces and fragment"
	checkRules(t, "WebhookEndpoint", []rule{
		{"basic", url + "auth: {type: Basic, basic: {secretRef: {name: s}}}", nil},
		{"bearer", url + "auth: {type: Bearer, bearer: {secretKeyRef: {name: s, key: k}}}", nil},
		{"oauth2", oauth(""), nil},
		{"oauth2 with everything", oauth(", scopes: [a, 'https://x/y'], audience: 'https://aud', clientAuthentication: Body"), nil},
		{"no type", url + "auth: {basic: {secretRef: {name: s}}}", []string{"spec.auth.type: Required value"}},
		{"an unknown type", url + "auth: {type: Digest}", []string{"spec.auth.type: supported values"}},
		{"type alone", url + "auth: {type: Basic}", []string{"spec.auth: basic must be set with type Basic"}},
		{"another's field", url + "auth: {type: Bearer, basic: {secretRef: {name: s}}}", []string{"spec.auth: basic must be set with type Basic", "spec.auth: bearer must be set with type Bearer"}},
		{"two fields", url + "auth: {type: Basic, basic: {secretRef: {name: s}}, bearer: {secretKeyRef: {name: s, key: k}}}", []string{"spec.auth: bearer must be set with type Bearer"}},
		{"oauth2 with Basic", url + "auth: {type: Basic, basic: {secretRef: {name: s}}, oauth2: {tokenURL: 'https://id.example.com', secretRef: {name: s}}}", []string{"spec.auth: oauth2 must be set with type OAuth2ClientCredentials"}},
		{"a token URL with a port and a query", token("https://id.example.com:8443/t?a=b"), nil},
		{"a token URL with a password", token("https://u:p@id.example.com/"), []string{badToken}},
		{"a token URL with a fragment", token("https://id.example.com/#x"), []string{badToken}},
		{"a token URL with a space", token("https://id.example.com/a b"), []string{badToken}},
		{"a token URL of another scheme", token("ftp://id.example.com/"), []string{badToken}},
		{"no scope", oauth(", scopes: []"), []string{"spec.auth.oauth2.scopes: spec.auth.oauth2.scopes in body should have at least 1 items"}},
		{"a scope with a space", oauth(", scopes: ['a b']"), []string{"spec.auth.oauth2.scopes[0]: "}},
		{"a scope with a quote", oauth(`, scopes: ['a"b']`), []string{"spec.auth.oauth2.scopes[0]: "}},
		{"a scope twice", oauth(", scopes: [a, a]"), []string{"spec.auth.oauth2.scopes[1]: Duplicate value"}},
		{"client authentication", oauth(", clientAuthentication: JWT"), []string{"spec.auth.oauth2.clientAuthentication: supported values"}},
	})
}

func TestTLSAndBodyRules(t *testing.T) {
	const url = "url: https://hooks.example.com/orders\n"
	checkRules(t, "WebhookEndpoint", []rule{
		{"everything", url + "tls: {caCertificateRefs: [{name: ca}, {kind: Secret, name: s, key: root.pem}], clientCertificateRef: {name: s}, serverName: hooks.example.com}", nil},
		{"nothing", url + "tls: {}", []string{"spec.tls: spec.tls in body should have at least 1 properties"}},
		{"no authority", url + "tls: {caCertificateRefs: []}", []string{"spec.tls.caCertificateRefs: spec.tls.caCertificateRefs in body should have at least 1 items"}},
		{"nine", url + "tls: {caCertificateRefs: [" + strings.TrimSuffix(strings.Repeat("{name: ca}, ", 9), ", ") + "]}", []string{"spec.tls.caCertificateRefs: must have at most 8 items"}},
		{"another kind", url + "tls: {caCertificateRefs: [{kind: Pod, name: ca}]}", []string{"spec.tls.caCertificateRefs[0].kind: supported values"}},
		{"a server name with a port", url + "tls: {serverName: 'a.example:443'}", []string{"spec.tls.serverName: "}},
		{"a server name that ends in a dot", url + "tls: {serverName: 'a.example.'}", []string{"spec.tls.serverName: "}},
		{"the event", url + "body: Event", nil},
		{"the data", url + "body: Data", nil},
		{"another body", url + "body: Envelope", []string{"spec.body: supported values"}},
	})
}
