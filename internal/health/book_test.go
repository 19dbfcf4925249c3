package health

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
)

var (
	orders = plan.EndpointKey{Namespace: "shop", Name: "orders"}
	start  = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
)

// attempts makes n attempts at a time, of which ok succeed.
func attempts(b *Book, at time.Time, n, ok int) {
	for i := range n {
		a := Attempt{At: at, Wall: at, OK: i < ok, Duration: 20 * time.Millisecond}
		if !a.OK {
			a.Failure = Failure{Status: 503, Reason: "server_error", Message: "the receiver answered 503"}
		}
		b.Attempted(orders, &a)
	}
}

func TestWindowsAndScore(t *testing.T) {
	b := NewBook()
	attempts(b, start, 10, 0)                      // a day ago by the end
	attempts(b, start.Add(23*time.Hour), 10, 5)    // an hour ago
	attempts(b, start.Add(1435*time.Minute), 4, 3) // within five minutes of 23:59
	now := start.Add(1439 * time.Minute)
	v := b.View(orders, now)
	if want := (Window{4, 3}); v.FiveMinutes != want {
		t.Errorf("5m %+v, want %+v", v.FiveMinutes, want)
	}
	if want := (Window{14, 8}); v.Hour != want {
		t.Errorf("1h %+v, want %+v", v.Hour, want)
	}
	if want := (Window{24, 8}); v.Day != want {
		t.Errorf("24h %+v, want %+v", v.Day, want)
	}
	// 0.5·75 + 0.3·57.142… + 0.2·33.333…
	if score, ok := v.Score(); !ok || score < 61.30 || score > 61.32 {
		t.Errorf("score %v, want 61.31", score)
	}
	// Without attempts in five minutes the other windows count alone.
	v = b.View(orders, now.Add(10*time.Minute))
	if score, ok := v.Score(); !ok || v.FiveMinutes.Attempts != 0 || score < 47 || score > 80 {
		t.Errorf("score %v of %+v", score, v)
	}
	v = b.View(orders, now.Add(48*time.Hour))
	if _, ok := v.Score(); ok {
		t.Error("there is a score after two quiet days")
	}
	if v.LastFailure == nil || v.LastFailure.Status != 503 || v.LastSuccess.IsZero() {
		t.Errorf("what was last is forgotten: %+v", v)
	}
	if v := b.View(plan.EndpointKey{Namespace: "shop", Name: "other"}, now); v.Day.Attempts != 0 || len(b.records) != 1 {
		t.Error("an endpoint that was never attempted takes memory")
	}
}

func TestLatencies(t *testing.T) {
	b := NewBook()
	for i := range 100 {
		b.Attempted(orders, &Attempt{At: start, Wall: start, OK: true, Duration: time.Duration(i+1) * 10 * time.Millisecond})
	}
	v := b.View(orders, start)
	if v.P50 < 500*time.Millisecond || v.P50 > 640*time.Millisecond || v.P95 < 950*time.Millisecond || v.P95 > 1200*time.Millisecond {
		t.Errorf("p50 %v and p95 %v of 10 ms to 1 s", v.P50, v.P95)
	}
	if v := b.View(orders, start.Add(3*time.Hour)); v.P50 != 0 {
		t.Errorf("p50 %v after three quiet hours", v.P50)
	}
	for _, d := range []time.Duration{0, time.Millisecond, 3 * time.Millisecond, 999 * time.Millisecond, 15 * time.Second, time.Minute} {
		if limit := limitOf(slotOf(d)); limit < d || d > time.Millisecond && limit > d+d/3+time.Millisecond {
			t.Errorf("%v counts as at most %v", d, limit)
		}
	}
}

// At the threshold an endpoint stays what it is.
func TestHealthyHasHysteresis(t *testing.T) {
	for _, row := range []struct {
		name          string
		recent, hour  Window
		before, after Healthy
	}{
		{"all is well", Window{100, 100}, Window{1000, 1000}, Unknown, Good},
		{"bad for five minutes", Window{100, 50}, Window{1000, 960}, Good, Good},
		{"bad for an hour", Window{100, 94}, Window{1000, 940}, Good, Degraded},
		{"good for five minutes", Window{100, 95}, Window{1000, 940}, Good, Good},
		{"at the threshold from below", Window{100, 96}, Window{1000, 940}, Degraded, Degraded},
		{"above it", Window{100, 98}, Window{1000, 940}, Degraded, Good},
		{"quiet", Window{}, Window{10, 2}, Good, Degraded},
		{"nothing", Window{}, Window{}, Degraded, Unknown},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := View{FiveMinutes: row.recent, Hour: row.hour, Day: row.hour}
			if got := v.Healthy(row.before, 95); got != row.after {
				t.Errorf("%d, want %d", got, row.after)
			}
		})
	}
}

func TestABookIsKeptAcrossARestart(t *testing.T) {
	b, path := NewBook(), filepath.Join(t.TempDir(), "health")
	attempts(b, start, 10, 7)
	b.Accepted(orders, start)
	if err := b.Save(path); err != nil {
		t.Fatal(err)
	}
	again := NewBook()
	if err := again.Load(path); err != nil {
		t.Fatal(err)
	}
	if got, want := again.View(orders, start), b.View(orders, start); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if err := NewBook().Load(path + "-none"); err != nil {
		t.Errorf("a file that isn't there: %v", err)
	}
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := NewBook()
	if err := damaged.Load(path); err == nil || len(damaged.records) != 0 {
		t.Errorf("a damaged file: error %v", err)
	}
	// Steady time that went back leaves the newer buckets alone.
	attempts(again, start.Add(-time.Hour), 5, 0)
	if v := again.View(orders, start); v.FiveMinutes.Attempts != 10 {
		t.Errorf("%d attempts", v.FiveMinutes.Attempts)
	}
}
