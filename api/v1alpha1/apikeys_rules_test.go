package v1alpha1_test

import (
	"strings"
	"testing"
)

func TestAPIKeysSecretRef(t *testing.T) {
	const name = "spec.ingest.apiKeysSecretRef.name: spec.ingest.apiKeysSecretRef.name in body "
	checkRules(t, "DeliveryPool", []rule{
		{"a Secret", "ingest: {apiKeysSecretRef: {name: api-keys}}", nil},
		{"a name with dots", "ingest: {apiKeysSecretRef: {name: api.keys.v1}}", nil},
		{"unset", "ingest: {maxPayloadBytes: 2048}", nil},
		{"without a name", "ingest: {apiKeysSecretRef: {}}", []string{"spec.ingest.apiKeysSecretRef.name: Required value"}},
		{"an empty name", "ingest: {apiKeysSecretRef: {name: ''}}", []string{name + "should be at least 1 chars long"}},
		{"a name that no Secret has", "ingest: {apiKeysSecretRef: {name: API_keys}}", []string{name + "should match"}},
		{"a name that is too long", "ingest: {apiKeysSecretRef: {name: " + strings.Repeat("a", 254) + "}}",
			[]string{"spec.ingest.apiKeysSecretRef.name: may not be more than 253 bytes"}},
		{"one key of a Secret", "ingest: {apiKeysSecretRef: {name: api-keys, key: ci}}", []string{"spec.ingest.apiKeysSecretRef.key: "}},
	})
}
