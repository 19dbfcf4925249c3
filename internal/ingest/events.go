package ingest

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// findEvent looks an event up by what its producer called it.
func (s *Server) findEvent(w http.ResponseWriter, r *http.Request, c call, v url.Values) *Problem {
	for _, other := range []string{"limit", "cursor", "order", "type", "since", "until"} {
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
	return s.answerEvent(w, r, c, e, v.Has("explain"))
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
	return s.answerEvent(w, r, c, e, v.Has("explain"))
}

// find gives an event whose record is there, even if its payload is not.
func (s *Server) find(ctx context.Context, namespace, webhookID string) (*queue.StoredEvent, *Problem) {
	e, err := s.queue.Find(ctx, namespace, webhookID)
	if err == nil || e != nil && (errors.Is(err, queue.ErrPayloadMissing) || errors.Is(err, queue.ErrErased)) {
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

func (s *Server) answerEvent(w http.ResponseWriter, r *http.Request, c call, e *queue.StoredEvent, explain bool) *Problem {
	ctx := r.Context()
	deliveries, problem := s.deliveriesOf(ctx, c.caller, e)
	if problem != nil {
		return problem
	}
	fan := s.currentFanout()
	view := s.viewOf(e)
	if e.Erased.IsZero() {
		size := len(e.Body)
		view.PayloadBytes = &size
	}
	responses := s.mayReadPayload(r, c.namespace, "")
	for _, d := range deliveries {
		dv := s.deliveryView(d, s.laneOf(fan, d.Endpoint), view.WebhookID, view.Type)
		attempts, err := s.queue.Attempts(ctx, d.Seq, d.Endpoint)
		if err != nil {
			return s.problemOf(err, "read attempts")
		}
		for _, a := range attempts {
			av := attemptView(a)
			if !responses {
				av.Response = nil
			}
			dv.Attempts = append(dv.Attempts, av)
		}
		view.States[dv.State]++
		view.Deliveries = append(view.Deliveries, dv)
	}
	if explain {
		view.Explanations = s.explain(fan, c.caller, e, deliveries)
	}
	writeJSON(w, http.StatusOK, mediaJSON, view)
	return nil
}

// deliveriesOf gives those deliveries of an event that a caller may see. To one that is bound to endpoints, an event
// that none of them got is not there.
func (s *Server) deliveriesOf(ctx context.Context, caller Caller, e *queue.StoredEvent) ([]queue.Delivery, *Problem) {
	deliveries, err := s.queue.Deliveries(ctx, e.Seq)
	if err != nil {
		return nil, s.problemOf(err, "read deliveries")
	}
	if caller.bound() {
		deliveries = slices.DeleteFunc(deliveries, func(d queue.Delivery) bool { return !caller.sees(d.Endpoint.Name) })
		if len(deliveries) == 0 {
			return nil, s.eventProblem(queue.ErrNotFound)
		}
	}
	return deliveries, nil
}

// mayReadPayload reports whether a caller may see what receivers answered, which may be as confidential as what they
// were sent (case SS134).
func (s *Server) mayReadPayload(r *http.Request, namespace, endpoint string) bool {
	_, err := s.auth.Authorize(r, Request{Verb: VerbReadPayload, Namespace: namespace, Endpoint: endpoint})
	return err == nil
}

// getPayload gives the bytes that are sent to receivers, exactly as they came (case PF24). They are a stranger's
// bytes: a browser must neither guess their type nor show them.
func (s *Server) getPayload(w http.ResponseWriter, r *http.Request, c call) *Problem {
	if _, problem := query(r); problem != nil {
		return problem
	}
	e, err := s.queue.Find(r.Context(), c.namespace, c.name)
	if e == nil {
		return s.eventProblem(err)
	}
	// First of all: to a caller that may not see the event, an erased one isn't there either.
	if _, problem := s.deliveriesOf(r.Context(), c.caller, e); problem != nil {
		return problem
	}
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

// eventView is an event of a list: with its deliveries counted by state. False where the caller may not see it.
func (s *Server) eventView(ctx context.Context, caller Caller, e *queue.StoredEvent) (Event, bool, error) {
	view := s.viewOf(e)
	deliveries, err := s.queue.Deliveries(ctx, e.Seq)
	if err != nil {
		return Event{}, false, err
	}
	fan, seen := s.currentFanout(), !caller.bound()
	for _, d := range deliveries {
		if caller.sees(d.Endpoint.Name) {
			seen = true
			view.States[s.stateOf(d, s.laneOf(fan, d.Endpoint))]++
		}
	}
	return view, seen, nil
}

func (s *Server) viewOf(e *queue.StoredEvent) Event {
	view := Event{
		WebhookID: e.WebhookID, Namespace: e.Namespace, ID: e.ID, Source: e.Source, Type: e.Type, Subject: e.Subject,
		Time: e.Time, AcceptedAt: e.AcceptedAt, Mode: e.Mode.String(), ContentType: e.ContentType,
		TraceParent: e.TraceParent, ErasedAt: e.Erased, States: make(map[DeliveryState]int),
	}
	if len(e.Attributes) > 0 {
		view.Attributes = make(map[string]string, len(e.Attributes))
		for _, a := range e.Attributes {
			view.Attributes[a.Name] = a.Value
		}
	}
	return view
}

// maxResponseBytes bounds what is shown of an answer, whatever was kept of it.
const maxResponseBytes = 4 << 10

func attemptView(a queue.Attempt) Attempt {
	return Attempt{
		Number: a.Number, StartedAt: a.StartedAt, DurationMS: float64(a.Duration.Microseconds()) / 1000, Status: a.Status,
		Outcome: outcomeName(a), Reason: a.Reason, Message: a.Message, Sent: a.Sent.String(), Replay: a.Replay,
		HandlerVersion: a.HandlerVersion, Response: a.Response[:min(len(a.Response), maxResponseBytes)],
	}
}

// deliveryView is one delivery without its attempts.
func (s *Server) deliveryView(d queue.Delivery, lane LaneView, webhookID, typ string) Delivery {
	view := Delivery{
		WebhookID: webhookID, Type: typ, Endpoint: d.Endpoint.Name, State: s.stateOf(d, lane), AttemptCount: d.Attempts,
		Replays: d.Replays, QueuedAt: d.QueuedAt, Reason: d.Reason, LastStatus: d.LastStatus,
		HandlerVersion: d.HandlerVersion, Undecided: d.Undecided && d.State.Waiting(),
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
