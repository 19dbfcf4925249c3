package ingest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/filter"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

// explain says for each endpoint of the event's namespace, and for each that got the event and is gone since, why it
// did or didn't get it, as far as the caller may know of it. Sorted by name.
func (s *Server) explain(fan *fanout, caller Caller, e *queue.StoredEvent, deliveries []queue.Delivery) []Explanation {
	list := make([]Explanation, 0, len(deliveries))
	got := make(map[string]bool, len(deliveries))
	ask, end := s.newInquiry(e)
	defer end()
	for _, d := range deliveries {
		got[d.Endpoint.Name] = true
		x := s.explainDelivery(d, s.laneOf(fan, d.Endpoint))
		if d.State == queue.FilterError {
			x.Reason, x.Message = WhyFilterError, explainFilterError(fan.endpoint(d.Endpoint), ask)
		}
		list = append(list, x)
	}
	for _, endpoint := range fan.in(e.Namespace) {
		if !got[endpoint.Name] && caller.sees(endpoint.Name) {
			list = append(list, explainAbsence(endpoint, e, ask))
		}
	}
	slices.SortFunc(list, func(a, b Explanation) int { return strings.Compare(a.Endpoint, b.Endpoint) })
	return list
}

// planLag is how long after a plan was compiled events may still be matched by the one before it.
const planLag = 5 * time.Second

// explainAbsence says why an endpoint has no delivery of an event. What decided was the endpoint as it was at acceptance,
// and all that is known is how it is now: where that would take the event, it must have changed.
func explainAbsence(endpoint *plan.Endpoint, e *queue.StoredEvent, ask *inquiry) Explanation {
	if endpoint.FirstSeen.After(e.AcceptedAt) {
		return Explanation{Endpoint: endpoint.Name, Reason: WhyCreatedLater, Message: fmt.Sprintf(
			"The endpoint is known since %s, the event was accepted at %s; endpoints get what is accepted after them.",
			formatTime(endpoint.FirstSeen), formatTime(e.AcceptedAt))}
	}
	x := explainSelection(endpoint, e, ask)
	if x.Reason == WhyChangedLater && endpoint.FirstSeen.Add(planLag).After(e.AcceptedAt) {
		x.Reason, x.Message = WhyCreatedLater,
			"The event was accepted in the moments in which the endpoint became known; it was just too early."
	}
	return x
}

// explainSelection judges the event by the endpoint as it is now, in the order of fan-out.
func explainSelection(endpoint *plan.Endpoint, e *queue.StoredEvent, ask *inquiry) Explanation {
	x := Explanation{Endpoint: endpoint.Name}
	want := wantedAttribute(endpoint, e.Event)
	switch {
	case takes(endpoint, e.Type) && want == nil && endpoint.Filter != "":
		x.Reason, x.Message = explainFilter(endpoint, ask)
	case takes(endpoint, e.Type) && want == nil:
		x.Reason, x.Message = WhyChangedLater, fmt.Sprintf(
			"Its %s now; they did not when the event was accepted.", selectionWords(endpoint))
	case takes(endpoint, e.Type):
		x.Reason, x.Message = WhyAttributeMismatch, fmt.Sprintf(
			"Its matchAttributes want %s to be %q, and the event has %s.", want.Name, want.Value, attributeWords(e.Event, want.Name))
	case len(endpoint.EventTypes) == 0:
		x.Reason, x.Message = WhyTypeMismatch,
			"It has no eventTypes, which takes every type but Doorstep's own."
	default:
		x.Reason, x.Message = WhyTypeMismatch, fmt.Sprintf(
			"Its eventTypes (%s) do not match %s.", strings.Join(endpoint.EventTypes, ", "), e.Type)
	}
	return x
}

func selectionWords(endpoint *plan.Endpoint) string {
	if len(endpoint.MatchAttributes) > 0 {
		return "eventTypes and matchAttributes match"
	}
	return "eventTypes match"
}

func attributeWords(e *event.Event, name string) string {
	for _, a := range e.Attributes {
		if a.Name == name {
			return strconv.Quote(a.Value)
		}
	}
	return "no such attribute"
}

// explainFilter asks the filter as it is now about an event that everything else of the endpoint takes.
func explainFilter(endpoint *plan.Endpoint, ask *inquiry) (reason, message string) {
	const decided = "Its eventTypes and matchAttributes match, so that its filter decided. "
	if !ask.kept {
		return WhyFilterFalse, decided + "The payload is no longer kept, and the filter can't be asked again."
	}
	f, err := filter.Compile(endpoint.Filter)
	if err != nil {
		return WhyChangedLater, "Its filter was another when the event was accepted; the one it has now can't be used: " + err.Error() + "."
	}
	switch pass, err := ask.match(f); {
	case errors.Is(err, errNotAsked):
		return WhyFilterFalse, decided + "It is not asked again here: the filters of the namespace take too long together."
	case err != nil:
		return WhyChangedLater, "Its filter was another when the event was accepted; the one it has now can't be evaluated for it: " + err.Error() + "."
	case pass:
		return WhyChangedLater, "Its eventTypes, matchAttributes and filter take the event now; they did not when it was accepted."
	}
	return WhyFilterFalse, "Its filter, as it is now, is false for this event: " + strings.Join(strings.Fields(endpoint.Filter), " ")
}

// payloadKept reports whether a filter can still see the event's data. In binary mode an event may have none.
func payloadKept(e *queue.StoredEvent) bool {
	return e.Erased.IsZero() && (len(e.Body) > 0 || e.Mode == event.ModeBinary)
}

