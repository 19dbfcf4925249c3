package ingest

import (
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
	rates   rates
	tests   tests
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
