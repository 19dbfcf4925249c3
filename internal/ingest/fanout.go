package ingest

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// fanout answers which endpoints take an event. It is made once per plan, on the first event after a change; plans
// are swapped whole, so that the pointer tells one from another.
type fanout struct {
	plan       *plan.Plan
	namespaces map[string]*namespaceFanout
}

// namespaceFanout holds one namespace's endpoints, and remembers for each event type which of them take it.
type namespaceFanout struct {
	endpoints []*plan.Endpoint
	byName    map[string]*plan.Endpoint
	byType    sync.Map // string → []plan.EndpointKey, never changed once stored
	types     atomic.Int32
}

// maxRememberedTypes bounds what producers can make a namespace remember by sending ever new types.
const maxRememberedTypes = 1024

func (s *Server) fanoutOf(p *plan.Plan) *fanout {
	if f := s.fanout.Load(); f != nil && f.plan == p {
		return f
	}
	f := &fanout{plan: p, namespaces: make(map[string]*namespaceFanout)}
	for e := range p.Known() {
		n := f.namespaces[e.Namespace]
		if n == nil {
			n = &namespaceFanout{byName: make(map[string]*plan.Endpoint)}
			f.namespaces[e.Namespace] = n
		}
		n.endpoints = append(n.endpoints, e)
		n.byName[e.Name] = e
	}
	for _, n := range f.namespaces {
		slices.SortFunc(n.endpoints, func(a, b *plan.Endpoint) int { return a.Compare(b.EndpointKey) })
	}
	// Two requests may both come here after a swap; either result is right.
	s.fanout.Store(f)
	return f
}

// match gives the endpoints of a namespace that take a type, held and absent ones too: an event is for whoever asked
// for it when it was accepted, and absence is no deletion. The result must not be changed.
func (f *fanout) match(namespace, typ string) []plan.EndpointKey {
	n := f.namespaces[namespace]
	if n == nil {
		return nil
	}
	if keys, ok := n.byType.Load(typ); ok {
		return keys.([]plan.EndpointKey)
	}
	var keys []plan.EndpointKey
	for _, e := range n.endpoints {
		if takes(e, typ) {
			keys = append(keys, e.EndpointKey)
		}
	}
	if n.types.Load() < maxRememberedTypes {
		n.types.Add(1)
		n.byType.Store(strings.Clone(typ), keys)
	}
	return keys
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

// endpoint gives an endpoint of the plan; nil if it holds none by this key.
func (f *fanout) endpoint(key plan.EndpointKey) *plan.Endpoint {
	if n := f.namespaces[key.Namespace]; n != nil {
		return n.byName[key.Name]
	}
	return nil
}

// in gives the endpoints of a namespace by name.
func (f *fanout) in(namespace string) []*plan.Endpoint {
	if n := f.namespaces[namespace]; n != nil {
		return n.endpoints
	}
	return nil
}
