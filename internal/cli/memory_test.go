package cli

import (
	"math"
	"runtime/debug"
	"testing"
)

func TestMemoryLimitFollowsThePlan(t *testing.T) {
	limit, percent := debug.SetMemoryLimit(-1), debug.SetGCPercent(100)
	t.Cleanup(func() {
		debug.SetMemoryLimit(limit)
		debug.SetGCPercent(percent)
	})
	for _, c := range []struct {
		name, env string
		endpoints int
		want      int64
	}{
		{"none", "", 0, 160 << 20},
		{"a few", "", 100, 160<<20 + 800<<10},
		{"ten thousand", "", 10_000, 160<<20 + 80_000<<10},
		{"the environment has the last word", "300MiB", 10_000, math.MaxInt64},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("GOMEMLIMIT", c.env)
			debug.SetMemoryLimit(math.MaxInt64) // Go reads the environment at its start only
			tuneMemory()(c.endpoints)
			if got := debug.SetMemoryLimit(-1); got != c.want {
				t.Errorf("the limit is %d, want %d", got, c.want)
			}
		})
	}
}
