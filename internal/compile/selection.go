package compile

import (
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/filter"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// Bounds of matchAttributes, as the CRD has them.
const (
	maxMatchAttributes     = 16
	maxAttributeNameBytes  = 64
	maxAttributeValueRunes = 1024
)

// matchAttributes gives the attributes sorted by name. One that can't be used stays in the list, where it matches
// nothing: a shorter list would take more.
func (r *resolver) matchAttributes() []plan.Attribute {
	const field = "spec.matchAttributes"
	in := r.object.Spec.MatchAttributes
	if len(in) > maxMatchAttributes {
		r.fault(field, v1alpha1.ReasonSpecInvalid, "matchAttributes has %d entries; at most %d are allowed: use filter for the rest", len(in), maxMatchAttributes)
	}
	var out []plan.Attribute
	for i, a := range in {
		switch {
		case !isAttributeName(a.Name):
			r.fault(fmt.Sprintf("%s[%d].name", field, i), v1alpha1.ReasonSpecInvalid,
				"name must be 1 to %d lower-case letters and digits, as CloudEvents has it", maxAttributeNameBytes)
		case utf8.RuneCountInString(a.Value) > maxAttributeValueRunes:
			r.fault(fmt.Sprintf("%s[%d].value", field, i), v1alpha1.ReasonSpecInvalid,
				"value must be at most %d characters; compare longer ones in filter", maxAttributeValueRunes)
		case slices.ContainsFunc(in[:i], func(former v1alpha1.AttributeMatch) bool { return former.Name == a.Name }):
			r.fault(fmt.Sprintf("%s[%d].name", field, i), v1alpha1.ReasonSpecInvalid,
				"attribute %s stands twice; an event has each attribute once, so use filter to take one of several values", a.Name)
		}
		out = append(out, plan.Attribute{Name: a.Name, Value: a.Value})
	}
	slices.SortStableFunc(out, func(a, b plan.Attribute) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func isAttributeName(name string) bool {
	if name == "" || len(name) > maxAttributeNameBytes {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// filter gives the expression as it is written, also where it can't be used: events that come meanwhile are kept, and the
// mended filter decides about them.
func (r *resolver) filter() string {
	text := r.object.Spec.Filter
	if text == "" {
		return ""
	}
	if _, err := filter.Compile(text); err != nil {
		r.fault("spec.filter", v1alpha1.ReasonFilterInvalid, "filter can't be used: %s", err)
	}
	return text
}
