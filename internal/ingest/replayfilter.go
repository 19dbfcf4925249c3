package ingest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

const (
	// maxSelected bounds each list of a selection but that of ids, maxSelectedIDs that one.
	maxSelected    = 64
	maxSelectedIDs = 500
	// maxSelectedText bounds one reason, type or version.
	maxSelectedText = 256
)

// replayFilter is a Selection that was checked.
type replayFilter struct {
	Selection
	states       []queue.State
	since, until time.Time
}

// newReplayFilter checks a selection. A replay of everything must be said in so many words: a selection that is empty by
// mistake picks nothing (case UX207).
func newReplayFilter(from Selection, force bool) (*replayFilter, *Problem) {
	sel := &replayFilter{Selection: from, since: from.Since, until: from.Until}
	if problem := sel.checkLists(); problem != nil {
		return nil, problem
	}
	if problem := checkSpan(from.Since, from.Until); problem != nil {
		return nil, badRequest("select.until", problem.Detail)
	}
	narrowed := !from.Since.IsZero() || !from.Until.IsZero() || len(from.EventTypes)+len(from.Reasons)+len(from.StatusCodes)+
		len(from.HandlerVersions)+len(from.EventIDs) > 0
	if len(from.States) == 0 && !narrowed {
		return nil, badRequest("select", `Say what is to be replayed, such as {"select":{"states":["deadLettered"]}}; `+
			"with dryRun it is only counted.")
	}
	sel.states = []queue.State{queue.DeadLettered, queue.FilterError}
	if len(from.States) > 0 {
		sel.states = nil
	}
	for _, state := range from.States {
		switch state {
		case StateDeadLettered, StateFilterError:
		case StateDelivered:
			if !force {
				return nil, badRequest("force", "What was delivered is sent again only by force; every receiver gets it twice then.")
			}
			if !narrowed {
				return nil, badRequest("select", "What was delivered is replayed only by a narrower selection: add since and "+
					"until, eventIDs, or another member.")
			}
		default:
			return nil, badRequest("select.states", "The states are of deadLettered, filterError and delivered: "+
				"what still waits is not replayed.")
		}
		sel.states = append(sel.states, storedFor[state]...)
	}
	slices.Sort(sel.states)
	sel.states = slices.Compact(sel.states)
	return sel, nil
}

func (sel *replayFilter) checkLists() *Problem {
	for _, list := range []struct {
		name   string
		values []string
		most   int
	}{
		{"eventTypes", sel.EventTypes, maxSelected},
		{"reasons", sel.Reasons, maxSelected},
		{"handlerVersions", sel.HandlerVersions, maxSelected},
		{"eventIDs", sel.EventIDs, maxSelectedIDs},
	} {
		if len(list.values) > list.most {
			return badRequest("select."+list.name, "The list has more than "+strconv.Itoa(list.most)+" entries.")
		}
		for _, text := range list.values {
			if text == "" || len(text) > maxSelectedText || strings.ContainsFunc(text, unicode.IsControl) {
				return badRequest("select."+list.name, "An entry is empty, longer than 256 bytes, or holds control characters.")
			}
		}
	}
	if len(sel.States) > maxSelected || len(sel.StatusCodes) > maxSelected {
		return badRequest("select", "A list has more than "+strconv.Itoa(maxSelected)+" entries.")
	}
	for _, pattern := range sel.EventTypes {
		if event.ValidPattern(pattern) != nil {
			return badRequest("select.eventTypes", `An entry is neither a type nor a pattern such as "order.*".`)
		}
	}
	for _, id := range sel.EventIDs {
		if !isWebhookID(id) {
			return badRequest("select.eventIDs", "An entry is not a webhook-id, as lists of events and deliveries give it.")
		}
	}
	return nil
}

