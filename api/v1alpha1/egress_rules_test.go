package v1alpha1_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestEgressRules(t *testing.T) {
	const (
		entry     = "spec.egress.allow[0]"
		denied    = "spec.egress.deny[0].cidr: cidr must be a network"
		proxyURL  = "spec.egress.proxy.url: url must be http:// or https:// with a host and a port"
		authority = "spec.egress.caCertificateRefs"
	)
	allow := func(rest string) string { return "egress: {allow: [{cidr: 10.20.0.0/16, " + rest + "}]}" }
	deny := func(cidr string) string { return "egress: {deny: [{cidr: '" + cidr + "'}]}" }
	proxy := func(url string) string { return "egress: {proxy: {url: '" + url + "'}}" }
	list := func(n int, item string) string {
		items := make([]string, n)
		for i := range items {
			items[i] = fmt.Sprintf(item, i+1)
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	checkRules(t, "DeliveryPool", []rule{
		{"everything set", "egress:\n  allow: [{cidr: 10.20.0.0/16, ports: [443, 6379], namespaces: [shop, warehouse-2]}]\n  deny: [{cidr: 198.51.100.0/24}, {cidr: '2001:db8::/32'}]\n" +
			"  allowHTTP: true\n  proxy: {url: 'http://proxy.example.com:3128', credentialsSecretRef: {name: proxy}}\n  caCertificateRefs: [{name: ca}, {kind: Secret, name: ca, key: root.pem}]", nil},

		{"lowest and highest port", allow("ports: [1, 65535]"), nil},
		{"port 0", allow("ports: [0]"), []string{entry + ".ports[0]: " + entry + ".ports[0] in body should be greater than or equal to 1"}},
		{"port 65536", allow("ports: [65536]"), []string{entry + ".ports[0]: " + entry + ".ports[0] in body should be less than or equal to 65535"}},
		{"a port twice", allow("ports: [80, 80]"), []string{entry + ".ports[1]: Duplicate value"}},
		{"a port as text", allow("ports: ['80']"), []string{entry + ".ports[0]: " + entry + ".ports[0] in body must be of type integer"}},
		{"no ports", allow("ports: []"), []string{entry + ".ports: " + entry + ".ports in body should have at least 1 items"}},
		{"32 ports", allow("ports: " + list(32, "%d")), nil},
		{"33 ports", allow("ports: " + list(33, "%d")), []string{entry + ".ports: must have at most 32 items"}},

		{"namespaces", allow("namespaces: [a, b-1]"), nil},
		{"no namespaces", allow("namespaces: []"), []string{entry + ".namespaces: " + entry + ".namespaces in body should have at least 1 items"}},
		{"a namespace twice", allow("namespaces: [a, a]"), []string{entry + ".namespaces[1]: Duplicate value"}},
		{"a pattern for namespaces", allow("namespaces: ['team-*']"), []string{entry + ".namespaces[0]: " + entry + ".namespaces[0] in body should match"}},
		{"an empty namespace", allow("namespaces: ['']"), []string{
			entry + ".namespaces[0]: " + entry + ".namespaces[0] in body should be at least 1 chars"}},
		{"100 namespaces", allow("namespaces: " + list(100, "n%d")), nil},
		{"101 namespaces", allow("namespaces: " + list(101, "n%d")), []string{entry + ".namespaces: must have at most 100 items"}},

		{"deny of IPv4", deny("10.0.0.0/8"), nil},
		{"deny of IPv6", deny("2001:db8::/32"), nil},
		{"deny of an address", deny("10.0.0.1"), []string{denied}},
		{"deny with bits after the prefix", deny("10.0.0.1/8"), []string{denied}},
		{"deny of mapped addresses", deny("::ffff:10.0.0.0/104"), []string{denied}},
		{"deny twice", "egress: {deny: [{cidr: 10.0.0.0/8}, {cidr: 10.0.0.0/8}]}", []string{"spec.egress.deny[1]: Duplicate value"}},
		{"no deny", "egress: {deny: []}", []string{"spec.egress.deny: spec.egress.deny in body should have at least 1 items"}},
		{"deny with ports", "egress: {deny: [{cidr: 10.0.0.0/8, ports: [80]}]}", []string{"spec.egress.deny[0].ports: unknown field"}},

		{"a proxy by name", proxy("http://proxy.example.com:3128"), nil},
		{"a proxy by https, with a slash", proxy("https://proxy.example.com:443/"), nil},
		{"a proxy by address", proxy("http://10.0.0.7:3128"), nil},
		{"a proxy by IPv6 address", proxy("http://[fd00::7]:3128"), nil},
		{"a proxy without port", proxy("http://proxy.example.com"), []string{proxyURL}},
		{"a proxy with an empty port", proxy("http://proxy.example.com:"), []string{proxyURL}},
		{"a proxy with a path", proxy("http://proxy.example.com:3128/pac"), []string{proxyURL}},
		{"a proxy with a query", proxy("http://proxy.example.com:3128?a=b"), []string{proxyURL}},
		{"a proxy with a user", proxy("http://me:hush@proxy.example.com:3128"), []string{proxyURL}},
		{"a proxy of another kind", proxy("socks5://proxy.example.com:1080"), []string{proxyURL}},
		{"a proxy without url", "egress: {proxy: {credentialsSecretRef: {name: a}}}", []string{"spec.egress.proxy.url: Required value"}},
		{"a Secret with a slash", "egress: {proxy: {url: 'http://a:1', credentialsSecretRef: {name: a/b}}}",
			[]string{"spec.egress.proxy.credentialsSecretRef.name: spec.egress.proxy.credentialsSecretRef.name in body should match"}},

		{"8 authorities", "egress: {caCertificateRefs: " + list(8, "{name: ca%d}") + "}", nil},
		{"9 authorities", "egress: {caCertificateRefs: " + list(9, "{name: ca%d}") + "}", []string{authority + ": must have at most 8 items"}},
		{"no authorities", "egress: {caCertificateRefs: []}", []string{authority + ": " + authority + " in body should have at least 1 items"}},
		{"an authority of another kind", "egress: {caCertificateRefs: [{kind: Issuer, name: ca}]}", []string{authority + "[0].kind: supported values: \"ConfigMap\", \"Secret\""}},
	})
}
