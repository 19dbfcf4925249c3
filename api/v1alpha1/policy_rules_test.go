package v1alpha1_test

import (
	"fmt"
	"strings"
	"testing"
)

// numbered returns n different words that begin with the prefix.
func numbered(prefix string, n int) []string {
	words := make([]string, n)
	for i := range words {
		words[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return words
}

func repeated(word string, n int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(word+", ", n), ", ") + "]"
}

// policyRules are the rows of a RetryPolicy's spec; a DeliveryPool's defaultRetryPolicy is held to the same ones.
func policyRules() []rule {
	const backoff = "spec.backoff: backoff must have exactly one of schedule and exponential"
	const step = "each delay of schedule must be longer than 0s"
	const response = `each entry of responses must be a code from "300" to "599"`
	exponential := func(initial, factor, longest, attempts string) string {
		return fmt.Sprintf("backoff: {exponential: {initial: %s, factor: %s, max: %s, maxAttempts: %s}}", initial, factor, longest, attempts)
	}
	below := func(path, limit string) []string {
		return []string{fmt.Sprintf("%s: %s in body should be less than or equal to %s", path, path, limit)}
	}
	above := func(path, limit string) []string {
		return []string{fmt.Sprintf("%s: %s in body should be greater than or equal to %s", path, path, limit)}
	}
	malformed := func(path string) string { return fmt.Sprintf("%s: %s in body should match", path, path) }

	return []rule{
		{"the built-in policy in words", "backoff: {schedule: [60s, 5m, 30m, 2h, 10h, 24h]}\n" +
			"jitter: {type: Proportional, percent: 10}\nmaxAge: 72h\n" +
			`responses: {retry: ["3xx", "408", "409", "425", "429", "5xx"], fail: ["501"], disable: ["410"]}` + "\n" +
			"retryAfter: {policy: Honor, max: 6h}\nonRecovery: Expedite", nil},

		{"schedule with equal steps", "backoff: {schedule: [5m, 5m, 5m]}", nil},
		{"schedule of 100 steps", "backoff: {schedule: " + repeated("1h30m", 100) + "}", nil},
		{"schedule of 101 steps", "backoff: {schedule: " + repeated("1h30m", 101) + "}",
			[]string{"spec.backoff.schedule: must have at most 100 items"}},
		{"schedule of the longest texts", "backoff: {schedule: " + repeated("99999h99999m99999s99999ms", 100) + "}", nil},
		{"empty schedule", "backoff: {schedule: []}", []string{"spec.backoff.schedule: spec.backoff.schedule in body should have at least 1 items"}},
		{"schedule with a zero step", "backoff: {schedule: [5m, 0s]}", []string{"spec.backoff.schedule[1]: " + step}},
		{"schedule and exponential", "backoff: {schedule: [1s], exponential: {initial: 1s, factor: 2, max: 1h, maxAttempts: 3}}", []string{backoff}},
		{"neither schedule nor exponential", "backoff: {}", []string{backoff}},

		{"exponential", exponential("1m", "3", "12h", "8"), nil},
		{"exponential at its least", exponential("1ms", "1", "1ms", "1"), nil},
		{"exponential at its most", exponential("1h", "10", "24h", "200"), nil},
		{"factor 0", exponential("1m", "0", "12h", "8"), above("spec.backoff.exponential.factor", "1")},
		{"factor 11", exponential("1m", "11", "12h", "8"), below("spec.backoff.exponential.factor", "10")},
		{"no attempts", exponential("1m", "3", "12h", "0"), above("spec.backoff.exponential.maxAttempts", "1")},
		{"201 attempts", exponential("1m", "3", "12h", "201"), below("spec.backoff.exponential.maxAttempts", "200")},
		{"initial zero", exponential("0s", "3", "12h", "8"),
			[]string{"spec.backoff.exponential.initial: exponential.initial must be longer than 0s"}},
		{"max below initial", exponential("2h", "3", "1h", "8"),
			[]string{"spec.backoff.exponential: exponential.max must not be shorter than exponential.initial"}},
		{"exponential with a malformed max", exponential("2h", "3", "soon", "8"), []string{malformed("spec.backoff.exponential.max")}},
		{"exponential without its fields", "backoff: {exponential: {}}", []string{
			"spec.backoff.exponential.initial: Required value", "spec.backoff.exponential.factor: Required value",
			"spec.backoff.exponential.max: Required value", "spec.backoff.exponential.maxAttempts: Required value"}},

		{"full jitter", "jitter: {type: Full}", nil},
		{"equal jitter", "jitter: {type: Equal}", nil},
		{"no jitter", "jitter: {type: None}", nil},
		{"proportional jitter of the default size", "jitter: {type: Proportional}", nil},
		{"proportional jitter of nothing", "jitter: {type: Proportional, percent: 0}", nil},
		{"proportional jitter of all", "jitter: {type: Proportional, percent: 100}", nil},
		{"proportional jitter of more", "jitter: {type: Proportional, percent: 101}", below("spec.jitter.percent", "100")},
		{"proportional jitter of less than nothing", "jitter: {type: Proportional, percent: -1}", above("spec.jitter.percent", "0")},
		{"percent of full jitter", "jitter: {type: Full, percent: 10}", []string{"spec.jitter: jitter.percent belongs to type Proportional"}},
		{"jitter without type", "jitter: {percent: 10}", []string{"spec.jitter.type: Required value"}},
		{"another jitter", "jitter: {type: Random}", []string{"spec.jitter.type: supported values: \"Proportional\", \"Full\", \"Equal\", \"None\""}},

		{"maxAge of a second", "maxAge: 1s", nil},
		{"maxAge of no time", "maxAge: 0s", []string{"spec.maxAge: maxAge must be at least 1s"}},

		{"codes and classes", `responses: {retry: ["429", "5xx"], fail: ["4xx"], disable: ["404", "410"]}`, nil},
		{"empty responses", "responses: {}", []string{"spec.responses: spec.responses in body should have at least 1 properties"}},
		{"empty list of responses", "responses: {retry: []}", []string{"spec.responses.retry: spec.responses.retry in body should have at least 1 items"}},
		{"response twice", `responses: {retry: ["429", "429"]}`, []string{"spec.responses.retry[1]: Duplicate value"}},
		{"2xx to retry", `responses: {retry: ["2xx"]}`, []string{"spec.responses.retry[0]: " + response}},
		{"204 to fail", `responses: {fail: ["204"]}`, []string{"spec.responses.fail[0]: " + response}},
		{"1xx to disable", `responses: {disable: ["1xx"]}`, []string{"spec.responses.disable[0]: " + response}},
		{"capitals in a class", `responses: {retry: ["5XX"]}`, []string{"spec.responses.retry[0]: " + response}},
		{"half a class", `responses: {retry: ["50x"]}`, []string{"spec.responses.retry[0]: " + response}},
		{"a code too long", `responses: {retry: ["5000"]}`, []string{"spec.responses.retry[0]: may not be more than 3 bytes"}},

		{"Retry-After ignored", "retryAfter: {policy: Ignore}", nil},
		{"Retry-After up to a limit", "retryAfter: {max: 1h}", nil},
		{"Retry-After ignored up to a limit", "retryAfter: {policy: Ignore, max: 1h}", []string{"spec.retryAfter: retryAfter.max belongs to policy Honor"}},
		{"another policy for Retry-After", "retryAfter: {policy: Maybe}", []string{"spec.retryAfter.policy: supported values: \"Honor\", \"Ignore\""}},
		{"empty retryAfter", "retryAfter: {}", []string{"spec.retryAfter: spec.retryAfter in body should have at least 1 properties"}},

		{"waiting on recovery", "onRecovery: Wait", nil},
		{"something else on recovery", "onRecovery: Drop", []string{"spec.onRecovery: supported values: \"Expedite\", \"Wait\""}},

		{"duration of every unit", "maxAge: 1h1m1s1ms", nil},
		{"longest duration", "maxAge: 99999h99999h99999h99999h", nil},
		{"duration without unit", "maxAge: '60'", []string{malformed("spec.maxAge")}},
		{"duration of a unit that is not one", "maxAge: 3d", []string{malformed("spec.maxAge")}},
		{"negative duration", "maxAge: -1h", []string{malformed("spec.maxAge")}},
		{"fraction of an hour", "maxAge: 1.5h", []string{malformed("spec.maxAge")}},
		{"duration of six digits", "maxAge: 100000s", []string{malformed("spec.maxAge")}},
		{"duration of five parts", "maxAge: 1h1m1s1ms1s", []string{malformed("spec.maxAge")}},
	}
}

func TestRetryPolicyRules(t *testing.T) {
	checkRules(t, "RetryPolicy", policyRules())
}

func TestDefaultRetryPolicyRules(t *testing.T) {
	rows := policyRules()
	for i := range rows {
		rows[i].spec = "defaultRetryPolicy:\n  " + strings.ReplaceAll(rows[i].spec, "\n", "\n  ")
		for j, want := range rows[i].want {
			rows[i].want[j] = strings.ReplaceAll(want, "spec.", "spec.defaultRetryPolicy.")
		}
	}
	checkRules(t, "DeliveryPool", rows)
}

func TestDeliveryPoolRules(t *testing.T) {
	const network = "spec.egress.allow[0].cidr: cidr must be a network"
	const linkLocal = "spec.egress.allow[0].cidr: cidr is link-local"
	allow := func(cidr string) string { return "egress: {allow: [{cidr: '" + cidr + "'}]}" }
	many := func(n int) string {
		text := "egress:\n  allow:"
		for i := range n {
			text += fmt.Sprintf("\n  - cidr: 10.%d.0.0/16", i)
		}
		return text
	}
	checkRules(t, "DeliveryPool", []rule{
		{"everything set", "suspend: false\ndefaultRetryPolicy: {maxAge: 24h}\ningest: {maxPayloadBytes: 262144, dedupeWindow: 24h}\n" +
			"limits: {maxInFlight: 512}\negress: {allow: [{cidr: 10.20.0.0/16}], allowHTTP: false}\n" +
			"retention: {delivered: 72h, deadLetters: 720h}", nil},

		{"smallest payload", "ingest: {maxPayloadBytes: 1024}", nil},
		{"largest payload", "ingest: {maxPayloadBytes: 1048576}", nil},
		{"payload too small", "ingest: {maxPayloadBytes: 1023}",
			[]string{"spec.ingest.maxPayloadBytes: spec.ingest.maxPayloadBytes in body should be greater than or equal to 1024"}},
		{"payload too large", "ingest: {maxPayloadBytes: 1048577}",
			[]string{"spec.ingest.maxPayloadBytes: spec.ingest.maxPayloadBytes in body should be less than or equal to 1048576"}},
		{"shortest window", "ingest: {dedupeWindow: 1s}", nil},
		{"no window", "ingest: {dedupeWindow: 0s}", []string{"spec.ingest.dedupeWindow: dedupeWindow must be at least 1s"}},
		{"empty ingest", "ingest: {}", []string{"spec.ingest: spec.ingest in body should have at least 1 properties"}},

		{"fewest in flight", "limits: {maxInFlight: 1}", nil},
		{"most in flight", "limits: {maxInFlight: 10000}", nil},
		{"none in flight", "limits: {maxInFlight: 0}", []string{"spec.limits.maxInFlight: spec.limits.maxInFlight in body should be greater than or equal to 1"}},
		{"too many in flight", "limits: {maxInFlight: 10001}", []string{"spec.limits.maxInFlight: spec.limits.maxInFlight in body should be less than or equal to 10000"}},
		{"empty limits", "limits: {}", []string{"spec.limits: spec.limits in body should have at least 1 properties"}},

		{"IPv4 network", allow("192.168.0.0/16"), nil},
		{"IPv6 network", allow("fd00:20::/64"), nil},
		{"one address", allow("127.0.0.1/32"), nil},
		{"every address", allow("0.0.0.0/0"), nil},
		{"100 networks", many(100), nil},
		{"101 networks", many(101), []string{"spec.egress.allow: must have at most 100 items"}},
		{"no networks", "egress: {allow: []}", []string{"spec.egress.allow: spec.egress.allow in body should have at least 1 items"}},
		{"network twice, for other ports", "egress: {allow: [{cidr: 10.0.0.0/8, ports: [80]}, {cidr: 10.0.0.0/8, ports: [8080], namespaces: [shop]}]}", nil},
		{"address without prefix", allow("10.0.0.1"), []string{network}},
		{"bits after the prefix", allow("10.0.0.1/8"), []string{network}},
		{"prefix too long", allow("10.0.0.0/33"), []string{network}},
		{"host name", allow("hooks.example.com"), []string{network}},
		{"link-local", allow("169.254.0.0/16"), []string{linkLocal}},
		{"metadata address", allow("169.254.169.254/32"), []string{linkLocal}},
		{"IPv6 link-local", allow("fe80::/64"), []string{linkLocal}},
		{"entry without cidr", "egress: {allow: [{}]}", []string{"spec.egress.allow[0].cidr: Required value"}},
		{"empty egress", "egress: {}", []string{"spec.egress: spec.egress in body should have at least 1 properties"}},

		{"short retention", "retention: {delivered: 1s, deadLetters: 1s}", nil},
		{"no retention", "retention: {delivered: 0s, deadLetters: 0s}", []string{
			"spec.retention.delivered: delivered must be at least 1s", "spec.retention.deadLetters: deadLetters must be at least 1s"}},
		{"empty retention", "retention: {}", []string{"spec.retention: spec.retention in body should have at least 1 properties"}},
		{"unknown field", "shards: 3", []string{"spec.shards: unknown field"}},
	})
}
