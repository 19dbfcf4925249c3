package ingest

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

const cursorEvents = "e1"

// listEvents gives a page of a namespace's events, newest first; with id (and source) the one event of that identity.
func (s *Server) listEvents(w http.ResponseWriter, r *http.Request, c call) *Problem {
	v, problem := query(r, "limit", "cursor", "type", "since", "until", "id", "source", "explain")
	if problem != nil {
		return problem
	}
	if v.Has("id") || v.Has("source") {
		return s.findEvent(w, r, c, v)
	}
	limit, problem := limitOf(v)
	if problem != nil {
		return problem
	}
	filter, problem := eventFilterOf(v)
	if problem != nil {
		return problem
	}
	before, problem := eventCursor(v)
	if problem != nil {
		return problem
	}
	list, err := s.pageOfEvents(r.Context(), c.namespace, filter, before, limit)
	if err != nil {
		return s.problemOf(err, "list events")
	}
	writeJSON(w, http.StatusOK, mediaJSON, list)
	return nil
}

// eventFilter is what a list of events is about. Zero values match everything.
type eventFilter struct {
	pattern      string
	since, until time.Time // of acceptance; until is exclusive, so that spans can be put side by side
}

func eventFilterOf(v url.Values) (f eventFilter, problem *Problem) {
	f.pattern = v.Get("type")
	if f.pattern != "" && event.ValidPattern(f.pattern) != nil {
		return f, badRequest("type", `The type is a type or a pattern such as "order.*".`)
	}
	if f.since, problem = timeOf(v, "since"); problem != nil {
		return f, problem
	}
	f.until, problem = timeOf(v, "until")
	return f, problem
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

func (f eventFilter) matches(e *queue.StoredEvent) bool {
	return (f.pattern == "" || event.MatchType(f.pattern, e.Type)) && (f.until.IsZero() || e.AcceptedAt.Before(f.until))
}

func eventCursor(v url.Values) (queue.Seq, *Problem) {
	parts, problem := decodeCursor(v, cursorEvents, 1)
	if problem != nil || parts == nil {
		return 0, problem
	}
	n, err := strconv.ParseUint(parts[0], 10, 64)
	if err != nil || n == 0 {
		return 0, errCursor
	}
	return queue.Seq(n), nil
}

func (s *Server) pageOfEvents(ctx context.Context, namespace string, f eventFilter, before queue.Seq, limit int) (EventList, error) {
	list := EventList{Items: []Event{}}
	for scan := maxScan; scan > 0; {
		ask := min(limit-len(list.Items), scan)
		events, next, err := s.queue.Events(ctx, namespace, queue.EventQuery{Cursor: before}, ask)
		if err != nil {
			return EventList{}, err
		}
		for _, e := range events {
			if e.AcceptedAt.Before(f.since) { // and so are all that follow
				return list, nil
			}
			if !f.matches(e) {
				continue
			}
			view, err := s.eventView(ctx, e)
			if err != nil {
				return EventList{}, err
			}
			list.Items = append(list.Items, view)
		}
		before, scan = next, scan-ask
		if next == 0 || len(list.Items) == limit {
			break
		}
	}
	if before != 0 {
		list.Cursor = encodeCursor(cursorEvents, strconv.FormatUint(uint64(before), 10))
	}
	return list, nil
}

// findEvent looks an event up by what its producer called it.
func (s *Server) findEvent(w http.ResponseWriter, r *http.Request, c call, v url.Values) *Problem {
	for _, other := range []string{"limit", "cursor", "type", "since", "until"} {
		if v.Has(other) {
			return badRequest(other, "An event is looked up by id and source alone.")
		}
	}
	id, source := v.Get("id"), v.Get("source")
	if id == "" {
		return badRequest("id", "Give the event's id; source alone finds nothing.")
	}
	e, problem := s.find(r.Context(), c.namespace, event.WebhookID(source, id))
	if problem != nil {
		return problem
	}
	if e.ID != id || e.Source != source {
		return notFound("There is no event with this id and source in the namespace.")
	}
	return s.answerEvent(w, r, e, v.Has("explain"))
}

// getEvent gives one event with its deliveries and every attempt.
func (s *Server) getEvent(w http.ResponseWriter, r *http.Request, c call) *Problem {
	v, problem := query(r, "explain")
	if problem != nil {
		return problem
	}
	e, problem := s.find(r.Context(), c.namespace, c.name)
	if problem != nil {
		return problem
	}
	return s.answerEvent(w, r, e, v.Has("explain"))
}

// find gives an event whose record is there, even if its payload is not.
func (s *Server) find(ctx context.Context, namespace, webhookID string) (*queue.StoredEvent, *Problem) {
	e, err := s.queue.Find(ctx, namespace, webhookID)
	if err == nil || (errors.Is(err, queue.ErrPayloadMissing) || errors.Is(err, queue.ErrErased)) && e != nil {
		return e, nil
	}
	return nil, s.eventProblem(err)
}

func (s *Server) eventProblem(err error) *Problem {
	if errors.Is(err, queue.ErrNotFound) {
		return notFound("There is no event with this webhook-id in the namespace. " +
			"Events are forgotten after the retention time.")
	}
	return s.problemOf(err, "read an event")
}

func (s *Server) answerEvent(w http.ResponseWriter, r *http.Request, e *queue.StoredEvent, explain bool) *Problem {
	ctx := r.Context()
	deliveries, err := s.queue.Deliveries(ctx, e.Seq)
	if err != nil {
		return s.problemOf(err, "read deliveries")
	}
	fan := s.currentFanout()
	view := s.viewOf(e)
	size := len(e.Body)
	view.PayloadBytes = &size
	for _, d := range deliveries {
		dv := s.deliveryView(d, s.laneOf(fan, d.Endpoint), view.WebhookID, view.Type)
		attempts, err := s.queue.Attempts(ctx, d.Seq, d.Endpoint)
		if err != nil {
			return s.problemOf(err, "read attempts")
		}
		for _, a := range attempts {
			dv.Attempts = append(dv.Attempts, attemptView(a))
		}
		view.States[dv.State]++
		view.Deliveries = append(view.Deliveries, dv)
	}
	if explain {
		view.Explanations = s.explain(fan, e, deliveries)
	}
	writeJSON(w, http.StatusOK, mediaJSON, view)
	return nil
}

// getPayload gives the bytes that are sent to receivers, exactly as they came (case PF24). They are a stranger's
// bytes: a browser must neither guess their type nor show them.
func (s *Server) getPayload(w http.ResponseWriter, r *http.Request, c call) *Problem {
	if _, problem := query(r); problem != nil {
		return problem
	}
	e, err := s.queue.Find(r.Context(), c.namespace, c.name)
	if err != nil {
		return s.eventProblem(err)
	}
	h := w.Header()
	if e.ContentType != "" {
		h.Set("Content-Type", e.ContentType)
	} else {
		h.Set("Content-Type", "application/octet-stream")
	}
	h.Set("Content-Disposition", `attachment; filename="`+e.WebhookID+`"`)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(e.Body)))
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(e.Body)
	return nil
}

