package ingest

import (
	"net/http"
	"time"
)

// openPaths are what is asked without a key, by GET.
var openPaths = map[string]func(*Server, http.ResponseWriter) *Problem{
	"/healthz":      (*Server).healthz,
	"/readyz":       (*Server).readyz,
	"/version":      (*Server).showVersion,
	"/openapi.json": (*Server).describe,
}

// serveProbe answers what is asked without a key.
func (s *Server) serveProbe(w http.ResponseWriter, r *http.Request) *Problem {
	serve := openPaths[r.URL.Path]
	if serve == nil {
		return notFound("There is no such path; the API is under /v1/namespaces/{namespace}/ and described by " +
			"/openapi.json, probes are /healthz and /readyz.")
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return methodNotAllowed("GET, HEAD")
	}
	return serve(s, w)
}

func (s *Server) showVersion(w http.ResponseWriter) *Problem {
	writeJSON(w, http.StatusOK, mediaJSON, Version{Version: s.version})
	return nil
}

type status struct {
	Status string `json:"status"`
}

// healthz is liveness: the store takes writes and the dispatcher works. The cause is in the log, not in the answer, which anyone may read.
func (s *Server) healthz(w http.ResponseWriter) *Problem {
	if err := s.queue.Health(); err != nil {
		s.log.Error(err, "liveness: the store is not healthy")
		return unavailable("unhealthy", "The store does not take writes; the worker's log says why.", 5*time.Second)
	}
	if err := s.lanes.Health(); err != nil {
		s.log.Error(err, "liveness: deliveries are not made")
		return unavailable("unhealthy", "Deliveries are not made; the worker's log says why.", 5*time.Second)
	}
	writeJSON(w, http.StatusOK, mediaJSON, status{"ok"})
	return nil
}

func (s *Server) readyz(w http.ResponseWriter) *Problem {
	if s.plan() == nil {
		return errNoPlan
	}
	if err := s.ready(); err != nil {
		s.log.V(1).Info("not ready", "reason", err.Error())
		return unavailable("not-ready", "The worker is not ready; its log says why.", time.Second)
	}
	writeJSON(w, http.StatusOK, mediaJSON, status{"ok"})
	return nil
}

var errNoPlan = unavailable("not-ready", "The worker has no plan yet; nothing was stored. Try again.", time.Second)
