package ingest

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/filter"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// fanout answers which endpoints take an event. It is made once per plan, on the first event after a change; plans
// are swapped whole, so that the pointer tells one from another. A namespace's part is made when its first event comes:
// an event after a change waits for its own namespace only.
type fanout struct {
	plan       *plan.Plan
	namespaces map[string]*namespaceFanout
	// remembered is what the lists by type take up in all namespaces, in entries.
	remembered atomic.Int64
}

// namespaceFanout holds one namespace's endpoints. Those without matchAttributes are found by the event's type, and
// remembered for it; each other one by one attribute that it wants.
type namespaceFanout struct {
	once        sync.Once
	endpoints   []*plan.Endpoint
	byName      map[string]*plan.Endpoint
	common      []*candidate
	byAttribute map[plan.Attribute][]*candidate
	byType      sync.Map // string → *selection, never changed once stored
}

// candidate is an endpoint with its filter, which is compiled when it is first asked.
type candidate struct {
	*plan.Endpoint
	filter func() (*filter.Filter, error) // nil without one
}

// selection is what is known of a type alone: who takes it, and who is to be asked.
type selection struct {
	keys  []plan.EndpointKey
	asked []*candidate
}

// routes are where an event goes, as queue.NewEvent has it. Each list is sorted and must not be changed.
type routes struct {
	endpoints, undecided, filterErrors []plan.EndpointKey
}

// maxRemembered bounds what producers can make a plan's fan-out remember by sending ever new types: about 40 MB.
// typeCost is what a type takes up beside its list.
const (
	maxRemembered = 1 << 20
	typeCost      = 8
)

func (s *Server) fanoutOf(p *plan.Plan) *fanout {
	if f := s.fanout.Load(); f != nil && f.plan == p {
		return f
	}
	f := newFanout(p)
	// Two requests may both come here after a swap; either result is right.
	s.fanout.Store(f)
	return f
}

// newFanout sorts endpoints into namespaces, and nothing more: 10,000 take about a millisecond.
func newFanout(p *plan.Plan) *fanout {
	f := &fanout{plan: p, namespaces: make(map[string]*namespaceFanout)}
	var n *namespaceFanout
	last := ""
	for e := range p.Known() {
		if n == nil || e.Namespace != last {
			last = e.Namespace
			if n = f.namespaces[last]; n == nil {
				n = &namespaceFanout{}
				f.namespaces[last] = n
			}
		}
		n.endpoints = append(n.endpoints, e)
	}
	return f
}

// of gives a namespace's part; nil if it has no endpoints.
func (f *fanout) of(namespace string) *namespaceFanout {
	n := f.namespaces[namespace]
	if n != nil {
		n.once.Do(n.prepare)
	}
	return n
}

// prepare makes the indexes. An endpoint is found by the rarest of the pairs it wants, so that one that all endpoints
// share (region=eu beside customer=42) does not make the index a list of all.
func (n *namespaceFanout) prepare() {
	slices.SortFunc(n.endpoints, func(a, b *plan.Endpoint) int { return a.Compare(b.EndpointKey) })
	n.byName = make(map[string]*plan.Endpoint, len(n.endpoints))
	n.byAttribute = make(map[plan.Attribute][]*candidate)
	wanted := make(map[plan.Attribute]int)
	for _, e := range n.endpoints {
		n.byName[e.Name] = e
		for _, a := range e.MatchAttributes {
			wanted[a]++
		}
	}
	for _, e := range n.endpoints {
		c := newCandidate(e)
		if len(e.MatchAttributes) == 0 {
			n.common = append(n.common, c)
			continue
		}
		rarest := slices.MinFunc(e.MatchAttributes, func(a, b plan.Attribute) int { return wanted[a] - wanted[b] })
		n.byAttribute[rarest] = append(n.byAttribute[rarest], c)
	}
}

func newCandidate(e *plan.Endpoint) *candidate {
	c := &candidate{Endpoint: e}
	if e.Filter != "" {
		c.filter = sync.OnceValues(func() (*filter.Filter, error) { return filter.Compile(e.Filter) })
	}
	return c
}

// route gives the endpoints that take an event, held and absent ones too: an event is for whoever asked for it when it
// was accepted, and absence is no deletion. Filters are asked last.
func (f *fanout) route(e *event.Event, a *asker) routes {
	n := f.of(e.Namespace)
	if n == nil {
		return routes{}
	}
	known := f.selectionOf(n, e.Type)
	r := routes{endpoints: known.keys}
	if len(known.asked) == 0 && len(n.byAttribute) == 0 {
		return r
	}
	asked := known.asked[:len(known.asked):len(known.asked)]
	r.endpoints = r.endpoints[:len(r.endpoints):len(r.endpoints)]
	for _, has := range e.Attributes {
		for _, c := range n.byAttribute[plan.Attribute(has)] {
			switch {
			case !takes(c.Endpoint, e.Type) || wantedAttribute(c.Endpoint, e) != nil:
			case c.filter != nil:
				asked = append(asked, c)
			default:
				r.endpoints = append(r.endpoints, c.EndpointKey)
			}
		}
	}
	if len(asked) > 0 {
		a.ask(e, asked, &r)
	}
	if len(r.endpoints) > len(known.keys) {
		slices.SortFunc(r.endpoints, plan.EndpointKey.Compare)
	}
	slices.SortFunc(r.undecided, plan.EndpointKey.Compare)
	slices.SortFunc(r.filterErrors, plan.EndpointKey.Compare)
	return r
}

// selectionOf gives what is known of a type, without the endpoints that want attributes.
func (f *fanout) selectionOf(n *namespaceFanout, typ string) *selection {
	if s, ok := n.byType.Load(typ); ok {
		return s.(*selection)
	}
	s := new(selection)
	for _, c := range n.common {
		switch {
		case !takes(c.Endpoint, typ):
		case c.filter != nil:
			s.asked = append(s.asked, c)
		default:
			s.keys = append(s.keys, c.EndpointKey)
		}
	}
	if size := int64(typeCost + cap(s.keys) + cap(s.asked)); f.remembered.Load()+size <= maxRemembered {
		f.remembered.Add(size)
		n.byType.Store(strings.Clone(typ), s)
	}
	return s
}

// takes reports whether an endpoint takes a type. No patterns take all types but Doorstep's own.
func takes(e *plan.Endpoint, typ string) bool {
	if len(e.EventTypes) == 0 {
		return event.MatchType("*", typ)
	}
	for _, pattern := range e.EventTypes {
		if event.MatchType(pattern, typ) {
			return true
		}
	}
	return false
}

// wantedAttribute gives the first attribute that an endpoint wants and an event has not; nil if there is none.
func wantedAttribute(endpoint *plan.Endpoint, e *event.Event) *plan.Attribute {
	for i := range endpoint.MatchAttributes {
		want := &endpoint.MatchAttributes[i]
		at, found := slices.BinarySearchFunc(e.Attributes, want.Name, func(a event.Attribute, name string) int { return strings.Compare(a.Name, name) })
		if !found || e.Attributes[at].Value != want.Value {
			return want
		}
	}
	return nil
}

// endpoint gives an endpoint of the plan; nil if it holds none by this key.
func (f *fanout) endpoint(key plan.EndpointKey) *plan.Endpoint {
	if n := f.of(key.Namespace); n != nil {
		return n.byName[key.Name]
	}
	return nil
}

// in gives the endpoints of a namespace by name.
func (f *fanout) in(namespace string) []*plan.Endpoint {
	if n := f.of(namespace); n != nil {
		return n.endpoints
	}
	return nil
}
