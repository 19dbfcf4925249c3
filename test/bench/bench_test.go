package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/test/harness"
)

// TestMain lets the test binary be re-executed as generator, sink and relay, as the
// benchmark itself is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if child, ok := children[os.Args[1]]; ok {
			harness.ExitWithParent()
			if err := child(context.Background()); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(2)
			}
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// keys are the members of the last line that tools read.
var keys = []string{
	"accepted_per_s", "delivered_per_s", "cpu_ms_per_delivery", "rss_peak_mib", "lost", "duplicated",
	"e2e_p50_ms", "e2e_p99_ms", "limit_per_s", "ratio", "backlog_rss_peak_mib", "backlog_restart_s", "isolation_ratio",
	"endpoints_idle_rss_mib", "endpoints_idle_cpu_percent", "endpoints_fanout_ms", "endpoints_busy_ratio",
	"endpoints_attribute_ratio", "retention_ratio", "retention_events",
}

func TestQuickRunMeasuresEverything(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	o := options{conns: 16, size: 1024, rate: 500, inFlight: 32, dir: t.TempDir()}.shortened()
	var out bytes.Buffer
	ok, err := run(ctx, o, &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if !ok {
		t.Errorf("events were lost:\n%s", out.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var got map[string]*float64
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil {
		t.Fatalf("the last line is not a JSON object: %v\n%s", err, out.String())
	}
	for _, k := range keys {
		if got[k] == nil {
			t.Errorf("%s is missing from the last line", k)
		}
	}
	if len(got) != len(keys) {
		t.Errorf("the last line has %d members, want %d", len(got), len(keys))
	}
	if d := got["delivered_per_s"]; d != nil && *d <= 0 {
		t.Errorf("delivered_per_s is %v", *d)
	}
	t.Logf("\n%s", out.String())
}

func flowOf(accepted, unique int64, took time.Duration, cpu time.Duration) flow {
	at := time.Unix(1_800_000_000, 0)
	return flow{
		load: harness.LoadResult{Accepted: accepted, Elapsed: took}, cpu: cpu, rss: 100 << 20,
		sink: harness.SinkStats{Unique: unique, First: at, Last: at.Add(took)},
	}
}

func TestVerdict(t *testing.T) {
	second := time.Second
	for _, c := range []struct {
		name         string
		relay, mine  flow
		ok           bool
		wantedOutput string
	}{
		{"fast and whole", flowOf(20000, 20000, second, second), flowOf(10000, 10000, second, second), true, "PASS  delivered, of the relay's rate"},
		{"half the relay's rate is just enough", flowOf(20000, 20000, second, second), flowOf(10000, 10000, second, second), true, "0.5 (wanted ≥ 0.5)"},
		{"too slow a worker", flowOf(20000, 20000, second, second), flowOf(9000, 9000, second, second), false, "FAIL  delivered, of the relay's rate"},
		{"too much CPU", flowOf(20000, 20000, second, second), flowOf(10000, 10000, second, 2*second), false, "FAIL  worker CPU"},
		{"one event lost", flowOf(20000, 20000, second, second), flowOf(10001, 10000, second, second), false, "FAIL  lost"},
		{"too slow a machine", flowOf(11000, 11000, second, second), flowOf(1000, 1000, second, second), true, "no verdict: this machine is too slow"},
		{"too slow a machine, and one event lost", flowOf(11000, 11000, second, second), flowOf(1001, 1000, second, second), false, "FAIL  lost 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			b := &bench{out: &out}
			b.results.saturated([]flow{c.relay}, []flow{c.mine}, nil)
			ok, err := b.verdict()
			if err != nil || ok != c.ok {
				t.Errorf("verdict %v, %v; want %v", ok, err, c.ok)
			}
			if !strings.Contains(out.String(), c.wantedOutput) {
				t.Errorf("output lacks %q:\n%s", c.wantedOutput, out.String())
			}
		})
	}
}

func TestMedian(t *testing.T) {
	if got := median([]float64{9, 1, 5}); got != 5 {
		t.Errorf("median of 9, 1, 5 is %v", got)
	}
	if got := median([]float64{}); got != 0 {
		t.Errorf("median of nothing is %v", got)
	}
}

func TestInterleaveKeepsEachOnce(t *testing.T) {
	got := interleave([]string{"a", "b", "c"}, []string{"x"})
	if want := []string{"a", "x", "b", "c"}; !slices.Equal(got, want) {
		t.Errorf("interleaved %v, want %v", got, want)
	}
}

func TestUnknownPartIsRefused(t *testing.T) {
	if _, err := (options{only: "latency,speed"}).selected(); err == nil {
		t.Error("a part that does not exist was taken")
	}
}