// eventView is an event of a list: with its deliveries counted by state.
func (s *Server) eventView(ctx context.Context, e *queue.StoredEvent) (Event, error) {
	view := s.viewOf(e)
	deliveries, err := s.queue.Deliveries(ctx, e.Seq)
	if err != nil {
		return Event{}, err
	}
	fan := s.currentFanout()
	for _, d := range deliveries {
		view.States[s.stateOf(d, s.laneOf(fan, d.Endpoint))]++
	}
	return view, nil
}

func (s *Server) viewOf(e *queue.StoredEvent) Event {
	view := Event{
		WebhookID: e.WebhookID, Namespace: e.Namespace, ID: e.ID, Source: e.Source, Type: e.Type, Subject: e.Subject,
		Time: e.Time, AcceptedAt: e.AcceptedAt, Mode: e.Mode.String(), ContentType: e.ContentType,
		TraceParent: e.TraceParent, States: make(map[DeliveryState]int),
	}
	if len(e.Attributes) > 0 {
		view.Attributes = make(map[string]string, len(e.Attributes))
		for _, a := range e.Attributes {
			view.Attributes[a.Name] = a.Value
		}
	}
	return view
}

func attemptView(a queue.Attempt) Attempt {
	return Attempt{
		Number: a.Number, StartedAt: a.StartedAt, DurationMS: float64(a.Duration.Microseconds()) / 1000, Status: a.Status,
		Outcome: outcomeName(a), Reason: a.Reason, Message: a.Message, Sent: a.Sent.String(), Replay: a.Replay,
		HandlerVersion: a.HandlerVersion, Response: a.Response,
	}
}

// deliveryView is one delivery without its attempts.
func (s *Server) deliveryView(d queue.Delivery, lane LaneView, webhookID, typ string) Delivery {
	view := Delivery{
		WebhookID: webhookID, Type: typ, Endpoint: d.Endpoint.Name, State: s.stateOf(d, lane), AttemptCount: d.Attempts,
		Replays: d.Replays, QueuedAt: d.QueuedAt, Reason: d.Reason, LastStatus: d.LastStatus,
		HandlerVersion: d.HandlerVersion,
	}
	if d.State.Waiting() {
		view.DueAt = d.DueAt
	} else {
		view.EndedAt = d.EndedAt
	}
	if view.State == StateHeld {
		view.Reason = string(lane.State)
	}
	return view
}

// stateOf is the state people see: what is stored, unless its lane has it in flight or holds it.
func (s *Server) stateOf(d queue.Delivery, lane LaneView) DeliveryState {
	switch {
	case !d.State.Waiting():
	case lane.InFlight > 0 && s.lanes.InFlight(d.Endpoint, d.Seq):
		return StateInFlight
	case lane.Held:
		return StateHeld
	}
	return storedState(d.State)
}

// laneOf gives an endpoint's lane. Where dispatch has none, the plan decides: an endpoint that it doesn't hold keeps
// its deliveries until it does, or until its deletion is certain.
func (s *Server) laneOf(fan *fanout, key plan.EndpointKey) LaneView {
	lane, ok := s.lanes.View(key)
	switch {
	case ok:
	case fan.endpoint(key) == nil:
		lane = LaneView{State: LaneNotInPlan, Message: "The plan does not hold this endpoint now; its events are kept."}
	default:
		lane = LaneView{State: LaneActive, Message: "The lane has not started yet."}
	}
	switch lane.State {
	case LaneDisabled, LaneSuspended, LaneUnresolved, LaneMissing, LaneNotInPlan:
		lane.Held = true
	}
	return lane
}

var emptyPlan = &plan.Plan{}

// currentFanout is the plan of this moment, an empty one while there is none.
func (s *Server) currentFanout() *fanout {
	if p := s.plan(); p != nil {
		return s.fanoutOf(p)
	}
	return s.fanoutOf(emptyPlan)
}

// formatTime is for sentences.
func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
