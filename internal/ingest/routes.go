package ingest

import (
	"errors"
	"net/http"
	"strings"
	"time"
)

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
}

// shape is a path below /v1/namespaces/{namespace}/: kind, kind/{name} or kind/{name}/sub.
type shape struct {
	kind  string
	named bool
	sub   string
}

// What the name in a path is of, by its kind.
const (
	kindEvents    = "events"
	kindEndpoints = "endpoints"
)

// paths are all paths of the API. openapi.yaml describes each, which a test holds it to.
var paths = map[shape]*route{
	{kind: kindEvents}: {
		get:  method{(*Server).listEvents, VerbList},
		post: method{(*Server).accept, VerbSend},
	},
	{kindEvents, true, ""}: {
		get:    method{(*Server).getEvent, VerbRead},
		delete: method{(*Server).erase, VerbErase},
	},
	{kindEvents, true, "payload"}: {get: method{(*Server).getPayload, VerbReadPayload}},
	{kindEvents, true, "replay"}:  {post: method{(*Server).replay, VerbReplay}},

	{kind: kindEndpoints}:               {get: method{(*Server).listEndpoints, VerbList}},
	{kindEndpoints, true, ""}:           {get: method{(*Server).getEndpoint, VerbRead}},
	{kindEndpoints, true, "deliveries"}: {get: method{(*Server).listDeliveries, VerbList}},
	{kindEndpoints, true, "enable"}:     {post: method{(*Server).enable, VerbEnable}},
	{kindEndpoints, true, "replay"}:     {post: method{(*Server).replaySelected, VerbReplay}},
	{kindEndpoints, true, "retry"}:      {post: method{(*Server).retry, VerbRetry}},
	{kindEndpoints, true, "test"}:       {post: method{(*Server).test, VerbTest}},

	{kind: "deliveries"}: {get: method{(*Server).listDeliveries, VerbList}},
	{kind: "audit"}:      {get: method{(*Server).listAudit, VerbAudit}},
}

// serveAPI finds the route by hand: http.ServeMux would answer unknown paths and methods in plain text, redirect
// unclean ones, and allocate for each name (docs/decisions/0010-ingest-api.md).
func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request, path string) *Problem {
	namespace, rest, _ := strings.Cut(path, "/")
	kind, name, named := strings.Cut(rest, "/")
	name, sub, deeper := strings.Cut(name, "/")
	route := paths[shape{kind, named, sub}]
	if route == nil || named && name == "" || deeper && sub == "" {
		return notFound("There is no such path; the API is under /v1/namespaces/{namespace}/ " +
			"with events, endpoints, deliveries and audit, and described by /openapi.json.")
	}
	m := route.method(r.Method)
	if m.do == nil {
		return route.methodNotAllowed()
	}
	if problem := checkNames(namespace, kind, name); problem != nil {
		return problem
	}
	q := Request{Verb: m.verb, Namespace: namespace}
	if kind == kindEndpoints {
		q.Endpoint = name
	}
	caller, problem := s.authorize(r, q)
	if problem != nil {
		return problem
	}
	return m.do(s, w, r, call{namespace: namespace, name: name, caller: caller})
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

// authorize asks the Authorizer, and holds a caller that is bound to endpoints to them.
func (s *Server) authorize(r *http.Request, q Request) (Caller, *Problem) {
	caller, err := s.auth.Authorize(r, q)
	switch {
	case err != nil:
		return Caller{}, s.notAuthorized(err)
	case !caller.bound():
	case q.Verb == VerbSend || q.Verb == VerbErase:
		return Caller{}, forbidden("Authorization", "You may see and act on certain endpoints only, while an event is "+
			"everybody's; use a key that is not bound to endpoints.")
	case q.Endpoint != "" && !caller.sees(q.Endpoint):
		return Caller{}, forbidden("endpoint", "You may see and act on certain endpoints only, and this is none of them.")
	}
	return caller, nil
}

// notAuthorized words a refusal; what isn't one means that nothing could be decided.
func (s *Server) notAuthorized(err error) *Problem {
	var refused *Problem
	if errors.As(err, &refused) {
		return refused
	}
	s.log.Error(err, "can't decide whether a caller may be let in")
	return Undecided("Whether you may do this can't be decided now. Try again.", 2*time.Second)
}
