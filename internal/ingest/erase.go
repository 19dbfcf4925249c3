package ingest

import (
	"context"
	"net/http"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// erase removes an event's payload and what receivers have answered to it. Identity, hash and outcomes stay, so that a
// producer that sends the event again is still told of a duplicate. What waits of it is not sent any more.
func (s *Server) erase(w http.ResponseWriter, r *http.Request, c call) *Problem {
	v, problem := query(r, "reason")
	if problem != nil {
		return problem
	}
	if problem := checkReason(v.Get("reason")); problem != nil {
		return problem
	}
	e, problem := s.find(r.Context(), c.namespace, c.name)
	if problem != nil {
		return problem
	}
	if e.Erased.IsZero() {
		record := queue.AuditRecord{Action: AuditErase, Target: c.name, Count: len(e.Endpoints)}
		if problem := s.audit(r, c, record, v.Get("reason")); problem != nil {
			return problem
		}
	}
	// The caller may hang up: what was asked for and noted is done.
	erased, err := s.queue.Erase(context.WithoutCancel(r.Context()), e.Seq)
	if err != nil {
		return s.problemOf(err, "erase an event")
	}
	writeJSON(w, http.StatusOK, mediaJSON, EraseResult{
		WebhookID: e.WebhookID, ErasedAt: erased.At, Again: erased.Again, DeadLettered: erased.DeadLettered,
	})
	return nil
}
