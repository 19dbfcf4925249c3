package ingest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// maxActionBytes bounds the body of an action.
const maxActionBytes = 4 << 10

// replay sends finished deliveries of one event again, to the endpoint that is named or to each where the event is a
// dead letter.
func (s *Server) replay(w http.ResponseWriter, r *http.Request, c call) *Problem {
	var request ReplayRequest
	if problem := s.readAction(r, &request); problem != nil {
		return problem
	}
	if request.Endpoint != "" && !isEndpointName(request.Endpoint) {
		return badRequest("endpoint", endpointNameWords)
	}
	e, problem := s.find(r.Context(), c.namespace, c.name)
	if problem != nil {
		return problem
	}
	deliveries, err := s.queue.Deliveries(r.Context(), e.Seq)
	if err != nil {
		return s.problemOf(err, "read deliveries")
	}
	chosen, problem := s.chooseReplays(deliveries, request)
	if problem != nil {
		return problem
	}
	replayed, err := s.replayAll(r.Context(), chosen, request.Force)
	if len(replayed) > 0 {
		s.log.Info("audit", "action", "replay", "caller", c.caller.Name, "namespace", c.namespace, "webhookId", c.name,
			"endpoints", replayed, "force", request.Force)
	}
	// When some of several went, the answer names those: the caller's next call finds them waiting.
	if err != nil && len(replayed) == 0 {
		return s.problemOf(err, "replay")
	}
	writeJSON(w, http.StatusOK, mediaJSON, ReplayResult{WebhookID: e.WebhookID, Replayed: replayed})
	return nil
}

// chooseReplays gives the deliveries to send again. The store checks their states once more, in the step that changes
// them, so that two people at once make one replay (cases DD78, DL159).
func (s *Server) chooseReplays(deliveries []queue.Delivery, request ReplayRequest) ([]queue.Delivery, *Problem) {
	fan := s.currentFanout()
	var chosen []queue.Delivery
	var waiting, delivered, gone int
	for _, d := range deliveries {
		if request.Endpoint != "" && d.Endpoint.Name != request.Endpoint {
			continue
		}
		switch {
		case d.State.Waiting():
			waiting++
		case d.State == queue.Delivered && !request.Force:
			delivered++
		case fan.endpoint(d.Endpoint) == nil:
			gone++
		default:
			chosen = append(chosen, d)
		}
	}
	if len(chosen) > 0 {
		return chosen, nil
	}
	switch {
	case gone > 0:
		return nil, conflict("endpoint-gone", "The endpoint is not in the plan now, so that a replay would wait for nothing. "+
			"Apply the endpoint again first.")
	case waiting > 0:
		return nil, problemOf(queue.ErrAlreadyWaiting)
	case delivered > 0:
		return nil, problemOf(queue.ErrDelivered)
	case request.Endpoint != "":
		return nil, notFound("The event has no delivery to this endpoint; an endpoint gets what is accepted after it was made.")
	}
	return nil, conflict("no-deliveries", "No endpoint took this event, so that there is nothing to send again.")
}

func (s *Server) replayAll(ctx context.Context, chosen []queue.Delivery, force bool) ([]string, error) {
	replayed := []string{}
	var failed error
	for _, d := range chosen {
		if _, err := s.queue.Replay(ctx, d.Endpoint, d.Seq, force); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		replayed = append(replayed, d.Endpoint.Name)
	}
	return replayed, failed
}

// enable brings a disabled endpoint back.
func (s *Server) enable(w http.ResponseWriter, r *http.Request, c call) *Problem {
	if problem := s.readAction(r, &struct{}{}); problem != nil {
		return problem
	}
	fan, key := s.currentFanout(), plan.EndpointKey{Namespace: c.namespace, Name: c.name}
	if fan.endpoint(key) == nil {
		return noEndpoint()
	}
	before := s.laneOf(fan, key).State
	result := EnableResult{Endpoint: c.name, WasDisabled: before == LaneDisabled}
	if before == LaneBackingOff {
		result.Message = "It was not disabled; it backs off, and its next attempt is made now."
	}
	if result.WasDisabled || before == LaneBackingOff {
		if err := s.lanes.Enable(r.Context(), key); err != nil {
			return s.problemOf(err, "enable")
		}
		s.log.Info("audit", "action", "enable", "caller", c.caller.Name, "namespace", c.namespace, "endpoint", c.name)
	}
	result.State = s.laneOf(fan, key).State
	writeJSON(w, http.StatusOK, mediaJSON, result)
	return nil
}

// readAction reads the JSON object of an action into v; no body is the empty object. What v doesn't know is refused.
func (s *Server) readAction(r *http.Request, v any) *Problem {
	if _, problem := query(r); problem != nil {
		return problem
	}
	body, held, problem := s.readBody(r, maxActionBytes)
	defer s.bodies.give(held)
	if problem != nil || len(bytes.TrimSpace(body)) == 0 {
		return problem
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return actionProblem(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return badRequest("body", "Something follows the JSON object.")
	}
	return nil
}

func actionProblem(err error) *Problem {
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong) && wrong.Field != "":
		return badRequest(wrong.Field, "The value is of the wrong kind.")
	case strings.HasPrefix(err.Error(), "json: unknown field"):
		return badRequest("body", `A member is not known here; a replay takes "endpoint" and "force", enable takes none.`)
	}
	return badRequest("body", "The body is not a JSON object.")
}
