package v1alpha1_test

import (
	"strings"
	"testing"
)

// The rules of spec.signing; each has a row that passes and one that fails.
func TestSigningRules(t *testing.T) {
	const url = "url: https://hooks.example.com/orders\n"
	signing := func(rest string) string { return url + "signing: {" + rest + "}" }
	hmac := func(rest string) string { return signing("scheme: HMAC, hmac: {" + rest + "}") }
	keys := func(rest string) string {
		return signing("keys: [{name: a, secretKeyRef: {name: s, key: key}" + rest + "}]")
	}
	const (
		both     = "spec.signing: hmac must be set with scheme HMAC, and with no other"
		none     = "spec.signing: keys and rotationOverlap have no meaning with scheme None"
		overlap  = "spec.signing.rotationOverlap: "
		header   = "spec.signing.hmac.header: "
		prefix   = "spec.signing.hmac.prefix: "
		content  = "spec.signing.hmac.content: "
		stamp    = "spec.signing.hmac.timestamp.header: "
		twice    = "spec.signing.hmac: timestamp.header must be another header than header"
		clash    = "spec: a header that signing.hmac sends can't stand in headers too"
		validity = "spec.signing.keys[0]: expiresAt must be after notBefore"
	)
	checkRules(t, "WebhookEndpoint", []rule{
		{"StandardWebhooks", signing("scheme: StandardWebhooks"), nil},
		{"GitHub", signing("scheme: GitHub"), nil},
		{"Stripe with keys and an overlap", signing("scheme: Stripe, rotationOverlap: 1h, keys: [{name: a, secretKeyRef: {name: s, key: key}}]"), nil},
		{"None", signing("scheme: None"), nil},
		{"HMAC", hmac("header: X-Signature"), nil},
		{"HMAC with everything", hmac(`header: x-signature, algorithm: SHA512, encoding: Base64, prefix: "ts={timestamp};id={id};h1=", keyEncoding: Hex, ` +
			`content: "{id}.{timestamp}.{body}", timestamp: {header: x-time, unit: RFC3339}`), nil},
		{"nothing set", signing(""), []string{"spec.signing: spec.signing in body should have at least 1 properties"}},
		{"another scheme", signing("scheme: Svix"), []string{"spec.signing.scheme: supported values"}},
		{"HMAC without hmac", signing("scheme: HMAC"), []string{both}},
		{"hmac with GitHub", signing("scheme: GitHub, hmac: {header: x}"), []string{both}},
		{"hmac without a scheme", signing("hmac: {header: x}"), []string{both}},
		{"None with keys", signing("scheme: None, keys: [{name: a, secretKeyRef: {name: s, key: key}}]"), []string{none}},
		{"None with an overlap", signing("scheme: None, rotationOverlap: 1h"), []string{none}},

		{"no overlap", signing("rotationOverlap: 0s"), nil},
		{"the longest overlap", signing("rotationOverlap: 720h"), nil},
		{"a longer overlap", signing("rotationOverlap: 720h1ms"), []string{overlap + "rotationOverlap must be at most 720h"}},
		{"an overlap that is none", signing("rotationOverlap: soon"), []string{overlap + "spec.signing.rotationOverlap in body should match"}},

		{"no header", hmac("prefix: a"), []string{"spec.signing.hmac.header: Required value"}},
		{"the header of another scheme", hmac("header: X-Hub-Signature"), nil},
		{"webhook-signature", hmac("header: webhook-signature"), nil},
		{"an empty header", hmac("header: ''"), []string{header + "spec.signing.hmac.header in body should be at least 1", header + "header must be a header name"}},
		{"a header with a space", hmac("header: X Signature"), []string{header + "header must be a header name"}},
		{"a header with a colon", hmac("header: 'X-Signature:'"), []string{header + "header must be a header name"}},
		{"a header of 64 characters", hmac("header: " + strings.Repeat("x", 64)), nil},
		{"a header of 65 characters", hmac("header: " + strings.Repeat("x", 65)), []string{header + "may not be more than 64"}},
		{"a header of HTTP", hmac("header: Content-Length"), []string{header + "header is reserved"}},
		{"a header of events", hmac("header: CE-signature"), []string{header + "header is reserved"}},
		{"the id's header", hmac("header: Webhook-Id"), []string{header + "header is reserved"}},
		{"credentials", hmac("header: Authorization"), []string{header + "header is reserved"}},
		{"a header that headers has not", hmac("header: X-Signature, timestamp: {header: X-Time}") + "\nheaders: [{name: X-Team, value: shop}]", nil},
		{"a header that headers has", hmac("header: X-Signature") + "\nheaders: [{name: x-signature, value: a}]", []string{clash}},
		{"a time that headers has", hmac("header: X-Signature, timestamp: {header: X-Time}") + "\nheaders: [{name: x-time, value: a}]", []string{clash}},

		{"a time in another header", hmac("header: x, timestamp: {header: x-time}"), nil},
		{"a time without a header", hmac("header: x, timestamp: {unit: Seconds}"), []string{"spec.signing.hmac.timestamp.header: Required value"}},
		{"a time in the same header", hmac("header: x, timestamp: {header: X}"), []string{twice}},
		{"a time in Date", hmac("header: x, timestamp: {header: Date, unit: Seconds}"), nil},
		{"a time in the id's header", hmac("header: x, timestamp: {header: webhook-timestamp}"), []string{stamp + "header is reserved"}},
		{"a time in a header with a space", hmac("header: x, timestamp: {header: a b}"), []string{stamp + "header must be a header name"}},
		{"another unit", hmac("header: x, timestamp: {header: x-time, unit: Minutes}"), []string{"spec.signing.hmac.timestamp.unit: supported values"}},

		{"a prefix", hmac("header: x, prefix: 'sha256='"), nil},
		{"a prefix with a space in it", hmac("header: x, prefix: 'HMAC v='"), nil},
		{"a prefix that begins with a space", hmac("header: x, prefix: ' a'"), []string{prefix + "prefix must be printable ASCII"}},
		{"a prefix with a line break", hmac(`header: x, prefix: "a\nb"`), []string{prefix + "prefix must be printable ASCII"}},
		{"a prefix of other letters", hmac("header: x, prefix: 'ä='"), []string{prefix + "prefix must be printable ASCII"}},
		{"a prefix with the body", hmac("header: x, prefix: '{body}'"), []string{prefix + "prefix can hold {id} and {timestamp}"}},
		{"a prefix with an open brace", hmac("header: x, prefix: 'a{'"), []string{prefix + "prefix can hold {id} and {timestamp}"}},

		{"content with the body alone", hmac("header: x, content: '{body}'"), nil},
		{"content as Zoom has it", hmac("header: x, content: 'v0:{timestamp}:{body}'"), nil},
		{"content without the body", hmac("header: x, content: '{id}'"), []string{content + "content must hold {body} exactly once"}},
		{"content with the body twice", hmac("header: x, content: '{body}{body}'"), []string{content + "content must hold {body} exactly once"}},
		{"content with another field", hmac("header: x, content: '{url}{body}'"), []string{content + "content can hold {id}, {timestamp} and {body}"}},
		{"content with a brace", hmac("header: x, content: '{{body}'"), []string{content + "content can hold {id}, {timestamp} and {body}"}},
		{"content that is too long", hmac("header: x, content: '{body}" + strings.Repeat("x", 251) + "'"), []string{content + "may not be more than 256"}},
		{"another algorithm", hmac("header: x, algorithm: MD5"), []string{"spec.signing.hmac.algorithm: supported values"}},
		{"another encoding", hmac("header: x, encoding: Base32"), []string{"spec.signing.hmac.encoding: supported values"}},
		{"another key encoding", hmac("header: x, keyEncoding: Base32"), []string{"spec.signing.hmac.keyEncoding: supported values"}},

		{"a key with bounds", keys(", notBefore: '2026-11-01T00:00:00Z', expiresAt: '2026-12-01T00:00:00Z'"), nil},
		{"a key with an end alone", keys(", expiresAt: '2026-12-01T00:00:00Z'"), nil},
		{"a key that ends as it begins", keys(", notBefore: '2026-11-01T00:00:00Z', expiresAt: '2026-11-01T00:00:00Z'"), []string{validity}},
		{"a key that ends before it begins", keys(", notBefore: '2026-12-01T00:00:00Z', expiresAt: '2026-11-01T00:00:00Z'"), []string{validity}},
		{"a date that is none", keys(", expiresAt: tomorrow"), []string{"spec.signing.keys[0].expiresAt: spec.signing.keys[0].expiresAt in body must be of type date-time"}},
	})
}
