package ingest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// replay sends finished deliveries of one event again, to the endpoint that is named or to each where the event is a
// dead letter.
func (s *Server) replay(w http.ResponseWriter, r *http.Request, c call) *Problem {
	var request ReplayRequest
	if problem := s.readAction(r, &request); problem != nil {
		return problem
	}
	switch {
	case request.Endpoint == "":
	case !isEndpointName(request.Endpoint):
		return badRequest("endpoint", endpointNameWords)
	case !c.caller.sees(request.Endpoint):
		return forbidden("endpoint", "You may see and act on certain endpoints only, and this is none of them.")
	}
	e, problem := s.find(r.Context(), c.namespace, c.name)
	if problem != nil {
		return problem
	}
	deliveries, problem := s.deliveriesOf(r.Context(), c.caller, e)
	if problem != nil {
		return problem
	}
	chosen, problem := s.chooseReplays(deliveries, request)
	if problem != nil {
		return problem
	}
	record := queue.AuditRecord{Action: AuditReplay, Target: c.name, Count: len(chosen), Detail: replayDetail(chosen)}
	if problem := s.audit(r, c, record, request.Reason); problem != nil {
		return problem
	}
	replayed, err := s.replayAll(r.Context(), chosen, request.Force)
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
	var waiting, delivered, discarded, gone int
	for _, d := range deliveries {
		if request.Endpoint != "" && d.Endpoint.Name != request.Endpoint {
			continue
		}
		switch {
		case d.State.Waiting():
			waiting++
		case d.State == queue.Delivered && !request.Force:
			delivered++
		case d.State == queue.Discarded && !request.Force:
			discarded++
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
		return nil, errEndpointGone
	case waiting > 0:
		return nil, problemOf(queue.ErrAlreadyWaiting)
	case delivered > 0:
		return nil, problemOf(queue.ErrDelivered)
	case discarded > 0:
		return nil, problemOf(queue.ErrDiscarded)
	case request.Endpoint != "":
		return nil, notFound("The event has no delivery to this endpoint; an endpoint gets what is accepted after it was made.")
	}
	return nil, conflict("no-deliveries", "No endpoint took this event, so that there is nothing to send again.")
}

var errEndpointGone = conflict("endpoint-gone", "The endpoint is not in the plan now, so that nothing can be sent to it. "+
	"Apply it again first.")

// replayDetail names the endpoints of a replay, the first few of many.
func replayDetail(chosen []queue.Delivery) string {
	const most = 10
	var names []string
	for _, d := range chosen[:min(len(chosen), most)] {
		names = append(names, d.Endpoint.Name)
	}
	words := "to " + strings.Join(names, ", ")
	if len(chosen) > most {
		words += fmt.Sprintf(" and %d more", len(chosen)-most)
	}
	return words
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
