package worker

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// probes answers the kubelet, from before the store is opened. /healthz says whether the
// store takes writes and deliveries are made; /readyz whether events can be taken. Neither
// asks anybody else: an API server or a receiver that is away restarts no worker.
type probes struct {
	worker *worker
	opened atomic.Bool
}

func newProbes(w *worker) *probes { return &probes{worker: w} }

// serve answers until the returned function is called.
func (p *probes) serve(on net.Listener) (stop func()) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { p.answer(w, p.alive()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { p.answer(w, p.ready()) })
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	go func() { _ = s.Serve(on) }() // it ends with stop
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Shutdown(ctx)
	}
}

// alive is empty while nothing but a restart would help.
func (p *probes) alive() string {
	if !p.opened.Load() {
		return "" // the store is being opened
	}
	if p.worker.engine.Store().Health() != nil {
		return "the store does not take writes; the log says why"
	}
	if p.worker.engine.Lanes().Health() != nil {
		return "deliveries are not made; the log says why"
	}
	return ""
}

func (p *probes) ready() string {
	switch {
	case !p.opened.Load():
		return "the store is being opened"
	case p.worker.engine.Plan() == nil:
		return "there is no plan yet"
	case p.worker.certificates != nil && p.worker.certificates.current.Load() == nil:
		return "there is no certificate of ingest that can be used; the log says why"
	}
	return p.alive()
}

func (p *probes) answer(w http.ResponseWriter, why string) {
	if why != "" {
		http.Error(w, why, http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}
