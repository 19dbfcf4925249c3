package ingest

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// Verb is what a caller wants to do, in the words of DESIGN.md §5: a verb on a subresource of webhookendpoints.
type Verb string

// The verbs of the API. What reads a list needs VerbList, what reads one thing VerbRead.
const (
	VerbSend        Verb = "create events"
	VerbRead        Verb = "get deliveries"
	VerbList        Verb = "list deliveries"
	VerbReadPayload Verb = "get payload"
	VerbErase       Verb = "delete payload"
	VerbReplay      Verb = "create replay"
	VerbEnable      Verb = "create enable"
	VerbRetry       Verb = "create retry"
	VerbTest        Verb = "create test"
	VerbAudit       Verb = "list audit"
)

// Verbs are all verbs there are.
var Verbs = []Verb{
	VerbSend, VerbRead, VerbList, VerbReadPayload, VerbErase, VerbReplay, VerbEnable, VerbRetry, VerbTest, VerbAudit,
}

// Request is what an Authorizer decides about.
type Request struct {
	Verb      Verb
	Namespace string
	// Endpoint is the name of the one endpoint that the path names; empty where it names none. It need not exist.
	Endpoint string
}

// Caller is who a request comes from.
type Caller struct {
	// Name is for audit records and the log; it holds no secret.
	Name string
	// Endpoints are the names of the only endpoints that the caller may see and act on; empty: all. One that is bound
	// so sees only these endpoints' deliveries, and can neither send events nor erase them.
	Endpoints []string
}

// sees reports whether the caller may know of an endpoint.
func (c Caller) sees(endpoint string) bool {
	return !c.bound() || slices.Contains(c.Endpoints, endpoint)
}

// bound reports that there are endpoints that the caller may not see.
func (c Caller) bound() bool { return len(c.Endpoints) > 0 }

// Authorizer decides who may do what. It returns the caller, or a *Problem (401, 403, or Undecided). Any other error means
// that it couldn't decide: the answer is 503, never 401, and the log has the error. What Caller.Endpoints forbids, the Server refuses by itself.
type Authorizer interface {
	Authorize(*http.Request, Request) (Caller, error)
}

// denyAll stands in where no Authorizer was given: the API is never open by default.
type denyAll struct{}

func (denyAll) Authorize(*http.Request, Request) (Caller, error) {
	return Caller{}, unauthorized("No API keys are set up, so that no call can be let in.")
}

func unauthorized(detail string) *Problem {
	return newProblem(http.StatusUnauthorized, "unauthorized", "Authorization", detail)
}

func forbidden(field, detail string) *Problem {
	return newProblem(http.StatusForbidden, "forbidden", field, detail)
}

// Loopback lets in whoever calls by a loopback name without a key, for development on one machine. Web pages are kept
// out three ways: the Host must be a loopback one (DNS rebinding), a POST must have a content type that a form can't
// send, and a request with an Origin header is refused. It takes no part in keeping the listener on loopback.
func Loopback() Authorizer { return loopback{} }

type loopback struct{}

func (loopback) Authorize(r *http.Request, _ Request) (Caller, error) {
	if !isLoopbackHost(r.Host) {
		return Caller{}, forbidden("Host", "Without keys this API answers only to localhost, 127.0.0.1 and [::1].")
	}
	if _, ok := r.Header["Origin"]; ok {
		return Caller{}, forbidden("Origin", "Without keys this API takes no calls from web pages.")
	}
	if r.Method == http.MethodPost && !declaresJSON(r.Header) {
		return Caller{}, unsupportedMedia("Content-Type",
			"Without keys a POST needs a JSON or CloudEvents content type; send Content-Type: application/json.")
	}
	return Caller{Name: "local"}, nil
}

// isLoopbackHost takes a Host header with any port or none. It is on the way of every event: net.SplitHostPort would
// make an error where there is no port.
func isLoopbackHost(host string) bool {
	if rest, ok := strings.CutPrefix(host, "[::1]"); ok {
		return rest == "" || rest[0] == ':' && isPort(rest[1:])
	}
	name, port, ok := strings.Cut(host, ":")
	return (!ok || isPort(port)) && (name == "127.0.0.1" || strings.EqualFold(name, "localhost"))
}

func isPort(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// declaresJSON reports a JSON or CloudEvents content type. A binary CloudEvent counts, whatever its data: browsers
// don't send a ce- header to another origin without asking first.
func declaresJSON(h http.Header) bool {
	if _, ok := h["Ce-Specversion"]; ok {
		return true
	}
	media := mediaType(h.Get("Content-Type"))
	return strings.EqualFold(media, mediaJSON) || hasPrefixFold(media, "application/cloudevents") ||
		len(media) > 5 && strings.EqualFold(media[len(media)-5:], "+json")
}

// mediaType is a content type without its parameters.
func mediaType(contentType string) string {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.TrimSpace(media)
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// Unauthorized is the answer to a caller who is not known; detail says what to show.
func Unauthorized(detail string) *Problem { return unauthorized(detail) }

// Forbidden is the answer to a caller who may not do what it asks for; detail says who can
// change that.
func Forbidden(detail string) *Problem { return forbidden("Authorization", detail) }

// Undecided is the answer to a caller about whom nothing can be decided now: 503, to be
// tried again after a while.
func Undecided(detail string, after time.Duration) *Problem {
	return unavailable("authorization-unavailable", detail, after)
}
