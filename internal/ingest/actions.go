package ingest

import (
	"net/http"
	"strings"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// enable brings a disabled endpoint back.
func (s *Server) enable(w http.ResponseWriter, r *http.Request, c call) *Problem {
	var request ActionRequest
	if problem := s.readAction(r, &request); problem != nil {
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
		if problem := s.audit(r, c, queue.AuditRecord{Action: AuditEnable, Target: c.name, Count: 1}, request.Reason); problem != nil {
			return problem
		}
		if err := s.lanes.Enable(r.Context(), key); err != nil {
			return s.problemOf(err, "enable")
		}
	}
	result.State = s.laneOf(fan, key).State
	writeJSON(w, http.StatusOK, mediaJSON, result)
	return nil
}

// retry makes what waits for its next attempt due now.
func (s *Server) retry(w http.ResponseWriter, r *http.Request, c call) *Problem {
	var request ActionRequest
	if problem := s.readAction(r, &request); problem != nil {
		return problem
	}
	fan, key := s.currentFanout(), plan.EndpointKey{Namespace: c.namespace, Name: c.name}
	if fan.endpoint(key) == nil {
		return noEndpoint()
	}
	if lane := s.laneOf(fan, key); lane.Held {
		words := heldWords(lane)
		if lane.State == LaneDisabled {
			words += " POST …/enable brings it back."
		}
		return conflict("held", strings.TrimSuffix(words, ".")+". Nothing was made due.")
	}
	waiting := s.queue.Counts(key).Retrying
	if waiting > 0 {
		if problem := s.audit(r, c, queue.AuditRecord{Action: AuditRetry, Target: c.name, Count: waiting}, request.Reason); problem != nil {
			return problem
		}
	}
	n, err := s.lanes.Retry(r.Context(), key)
	if err != nil {
		return s.problemOf(err, "retry")
	}
	writeJSON(w, http.StatusOK, mediaJSON, RetryResult{Endpoint: c.name, Retried: n})
	return nil
}
