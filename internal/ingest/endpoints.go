package ingest

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

const cursorEndpoints = "n1"

// listEndpoints gives the endpoints of a namespace by name: those of the plan, and those that are gone from it but
// for which the store still holds deliveries.
func (s *Server) listEndpoints(w http.ResponseWriter, r *http.Request, c call) *Problem {
	v, problem := query(r, "limit", "cursor")
	if problem != nil {
		return problem
	}
	limit, problem := limitOf(v)
	if problem != nil {
		return problem
	}
	after, problem := decodeCursor(v, cursorEndpoints, 1)
	if problem != nil {
		return problem
	}
	fan := s.currentFanout()
	names := slices.DeleteFunc(s.endpointNames(fan, c.namespace), func(name string) bool { return !c.caller.sees(name) })
	if after != nil {
		at, found := slices.BinarySearch(names, after[0])
		if found {
			at++
		}
		names = names[at:]
	}
	list := EndpointList{Items: []Endpoint{}}
	for _, name := range names {
		if len(list.Items) == limit {
			list.Cursor = encodeCursor(cursorEndpoints, list.Items[limit-1].Name)
			break
		}
		view, err := s.endpointView(r.Context(), fan, plan.EndpointKey{Namespace: c.namespace, Name: name})
		if err != nil {
			return s.problemOf(err, "read an endpoint")
		}
		list.Items = append(list.Items, view)
	}
	writeJSON(w, http.StatusOK, mediaJSON, list)
	return nil
}

// endpointNames are sorted and each there once.
func (s *Server) endpointNames(fan *fanout, namespace string) []string {
	var names []string
	for _, e := range fan.in(namespace) {
		names = append(names, e.Name)
	}
	for _, key := range s.queue.Endpoints() {
		if key.Namespace == namespace && fan.endpoint(key) == nil && s.isKept(key) {
			names = append(names, key.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// isKept reports whether the store holds deliveries of an endpoint that a person may still have to look at.
func (s *Server) isKept(key plan.EndpointKey) bool {
	counts := s.queue.Counts(key)
	return counts.Waiting()+counts.DeadLettered+counts.FilterError > 0
}

// getEndpoint gives one endpoint.
func (s *Server) getEndpoint(w http.ResponseWriter, r *http.Request, c call) *Problem {
	if _, problem := query(r); problem != nil {
		return problem
	}
	fan, key := s.currentFanout(), plan.EndpointKey{Namespace: c.namespace, Name: c.name}
	if !s.knows(fan, key) {
		return noEndpoint()
	}
	view, err := s.endpointView(r.Context(), fan, key)
	if err != nil {
		return s.problemOf(err, "read an endpoint")
	}
	writeJSON(w, http.StatusOK, mediaJSON, view)
	return nil
}

func noEndpoint() *Problem { return notFound("There is no such endpoint in the namespace.") }

// knows reports whether the plan holds an endpoint or the store has ever seen it.
func (s *Server) knows(fan *fanout, key plan.EndpointKey) bool {
	return fan.endpoint(key) != nil || slices.Contains(s.queue.Endpoints(), key)
}

func (s *Server) endpointView(ctx context.Context, fan *fanout, key plan.EndpointKey) (Endpoint, error) {
	view := Endpoint{Namespace: key.Namespace, Name: key.Name, Lane: Lane(s.laneOf(fan, key))}
	if e := fan.endpoint(key); e != nil {
		view.Host = hostOf(e.URL)
		view.EventTypes, view.RetryPolicy, view.MaxInFlight = e.EventTypes, e.Retry.Name, e.MaxInFlight
		view.FirstSeen, view.Ready = e.FirstSeen, e.Problem == nil && view.Lane.State != LaneNotInPlan
		if e.Problem != nil {
			view.Problem = &EndpointProblem{Reason: e.Problem.Reason, Message: e.Problem.Message}
		}
	}
	counts := s.queue.Counts(key)
	oldest, err := s.oldestDue(ctx, key, counts)
	if err != nil {
		return Endpoint{}, err
	}
	view.Deliveries = DeliveryCounts{
		Waiting: counts.Waiting(), Pending: counts.Pending, Retrying: counts.Retrying, DeadLettered: counts.DeadLettered,
		FilterError: counts.FilterError, WaitingBytes: counts.WaitingBytes, OldestDueTime: oldest,
	}
	return view, nil
}

// oldestDue is when the first waiting delivery of an endpoint is or was due; zero without one.
func (s *Server) oldestDue(ctx context.Context, key plan.EndpointKey, counts queue.Counts) (time.Time, error) {
	var oldest time.Time
	if counts.Pending > 0 {
		fresh, err := s.queue.Fresh(ctx, key, 0, 1)
		if err != nil {
			return time.Time{}, err
		}
		for _, d := range fresh {
			oldest = d.QueuedAt
		}
	}
	if counts.Waiting() == 0 {
		return oldest, nil
	}
	_, due, err := s.queue.Due(ctx, key, time.Time{}, 1)
	if err != nil {
		return time.Time{}, err
	}
	if !due.IsZero() && (oldest.IsZero() || due.Before(oldest)) {
		oldest = due
	}
	return oldest, nil
}

// hostOf is all that is told of a URL: its path and query may hold tokens, and its user information does.
func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Host
}
