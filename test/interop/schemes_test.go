package interop

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/doorstep-dev/doorstep/test/harness"
)

// verifier is one of the receiver's, and how an endpoint has to sign for it.
type verifier struct {
	name string
	// scheme is the endpoint's signing without its keys.
	scheme string
	// keys are the texts of its signing keys.
	keys []string
	// receiverKey is what the receiver verifies with; empty: the keys, with blanks between.
	receiverKey string
	// asText: the library takes the body as text: it decodes it as UTF-8 and signs it
	// encoded again, so that a body that isn't UTF-8 can only be verified over its bytes.
	asText bool
}

var (
	standardKey = "whsec_" + base64.StdEncoding.EncodeToString(signingKey)
	asymmetric  = ed25519.NewKeyFromSeed([]byte("interop tests make this from 32b"))
)

var verifiers = []verifier{
	{name: "standardwebhooks", scheme: "scheme: StandardWebhooks", keys: []string{standardKey}, asText: true},
	{name: "svix", scheme: "scheme: StandardWebhooks", keys: []string{standardKey}, asText: true},
	// A Stripe key begins with whsec_ too, and is a text.
	{name: "stripe", scheme: "scheme: Stripe", keys: []string{"whsec_5WbX5kEWLlfzsGNjH64I8lOOqUB6e8FH"}, asText: true},
	{name: "octokit", scheme: "scheme: GitHub", keys: []string{"It's a Secret to Everybody"}, asText: true},
	{name: "bytes", scheme: "scheme: StandardWebhooks", keys: []string{standardKey}},
	{
		name: "asymmetric", scheme: "scheme: StandardWebhooks",
		keys:        []string{"whsk_" + base64.StdEncoding.EncodeToString(asymmetric)},
		receiverKey: "whpk_" + base64.StdEncoding.EncodeToString(asymmetric.Public().(ed25519.PublicKey)),
	},
	{name: "both", scheme: "scheme: StandardWebhooks", keys: []string{standardKey, "whsec_" + base64.StdEncoding.EncodeToString([]byte("another key of twenty-four"))}},
	{name: "shopify", scheme: `scheme: HMAC, hmac: {header: X-Shopify-Hmac-Sha256, encoding: Base64}`, keys: []string{"shpss_0123456789abcdef"}},
	{name: "slack", scheme: `scheme: HMAC, hmac: {header: X-Slack-Signature, prefix: "v0=", content: "v0:{timestamp}:{body}", timestamp: {header: X-Slack-Request-Timestamp}}`, keys: []string{"8f742231b10e8888abcd99yyyzzz85a5"}},
	{name: "paddle", scheme: `scheme: HMAC, hmac: {header: Paddle-Signature, prefix: "ts={timestamp};h1=", content: "{timestamp}:{body}"}`, keys: []string{"pdl_ntfset_01_abc/DEF+ghi"}},
	{name: "zendesk", scheme: `scheme: HMAC, hmac: {header: X-Zendesk-Webhook-Signature, encoding: Base64, content: "{timestamp}{body}", timestamp: {header: X-Zendesk-Webhook-Signature-Timestamp, unit: RFC3339}}`, keys: []string{"dGhpc19zZWNyZXRfaXNfZm9yX3Rlc3Rpbmdfb25seQ=="}},
	{name: "linear", scheme: `scheme: HMAC, hmac: {header: Linear-Signature}`, keys: []string{"lin_wh_0123456789abcdef"}},
	{name: "twitch", scheme: `scheme: HMAC, hmac: {header: Twitch-Eventsub-Message-Signature, prefix: "sha256=", content: "{id}{timestamp}{body}", timestamp: {header: Twitch-Eventsub-Message-Timestamp, unit: RFC3339}}`, keys: []string{"s3cRe7 with blanks and ü"}},
	{name: "sha512", scheme: `scheme: HMAC, hmac: {header: X-Signature, algorithm: SHA512, encoding: Base64, keyEncoding: Hex, content: "{timestamp}|{body}|{id}", timestamp: {header: X-Sent-At, unit: Milliseconds}}`, keys: []string{hex.EncodeToString([]byte("\x00\xff bytes that are no text \x80"))}},
	{name: "sha1", scheme: `scheme: HMAC, hmac: {header: X-Hub-Signature, prefix: "id={id};", algorithm: SHA1, keyEncoding: Base64}`, keys: []string{base64.StdEncoding.EncodeToString([]byte("\x00\xff bytes that are no text \x80"))}},
}

// signing is the endpoint's signing as YAML, and the Secret that it names.
func (v verifier) signing() (spec, secret string) {
	var refs, data strings.Builder
	for i, key := range v.keys {
		fmt.Fprintf(&refs, "{name: k%d, secretKeyRef: {name: %s, key: k%d}},", i, v.name, i)
		fmt.Fprintf(&data, "  k%d: %q\n", i, key)
	}
	spec = fmt.Sprintf("{%s, keys: [%s]}", v.scheme, strings.TrimSuffix(refs.String(), ","))
	secret = fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: %s}\nstringData:\n%s", v.name, harness.Namespace, data.String())
	return spec, secret
}

// receiverKeys are what the receiver verifies with, by verifier.
func receiverKeys() map[string]string {
	keys := map[string]string{}
	for _, v := range verifiers {
		keys[v.name] = v.receiverKey
		if v.receiverKey == "" {
			keys[v.name] = strings.Join(v.keys, " ")
		}
	}
	return keys
}

// canVerify reports whether the verifier can verify the body at all.
func (v verifier) canVerify(body string) bool { return !v.asText || utf8.ValidString(body) }
