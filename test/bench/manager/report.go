package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/doorstep-dev/doorstep/test/harness"
)

// The targets.
const (
	maxInPlan = 5 * time.Second // p99
	maxRSS    = 500 << 20
)

// summary is the last line of output.
type summary struct {
	Endpoints           int     `json:"manager_endpoints"`
	AppliesPerS         float64 `json:"manager_applies_per_s"`
	InPlanP50S          float64 `json:"manager_in_plan_p50_s"`
	InPlanP99S          float64 `json:"manager_in_plan_p99_s"`
	ReadyP50S           float64 `json:"manager_ready_p50_s"`
	ReadyP99S           float64 `json:"manager_ready_p99_s"`
	RSSPeakMiB          float64 `json:"manager_rss_peak_mib"`
	CPUPercent          float64 `json:"manager_cpu_percent"`
	RequestsPerEndpoint float64 `json:"manager_requests_per_endpoint"`
	RestartS            float64 `json:"manager_restart_s"`
	RestartPeakMiB      float64 `json:"manager_restart_rss_peak_mib"`
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

func rounded(v float64) float64 { return math.Round(v*100) / 100 }

func quantile(h *harness.Histogram, q float64) float64 { return rounded(h.Quantile(q).Seconds()) }

func (r *results) summary() summary {
	requests := 0
	for _, n := range r.requests {
		requests += n
	}
	return summary{
		Endpoints: r.endpoints, AppliesPerS: rounded(float64(r.endpoints) / r.took.Seconds()),
		InPlanP50S: quantile(&r.inPlan, 0.5), InPlanP99S: quantile(&r.inPlan, 0.99),
		ReadyP50S: quantile(&r.toReady, 0.5), ReadyP99S: quantile(&r.toReady, 0.99),
		RSSPeakMiB: rounded(mib(r.rss)), CPUPercent: rounded(100 * r.cpu.Seconds() / r.took.Seconds()),
		RequestsPerEndpoint: rounded(float64(requests) / float64(r.endpoints)),
		RestartS:            rounded(r.restartTook.Seconds()), RestartPeakMiB: rounded(mib(r.restartRSS)),
	}
}

// verdict prints how the targets were met, and the JSON line. It is false if one was missed in a run that can be judged by.
func (r *results) verdict(out io.Writer) (bool, error) {
	s := r.summary()
	line, err := json.Marshal(s)
	if err != nil {
		return false, err
	}
	fmt.Fprintf(out, "\nfrom the API server's answer to an apply until the endpoint is in the plan: p50 %.2f s, p99 %.2f s; until it is Ready: p50 %.2f s, p99 %.2f s\n",
		s.InPlanP50S, s.InPlanP99S, s.ReadyP50S, s.ReadyP99S)
	fmt.Fprintf(out, "the manager took %.0f %% of a core meanwhile; started anew with all endpoints there, it had a change in the plan after %.1f s\n", s.CPUPercent, s.RestartS)
	fmt.Fprintln(out, "its requests to the API server, for each endpoint:")
	for _, what := range slices.SortedFunc(maps.Keys(r.requests), func(a, b string) int { return cmp.Compare(r.requests[b], r.requests[a]) }) {
		if each := rounded(float64(r.requests[what]) / float64(r.endpoints)); each >= 0.01 {
			fmt.Fprintf(out, "  %-34s %g\n", what, each)
		}
	}
	ok := true
	if r.quick || r.endpoints < 10_000 {
		fmt.Fprintln(out, "no verdict: under 10,000 endpoints the targets say nothing")
	} else {
		ok = judge(out, "apply to in-plan, p99", s.InPlanP99S, maxInPlan.Seconds(), "s") && ok
		ok = judge(out, "the manager's peak memory", s.RSSPeakMiB, mib(maxRSS), "MiB") && ok
		ok = judge(out, "its peak memory after a restart", s.RestartPeakMiB, mib(maxRSS), "MiB") && ok
	}
	fmt.Fprintln(out, string(line))
	return ok, nil
}

func judge(out io.Writer, name string, got, limit float64, unit string) bool {
	word := "PASS"
	if got >= limit {
		word = "FAIL"
	}
	fmt.Fprintf(out, "%s  %-40s %g %s (wanted < %g %s)\n", word, name, got, unit, limit, unit)
	return got < limit
}
