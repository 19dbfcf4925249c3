package v1alpha1_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestSelectionRules(t *testing.T) {
	const url = "url: https://hooks.example.com/orders\n"
	attributes := func(n int) string {
		text := url + "matchAttributes:"
		for i := range n {
			text += fmt.Sprintf("\n- {name: a%d, value: b}", i)
		}
		return text
	}
	attribute := func(name, value string) string {
		return url + fmt.Sprintf("matchAttributes: [{name: %s, value: %s}]", name, value)
	}
	const name = "spec.matchAttributes[0].name"
	checkRules(t, "WebhookEndpoint", []rule{
		{"an attribute", attribute("customer", "cust_42"), nil},
		{"an attribute of digits", attribute("'42'", "'42'"), nil},
		{"an empty value", attribute("customer", "''"), nil},
		{"a value of any characters", attribute("subject", `"Größe \" €"`), nil},
		{"the longest name", attribute(strings.Repeat("a", 64), "b"), nil},
		{"the longest value", attribute("a", strings.Repeat("b", 1024)), nil},
		{"16 attributes", attributes(16), nil},
		{"17 attributes", attributes(17), []string{"spec.matchAttributes: must have at most 16 items"}},
		{"no attributes", url + "matchAttributes: []", []string{"spec.matchAttributes: spec.matchAttributes in body should have at least 1 items"}},
		{"an attribute twice", url + "matchAttributes: [{name: a, value: b}, {name: a, value: c}]", []string{"spec.matchAttributes[1]: Duplicate value"}},
		{"a name in capitals", attribute("Customer", "b"), []string{name + ": " + name + " in body should match"}},
		{"a name with a dash", attribute("customer-id", "b"), []string{name + ": " + name + " in body should match"}},
		{"no name", attribute("''", "b"), []string{name + ": " + name + " in body should be at least 1 chars long"}},
		{"a name too long", attribute(strings.Repeat("a", 65), "b"), []string{name + ": may not be more than 64 bytes"}},
		{"a value too long", attribute("a", strings.Repeat("b", 1025)), []string{"spec.matchAttributes[0].value: may not be more than 1024 bytes"}},
		{"name left out", url + "matchAttributes: [{value: b}]", []string{name + ": Required value"}},
		{"value left out", url + "matchAttributes: [{name: a}]", []string{"spec.matchAttributes[0].value: Required value"}},
		{"a value that is a number", attribute("a", "42"), []string{"spec.matchAttributes[0].value: spec.matchAttributes[0].value in body must be of type string"}},

		{"a filter", url + "filter: event.data.amount >= 1000", nil},
		{"the longest filter", url + "filter: " + strings.Repeat("a", 4096), nil},
		{"a filter that can't be compiled is taken, and holds the endpoint", url + "filter: event.data.amount >=", nil},
		{"an empty filter", url + "filter: ''", []string{"spec.filter: spec.filter in body should be at least 1 chars long"}},
		{"a filter too long", url + "filter: " + strings.Repeat("a", 4097), []string{"spec.filter: may not be more than 4096 bytes"}},
		{"a filter that is no text", url + "filter: true", []string{"spec.filter: spec.filter in body must be of type string"}},
	})
}
