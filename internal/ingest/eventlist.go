package ingest

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// Lists of events have a cursor of their own for each order.
const (
	cursorNewest = "e1"
	cursorOldest = "f1"
)

// The orders of a list of events.
const (
	orderNewest = "newest"
	orderOldest = "oldest"
)

// listEvents gives a page of a namespace's events; with id (and source) the one event of that identity.
//
// The newest first is for people. The oldest first is for consumers that reconcile what they missed: each page has a
// cursor, the last one too, and it goes on exactly behind the last event that was looked at. Events have their place
// in the order of acceptance for good, so that none is missed and none comes twice, whatever arrives meanwhile.
func (s *Server) listEvents(w http.ResponseWriter, r *http.Request, c call) *Problem {
	v, problem := query(r, "limit", "cursor", "order", "type", "since", "until", "id", "source", "explain")
	if problem != nil {
		return problem
	}
	if v.Has("id") || v.Has("source") {
		return s.findEvent(w, r, c, v)
	}
	if v.Has("explain") {
		return badRequest("explain", "Only one event can be explained; name it by id and source, or by its webhook-id.")
	}
	limit, problem := limitOf(v)
	if problem != nil {
		return problem
	}
	q, problem := eventQuery(v)
	if problem != nil {
		return problem
	}
	list, err := s.pageOfEvents(r.Context(), c, q, limit)
	if err != nil {
		return s.problemOf(err, "list events")
	}
	writeJSON(w, http.StatusOK, mediaJSON, list)
	return nil
}

func eventQuery(v url.Values) (q queue.EventQuery, problem *Problem) {
	kind := cursorNewest
	switch v.Get("order") {
	case "", orderNewest:
	case orderOldest:
		kind, q.Ascending = cursorOldest, true
	default:
		return q, badRequest("order", "The order is newest or oldest (the one that comes first).")
	}
	if pattern := v.Get("type"); pattern != "" {
		if event.ValidPattern(pattern) != nil {
			return q, badRequest("type", `The type is a type or a pattern such as "order.*".`)
		}
		q.Types = []string{pattern}
	}
	if q.Since, q.Until, problem = spanOf(v); problem != nil {
		return q, problem
	}
	cursor, problem := seqCursor(v, kind)
	q.Cursor = queue.Seq(cursor)
	return q, problem
}

// spanOf reads since and until: of acceptance, until exclusive, so that spans can be put side by side.
func spanOf(v url.Values) (since, until time.Time, problem *Problem) {
	if since, problem = timeOf(v, "since"); problem != nil {
		return since, until, problem
	}
	if until, problem = timeOf(v, "until"); problem != nil {
		return since, until, problem
	}
	return since, until, checkSpan(since, until)
}

// checkSpan refuses a span that ends before it begins: it is a mistake, and an empty list would hide it.
func checkSpan(since, until time.Time) *Problem {
	if !since.IsZero() && !until.IsZero() && until.Before(since) {
		return badRequest("until", "The time until is before since.")
	}
	return nil
}

func timeOf(v url.Values, name string) (time.Time, *Problem) {
	text := v.Get(name)
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, badRequest(name, "The time is RFC 3339, such as 2026-11-30T12:00:00Z.")
	}
	return t, nil
}

// seqCursor reads a cursor that is one number; 0 without one.
func seqCursor(v url.Values, kind string) (uint64, *Problem) {
	parts, problem := decodeCursor(v, kind, 1)
	if problem != nil || parts == nil {
		return 0, problem
	}
	n, err := strconv.ParseUint(parts[0], 10, 64)
	if err != nil {
		return 0, errCursor
	}
	return n, nil
}

const (
	// maxLooks bounds how often one page asks the store, which bounds what it looks at each time.
	maxLooks = 10
	// hiddenPage is how much is read at once for a caller who may not see all of it.
	hiddenPage = 200
)

func (s *Server) pageOfEvents(ctx context.Context, c call, q queue.EventQuery, limit int) (EventList, error) {
	list := EventList{Items: []Event{}}
	last := q.Cursor // the place of the last event that was looked at
	for range maxLooks {
		ask := limit - len(list.Items)
		if c.caller.bound() {
			ask = max(ask, hiddenPage)
		}
		events, next, err := s.queue.Events(ctx, c.namespace, q, ask)
		if err != nil {
			return EventList{}, err
		}
		for len(events) > 0 && len(list.Items) < limit {
			view, seen, err := s.eventView(ctx, c.caller, events[0])
			if err != nil {
				return EventList{}, err
			}
			if seen {
				list.Items = append(list.Items, view)
			}
			last, events = events[0].Seq, events[1:]
		}
		if list.AtEnd = len(events) == 0 && next == 0; list.AtEnd || len(list.Items) == limit {
			break
		}
		q.Cursor, last = next, next
	}
	switch {
	case q.Ascending:
		list.Cursor = encodeCursor(cursorOldest, strconv.FormatUint(uint64(last), 10))
	case !list.AtEnd:
		list.Cursor = encodeCursor(cursorNewest, strconv.FormatUint(uint64(last), 10))
	}
	list.AtEnd = list.AtEnd && q.Ascending
	return list, nil
}
