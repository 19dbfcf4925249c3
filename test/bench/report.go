package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
)

// minLimit is the relay's rate under which a machine is too slow to judge on.
const minLimit = 12000

// results are what the runs found; a list has one entry a run.
type results struct {
	accepted, delivered, cpu, rss, limit, ratio []float64
	// lost and duplicated are sums over all runs that count, not medians; counted says
	// that there were some.
	lost, duplicated int64
	counted          bool
	manyDelivered    []float64

	p50, p99                     []float64
	isolationRatio, isolationP99 []float64
	backlogRSS, backlogRestart   []float64

	idleRSS, idleCPU, fanOut  []float64
	busyRatio, customersRatio []float64
	retentionRatio, retained  []float64
	// toRetain is how many events are to be kept at the end of the retention part.
	toRetain int
}

// count adds what a run lost and what came twice.
func (r *results) count(f flow) {
	r.counted = true
	r.lost += f.lost()
	r.duplicated += f.sink.Repeats
}

// saturated takes the runs of relay, one endpoint and fifty.
func (r *results) saturated(limits, one, many []flow) {
	for i, f := range one {
		r.accepted = append(r.accepted, f.load.PerSecond())
		r.delivered = append(r.delivered, f.delivered())
		r.cpu = append(r.cpu, f.cpuMS())
		r.rss = append(r.rss, mib(f.rss))
		r.limit = append(r.limit, limits[i].delivered())
		r.ratio = append(r.ratio, f.delivered()/limits[i].delivered())
	}
	for _, f := range many {
		r.manyDelivered = append(r.manyDelivered, f.delivered())
	}
	for _, f := range slices.Concat(one, many) {
		r.count(f)
	}
}

// summary is the last line of output. A part that did not run is null.
type summary struct {
	AcceptedPerS      *float64 `json:"accepted_per_s"`
	DeliveredPerS     *float64 `json:"delivered_per_s"`
	CPUMSPerDelivery  *float64 `json:"cpu_ms_per_delivery"`
	RSSPeakMiB        *float64 `json:"rss_peak_mib"`
	Lost              *int64   `json:"lost"`
	Duplicated        *int64   `json:"duplicated"`
	E2EP50MS          *float64 `json:"e2e_p50_ms"`
	E2EP99MS          *float64 `json:"e2e_p99_ms"`
	LimitPerS         *float64 `json:"limit_per_s"`
	Ratio             *float64 `json:"ratio"`
	BacklogRSSPeakMiB *float64 `json:"backlog_rss_peak_mib"`
	BacklogRestartS   *float64 `json:"backlog_restart_s"`
	IsolationRatio    *float64 `json:"isolation_ratio"`

	EndpointsIdleRSSMiB     *float64 `json:"endpoints_idle_rss_mib"`
	EndpointsIdleCPUPercent *float64 `json:"endpoints_idle_cpu_percent"`
	EndpointsFanOutMS       *float64 `json:"endpoints_fanout_ms"`
	EndpointsBusyRatio      *float64 `json:"endpoints_busy_ratio"`
	EndpointsAttributeRatio *float64 `json:"endpoints_attribute_ratio"`
	RetentionRatio          *float64 `json:"retention_ratio"`
	RetentionEvents         *float64 `json:"retention_events"`
}

// middle is the median of a part's runs to the given number of digits, nil if it did
// not run.
func middle(values []float64, digits int) *float64 {
	if len(values) == 0 {
		return nil
	}
	scale := math.Pow10(digits)
	v := math.Round(median(values)*scale) / scale
	return &v
}

func (r *results) summary() summary {
	s := summary{
		AcceptedPerS: middle(r.accepted, 0), DeliveredPerS: middle(r.delivered, 0),
		CPUMSPerDelivery: middle(r.cpu, 4), RSSPeakMiB: middle(r.rss, 1),
		E2EP50MS: middle(r.p50, 2), E2EP99MS: middle(r.p99, 2),
		LimitPerS: middle(r.limit, 0), Ratio: middle(r.ratio, 3),
		BacklogRSSPeakMiB: middle(r.backlogRSS, 1), BacklogRestartS: middle(r.backlogRestart, 2),
		IsolationRatio: middle(r.isolationRatio, 2),

		EndpointsIdleRSSMiB: middle(r.idleRSS, 1), EndpointsIdleCPUPercent: middle(r.idleCPU, 1),
		EndpointsFanOutMS: middle(r.fanOut, 0), EndpointsBusyRatio: middle(r.busyRatio, 2),
		EndpointsAttributeRatio: middle(r.customersRatio, 2),
		RetentionRatio:          middle(r.retentionRatio, 2), RetentionEvents: middle(r.retained, 0),
	}
	if r.counted {
		s.Lost, s.Duplicated = &r.lost, &r.duplicated
	}
	return s
}

