package retry

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func exponential(initial time.Duration, factor float64, limit time.Duration, attempts int, j Jitter) *Policy {
	p := BuiltIn()
	p.Backoff = Backoff{Exponential: &Exponential{Initial: initial, Factor: factor, Max: limit, MaxAttempts: attempts}}
	p.Jitter = j
	return &p
}

func TestBuiltInScheduleWithoutJitter(t *testing.T) {
	p := BuiltIn()
	if got := p.MaxAttempts(); got != 7 {
		t.Errorf("MaxAttempts = %d, want 7", got)
	}
	want := []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 10 * time.Hour, 24 * time.Hour, 24 * time.Hour}
	for i, w := range want {
		if got := p.Delay(i+1, 0); got != w {
			t.Errorf("Delay(%d, 0) = %v, want %v", i+1, got, w)
		}
	}
	if got, want := p.Span(), 36*time.Hour+36*time.Minute; got != want {
		t.Errorf("Span = %v, want %v", got, want)
	}
	if err := p.Validate(); err != nil {
		t.Errorf("the built-in policy is refused: %v", err)
	}
}

func TestSpanIsCutToMaxAge(t *testing.T) {
	p := exponential(math.MaxInt64/4, 10, math.MaxInt64, 200, Jitter{Type: JitterNone})
	p.MaxAge = math.MaxInt64
	if got := p.Span(); got != math.MaxInt64 {
		t.Errorf("Span = %v, want the longest duration", got)
	}
	p.MaxAge = 72 * time.Hour
	if got := p.Span(); got != p.MaxAge {
		t.Errorf("Span = %v, want %v", got, p.MaxAge)
	}
}

// case RT47
func TestExponentialNeverOverflows(t *testing.T) {
	for _, row := range []struct {
		name    string
		initial time.Duration
		factor  float64
		limit   time.Duration
	}{
		{"100ms by 2 to 1h", 100 * time.Millisecond, 2, time.Hour},
		{"1h by 10 to 12h", time.Hour, 10, 12 * time.Hour},
		{"1h by 10 to the longest duration", time.Hour, 10, math.MaxInt64},
		{"1ns by 1.0000001", 1, 1.0000001, time.Hour},
	} {
		for _, j := range []Jitter{{Type: JitterNone}, {Type: JitterProportional, Percent: 100}, {Type: JitterEqual}, {Type: JitterFull}} {
			t.Run(row.name+" "+string(j.Type), func(t *testing.T) {
				p := exponential(row.initial, row.factor, row.limit, 200, j)
				for _, u := range []float64{0, 0.5, math.Nextafter(1, 0)} {
					last := time.Duration(0)
					for n := 1; n <= 300; n++ {
						d := p.Delay(n, u)
						if d < minDelay || d < last {
							t.Fatalf("Delay(%d, %v) = %v after %v", n, u, d, last)
						}
						last = d
					}
				}
				if d := p.step(math.MaxInt); row.factor > 1.5 && d != row.limit {
					t.Errorf("last step = %v, want the cap %v", d, row.limit)
				}
			})
		}
	}
}

// case RTY-16
func TestJitterStaysWithinItsBounds(t *testing.T) {
	const b = 300 * time.Second
	for _, row := range []struct {
		jitter   Jitter
		from, to time.Duration
	}{
		{Jitter{Type: JitterProportional, Percent: 20}, b, 360 * time.Second},
		{Jitter{Type: JitterProportional}, b, b},
		{Jitter{Type: JitterEqual}, b / 2, b},
		{Jitter{Type: JitterFull}, minDelay, b},
		{Jitter{Type: JitterNone}, b, b},
	} {
		t.Run(string(row.jitter.Type), func(t *testing.T) {
			p := exponential(b, 2, 600*time.Second, 100, row.jitter)
			r := rand.New(rand.NewPCG(7, 11))
			low, high := time.Duration(math.MaxInt64), time.Duration(0)
			for range 10_000 {
				d := p.Delay(1, r.Float64())
				low, high = min(low, d), max(high, d)
			}
			if low < row.from || high > row.to {
				t.Errorf("delays from %v to %v, want within %v to %v", low, high, row.from, row.to)
			}
			if spread := row.to - row.from; high-low < spread*9/10 {
				t.Errorf("delays from %v to %v fill too little of %v to %v", low, high, row.from, row.to)
			}
			if row.jitter.Type == JitterNone {
				if d := p.Delay(100, 0.3); d != 600*time.Second {
					t.Errorf("Delay(100) = %v, want the cap", d)
				}
			}
		})
	}
}