// explainFilterError says why a filter could not decide, if it still can't.
func explainFilterError(endpoint *plan.Endpoint, ask *inquiry) string {
	const kept = "Its filter could not be evaluated for this event"
	const way = "Mend the filter and replay it: the filter is asked again then."
	if endpoint == nil || endpoint.Filter == "" || !ask.kept {
		return kept + ". " + way
	}
	f, err := filter.Compile(endpoint.Filter)
	if err == nil {
		_, err = ask.match(f)
	}
	switch {
	case errors.Is(err, errNotAsked):
		return kept + ". " + way
	case err == nil:
		return kept + "; it can be now. Replay it: the filter is asked again then."
	}
	return kept + ": " + err.Error() + ". " + way
}

// explainDelivery says how a delivery stands.
func (s *Server) explainDelivery(d queue.Delivery, lane LaneView) Explanation {
	x := Explanation{Endpoint: d.Endpoint.Name}
	switch s.stateOf(d, lane) {
	case StateDelivered:
		x.Reason = WhyDelivered
		x.Message = fmt.Sprintf("Delivered at %s, %s.", formatTime(d.EndedAt), attemptsAnd(d))
	case StateDeadLettered:
		x.Reason = d.Reason
		if x.Reason == "" {
			x.Reason = "DeadLettered"
		}
		x.Message = fmt.Sprintf("Dead-lettered at %s, %s: %s.", formatTime(d.EndedAt), attemptsAnd(d), deadLetterWords(d.Reason))
		if d.Reason != queue.ReasonErased && d.Reason != queue.ReasonPayloadMissing {
			x.Message += " It can be replayed."
		}
	case storedState(queue.Discarded):
		x.Reason, x.Message = WhyFilterFalse, fmt.Sprintf("Its filter was asked at %s, and was false for this event.", formatTime(d.EndedAt))
	case StateInFlight:
		x.Reason, x.Message = WhyInFlight, fmt.Sprintf("Attempt %d is being made now.", d.Attempts+1)
	case StateHeld:
		x.Reason, x.Message = string(lane.State), heldWords(lane)
	case StateRetrying:
		x.Reason = WhyRetrying
		x.Message = fmt.Sprintf("%s failed; the next is made at %s at the latest.%s",
			upperFirst(attemptsAnd(d)), formatTime(d.DueAt), laneWords(lane))
	default:
		x.Reason, x.Message = WhyPending, "It waits for its first attempt."+laneWords(lane)
		switch {
		case d.Undecided:
			x.Message = "Its filter has not been asked yet; it is before the first attempt." + laneWords(lane)
		case d.Replays > 0:
			x.Message = "It was replayed and waits for its next attempt." + laneWords(lane)
		}
		x.Message += limitWords(lane)
	}
	return x
}

// attemptsAnd is "1 attempt, last answer 500".
func attemptsAnd(d queue.Delivery) string {
	words := "no attempt"
	switch {
	case d.Attempts == 1:
		words = "1 attempt"
	case d.Attempts > 1:
		words = fmt.Sprintf("%d attempts", d.Attempts)
	}
	if d.LastStatus != 0 {
		words += fmt.Sprintf(", last answer %d", d.LastStatus)
	}
	return words
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func deadLetterWords(reason string) string {
	switch reason {
	case queue.ReasonExpired:
		return "it grew older than the retry policy's maxAge"
	case queue.ReasonEndpointDeleted:
		return "its endpoint was deleted"
	case queue.ReasonOutOfAttempts:
		return "the retry policy's attempts are used up"
	case queue.ReasonRejected:
		return "the receiver gave an answer that is not retried"
	case queue.ReasonAborted:
		return "the receiver asked for no more attempts of it"
	case queue.ReasonDisabled:
		return "the receiver asked for no more deliveries at all"
	case queue.ReasonNotAllowed:
		return "its destination is not allowed"
	case queue.ReasonPayloadMissing:
		return "its payload can't be read from the store"
	case queue.ReasonErased:
		return "its payload was erased"
	}
	return "no reason was kept"
}

func heldWords(lane LaneView) string {
	if lane.Message != "" {
		return "Held: " + lane.Message
	}
	switch lane.State {
	case LaneSuspended:
		return "Held: the endpoint or its pool is suspended."
	case LaneDisabled:
		return "Held: the endpoint is disabled until it is enabled or changed."
	case LaneUnresolved:
		return "Held: the endpoint can't be used as it is; see its problem."
	case LaneMissing:
		return "Held: the endpoint was deleted a short while ago."
	}
	return "Held: the plan does not hold this endpoint now."
}

// laneWords tells of a lane that goes slow.
func laneWords(lane LaneView) string {
	switch lane.State {
	case LaneBackingOff:
		words := " The endpoint is being spared"
		if lane.Reason != "" {
			words += " (" + lane.Reason + ")"
		}
		if !lane.RetryAt.IsZero() {
			words += ", next try at " + formatTime(lane.RetryAt)
		}
		return words + "."
	case LaneDraining:
		return " The endpoint has recovered and is catching up."
	}
	return ""
}

// limitWords tells what a delivery that is due may be waiting for. A lane knows only
// that something of it waits.
func limitWords(lane LaneView) string {
	switch lane.LimitedBy {
	case "ordering":
		return " It may have to wait for an earlier event: the endpoint's ordering is set."
	case "rateLimit":
		return " The endpoint's rateLimit lets no more go at once."
	case "maxInFlight":
		return " As many attempts as the endpoint's maxInFlight allows are being made."
	case "pool":
		return " As many attempts as the pool's limits.maxInFlight allows are being made."
	}
	return ""
}

func outcomeName(a queue.Attempt) string {
	switch a.Class {
	case retry.Delivered:
		return "delivered"
	case retry.Retry:
		return "retry"
	case retry.DeadLetter:
		return "deadLetter"
	case retry.Disable:
		return "disable"
	case retry.Held:
		return "held"
	}
	return "unknown"
}
