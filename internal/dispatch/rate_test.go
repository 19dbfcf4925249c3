package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/deliver"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// checkRate checks that over any window at most burst + requests·t requests began, and
// that at least 95 percent of the limit was used between the first and the last.
func checkRate(t *testing.T, name string, hits []hit, l plan.RateLimit) {
	t.Helper()
	perSecond := float64(l.Requests) / l.Interval.Seconds()
	for i := range hits {
		for j := i; j < len(hits); j++ {
			most := float64(l.Burst) + perSecond*hits[j].at.Sub(hits[i].at).Seconds()
			if n := j - i + 1; float64(n) > most+1e-6 {
				t.Errorf("%s: %d requests within %s, at most %.2f are allowed", name, n, hits[j].at.Sub(hits[i].at), most)
				return
			}
		}
	}
	span := hits[len(hits)-1].at.Sub(hits[0].at).Seconds()
	if want := perSecond * span * 0.95; float64(len(hits)) < want {
		t.Errorf("%s: %d requests in %.1f s, want at least %.1f", name, len(hits), span, want)
	}
}

func byHost(hits []hit) map[string][]hit {
	m := map[string][]hit{}
	for _, h := range hits {
		m[h.host] = append(m[h.host], h)
	}
	return m
}

// Ten endpoints, each with a limit of its own and burst 1, and receivers that fail at
// times: retries count as well, and each gets what it may have.
func TestRateLimitHoldsOverAnyWindow(t *testing.T) {
	const events = 2000
	limits := []plan.RateLimit{
		{Requests: 1, Interval: time.Second}, {Requests: 3, Interval: time.Second}, {Requests: 7, Interval: time.Second},
		{Requests: 100, Interval: time.Second}, {Requests: 250, Interval: time.Second}, {Requests: 1, Interval: 10 * time.Second},
		{Requests: 90, Interval: time.Minute}, {Requests: 10, Interval: 100 * time.Millisecond}, {Requests: 7200, Interval: time.Hour},
		{Requests: 50, Interval: time.Second},
	}
	random := newDice(7)
	receive := func(hit) deliver.Result {
		time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
		if random.IntN(10) == 0 {
			return status(500)
		}
		return status(204)
	}
	inWorld(t, receive, func(w *world) {
		w.plan = &plan.Plan{Format: plan.Format, Version: 2, Pool: w.plan.Pool}
		for i := range limits {
			limits[i].Burst = 1
			e := endpointNamed(fmt.Sprintf("e%d", i))
			e.RateLimit = &limits[i]
			e.Retry.Backoff.Schedule = []time.Duration{time.Second, time.Second, time.Second, time.Second}
			w.plan.Endpoints = append(w.plan.Endpoints, e)
		}
		w.apply()
		w.send(events)
		w.after(60 * time.Second)
		hits := byHost(w.seen())
		for i, l := range limits {
			name := fmt.Sprintf("e%d", i)
			got := hits[name+".example.com"]
			if len(got) == 0 {
				t.Fatalf("%s got nothing", name)
			}
			// The last of what it gets is waiting for retries, and no work for the limit.
			busy := time.Duration(0.9 * events / float64(l.Requests) * float64(l.Interval))
			for got[len(got)-1].at.Sub(got[0].at) > busy {
				got = got[:len(got)-1]
			}
			checkRate(t, name, got, l)
		}
	})
}

// case RT67
func TestRateLimitWaitsAndChangesWithoutRestart(t *testing.T) {
	inWorld(t, answers(204), func(w *world) {
		w.endpoint().RateLimit = &plan.RateLimit{Requests: 1, Interval: time.Minute, Burst: 1}
		w.plan.Version++
		w.apply()
		w.send(5)
		w.after(59 * time.Second)
		w.want(4, 1, 0)
		for _, d := range w.list(t) {
			if d.Attempts != 0 {
				t.Errorf("%d attempts of one that only waited", d.Attempts)
			}
		}
		w.after(time.Minute)
		w.want(3, 2, 0)
		w.endpoint().RateLimit = &plan.RateLimit{Requests: 10, Interval: time.Second, Burst: 10}
		w.apply()
		w.after(time.Second)
		w.want(0, 5, 0)
	})
}

// A restart does not give the burst again.
func TestRateLimitAfterARestart(t *testing.T) {
	inWorld(t, answers(204), func(w *world) {
		limit := plan.RateLimit{Requests: 1, Interval: 10 * time.Second, Burst: 3}
		w.endpoint().RateLimit = &limit
		w.apply()
		w.send(20)
		for range 4 {
			w.after(5 * time.Second)
			w.restart()
		}
		w.after(30 * time.Second)
		checkRate(t, "orders", w.seen(), plan.RateLimit{Requests: 1, Interval: 10 * time.Second, Burst: 3})
	})
}

func TestALaneSaysWhatLimitsIt(t *testing.T) {
	slow := func(hit) deliver.Result {
		time.Sleep(time.Minute)
		return status(204)
	}
	inWorld(t, slow, func(w *world) {
		limited := func() string {
			v, _ := w.d.View(w.key())
			return v.LimitedBy
		}
		if got := limited(); got != "" {
			t.Errorf("idle, it is limited by %q", got)
		}
		w.endpoint().MaxInFlight = 2
		w.apply()
		w.send(50)
		w.after(time.Second)
		if got := limited(); got != "maxInFlight" {
			t.Errorf("limited by %q, want maxInFlight", got)
		}
		w.endpoint().RateLimit = &plan.RateLimit{Requests: 1, Interval: time.Hour, Burst: 1}
		w.apply()
		w.after(2 * time.Minute)
		if got := limited(); got != "rateLimit" {
			t.Errorf("limited by %q, want rateLimit", got)
		}
		w.endpoint().RateLimit, w.endpoint().Ordering, w.endpoint().MaxInFlight = nil, plan.OrderingAll, 16
		w.apply()
		w.after(2 * time.Minute)
		if got := limited(); got != "ordering" {
			t.Errorf("limited by %q, want ordering", got)
		}
		w.endpoint().Suspend = true
		w.apply()
		w.after(2 * time.Minute)
		if got := limited(); got != "" {
			t.Errorf("suspended, it is limited by %q", got)
		}
	})
}