func TestDelayIsSaneForAnyInput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		duration := rapid.Int64Range(1, math.MaxInt64)
		p := exponential(time.Duration(duration.Draw(t, "initial")), rapid.Float64Range(1, 10).Draw(t, "factor"),
			time.Duration(duration.Draw(t, "max")), rapid.IntRange(1, 200).Draw(t, "attempts"),
			Jitter{
				Type:    rapid.SampledFrom([]JitterType{JitterProportional, JitterEqual, JitterFull, JitterNone}).Draw(t, "type"),
				Percent: rapid.IntRange(0, 100).Draw(t, "percent"),
			})
		if rapid.Bool().Draw(t, "scheduled") {
			p.Backoff = Backoff{}
			for range rapid.IntRange(1, 100).Draw(t, "steps") {
				p.Backoff.Schedule = append(p.Backoff.Schedule, time.Duration(duration.Draw(t, "step")))
			}
		}
		n := rapid.Int().Draw(t, "attempt")
		u := rapid.Float64().Draw(t, "u")
		if d := p.Delay(n, u); d < minDelay {
			t.Fatalf("Delay(%d, %v) = %v", n, u, d)
		}
		if d := p.Delay(n, math.NaN()); d < minDelay {
			t.Fatalf("Delay(%d, NaN) = %v", n, d)
		}
	})
}

func TestExponentialSteps(t *testing.T) {
	p := exponential(time.Minute, 3, 12*time.Hour, 8, Jitter{Type: JitterNone})
	if p.MaxAttempts() != 8 {
		t.Errorf("MaxAttempts = %d, want 8", p.MaxAttempts())
	}
	want := []time.Duration{time.Minute, 3 * time.Minute, 9 * time.Minute, 27 * time.Minute, 81 * time.Minute, 243 * time.Minute, 12 * time.Hour}
	for i, w := range want {
		if got := p.Delay(i+1, 0.9); got != w {
			t.Errorf("Delay(%d) = %v, want %v", i+1, got, w)
		}
	}
}

func TestNext(t *testing.T) {
	queued := time.Date(2026, 10, 21, 7, 28, 0, 0, time.UTC)
	p := BuiltIn()
	p.MaxAge = 24 * time.Hour
	for _, row := range []struct {
		name     string
		failedAt time.Duration // after queued
		used     int
		delay    time.Duration
		due      time.Duration // after queued
		reason   string
	}{
		{"within the schedule", time.Minute, 1, 5 * time.Minute, 6 * time.Minute, ""},
		// case RTY-14
		{"later than maxAge is made once at maxAge", time.Hour, 2, 48 * time.Hour, 24 * time.Hour, ""},
		{"just at maxAge", 23 * time.Hour, 2, time.Hour, 24 * time.Hour, ""},
		{"failed at maxAge", 24 * time.Hour, 3, time.Minute, 0, "Expired"},
		{"failed after maxAge", 25 * time.Hour, 3, time.Minute, 0, "Expired"},
		// case RTY-15
		{"out of attempts before maxAge", time.Hour, 7, time.Minute, 0, "OutOfAttempts"},
		{"one attempt left", time.Hour, 6, time.Minute, 61 * time.Minute, ""},
		{"an endless delay ends at maxAge", time.Hour, 1, math.MaxInt64, 24 * time.Hour, ""},
		{"no delay", time.Hour, 1, 0, time.Hour + minDelay, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			failedAt := queued.Add(row.failedAt)
			due, delay, reason := p.Next(failedAt, queued, row.used, row.delay)
			if reason != row.reason {
				t.Fatalf("reason = %q, want %q", reason, row.reason)
			}
			if reason != "" {
				return
			}
			if want := queued.Add(row.due); !due.Equal(want) {
				t.Errorf("due = %v, want %v", due, want)
			}
			if got := failedAt.Add(delay); !got.Equal(due) {
				t.Errorf("the delay %v leads to %v, not to %v", delay, got, due)
			}
		})
	}
}
