package v1alpha1_test

import "testing"

func TestRateLimitAndOrderingRules(t *testing.T) {
	const url = "url: https://hooks.example.com/orders\n"
	const interval = "spec.rateLimit.interval: interval must be from 100ms to 24h"
	checkRules(t, "WebhookEndpoint", []rule{
		{"a rate with defaults", url + "rateLimit: {requests: 1}", nil},
		{"everything set", url + "rateLimit: {requests: 100, interval: 1s, burst: 200}", nil},
		{"the shortest interval and the highest numbers", url + "rateLimit: {requests: 1000000, interval: 100ms, burst: 1000000}", nil},
		{"the longest interval", url + "rateLimit: {requests: 1, interval: 24h}", nil},
		{"no requests", url + "rateLimit: {interval: 1s}", []string{"spec.rateLimit.requests: Required value"}},
		{"zero requests", url + "rateLimit: {requests: 0}", []string{"spec.rateLimit.requests: spec.rateLimit.requests in body should be greater than or equal to 1"}},
		{"too many requests", url + "rateLimit: {requests: 1000001}", []string{"spec.rateLimit.requests: spec.rateLimit.requests in body should be less than or equal to 1000000"}},
		{"zero burst", url + "rateLimit: {requests: 1, burst: 0}", []string{"spec.rateLimit.burst: spec.rateLimit.burst in body should be greater than or equal to 1"}},
		{"too large a burst", url + "rateLimit: {requests: 1, burst: 1000001}", []string{"spec.rateLimit.burst: spec.rateLimit.burst in body should be less than or equal to 1000000"}},
		{"too short an interval", url + "rateLimit: {requests: 1, interval: 99ms}", []string{interval}},
		{"too long an interval", url + "rateLimit: {requests: 1, interval: 25h}", []string{interval}},
		{"an interval that is none", url + "rateLimit: {requests: 1, interval: soon}", []string{"spec.rateLimit.interval: spec.rateLimit.interval in body should match"}},

		{"no order", url + "ordering: None", nil},
		{"order of each key", url + "ordering: PerKey", nil},
		{"order of all", url + "ordering: All", nil},
		{"an unknown order", url + "ordering: Sometimes", []string{`spec.ordering: supported values: "None", "PerKey", "All"`}},
	})
}
