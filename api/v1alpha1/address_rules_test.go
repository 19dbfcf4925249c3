package v1alpha1_test

import (
	"strings"
	"testing"
)

func TestAddressRules(t *testing.T) {
	const one = "spec: exactly one of url, urlFrom and serviceRef must be set; remove the others, or add one"
	const from = "urlFrom: {secretKeyRef: {name: hook, key: url}}"
	ref := func(fields string) string { return "serviceRef: {name: receiver" + fields + "}" }
	checkRules(t, "WebhookEndpoint", []rule{
		{"from a Secret", from, nil},
		{"a Service", ref(""), nil},
		{"a Service with everything", ref(", namespace: other, port: 8443, path: '/in?a=%20b', scheme: HTTPS"), nil},
		{"none", "timeout: 5s", []string{one}},
		{"url and urlFrom", "url: https://hooks.example.com\n" + from, []string{one}},
		{"url and serviceRef", "url: https://hooks.example.com\n" + ref(""), []string{one}},
		{"urlFrom and serviceRef", from + "\n" + ref(""), []string{one}},

		{"a Service without name", "serviceRef: {port: 80}", []string{"spec.serviceRef.name: Required value"}},
		{"a name with a dot", "serviceRef: {name: a.b}", []string{"spec.serviceRef.name: spec.serviceRef.name in body should match"}},
		{"a namespace in capitals", ref(", namespace: Other"), []string{"spec.serviceRef.namespace: spec.serviceRef.namespace in body should match"}},
		{"port 0", ref(", port: 0"), []string{"spec.serviceRef.port: spec.serviceRef.port in body should be greater than or equal to 1"}},
		{"port 65536", ref(", port: 65536"), []string{"spec.serviceRef.port: spec.serviceRef.port in body should be less than or equal to 65535"}},
		{"a path without slash", ref(", path: in"), []string{"spec.serviceRef.path: path must begin with a slash and be printable ASCII"}},
		{"a path with a space", ref(", path: '/a b'"), []string{"spec.serviceRef.path: path must begin with a slash and be printable ASCII"}},
		{"a path with half an encoding", ref(", path: /100%"), []string{"spec.serviceRef.path: path must use % only in encodings such as %20"}},
		{"a path with a fragment", ref(", path: '/a#b'"), []string{"spec.serviceRef: path must not have a fragment; remove everything from the # on"}},
		{"a path that is too long", ref(", path: /" + strings.Repeat("a", 1024)), []string{"spec.serviceRef.path: may not be more than 1024 bytes"}},
		{"another scheme", ref(", scheme: https"), []string{`spec.serviceRef.scheme: supported values: "HTTP", "HTTPS"`}},
	})
}
