package ingest

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// accept takes an event or a batch: read and count the body, parse it, choose the endpoints by the plan of this
// moment, and answer once the queue holds it all durably. This is the hot path: it allocates the body, what Parse
// makes of it, one list, and the answer.
func (s *Server) accept(w http.ResponseWriter, r *http.Request, c call) *Problem {
	p := s.plan()
	if p == nil {
		return errNoPlan
	}
	if !p.Pool.Admits(c.namespace) {
		return errNotAdmitted
	}
	if p.Lacks(c.namespace) {
		return errPlanIncomplete
	}
	limits := event.Limits{MaxPayloadBytes: p.Pool.Ingest.MaxPayloadBytes}
	batch, fan := isBatch(r.Header), s.fanoutOf(p)
	if !batch {
		if problem := s.overRate(fan, c.namespace, 1); problem != nil {
			return problem
		}
	}
	body, held, problem := s.readBody(r, bodyLimit(limits, batch))
	defer s.bodies.give(held)
	if problem != nil {
		return problem
	}
	events, err := event.Parse(c.namespace, r.Header, body, limits)
	if err != nil {
		return s.problemOf(err, "accept")
	}
	if batch {
		if problem := s.overRate(fan, c.namespace, len(events)); problem != nil {
			return problem
		}
	}
	accepted, err := s.store(r, p, events)
	if err != nil {
		problem := s.problemOf(err, "accept")
		if field := conflictField(err, batch); field != "" {
			problem.Field = field
		}
		return problem
	}
	answerReceipts(w, events, accepted, batch)
	return nil
}

// errNotAdmitted: what was accepted of the namespace before goes on as it was.
var errNotAdmitted = forbidden("namespace", "This pool takes no events of this namespace; send to the pool that the "+
	"namespace's endpoints name, or have this one's allowedNamespaces admit it.")

// errPlanIncomplete: who takes an event can't be told, and an event that is accepted is never given to more endpoints.
var errPlanIncomplete = unavailable("not-ready", "A part of the plan with endpoints of this namespace can't be read at the "+
	"moment, so that nothing can be accepted for them; nothing was stored. Try again.", 5*time.Second)

// store hands the events to the queue, each with the endpoints that take it now.
func (s *Server) store(r *http.Request, p *plan.Plan, events []*event.Event) ([]queue.Accepted, error) {
	if len(events) == 0 {
		return nil, nil // an empty batch: valid, and nothing to store
	}
	fan := s.fanoutOf(p)
	trace := traceParent(r.Header)
	list := make([]queue.NewEvent, len(events))
	asker := s.newAsker()
	for i, e := range events {
		to := fan.route(e, &asker)
		list[i] = queue.NewEvent{Event: e, TraceParent: trace, Endpoints: to.endpoints, Undecided: to.undecided, FilterErrors: to.filterErrors}
	}
	if problem, err := s.overShare(r.Context(), p, list); err != nil {
		return nil, err
	} else if problem != nil {
		return nil, problem
	}
	return s.queue.Accept(r.Context(), list)
}

// conflictField names the event of a call whose identity is taken.
func conflictField(err error, batch bool) string {
	var taken *queue.ConflictError
	switch {
	case !errors.As(err, &taken):
		return ""
	case batch:
		return "[" + strconv.Itoa(taken.Index) + "].id"
	}
	return "id"
}

// problemOf words an error and logs what is the store's fault.
func (s *Server) problemOf(err error, doing string) *Problem {
	p := problemOf(err)
	if p.Status == http.StatusInternalServerError {
		s.log.Error(err, "the store failed", "doing", doing)
	}
	return p
}

// isBatch reports a batch of CloudEvents, which alone may be larger than one event.
func isBatch(h http.Header) bool {
	values := h["Content-Type"]
	return len(values) == 1 && hasPrefixFold(values[0], "application/cloudevents-batch")
}

func bodyLimit(l event.Limits, batch bool) int {
	if batch {
		return event.DefaultMaxBatchBytes
	}
	if l.MaxPayloadBytes <= 0 {
		return event.DefaultMaxPayloadBytes
	}
	return l.MaxPayloadBytes
}

// jsonHeader is shared by all answers of the hot path; net/http only reads it.
var jsonHeader = []string{mediaJSON}

// answerReceipts answers 202, or 200 when nothing new was accepted. A batch is answered with a receipt per element.
func answerReceipts(w http.ResponseWriter, events []*event.Event, accepted []queue.Accepted, batch bool) {
	status := http.StatusAccepted
	if len(events) > 0 && allDuplicates(accepted) {
		status = http.StatusOK
	}
	b := make([]byte, 0, receiptBytes*max(1, len(events)))
	if batch {
		b = append(b, `{"results":[`...)
	}
	for i, e := range events {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendReceipt(b, e, accepted[i])
	}
	if batch {
		b = append(b, `]}`...)
	}
	b = append(b, '\n')
	w.Header()["Content-Type"] = jsonHeader
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client is gone: it asks again and is told of the duplicate
}

func allDuplicates(accepted []queue.Accepted) bool {
	for i := range accepted {
		if !accepted[i].Duplicate {
			return false
		}
	}
	return true
}

// receiptBytes is about the size of one receipt.
const receiptBytes = 192

// appendReceipt appends a Receipt without reflection.
func appendReceipt(b []byte, e *event.Event, a queue.Accepted) []byte {
	b = append(b, `{"id":`...)
	b = appendJSONString(b, e.ID)
	b = append(b, `,"source":`...)
	b = appendJSONString(b, e.Source)
	b = append(b, `,"webhookId":`...)
	b = appendJSONString(b, e.WebhookID)
	b = append(b, `,"endpoints":`...)
	b = strconv.AppendInt(b, int64(a.Endpoints), 10)
	if a.Duplicate {
		b = append(b, `,"duplicate":true`...)
	}
	return append(b, '}')
}

// traceParent is the producer's W3C traceparent (Trace Context §3.2), if it sent one that is valid. Of a version later
// than 00 only what 00 defines is kept.
func traceParent(h http.Header) string {
	values := h["Traceparent"]
	if len(values) != 1 {
		return ""
	}
	t := values[0]
	const size = 55 // 00-<32>-<16>-<2>
	if len(t) < size || t[2] != '-' || t[35] != '-' || t[52] != '-' || t[:2] == "ff" {
		return ""
	}
	if len(t) > size && (t[:2] == "00" || t[size] != '-') {
		return ""
	}
	version, trace, parent, flags := t[:2], t[3:35], t[36:52], t[53:size]
	if !isLowerHex(version) || !isLowerHex(trace) || !isLowerHex(parent) || !isLowerHex(flags) ||
		strings.Trim(trace, "0") == "" || strings.Trim(parent, "0") == "" {
		return ""
	}
	return t[:size]
}

func isLowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
