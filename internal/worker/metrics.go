package worker

import (
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// newMetrics serves /metrics: of the process, and which build and plan it runs.
func newMetrics(w *worker) http.Handler {
	r := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "doorstep_build_info", Help: "1, with the build's version.",
		ConstLabels: prometheus.Labels{"version": w.Version, "go_version": runtime.Version()},
	})
	build.Set(1)
	version := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "doorstep_plan_version", Help: "Version of the plan in use; 0 for none.",
	}, func() float64 { return float64(w.inUse.Load()) })
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), build, version)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{}))
	return mux
}
