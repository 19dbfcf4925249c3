package v1alpha1_test

import "testing"

func TestRetentionAndLimitsRules(t *testing.T) {
	const least = "spec.retention.maxBytes: maxBytes must be at least 64Mi"
	below := func(path, limit string) []string {
		return []string{path + ": " + path + " in body should be less than or equal to " + limit}
	}
	above := func(path, limit string) []string {
		return []string{path + ": " + path + " in body should be greater than or equal to " + limit}
	}
	checkRules(t, "DeliveryPool", []rule{
		{"everything set", "retention: {delivered: 72h, deadLetters: 720h, maxBytes: 20Gi, payloads: WithRecord, responseBodies: OnFailure}\n" +
			"limits: {perNamespace: {eventsPerSecond: 100, waitingBytesPercent: 50}, perEndpoint: {waitingBytesPercent: 25}}", nil},

		{"least size", "retention: {maxBytes: 64Mi}", nil},
		{"least size in bytes", "retention: {maxBytes: 67108864}", nil},
		{"a byte less", "retention: {maxBytes: 67108863}", []string{least}},
		{"a byte less, as text", "retention: {maxBytes: '67108863'}", []string{least}},
		{"negative size", "retention: {maxBytes: -1Gi}", []string{least}},
		{"a size that is none", "retention: {maxBytes: big}", []string{"spec.retention.maxBytes: spec.retention.maxBytes in body should match"}},

		{"payloads until delivered", "retention: {payloads: UntilDelivered}", nil},
		{"another word for payloads", "retention: {payloads: Never}", []string{`spec.retention.payloads: supported values: "WithRecord", "UntilDelivered"`}},
		{"no bodies of answers", "retention: {responseBodies: Never}", nil},
		{"another word for bodies", "retention: {responseBodies: Always}", []string{`spec.retention.responseBodies: supported values: "OnFailure", "Never"`}},

		{"fewest events", "limits: {perNamespace: {eventsPerSecond: 1}}", nil},
		{"most events", "limits: {perNamespace: {eventsPerSecond: 1000000}}", nil},
		{"no events", "limits: {perNamespace: {eventsPerSecond: 0}}", above("spec.limits.perNamespace.eventsPerSecond", "1")},
		{"too many events", "limits: {perNamespace: {eventsPerSecond: 1000001}}", below("spec.limits.perNamespace.eventsPerSecond", "1000000")},
		{"shares of all", "limits: {perNamespace: {waitingBytesPercent: 100}, perEndpoint: {waitingBytesPercent: 100}}", nil},
		{"shares of one percent", "limits: {perNamespace: {waitingBytesPercent: 1}, perEndpoint: {waitingBytesPercent: 1}}", nil},
		{"a namespace's share of nothing", "limits: {perNamespace: {waitingBytesPercent: 0}}", above("spec.limits.perNamespace.waitingBytesPercent", "1")},
		{"a namespace's share of more", "limits: {perNamespace: {waitingBytesPercent: 101}}", below("spec.limits.perNamespace.waitingBytesPercent", "100")},
		{"an endpoint's share of nothing", "limits: {perEndpoint: {waitingBytesPercent: 0}}", above("spec.limits.perEndpoint.waitingBytesPercent", "1")},
		{"an endpoint's share of more", "limits: {perEndpoint: {waitingBytesPercent: 101}}", below("spec.limits.perEndpoint.waitingBytesPercent", "100")},
		{"nothing for each namespace", "limits: {perNamespace: {}}", []string{"spec.limits.perNamespace: spec.limits.perNamespace in body should have at least 1 properties"}},
		{"nothing for each endpoint", "limits: {perEndpoint: {}}", []string{"spec.limits.perEndpoint: spec.limits.perEndpoint in body should have at least 1 properties"}},
	})
}
