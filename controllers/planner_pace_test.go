package controllers

import (
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
)

func TestPassesKeepApart(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for _, c := range []struct {
		name string
		s    poolPlan
		want time.Duration
	}{
		{"the first change after a quiet hour waits for those that come with it", poolPlan{passed: ago(time.Hour), rested: ago(time.Hour)}, gatherTime},
		{"and no longer", poolPlan{asked: ago(gatherTime), passed: ago(time.Hour), rested: ago(time.Hour)}, 0},
		{"a pass has just ended", poolPlan{asked: ago(time.Second), passed: ago(20 * time.Millisecond), rested: ago(0)}, passInterval - 20*time.Millisecond},
		{"a long pass has just ended", poolPlan{asked: ago(time.Second), passed: ago(3 * time.Second), rested: ago(100 * time.Millisecond)}, restInterval - 100*time.Millisecond},
		{"the clock was set back", poolPlan{asked: ago(-time.Hour), passed: ago(-time.Hour), rested: ago(-time.Hour)}, 0},
		{"no pass was made yet", poolPlan{}, gatherTime},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.s.wait(now); got != c.want {
				t.Errorf("waits %v, want %v", got, c.want)
			}
		})
	}
}

func TestAVersionSettlesFromWhenItIsWritten(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	outcome := func(version uint64, at map[uint64]time.Time) *Outcome {
		return &Outcome{Plan: &plan.Plan{Version: version}, Written: at}
	}
	if got := written(nil, 7, now); len(got) != 0 {
		t.Errorf("of a manager's first pass %v settle: what was there before is not new", got)
	}
	first := written(outcome(7, nil), 8, now)
	if len(first) != 1 || first[8] != now {
		t.Errorf("after version 8 was written %v settle", first)
	}
	if same := written(outcome(8, first), 8, now.Add(time.Second)); len(same) != 1 || same[8] != now {
		t.Errorf("after a pass that changed nothing %v settle", same)
	}
	if later := written(outcome(8, first), 9, now.Add(settleTime)); len(later) != 1 || later[9].IsZero() {
		t.Errorf("%v later %v settle, want version 9 alone", settleTime, later)
	}
}

// The key of an endpoint is made before a pass has seen it only where no plan can know another one.
func TestOnlyWhatNoPlanKnowsIsUnknown(t *testing.T) {
	k := plan.EndpointKey{Namespace: "shop", Name: "orders"}
	for _, c := range []struct {
		name   string
		change func(*Outcome)
		want   bool
	}{
		{"new", func(*Outcome) {}, true},
		{"while no plan could be written yet", func(o *Outcome) { o.Seen = nil }, false},
		{"in the plan", func(o *Outcome) { o.Endpoints[k] = &plan.Endpoint{EndpointKey: k} }, false},
		{"absent", func(o *Outcome) { o.Plan.Absent = []plan.Absence{{Endpoint: plan.Endpoint{EndpointKey: k}}} }, false},
		{"seen and left out", func(o *Outcome) { o.Seen[k] = 1 }, false},
		{"of a namespace that is not admitted", func(o *Outcome) { o.Plan.Pool.Namespaces = &[]string{"other"} }, false},
		{"of one that is", func(o *Outcome) { o.Plan.Pool.Namespaces = &[]string{"other", "shop"} }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := &Outcome{Plan: &plan.Plan{}, Endpoints: map[plan.EndpointKey]*plan.Endpoint{}, Seen: map[plan.EndpointKey]int64{}}
			c.change(o)
			if got := o.unknown(k); got != c.want {
				t.Errorf("unknown is %v", got)
			}
		})
	}
}
