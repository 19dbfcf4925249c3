package ingest

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// Options are what a Server needs. Queue, Plan and Lanes are required.
type Options struct {
	Queue queue.Queue
	// Plan gives the plan that holds now; nil while there is none, when events are answered 503. A new plan is a new
	// pointer, and a plan is never changed once given.
	Plan  func() *plan.Plan
	Lanes Lanes
	// Authorizer lets callers in; nil refuses every call under /v1.
	Authorizer Authorizer
	// Log gets audit records and faults of the store; the zero Logger is silent.
	Log logr.Logger
	// Ready is what /readyz asks; nil is always ready.
	Ready func() error
	// Version is what /version answers.
	Version string
	// MaxBodyBytes bounds the bytes of all request bodies in memory at once; over it requests are answered 503.
	// Default 64 MiB.
	MaxBodyBytes int64
}

const defaultMaxBodyBytes = 64 << 20

// Server is the HTTP API. It is safe for concurrent use.
type Server struct {
	queue   queue.Queue
	plan    func() *plan.Plan
	lanes   Lanes
	auth    Authorizer
	log     logr.Logger
	ready   func() error
	version string
	bodies  budget
	fanout  atomic.Pointer[fanout]

	filterSlots filterSlots
}

// New makes the API's handler.
func New(o Options) *Server {
	s := &Server{
		queue: o.Queue, plan: o.Plan, lanes: o.Lanes, auth: o.Authorizer, log: o.Log, ready: o.Ready, version: o.Version,
	}
	s.filterSlots = newFilterSlots()
	if s.auth == nil {
		s.auth = denyAll{}
	}
	if s.ready == nil {
		s.ready = func() error { return nil }
	}
	s.bodies.max = o.MaxBodyBytes
	if s.bodies.max <= 0 {
		s.bodies.max = defaultMaxBodyBytes
	}
	return s
}

// NewServer gives a net/http server with the limits that keep slow and idle clients from costing anything: headers
// within 5 s and 64 KiB, a whole request within 30 s, an answer within 60 s, idle connections closed after 2 minutes.
// The caller sets what it listens on.
func NewServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      60 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
}

// call is one request that was let in, with the names in its path (checked).
type call struct {
	namespace string
	name      string // endpoint or webhook-id
	caller    Caller
}

// action serves one method of one route. A problem it returns is the answer; otherwise it has answered.
type action func(s *Server, w http.ResponseWriter, r *http.Request, c call) *Problem

// method is what a route does on one HTTP method, and what the caller must be allowed for it.
type method struct {
	do   action
	verb Verb
}

// route is one path shape. GET serves HEAD too.
type route struct {
	get, post, delete method
	// named says what the name in the path is of: "events", "endpoints", or nothing.
	named string
}

var (
	routeEvents = &route{
		get:  method{(*Server).listEvents, VerbList},
		post: method{(*Server).accept, VerbSend},
	}
	routeEvent      = &route{named: "events", get: method{(*Server).getEvent, VerbRead}}
	routePayload    = &route{named: "events", get: method{(*Server).getPayload, VerbReadPayload}}
	routeReplay     = &route{named: "events", post: method{(*Server).replay, VerbReplay}}
	routeEndpoints  = &route{get: method{(*Server).listEndpoints, VerbList}}
	routeEndpoint   = &route{named: "endpoints", get: method{(*Server).getEndpoint, VerbRead}}
	routeOfEndpoint = &route{named: "endpoints", get: method{(*Server).listDeliveries, VerbList}}
	routeEnable     = &route{named: "endpoints", post: method{(*Server).enable, VerbEnable}}
	routeDeliveries = &route{get: method{(*Server).listDeliveries, VerbList}}
)

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var problem *Problem
	if rest, ok := strings.CutPrefix(r.URL.Path, "/v1/namespaces/"); ok {
		problem = s.serveAPI(w, r, rest)
	} else {
		problem = s.serveProbe(w, r)
	}
	if problem != nil {
		writeProblem(w, problem)
	}
}

// serveAPI finds the route by hand: http.ServeMux would answer unknown paths and methods in plain text, redirect
// unclean ones, and allocate for each name (docs/decisions/0010-ingest-api.md).
func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request, path string) *Problem {
	namespace, rest, _ := strings.Cut(path, "/")
	kind, rest, _ := strings.Cut(rest, "/")
	name, sub, deeper := strings.Cut(rest, "/")
	route := findRoute(kind, name, sub)
	if route == nil || deeper && (name == "" || sub == "") || name == "" && strings.HasSuffix(path, "/") {
		return notFound("There is no such path; the API is under /v1/namespaces/{namespace}/ " +
			"with events, endpoints and deliveries.")
	}
	m := route.method(r.Method)
	if m.do == nil {
		return route.methodNotAllowed()
	}
	if problem := checkNames(namespace, route.named, name); problem != nil {
		return problem
	}
	caller, problem := s.authorize(r, m.verb, namespace, route, name)
	if problem != nil {
		return problem
	}
	return m.do(s, w, r, call{namespace: namespace, name: name, caller: caller})
}

