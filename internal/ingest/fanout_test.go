package ingest

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/filter"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// routeOne routes one event by a plan of its own.
func routeOne(p *plan.Plan, e *event.Event) routes {
	a := asker{slots: newFilterSlots(), left: filterTime}
	return newFanout(p).route(e, &a)
}

// naive is what fan-out promises, endpoint by endpoint.
func naive(p *plan.Plan, e *event.Event) routes {
	var r routes
	for endpoint := range p.Known() {
		if endpoint.Namespace != e.Namespace || !takes(endpoint, e.Type) {
			continue
		}
		if slices.ContainsFunc(endpoint.MatchAttributes, func(want plan.Attribute) bool {
			return !slices.Contains(e.Attributes, event.Attribute(want))
		}) {
			continue
		}
		if endpoint.Filter != "" {
			f, err := filter.Compile(endpoint.Filter)
			if err != nil {
				r.undecided = append(r.undecided, endpoint.EndpointKey)
			} else if pass, err := f.Match(e); err != nil {
				r.filterErrors = append(r.filterErrors, endpoint.EndpointKey)
			} else if !pass {
				continue
			}
		}
		r.endpoints = append(r.endpoints, endpoint.EndpointKey)
	}
	for _, list := range [][]plan.EndpointKey{r.endpoints, r.undecided, r.filterErrors} {
		slices.SortFunc(list, plan.EndpointKey.Compare)
	}
	return r
}

func TestFanOutByIndexIsThatOfALoop(t *testing.T) {
	names, values := []string{"a", "b", "c"}, []string{"", "1", "2"}
	attribute := rapid.Custom(func(t *rapid.T) plan.Attribute {
		return plan.Attribute{Name: rapid.SampledFrom(names).Draw(t, "name"), Value: rapid.SampledFrom(values).Draw(t, "value")}
	})
	attributes := rapid.Custom(func(t *rapid.T) []plan.Attribute {
		list := rapid.SliceOfNDistinct(attribute, 0, 3, func(a plan.Attribute) string { return a.Name }).Draw(t, "attributes")
		slices.SortFunc(list, func(a, b plan.Attribute) int { return slices.Compare([]string{a.Name}, []string{b.Name}) })
		return list
	})
	types := rapid.SampledFrom([]string{"order.created", "order.paid", "user.made", "doorstep.endpoint.disabled"})
	patterns := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"*", "order.*", "order.paid", "doorstep.*", "user.made"}), 0, 2, rapid.ID)
	filters := rapid.SampledFrom([]string{"", "", "event.data == 1", "event.data.x == 1", "event.data ==", "event.attributes.a == '1'"})
	rapid.Check(t, func(t *rapid.T) {
		p := &plan.Plan{}
		for i := range rapid.IntRange(0, 20).Draw(t, "endpoints") {
			e := plan.Endpoint{
				EndpointKey:     plan.EndpointKey{Namespace: rapid.SampledFrom([]string{"shop", "other"}).Draw(t, "namespace"), Name: fmt.Sprint("e", i)},
				EventTypes:      patterns.Draw(t, "eventTypes"),
				MatchAttributes: attributes.Draw(t, "matchAttributes"),
				Filter:          filters.Draw(t, "filter"),
			}
			if rapid.Bool().Draw(t, "absent") {
				p.Absent = append(p.Absent, plan.Absence{Endpoint: e})
			} else {
				p.Endpoints = append(p.Endpoints, e)
			}
		}
		f := newFanout(p)
		for range 5 {
			e := &event.Event{Namespace: "shop", ID: "1", Type: types.Draw(t, "type"), Mode: event.ModePlain,
				Body: []byte(fmt.Sprintf(`{"id":"1","type":"t","data":%d}`, rapid.IntRange(0, 1).Draw(t, "data")))}
			for _, a := range attributes.Draw(t, "attributes") {
				e.Attributes = append(e.Attributes, event.Attribute(a))
			}
			a := asker{slots: newFilterSlots(), left: filterTime}
			got, want := f.route(e, &a), naive(p, e)
			if !slices.Equal(got.endpoints, want.endpoints) || !slices.Equal(got.undecided, want.undecided) || !slices.Equal(got.filterErrors, want.filterErrors) {
				t.Fatalf("routed to %v, want %v", got, want)
			}
		}
	})
}
