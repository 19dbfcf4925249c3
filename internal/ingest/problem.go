package ingest

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// Problem is an error as the API answers it: RFC 9457, with the field at fault and whether the same request may
// succeed later. It never holds bytes of the request.
type Problem struct {
	// Type is a URI that names the kind of problem; it is stable.
	Type string `json:"type"`
	// Title is the kind of problem in words.
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail is one or two plain sentences: what is wrong and what to do.
	Detail string `json:"detail,omitempty"`
	// Field is the member, header or parameter at fault; with 429 the limit of the DeliveryPool that was reached.
	Field     string `json:"field,omitempty"`
	Retryable bool   `json:"retryable"`

	retryAfter time.Duration // Retry-After, whole seconds; 0: none
	allow      string        // Allow, with 405
	closes     bool          // the connection is closed: the body was not read
}

// Error is the detail, with the field before it.
func (p *Problem) Error() string {
	if p.Field != "" {
		return p.Field + ": " + p.Detail
	}
	return p.Detail
}

const problemBase = "https://doorstep.dev/problems/"

// newProblem makes a problem of a kind; the title follows from the status.
func newProblem(status int, kind, field, detail string) *Problem {
	return &Problem{
		Type: problemBase + kind, Title: http.StatusText(status), Status: status, Detail: detail, Field: field,
	}
}

func badRequest(field, detail string) *Problem {
	return newProblem(http.StatusBadRequest, "bad-request", field, detail)
}

func notFound(detail string) *Problem {
	return newProblem(http.StatusNotFound, "not-found", "", detail)
}

func conflict(kind, detail string) *Problem {
	return newProblem(http.StatusConflict, kind, "", detail)
}

// EndpointNotReady words why an endpoint can't be sent to at all: reason and message are those of its condition.
func EndpointNotReady(reason, message string) *Problem {
	return conflict("endpoint-not-ready", "The endpoint can't be used as it is ("+reason+"): "+strings.TrimSuffix(message, ".")+".")
}

func unsupportedMedia(field, detail string) *Problem {
	return newProblem(http.StatusUnsupportedMediaType, "unsupported-media-type", field, detail)
}

func tooLarge(limit int) *Problem {
	p := newProblem(http.StatusRequestEntityTooLarge, "too-large", "body", "The body is larger than "+
		strconv.Itoa(limit)+" bytes; keep the full data elsewhere and send a URL to it.")
	p.closes = true
	return p
}

func unavailable(kind, detail string, after time.Duration) *Problem {
	p := newProblem(http.StatusServiceUnavailable, kind, "", detail)
	p.Retryable, p.retryAfter = true, after
	return p
}

// problemOf words an error of event or queue. What it doesn't know is the store's fault, not the caller's: 500, and
// the caller may try again, since nothing was stored.
func problemOf(err error) *Problem {
	var (
		problem *Problem
		bad     *event.Error
		taken   *queue.ConflictError
	)
	switch {
	case errors.As(err, &problem):
		return problem
	case errors.As(err, &bad):
		p := badRequest(bad.Field, bad.Detail)
		switch bad.Status {
		case http.StatusRequestEntityTooLarge:
			p = newProblem(bad.Status, "too-large", bad.Field, bad.Detail)
		case http.StatusUnsupportedMediaType:
			p = unsupportedMedia(bad.Field, bad.Detail)
		}
		return p
	case errors.As(err, &taken):
		words := "An event with the same source and id but other content was already accepted as " +
			taken.WebhookID + "; send a new event under a new id."
		if taken.Within {
			words = "An earlier element has the same source and id but other content; nothing of the batch was stored."
		}
		return conflict("id-taken", words)
	case errors.Is(err, queue.ErrNotFound):
		return notFound("There is no such event or delivery.")
	case errors.Is(err, queue.ErrAlreadyWaiting), errors.Is(err, queue.ErrNotWaiting):
		return conflict("already-waiting", "The delivery is already waiting to be sent; nothing was changed.")
	case errors.Is(err, queue.ErrDelivered):
		return conflict("already-delivered", "The delivery was already delivered; it is sent again only by force.")
	case errors.Is(err, queue.ErrDiscarded):
		return conflict("discarded", "The endpoint's filter did not want this event; it is sent all the same only by force.")
	case errors.Is(err, queue.ErrErased):
		return newProblem(http.StatusGone, "erased", "", "The event's payload was erased, so that it can be neither shown nor "+
			"sent again. What happened to it is still listed.")
	case errors.Is(err, queue.ErrNoSpace):
		return unavailable("no-space", "Free space on the store's volume is under its reserve; deliveries go on, "+
			"new events are refused until there is room.", 10*time.Second)
	case errors.Is(err, queue.ErrOverloaded):
		return unavailable("overloaded", "The store can't keep up; nothing was stored. Try again.", time.Second)
	case errors.Is(err, queue.ErrClosed):
		return unavailable("stopping", "This worker is stopping; nothing was stored. Try again.", 2*time.Second)
	case errors.Is(err, queue.ErrPayloadMissing):
		return newProblem(http.StatusGone, "payload-gone", "", "The event's payload is not in the store (any more), so that "+
			"it can be neither shown nor sent again. What happened to it is still listed.")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return unavailable("interrupted", "The request ended before the store had answered. Try again: "+
			"an event that was stored after all is answered as a duplicate.", time.Second)
	}
	p := newProblem(http.StatusInternalServerError, "store-failed", "",
		"The store failed; the worker's log says why. Try again.")
	p.Retryable = true
	return p
}

// writeProblem answers a request with a problem.
func writeProblem(w http.ResponseWriter, p *Problem) {
	h := w.Header()
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((p.retryAfter+time.Second-1)/time.Second)))
	}
	if p.allow != "" {
		h.Set("Allow", p.allow)
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="doorstep"`)
	}
	if p.closes {
		h.Set("Connection", "close")
	}
	writeJSON(w, p.Status, "application/problem+json", p)
}