// authorize asks the Authorizer, and holds a caller that is bound to endpoints to them.
func (s *Server) authorize(r *http.Request, verb Verb, namespace string, at *route, name string) (Caller, *Problem) {
	q := Request{Verb: verb, Namespace: namespace}
	if at.named == "endpoints" {
		q.Endpoint = name
	}
	caller, err := s.auth.Authorize(r, q)
	switch {
	case err != nil:
		return Caller{}, s.notAuthorized(err)
	case !caller.bound():
	case verb == VerbSend || verb == VerbErase:
		return Caller{}, forbidden("Authorization", "You may see and act on certain endpoints only, while an event is "+
			"everybody's; use a key that is not bound to endpoints.")
	case q.Endpoint != "" && !caller.sees(q.Endpoint):
		return Caller{}, forbidden("endpoint", "You may see and act on certain endpoints only, and this is none of them.")
	}
	return caller, nil
}

func findRoute(kind, name, sub string) *route {
	switch kind {
	case "events":
		switch {
		case name == "":
			return routeEvents
		case sub == "":
			return routeEvent
		case sub == "payload":
			return routePayload
		case sub == "replay":
			return routeReplay
		}
	case "endpoints":
		switch {
		case name == "":
			return routeEndpoints
		case sub == "":
			return routeEndpoint
		case sub == "deliveries":
			return routeOfEndpoint
		case sub == "enable":
			return routeEnable
		}
	case "deliveries":
		if name == "" {
			return routeDeliveries
		}
	}
	return nil
}

// method gives what a route does on an HTTP method; the zero method if it doesn't take it.
func (r *route) method(name string) method {
	switch name {
	case http.MethodGet, http.MethodHead:
		return r.get
	case http.MethodPost:
		return r.post
	case http.MethodDelete:
		return r.delete
	}
	return method{}
}

func (r *route) methodNotAllowed() *Problem {
	allow := make([]string, 0, 4)
	if r.get.do != nil {
		allow = append(allow, http.MethodGet, http.MethodHead)
	}
	if r.post.do != nil {
		allow = append(allow, http.MethodPost)
	}
	if r.delete.do != nil {
		allow = append(allow, http.MethodDelete)
	}
	return methodNotAllowed(strings.Join(allow, ", "))
}

func methodNotAllowed(allow string) *Problem {
	p := newProblem(http.StatusMethodNotAllowed, "method-not-allowed", "", "This path takes "+allow+".")
	p.allow = allow
	return p
}

// notAuthorized words a refusal; what isn't one means that nothing could be decided.
func (s *Server) notAuthorized(err error) *Problem {
	var refused *Problem
	if errors.As(err, &refused) {
		return refused
	}
	s.log.Error(err, "can't decide whether a caller may be let in")
	return unavailable("authorization-unavailable", "Whether you may do this can't be decided now. Try again.", 2*time.Second)
}

func checkNames(namespace, named, name string) *Problem {
	if !isDNSLabel(namespace) {
		return badRequest("namespace",
			"A namespace is 1 to 63 characters of a-z, 0-9 and -, and neither begins nor ends with -.")
	}
	switch named {
	case "events":
		if !isWebhookID(name) {
			return badRequest("webhookId", "A webhook-id is 1 to 64 characters of A-Z, a-z, 0-9, _ and -. "+
				"Another id is looked up by GET …/events?id=…&source=….")
		}
	case "endpoints":
		if !isEndpointName(name) {
			return badRequest("endpoint", endpointNameWords)
		}
	}
	return nil
}

// isDNSLabel is RFC 1123's label, as Kubernetes takes it for namespaces.
func isDNSLabel(s string) bool {
	if len(s) == 0 || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

const endpointNameWords = "An endpoint's name is 1 to 63 characters of a-z, 0-9, - and ., as Kubernetes takes it."

// isEndpointName is RFC 1123's subdomain of at most 63 characters, as the CRD takes it.
func isEndpointName(s string) bool {
	if len(s) > 63 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if !isDNSLabel(label) {
			return false
		}
	}
	return true
}

func isWebhookID(s string) bool {
	if len(s) == 0 || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}