// matches asks what the delivery itself tells.
func (sel *replayFilter) matches(d *queue.Delivery) bool {
	return slices.Contains(sel.states, d.State) &&
		(len(sel.Reasons) == 0 || slices.Contains(sel.Reasons, d.Reason)) &&
		(len(sel.StatusCodes) == 0 || slices.Contains(sel.StatusCodes, d.LastStatus)) &&
		(len(sel.HandlerVersions) == 0 || slices.Contains(sel.HandlerVersions, d.HandlerVersion))
}

// needsEvent reports whether the event must be looked up as well.
func (sel *replayFilter) needsEvent() bool { return len(sel.EventTypes) > 0 }

func (sel *replayFilter) matchesEvent(e *queue.StoredEvent) bool {
	return slices.ContainsFunc(sel.EventTypes, func(pattern string) bool { return event.MatchType(pattern, e.Type) })
}

// source gives deliveries in order of their events, each once; nil at the end.
type source interface {
	next(context.Context) (*queue.Delivery, error)
}

// candidates gives the deliveries of an endpoint that a selection may pick, behind a sequence number.
func (s *Server) candidates(ctx context.Context, key plan.EndpointKey, sel *replayFilter, after queue.Seq) (source, error) {
	if len(sel.EventIDs) > 0 {
		return s.byID(ctx, key, sel.EventIDs, after)
	}
	m := &merged{after: after}
	for _, state := range sel.states {
		m.lists = append(m.lists, &stateList{queue: s.queue, key: key, state: state})
	}
	return m, nil
}

// listed is a source that is known beforehand.
type listed []queue.Delivery

func (l *listed) next(context.Context) (*queue.Delivery, error) {
	if len(*l) == 0 {
		return nil, nil
	}
	d := &(*l)[0]
	*l = (*l)[1:]
	return d, nil
}

// byID looks deliveries up by the webhook-ids of their events; ids of nothing are passed over.
func (s *Server) byID(ctx context.Context, key plan.EndpointKey, ids []string, after queue.Seq) (*listed, error) {
	var list listed
	for _, id := range ids {
		e, err := s.queue.Find(ctx, key.Namespace, id)
		if e == nil {
			if errors.Is(err, queue.ErrNotFound) {
				continue
			}
			return nil, err
		}
		deliveries, err := s.queue.Deliveries(ctx, e.Seq)
		if err != nil {
			return nil, err
		}
		for _, d := range deliveries {
			if d.Endpoint == key && d.Seq > after {
				list = append(list, d)
			}
		}
	}
	slices.SortFunc(list, func(a, b queue.Delivery) int { return cmp.Compare(a.Seq, b.Seq) })
	list = slices.CompactFunc(list, func(a, b queue.Delivery) bool { return a.Seq == b.Seq })
	return &list, nil
}

// merged goes through several states at once in order of acceptance. One state after another would meet a delivery
// again that this very replay has moved from one to the next.
type merged struct {
	lists []*stateList
	after queue.Seq
}

func (m *merged) next(ctx context.Context) (*queue.Delivery, error) {
	var first *stateList
	for _, l := range m.lists {
		if err := l.fill(ctx, m.after); err != nil {
			return nil, err
		}
		if len(l.page) > 0 && (first == nil || l.page[0].Seq < first.page[0].Seq) {
			first = l
		}
	}
	if first == nil {
		return nil, nil
	}
	m.after = first.page[0].Seq
	return &first.page[0], nil
}

// stateList is what an endpoint has in one state, a page at a time.
type stateList struct {
	queue queue.Queue
	key   plan.EndpointKey
	state queue.State
	page  []queue.Delivery
	ended bool
}

// fill drops what lies at or before a sequence number, and reads on when nothing is left.
func (l *stateList) fill(ctx context.Context, after queue.Seq) error {
	const size = 500
	for len(l.page) > 0 && l.page[0].Seq <= after {
		l.page = l.page[1:]
	}
	if len(l.page) > 0 || l.ended {
		return nil
	}
	page, next, err := l.queue.List(ctx, l.key, l.state, after, size)
	if err != nil {
		return err
	}
	l.page, l.ended = page, next == 0
	return nil
}
