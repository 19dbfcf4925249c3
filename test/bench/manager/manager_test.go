package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestQuickRunMeasuresEverything(t *testing.T) {
	var out bytes.Buffer
	o := options{rate: 50}.shortened()
	ok, err := run(t.Context(), o, &out)
	if err != nil || !ok {
		t.Fatalf("the run gives %v, %v\n%s", ok, err, out.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var got map[string]float64
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil {
		t.Fatalf("the last line is not a JSON object: %v\n%s", err, out.String())
	}
	for k, v := range got {
		if v <= 0 {
			t.Errorf("%s is %v", k, v)
		}
	}
	if len(got) != 11 {
		t.Errorf("the last line has %d members: %s", len(got), lines[len(lines)-1])
	}
	t.Logf("\n%s", out.String())
}

func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		name         string
		endpoints    int
		inPlan       time.Duration
		rss, restart int64
		ok           bool
		wanted       string
	}{
		{"soon and small", 10_000, time.Second, 300 << 20, 300 << 20, true, "PASS  apply to in-plan, p99"},
		{"too late", 10_000, 6 * time.Second, 300 << 20, 300 << 20, false, "FAIL  apply to in-plan, p99"},
		{"too large", 10_000, time.Second, 500 << 20, 300 << 20, false, "FAIL  the manager's peak memory"},
		{"too large after a restart", 10_000, time.Second, 300 << 20, 501 << 20, false, "FAIL  its peak memory after a restart"},
		{"too few to judge by", 100, 6 * time.Second, 300 << 20, 300 << 20, true, "no verdict"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := results{options: options{endpoints: c.endpoints}, took: time.Second, rss: c.rss, restartRSS: c.restart}
			r.inPlan.Add(c.inPlan)
			var out bytes.Buffer
			ok, err := r.verdict(&out)
			if err != nil || ok != c.ok || !strings.Contains(out.String(), c.wanted) {
				t.Errorf("verdict %v, %v; want %v and %q in:\n%s", ok, err, c.ok, c.wanted, out.String())
			}
		})
	}
}

func TestEndpointsHaveNamesOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for i := range 2*perNamespace + 1 {
		seen[keyOf(i).String()] = true
	}
	if want := 2*perNamespace + 1; len(seen) != want {
		t.Errorf("%d endpoints have %d keys", want, len(seen))
	}
}
