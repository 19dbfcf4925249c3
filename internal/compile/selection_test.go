package compile

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

func TestMatchAttributesAreSortedAndCheckedAgain(t *testing.T) {
	many := func(n int) (list []v1alpha1.AttributeMatch) {
		for i := range n {
			list = append(list, v1alpha1.AttributeMatch{Name: fmt.Sprintf("a%02d", i), Value: "1"})
		}
		return list
	}
	for _, tc := range []struct {
		name         string
		in           []v1alpha1.AttributeMatch
		field, words string
	}{
		{name: "none"},
		{name: "one", in: many(1)},
		{name: "sixteen", in: many(16)},
		{name: "an empty value", in: []v1alpha1.AttributeMatch{{Name: "a"}}},
		{name: "the longest value", in: []v1alpha1.AttributeMatch{{Name: "a", Value: strings.Repeat("ü", 1024)}}},
		{name: "seventeen", in: many(17), field: "spec.matchAttributes", words: "has 17 entries; at most 16"},
		{name: "a name in capitals", in: []v1alpha1.AttributeMatch{{Name: "Customer", Value: "1"}}, field: "spec.matchAttributes[0].name", words: "lower-case letters and digits"},
		{name: "no name", in: []v1alpha1.AttributeMatch{{Value: "1"}}, field: "spec.matchAttributes[0].name", words: "lower-case letters and digits"},
		{name: "a long name", in: []v1alpha1.AttributeMatch{{Name: strings.Repeat("a", 65)}}, field: "spec.matchAttributes[0].name", words: "1 to 64"},
		{name: "a long value", in: []v1alpha1.AttributeMatch{{Name: "b"}, {Name: "a", Value: strings.Repeat("ü", 1025)}}, field: "spec.matchAttributes[1].value", words: "at most 1024 characters"},
		{name: "a name twice", in: []v1alpha1.AttributeMatch{{Name: "a", Value: "1"}, {Name: "a", Value: "2"}}, field: "spec.matchAttributes[1].name", words: "attribute a stands twice"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.field == "" {
				slices.Reverse(tc.in)
			}
			r := Compile(world(func(s *v1alpha1.WebhookEndpointSpec) { s.MatchAttributes = tc.in }), nil, start, Options{})
			e := one(t, r)
			if len(e.MatchAttributes) != len(tc.in) {
				t.Errorf("%d of %d attributes are in the plan", len(e.MatchAttributes), len(tc.in))
			}
			if !slices.IsSortedFunc(e.MatchAttributes, func(a, b plan.Attribute) int { return strings.Compare(a.Name, b.Name) }) {
				t.Errorf("the attributes are not sorted: %v", e.MatchAttributes)
			}
			checkFault(t, r, tc.field, v1alpha1.ReasonSpecInvalid, tc.words)
		})
	}
}

// checkFault wants one problem that holds the endpoint, or none where field is empty.
func checkFault(t *testing.T, r Result, field, reason, words string) {
	t.Helper()
	e := one(t, r)
	if field == "" {
		if e.Problem != nil || len(r.Problems) != 0 {
			t.Errorf("problem %v of %v, want none", e.Problem, r.Problems)
		}
		return
	}
	if len(r.Problems) != 1 || r.Problems[0].Field != field || r.Problems[0].Reason != reason || !strings.Contains(r.Problems[0].Message, words) {
		t.Errorf("problems %+v, want %s of %s with %q", r.Problems, reason, field, words)
	}
	if e.Problem == nil || e.Problem.Reason != reason {
		t.Errorf("the endpoint's problem is %v, want %s", e.Problem, reason)
	}
}

func TestAFilterThatCannotBeUsedHoldsItsEndpoint(t *testing.T) {
	hostile := "[" + strings.TrimSuffix(strings.Repeat("1,", 200), ",") + "]"
	for _, tc := range []struct{ name, filter, words string }{
		{name: "none"},
		{name: "good", filter: "event.data.amount >= 1000"},
		{name: "half", filter: "event.data.amount >=", words: "filter can't be used: at 1:"},
		{name: "no bool", filter: "event.data.amount", words: "compare it"},
		{name: "a name that is none", filter: "event.tpye == 'a'", words: "at 1:6: undefined field 'tpye'"},
		{name: "hostile", filter: fmt.Sprintf("%[1]s.filter(a,%[1]s.filter(b,%[1]s.filter(c,a+b+c>0)==[])==[])==[]", hostile), words: "costs at least"},
		{name: "blanks", filter: "  ", words: "the expression is empty"},
		{name: "too long", filter: "event.type != '" + strings.Repeat("a", 4096) + "'", words: "longer than 4096 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := Compile(world(func(s *v1alpha1.WebhookEndpointSpec) { s.Filter = tc.filter }), nil, start, Options{})
			if e := one(t, r); e.Filter != tc.filter {
				t.Errorf("the plan holds the filter %q, want %q", e.Filter, tc.filter)
			}
			field := "spec.filter"
			if tc.words == "" {
				field = ""
			}
			checkFault(t, r, field, v1alpha1.ReasonFilterInvalid, tc.words)
		})
	}
}

// A filter that is broken and mended is no change of the endpoint, and another one is.
func TestAMendedFilter(t *testing.T) {
	with := func(text string, previous *plan.Plan) *plan.Plan {
		return Compile(world(func(s *v1alpha1.WebhookEndpointSpec) { s.Filter = text }), previous, start, Options{}).Plan
	}
	good := with("event.data.a == 1", nil)
	broken := with("event.data.a ==", good)
	if e := broken.Endpoints[0]; e.Hash != good.Endpoints[0].Hash || e.Filter != "event.data.a ==" || e.Problem == nil {
		t.Errorf("broken: %+v", e)
	}
	if e := with("event.data.a == 1", broken).Endpoints[0]; e.Hash != good.Endpoints[0].Hash || e.Problem != nil {
		t.Errorf("mended: %+v", e)
	}
	if e := with("event.data.a == 2", broken).Endpoints[0]; e.Hash == good.Endpoints[0].Hash {
		t.Error("another filter has the same hash")
	}
}

// A change of one endpoint must not cost the filters of all others: thousands take seconds to compile.
func BenchmarkCompileWithFilters(b *testing.B) {
	var in Objects
	in.Complete = true
	for i := range 1000 {
		in.Endpoints = append(in.Endpoints, endpoint(fmt.Sprint("e", i), func(s *v1alpha1.WebhookEndpointSpec) {
			s.Filter = fmt.Sprintf("event.data.amount >= %d", i)
		}))
	}
	previous := Compile(in, nil, start, Options{}).Plan
	b.ReportAllocs()
	for b.Loop() {
		Compile(in, previous, start, Options{})
	}
}
