package ingest

import (
	"context"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

const cursorDeliveries = "d1"

// stateWaiting may be asked for: every delivery that is still to be made.
const stateWaiting DeliveryState = "waiting"

// storedFor are the stored states that a state people ask for is found in.
var storedFor = map[DeliveryState][]queue.State{
	"": {queue.Pending, queue.Retrying, queue.DeadLettered, queue.FilterError, queue.Delivered, queue.Discarded},

	StatePending:      {queue.Pending},
	StateRetrying:     {queue.Retrying},
	StateInFlight:     {queue.Pending, queue.Retrying},
	StateHeld:         {queue.Pending, queue.Retrying},
	stateWaiting:      {queue.Pending, queue.Retrying},
	StateDelivered:    {queue.Delivered},
	StateDeadLettered: {queue.DeadLettered},
	StateFilterError:  {queue.FilterError},
	StateDiscarded:    {queue.Discarded},
}

// listDeliveries gives a page of deliveries of one endpoint, or of all endpoints of the namespace.
func (s *Server) listDeliveries(w http.ResponseWriter, r *http.Request, c call) *Problem {
	v, problem := query(r, "limit", "cursor", "state", "since", "until")
	if problem != nil {
		return problem
	}
	limit, problem := limitOf(v)
	if problem != nil {
		return problem
	}
	state := DeliveryState(v.Get("state"))
	if _, ok := storedFor[state]; !ok {
		return badRequest("state", "The state is one of waiting, pending, retrying, inFlight, held, delivered, "+
			"deadLettered, filterError, discarded.")
	}
	since, until, problem := spanOf(v)
	if problem != nil {
		return problem
	}
	from, problem := deliveryCursor(v, c.name, state)
	if problem != nil {
		return problem
	}
	fan := s.currentFanout()
	names := []string{c.name}
	if c.name == "" {
		names = s.deliveryNames(fan, c.namespace)
	} else if !s.knows(fan, plan.EndpointKey{Namespace: c.namespace, Name: c.name}) {
		return noEndpoint()
	}
	span, err := s.seqSpan(r.Context(), c.namespace, since, until)
	if err != nil {
		return s.problemOf(err, "list deliveries")
	}
	page := deliveryPage{server: s, fan: fan, namespace: c.namespace, state: state, span: span, limit: limit, scan: maxScan,
		list: DeliveryList{Items: []Delivery{}}}
	names = slices.DeleteFunc(names, func(name string) bool { return !c.caller.sees(name) })
	if err := page.fill(r.Context(), names, from); err != nil {
		return s.problemOf(err, "list deliveries")
	}
	writeJSON(w, http.StatusOK, mediaJSON, page.list)
	return nil
}

// deliveryNames are all endpoints that may have deliveries, also finished ones of endpoints that are gone.
func (s *Server) deliveryNames(fan *fanout, namespace string) []string {
	var names []string
	for _, e := range fan.in(namespace) {
		names = append(names, e.Name)
	}
	for _, key := range s.queue.Endpoints() {
		if key.Namespace == namespace {
			names = append(names, key.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// position is where a list of deliveries goes on: after a sequence number in a state of an endpoint.
type position struct {
	endpoint string
	state    queue.State
	after    queue.Seq
}

func (p position) cursor() string {
	return encodeCursor(cursorDeliveries, p.endpoint, strconv.Itoa(int(p.state)), strconv.FormatUint(uint64(p.after), 10))
}

func deliveryCursor(v url.Values, endpoint string, state DeliveryState) (position, *Problem) {
	parts, problem := decodeCursor(v, cursorDeliveries, 3)
	if problem != nil || parts == nil {
		return position{}, problem
	}
	stored, err1 := strconv.ParseUint(parts[1], 10, 8)
	after, err2 := strconv.ParseUint(parts[2], 10, 64)
	p := position{endpoint: parts[0], state: queue.State(stored), after: queue.Seq(after)}
	if err1 != nil || err2 != nil || !isEndpointName(p.endpoint) || endpoint != "" && endpoint != p.endpoint ||
		!slices.Contains(storedFor[state], p.state) {
		return position{}, errCursor
	}
	return p, nil
}

// deliveryPage collects one page.
type deliveryPage struct {
	server    *Server
	fan       *fanout
	namespace string
	state     DeliveryState
	span      seqSpan
	limit     int
	scan      int // stored deliveries that may still be looked at
	list      DeliveryList
}

// fill goes through endpoints by name and through their stored states, from a position on.
func (p *deliveryPage) fill(ctx context.Context, names []string, from position) error {
	for _, name := range names {
		if name < from.endpoint {
			continue
		}
		key := plan.EndpointKey{Namespace: p.namespace, Name: name}
		lane := p.server.laneOf(p.fan, key)
		if !p.mayMatch(lane) {
			continue
		}
		states := storedFor[p.state]
		at := position{endpoint: name}
		if name == from.endpoint {
			states = states[max(0, slices.Index(states, from.state)):]
			at.after = from.after
		}
		at.after = max(at.after, p.span.after)
		for _, state := range states {
			at.state = state
			full, err := p.fillState(ctx, key, lane, at)
			if err != nil || full {
				return err
			}
			at.after = p.span.after
		}
	}
	return nil
}

// mayMatch spares a walk through a backlog of which nothing can match.
func (p *deliveryPage) mayMatch(lane LaneView) bool {
	switch p.state {
	case StateHeld:
		return lane.Held
	case StateInFlight:
		return lane.InFlight > 0
	case StatePending, StateRetrying:
		return !lane.Held
	}
	return true
}

// fillState adds deliveries of one stored state; it reports true when the page is full and holds its cursor.
func (p *deliveryPage) fillState(ctx context.Context, key plan.EndpointKey, lane LaneView, at position) (bool, error) {
	for {
		room := min(p.limit-len(p.list.Items), p.scan)
		if room <= 0 {
			p.list.Cursor = at.cursor()
			return true, nil
		}
		deliveries, next, err := p.server.queue.List(ctx, key, at.state, at.after, room)
		if err != nil {
			return false, err
		}
		p.scan -= max(1, len(deliveries))
		for _, d := range deliveries {
			if d.Seq >= p.span.before {
				return false, nil // and so are all that follow
			}
			got := p.server.stateOf(d, lane)
			if p.state != "" && p.state != got && (p.state != stateWaiting || !got.Waiting()) {
				continue
			}
			if err := p.add(ctx, d, lane); err != nil {
				return false, err
			}
		}
		if next == 0 {
			return false, nil
		}
		at.after = next
	}
}

func (p *deliveryPage) add(ctx context.Context, d queue.Delivery, lane LaneView) error {
	e, err := p.server.bareEvent(ctx, p.namespace, d.Seq)
	if err != nil {
		return err
	}
	var webhookID, typ string
	if e != nil {
		webhookID, typ = e.WebhookID, e.Type
	}
	p.list.Items = append(p.list.Items, p.server.deliveryView(d, lane, webhookID, typ))
	return nil
}

// bareEvent gives an event without its payload, which would be read for nothing; nil if there is none. The newest one
// below the next sequence number is the one itself.
func (s *Server) bareEvent(ctx context.Context, namespace string, seq queue.Seq) (*queue.StoredEvent, error) {
	events, _, err := s.queue.Events(ctx, namespace, queue.EventQuery{Cursor: seq + 1}, 1)
	if err != nil || len(events) == 0 || events[0].Seq != seq {
		return nil, err
	}
	return events[0], nil
}

// seqSpan is a span of time in sequence numbers: those behind after and before before. Events are numbered in the
// order of acceptance, so that whole lists are cut without a look at each event.
type seqSpan struct {
	after, before queue.Seq
}

// seqSpan finds the events of a namespace that were accepted from since on and before until; zero times are no bounds.
func (s *Server) seqSpan(ctx context.Context, namespace string, since, until time.Time) (seqSpan, error) {
	span := seqSpan{before: math.MaxUint64}
	if !since.IsZero() {
		first, err := s.firstSince(ctx, namespace, since)
		if err != nil {
			return span, err
		}
		span.after = first - 1
	}
	if !until.IsZero() {
		first, err := s.firstSince(ctx, namespace, until)
		if err != nil {
			return span, err
		}
		span.before = first
	}
	return span, nil
}

// firstSince gives the first event accepted from a time on; where there is none, what no event reaches.
func (s *Server) firstSince(ctx context.Context, namespace string, since time.Time) (queue.Seq, error) {
	q := queue.EventQuery{Since: since, Ascending: true}
	for {
		events, next, err := s.queue.Events(ctx, namespace, q, 1)
		switch {
		case err != nil:
			return 0, err
		case len(events) > 0:
			return events[0].Seq, nil
		case next == 0:
			return math.MaxUint64, nil
		}
		q.Cursor = next
	}
}
