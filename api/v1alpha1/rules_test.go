package v1alpha1_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// rule is one row: an object of the kind with this spec is refused with exactly these faults (none: accepted).
type rule struct {
	name string
	spec string
	want []string
}

func checkRules(t *testing.T, kind string, rows []rule) {
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			check(t, object(t, kind, "orders", row.spec), nil, row.want)
		})
	}
}

// check judges an object, on its creation or (old is not nil) on a change, twice: by the API server's libraries, as
// standalone does, and by an API server. Both must find exactly these faults; without any, the API server must also answer
// the spec as it was written.
func check(t *testing.T, obj, old map[string]any, want []string) {
	t.Helper()
	answered := askServer(t, obj, old, want)
	got := admissionOf(t, obj["kind"].(string)).judge(obj, old)
	if !sameFaults(got, want) {
		t.Errorf("faults\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
	noteHits(obj["kind"].(string), got)
	if answered && len(got) > 0 {
		t.Errorf("the API server takes what its libraries refuse: %q", got)
	}
}

// sameFaults reports whether each fault begins with its wanted text, in any order and none besides.
func sameFaults(got, want []string) bool {
	if len(got) != len(want) {
		return false
	}
	rest := slices.Clone(got)
	for _, w := range want {
		i := slices.IndexFunc(rest, func(g string) bool { return strings.HasPrefix(g, w) })
		if i < 0 {
			return false
		}
		rest = slices.Delete(rest, i, i+1)
	}
	return true
}

const (
	urlScheme   = "spec.url: url must begin with https:// or http://"
	urlUser     = "spec.url: url must not hold a user name or password"
	urlFragment = "spec.url: url must not have a fragment"
	urlASCII    = "spec.url: url must be printable ASCII without spaces and backslashes"
	urlPercent  = "spec.url: url must use % only in encodings such as %20"
	urlHost     = "spec.url: url must name a host"
	urlPort     = "spec.url: url must have a port from 1 to 65535"
)

func TestWebhookEndpointURL(t *testing.T) {
	long := "https://hooks.example.com/" + strings.Repeat("a", 2048)
	checkRules(t, "WebhookEndpoint", []rule{
		{"https", "url: https://hooks.example.com/orders", nil},
		{"http", "url: http://hooks.example.com", nil},
		{"query with a token", "url: 'https://hooks.example.com/a/b?token=s3cr3t&x=%20'", nil},
		{"an at sign in the path and the query", "url: 'https://hooks.example.com/@team?to=a@b'", nil},
		{"port", "url: https://hooks.example.com:8443/orders", nil},
		{"highest port", "url: https://hooks.example.com:65535", nil},
		{"query without path", "url: 'https://hooks.example.com?a=b'", nil},
		{"IPv4", "url: https://203.0.113.7:1/", nil},
		{"IPv6", "url: 'https://[2001:db8::1]:8443/orders'", nil},
		{"trailing dot in the host", "url: https://hooks.example.com./", nil},
		{"underscore in the host", "url: http://my_service:3000/", nil},
		{"missing", "{}", []string{"spec: exactly one of url, urlFrom and serviceRef must be set; remove the others, or add one"}},
		{"empty", "url: ''", []string{"spec.url: spec.url in body should be at least 1 chars long", urlScheme}},
		{"too long", "url: " + long, []string{"spec.url: may not be more than 2048 bytes"}},
		{"other scheme", "url: ftp://hooks.example.com/", []string{urlScheme}},
		{"no scheme", "url: hooks.example.com/orders", []string{urlScheme}},
		{"scheme without slashes", "url: 'https:hooks.example.com'", []string{urlScheme}},
		{"user and password", "url: 'https://user:pass@hooks.example.com/'", []string{urlUser}},
		{"user alone", "url: 'https://token@hooks.example.com/'", []string{urlUser}},
		{"fragment", "url: 'https://hooks.example.com/#top'", []string{urlFragment}},
		{"space", "url: 'https://hooks.example.com/a b'", []string{urlASCII}},
		{"line break", `url: "https://hooks.example.com/a\nb"`, []string{urlASCII}},
		{"line break at the end", `url: "https://hooks.example.com/a\n"`, []string{urlASCII}},
		{"control character", `url: "https://hooks.example.com/\x01"`, []string{urlASCII}},
		{"backslash", `url: 'https://hooks.example.com\@evil.example'`, []string{urlASCII, urlUser}},
		{"full-width digit", "url: 'https://hooks.example.com/１'", []string{urlASCII}},
		{"full-width digit in the host", "url: 'https://hooks１.example.com/'", []string{urlASCII, urlHost}},
		{"bad percent-encoding", "url: 'https://hooks.example.com/100%?x=1'", []string{urlPercent}},
		{"percent at the end", "url: 'https://hooks.example.com/100%'", []string{urlPercent}},
		{"half an encoding at the end", "url: 'https://hooks.example.com/100%2'", []string{urlPercent}},
		{"no host", "url: 'https:///orders'", []string{urlHost}},
		{"no host but a port", "url: 'https://:443/orders'", []string{urlHost}},
		{"open bracket", "url: 'https://[2001:db8::1/orders'", []string{urlHost}},
		{"port 0", "url: https://hooks.example.com:0/", []string{urlPort}},
		{"port 65536", "url: https://hooks.example.com:65536/", []string{urlPort}},
		{"port 99999", "url: https://hooks.example.com:99999/", []string{urlPort}},
		{"empty port", "url: 'https://hooks.example.com:/'", []string{urlPort}},
		{"port in words", "url: 'https://hooks.example.com:https/'", []string{urlPort}},
		{"IPv6 with port 0", "url: 'https://[2001:db8::1]:0/'", []string{urlPort}},
	})
}

func TestWebhookEndpointRules(t *testing.T) {
	const url = "url: https://hooks.example.com/orders\n"
	const eventType = "each entry of eventTypes must be"
	types := func(n int) string { return url + "eventTypes: [" + strings.Join(numbered("t", n), ", ") + "]" }
	keys := func(n int) string {
		text := url + "signing:\n  keys:"
		for _, name := range numbered("k", n) {
			text += "\n  - {name: " + name + ", secretKeyRef: {name: orders-signing, key: key}}"
		}
		return text
	}
	checkRules(t, "WebhookEndpoint", []rule{
		{"everything set", url + "eventTypes: ['order.*', payment.completed]\n" +
			"signing: {scheme: StandardWebhooks, keys: [{name: '2026-11', secretKeyRef: {name: orders-signing, key: key}}]}\n" +
			"timeout: 15s\nmaxInFlight: 16\nretryPolicyRef: {name: patient}\nsuspend: false\n" +
			"poolRef: {name: default, namespace: doorstep-system}", nil},

		{"event type of one segment", url + "eventTypes: [ping]", nil},
		{"event type with dashes, slashes and other letters", url + "eventTypes: [com.example/v2.größe-changed]", nil},
		{"every type", url + "eventTypes: ['*']", nil},
		{"operational events", url + "eventTypes: ['doorstep.*']", nil},
		{"100 event types", types(100), nil},
		{"101 event types", types(101), []string{"spec.eventTypes: must have at most 100 items"}},
		{"no event types", url + "eventTypes: []", []string{"spec.eventTypes: spec.eventTypes in body should have at least 1 items"}},
		{"event type twice", url + "eventTypes: [a, a]", []string{"spec.eventTypes[1]: Duplicate value"}},
		{"asterisk at the start", url + "eventTypes: ['*.created']", []string{"spec.eventTypes[0]: " + eventType}},
		{"asterisk in the middle", url + "eventTypes: ['order.*.created']", []string{"spec.eventTypes[0]: " + eventType}},
		{"asterisk within a segment", url + "eventTypes: ['order.cre*']", []string{"spec.eventTypes[0]: " + eventType}},
		{"two asterisks", url + "eventTypes: ['order.**']", []string{"spec.eventTypes[0]: " + eventType}},
		{"empty segment", url + "eventTypes: ['order..created']", []string{"spec.eventTypes[0]: " + eventType}},
		{"dot at the end", url + "eventTypes: ['order.']", []string{"spec.eventTypes[0]: " + eventType}},
		{"space in an event type", url + "eventTypes: ['order created']", []string{"spec.eventTypes[0]: " + eventType}},
		{"event type of 256 characters", url + "eventTypes: [" + strings.Repeat("a", 256) + "]", nil},
		{"event type of 257 characters", url + "eventTypes: [" + strings.Repeat("a", 257) + "]",
			[]string{"spec.eventTypes[0]: may not be more than 256 bytes"}},

		{"shortest timeout", url + "timeout: 1s", nil},
		{"longest timeout", url + "timeout: 1m", nil},
		{"timeout of several units", url + "timeout: 1s500ms", nil},
		{"timeout too short", url + "timeout: 999ms", []string{"spec.timeout: timeout must be from 1s to 60s"}},
		{"timeout too long", url + "timeout: 61s", []string{"spec.timeout: timeout must be from 1s to 60s"}},

		{"fewest in flight", url + "maxInFlight: 1", nil},
		{"most in flight", url + "maxInFlight: 1000", nil},
		{"none in flight", url + "maxInFlight: 0", []string{"spec.maxInFlight: spec.maxInFlight in body should be greater than or equal to 1"}},
		{"too many in flight", url + "maxInFlight: 1001", []string{"spec.maxInFlight: spec.maxInFlight in body should be less than or equal to 1000"}},

		{"five keys", keys(5), nil},
		{"six keys", keys(6), []string{"spec.signing.keys: must have at most 5 items"}},
		{"no keys", url + "signing: {keys: []}", []string{"spec.signing.keys: spec.signing.keys in body should have at least 1 items"}},
		{"empty signing", url + "signing: {}", []string{"spec.signing: spec.signing in body should have at least 1 properties"}},
		{"two keys of one name", url + "signing: {keys: [{name: a, secretKeyRef: {name: s, key: k}}, {name: a, secretKeyRef: {name: s, key: l}}]}",
			[]string{"spec.signing.keys[1]: Duplicate value"}},
		{"key name in capitals", url + "signing: {keys: [{name: A, secretKeyRef: {name: s, key: k}}]}",
			[]string{"spec.signing.keys[0].name: spec.signing.keys[0].name in body should match"}},
		{"key without a Secret", url + "signing: {keys: [{name: a}]}", []string{"spec.signing.keys[0].secretKeyRef: Required value"}},
		{"Secret name with a slash", url + "signing: {keys: [{name: a, secretKeyRef: {name: other/s, key: k}}]}",
			[]string{"spec.signing.keys[0].secretKeyRef.name: spec.signing.keys[0].secretKeyRef.name in body should match"}},
		{"Secret key with a slash", url + "signing: {keys: [{name: a, secretKeyRef: {name: s, key: a/b}}]}",
			[]string{"spec.signing.keys[0].secretKeyRef.key: spec.signing.keys[0].secretKeyRef.key in body should match"}},
		{"unknown signature scheme", url + "signing: {scheme: Svix}", []string{"spec.signing.scheme: supported values: \"StandardWebhooks\", \"GitHub\""}},

		{"retry policy name in capitals", url + "retryPolicyRef: {name: Patient}",
			[]string{"spec.retryPolicyRef.name: spec.retryPolicyRef.name in body should match"}},
		{"pool without namespace", url + "poolRef: {name: default}", []string{"spec.poolRef.namespace: Required value"}},
		{"pool namespace with a dot", url + "poolRef: {name: default, namespace: a.b}",
			[]string{"spec.poolRef.namespace: spec.poolRef.namespace in body should match"}},
		{"pool name with a dash at its end", url + "poolRef: {name: default-, namespace: a}",
			[]string{"spec.poolRef.name: spec.poolRef.name in body should match"}},
		{"unknown field", url + "retries: 5", []string{"spec.retries: unknown field"}},
	})
}

func TestPoolRefIsImmutable(t *testing.T) {
	const url = "url: https://hooks.example.com/orders\n"
	const pool, other = url + "poolRef: {name: default, namespace: a}", url + "poolRef: {name: other, namespace: a}"
	const presence = "spec: poolRef can't be added or removed later"
	for _, row := range []struct {
		name     string
		old, new string
		want     []string
	}{
		{"kept", pool, pool + "\ntimeout: 5s", nil},
		{"kept unset", url, url + "timeout: 5s", nil},
		{"changed", pool, other, []string{"spec.poolRef: poolRef can't be changed"}},
		{"added", url, pool, []string{presence}},
		{"removed", pool, url, []string{presence}},
	} {
		t.Run(row.name, func(t *testing.T) {
			check(t, object(t, "WebhookEndpoint", "orders", row.new), object(t, "WebhookEndpoint", "orders", row.old), row.want)
		})
	}
}

func TestNamesHaveALongestLength(t *testing.T) {
	for kind, row := range map[string]struct {
		spec string
		most int
		want string
	}{
		"WebhookEndpoint": {"url: https://hooks.example.com/orders", 63, "; choose a shorter name"},
		"RetryPolicy":     {"{}", 63, "; choose a shorter name"},
		"DeliveryPool":    {"{}", 45, ", since the names of the pool's objects are made from it; choose a shorter name"},
	} {
		t.Run(kind, func(t *testing.T) {
			check(t, object(t, kind, strings.Repeat("a", row.most), row.spec), nil, nil)
			check(t, object(t, kind, strings.Repeat("a", row.most+1), row.spec), nil,
				[]string{fmt.Sprintf("<nil>: metadata.name must be at most %d characters%s", row.most, row.want)})
		})
	}
}
