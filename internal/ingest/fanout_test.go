package ingest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/filter"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

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

// Where as many large events are decoded as may be, another one waits for its turn no longer than filters may take at all,
// and is kept undecided then. A small one, and one that no filter is asked about, does not wait.
func TestLargeEventsTakeTurns(t *testing.T) {
	key := func(name string) plan.EndpointKey { return plan.EndpointKey{Namespace: "shop", Name: name} }
	p := &plan.Plan{Endpoints: []plan.Endpoint{
		{EndpointKey: key("all")}, {EndpointKey: key("asked"), Filter: "event.type == 'a'"}, {EndpointKey: key("never"), Filter: "event.type == 'b'"},
	}}
	f := newFanout(p)
	slots := make(filterSlots, 1)
	if !slots.take(0) || slots.take(time.Millisecond) {
		t.Fatal("one slot is not one")
	}
	small := &event.Event{Namespace: "shop", Type: "a", Mode: event.ModeBinary, Body: []byte("x")}
	large := &event.Event{Namespace: "shop", Type: "a", Mode: event.ModeBinary, Body: make([]byte, largeBody+1)}
	for _, row := range []struct {
		name                 string
		e                    *event.Event
		free                 bool
		left                 time.Duration
		endpoints, undecided string
	}{
		{"small", small, false, time.Minute, "[shop/all shop/asked]", "[]"},
		{"large, no slot", large, false, 20 * time.Millisecond, "[shop/all shop/asked shop/never]", "[shop/asked shop/never]"},
		{"large, a slot", large, true, time.Minute, "[shop/all shop/asked]", "[]"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.free {
				slots.give()
			}
			a := asker{slots: slots, left: row.left}
			r := f.route(row.e, &a)
			if fmt.Sprint(r.endpoints) != row.endpoints || fmt.Sprint(r.undecided) != row.undecided {
				t.Errorf("goes to %v, undecided %v; want %s and %s", r.endpoints, r.undecided, row.endpoints, row.undecided)
			}
			if len(slots) == 1 == row.free {
				t.Errorf("%d slots are taken", len(slots))
			}
		})
	}
}

// A request that has used up its time asks no more filters, also not those of the rest of its batch.
func TestFiltersOfARequestShareATime(t *testing.T) {
	p := &plan.Plan{Endpoints: []plan.Endpoint{{EndpointKey: plan.EndpointKey{Namespace: "shop", Name: "asked"}, Filter: "event.type == 'b'"}}}
	e := &event.Event{Namespace: "shop", Type: "a", Mode: event.ModeBinary}
	f := newFanout(p)
	a := asker{slots: newFilterSlots(), left: time.Minute}
	if r := f.route(e, &a); len(r.endpoints) != 0 || a.left >= time.Minute {
		t.Errorf("goes to %v, %v are left", r.endpoints, a.left)
	}
	a.left = 0
	for range 2 {
		if r := f.route(e, &a); len(r.undecided) != 1 || len(r.endpoints) != 1 {
			t.Errorf("undecided are %v of %v, want the one endpoint", r.undecided, r.endpoints)
		}
	}
}

// Ever new types cost a bounded amount of memory, and go where they should all the same.
func TestTypesAreRememberedUpToABound(t *testing.T) {
	p := &plan.Plan{}
	for i := range 5000 {
		p.Endpoints = append(p.Endpoints, plan.Endpoint{EndpointKey: plan.EndpointKey{Namespace: "shop", Name: fmt.Sprint("e", i)}})
	}
	f := newFanout(p)
	a := asker{slots: newFilterSlots(), left: filterTime}
	for i := range 300 {
		if r := f.route(&event.Event{Namespace: "shop", Type: fmt.Sprint("t", i)}, &a); len(r.endpoints) != 5000 {
			t.Fatalf("type %d goes to %d endpoints", i, len(r.endpoints))
		}
	}
	remembered := 0
	f.of("shop").byType.Range(func(_, s any) bool {
		remembered += cap(s.(*selection).keys)
		return true
	})
	if remembered == 0 || remembered > maxRemembered {
		t.Errorf("%d entries are remembered, want at most %d", remembered, maxRemembered)
	}
}
