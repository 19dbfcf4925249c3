package clock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/doorstep-dev/doorstep/internal/clock"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// Steady time goes on from the later of the wall clock and the last time seen.
func TestStart(t *testing.T) {
	for _, c := range []struct {
		name            string
		notBefore, want time.Time
	}{
		{"a new store", time.Time{}, noon},
		{"stopped for an hour", noon.Add(-time.Hour), noon},
		{"the wall clock went back 50 ms", noon.Add(50 * time.Millisecond), noon.Add(50 * time.Millisecond)}, // case TM75
		{"the wall clock went back an hour", noon.Add(time.Hour), noon.Add(time.Hour)},                       // case TM72
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := clock.New(func() time.Time { return noon.In(time.FixedZone("", 3600)) }, c.notBefore)
				if got := k.Now(); got != c.want {
					t.Errorf("starts at %s, want %s", got, c.want)
				}
				time.Sleep(90 * time.Minute)
				if got, want := k.Now(), c.want.Add(90*time.Minute); got != want {
					t.Errorf("90 minutes later it is %s, want %s", got, want)
				}
				if got := k.Wall(); got != noon {
					t.Errorf("wall %s, want %s", got, noon)
				}
			})
		})
	}
}

// A wall clock that steps while the process runs moves the wall time only. Cases TM72,
// TM75.
func TestStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offset time.Duration
		wall := func() time.Time { return time.Now().Add(offset) }
		k := clock.New(wall, time.Time{})
		begin := k.Now()
		for _, step := range []time.Duration{-time.Hour, 6 * time.Minute, 24 * time.Hour, -50 * time.Millisecond} {
			offset += step
			before := k.Now()
			time.Sleep(time.Minute)
			if got := k.Now().Sub(before); got != time.Minute {
				t.Errorf("with a step of %s a minute took %s", step, got)
			}
			if got, want := k.Wall(), wall(); !got.Equal(want) {
				t.Errorf("wall %s, want %s", got, want)
			}
		}
		if got := k.Now().Sub(begin); got != 4*time.Minute {
			t.Errorf("four minutes took %s", got)
		}
	})
}

// Without a wall clock it is the machine's.
func TestDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := clock.New(nil, time.Time{})
		if now := time.Now(); !k.Now().Equal(now) || !k.Wall().Equal(now) {
			t.Errorf("%s and %s, want %s", k.Now(), k.Wall(), now)
		}
		if k.Now().Location() != time.UTC || k.Wall().Location() != time.UTC {
			t.Error("not in UTC")
		}
	})
}