// target is something that must hold.
type target struct {
	name  string
	got   *float64
	limit float64
	// least says that got must be at least limit; otherwise at most or below it.
	least bool
	// below says that limit itself is too much.
	below bool
	unit  string
}

func (t target) met() bool {
	switch {
	case t.least:
		return *t.got >= t.limit
	case t.below:
		return *t.got < t.limit
	}
	return *t.got <= t.limit
}

func (t target) wanted() string {
	sign := "≤"
	switch {
	case t.least:
		sign = "≥"
	case t.below:
		sign = "<"
	}
	return fmt.Sprintf("%s %g%s", sign, t.limit, t.unit)
}

func count(n *int64) *float64 {
	if n == nil {
		return nil
	}
	f := float64(*n)
	return &f
}

func (r *results) targets(s summary) []target {
	return []target{
		{name: "delivered, of the relay's rate", got: s.Ratio, limit: 0.5, least: true},
		{name: "worker CPU per delivered event", got: s.CPUMSPerDelivery, limit: 0.12, unit: " ms"},
		{name: "peak memory, saturated", got: s.RSSPeakMiB, limit: 200, below: true, unit: " MiB"},
		{name: "lost", got: count(s.Lost)},
		{name: "duplicated", got: count(s.Duplicated)},
		{name: "end to end p99", got: s.E2EP99MS, limit: 30, below: true, unit: " ms"},
		{name: "isolation, p99 beside bad endpoints to p99 alone", got: s.IsolationRatio, limit: 2},
		{name: "isolation, p99 beside bad endpoints", got: middle(r.isolationP99, 2), limit: 50, below: true, unit: " ms"},
		{name: "idle memory, 10,000 endpoints", got: s.EndpointsIdleRSSMiB, limit: 200, unit: " MiB"},
		{name: "idle processor time, 10,000 endpoints", got: s.EndpointsIdleCPUPercent, limit: 2, unit: " % of a core"},
		{name: "delivered, 100 busy of 10,000, of one's rate", got: s.EndpointsBusyRatio, limit: 0.8, least: true},
		{name: "delivered, 5,000 by an attribute, of one's rate", got: s.EndpointsAttributeRatio, limit: 0.8, least: true},
		{name: "delivered with many events kept, of that with few", got: s.RetentionRatio, limit: 0.9, least: true},
		{name: "events kept", got: s.RetentionEvents, limit: float64(r.toRetain), least: true},
		{name: "peak memory with the backlog", got: s.BacklogRSSPeakMiB, limit: 400, below: true, unit: " MiB"},
		{name: "restart to first delivery", got: s.BacklogRestartS, limit: 10, below: true, unit: " s"},
	}
}

// verdict prints how each target was met, and the JSON line. It is false if one was
// missed on a machine and at a size that can be judged by.
func (b *bench) verdict() (bool, error) {
	s := b.results.summary()
	line, err := json.Marshal(s)
	if err != nil {
		return false, err
	}
	fmt.Fprintln(b.out)
	if many := middle(b.results.manyDelivered, 0); many != nil {
		fmt.Fprintf(b.out, "with 50 endpoints %.0f/s are delivered, with one %.0f/s, by the relay %.0f/s (medians)\n", *many, *s.DeliveredPerS, *s.LimitPerS)
	}
	var ok bool
	if why := b.noVerdict(s); why != "" {
		fmt.Fprintln(b.out, "no verdict:", why)
		// Losing an event is wrong at any size and speed.
		ok = b.results.lost == 0
		if !ok {
			fmt.Fprintf(b.out, "FAIL  lost %d events\n", b.results.lost)
		}
	} else {
		ok = printTargets(b.out, b.results.targets(s))
	}
	fmt.Fprintln(b.out, string(line))
	return ok, nil
}

// printTargets prints a line for each target that was measured; false if one was
// missed.
func printTargets(out io.Writer, all []target) bool {
	ok := true
	for _, t := range all {
		if t.got == nil {
			continue
		}
		word := "PASS"
		if !t.met() {
			word, ok = "FAIL", false
		}
		fmt.Fprintf(out, "%s  %-50s %g%s (wanted %s)\n", word, t.name, *t.got, t.unit, t.wanted())
	}
	return ok
}

// noVerdict says why the figures can't be judged by, or is empty.
func (b *bench) noVerdict(s summary) string {
	switch {
	case b.quick:
		return "a quick run is too short to judge by"
	case b.memoryDisk:
		return "the stores lay on a filesystem in memory, where fsync costs nothing; choose a disk with -dir"
	case s.LimitPerS != nil && *s.LimitPerS < minLimit:
		return fmt.Sprintf("this machine is too slow: its relay makes %.0f/s, and under %d/s the targets say nothing", *s.LimitPerS, minLimit)
	}
	return ""
}
