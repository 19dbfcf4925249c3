package harness

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestHistogramQuantilesAreWithinTwoPercent(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var h Histogram
	var all []time.Duration
	for range 20000 {
		// Spread over seven powers of ten, from 1 µs to 10 s.
		d := time.Duration(float64(time.Microsecond) * pow10(rng.Float64()*7)).Truncate(time.Microsecond)
		h.Add(d)
		all = append(all, d)
	}
	slices.Sort(all)
	for _, q := range []float64{0.001, 0.5, 0.9, 0.99, 0.999, 1} {
		want := all[max(0, int(q*float64(len(all)))-1)]
		got := h.Quantile(q)
		if got < want || float64(got) > 1.02*float64(want)+float64(time.Microsecond) {
			t.Errorf("quantile %v is %v, want %v up to 2 %% more", q, got, want)
		}
	}
	if h.Count() != 20000 {
		t.Errorf("count is %d, want 20000", h.Count())
	}
}

func TestHistogramEdges(t *testing.T) {
	var h Histogram
	if got := h.Quantile(0.99); got != 0 {
		t.Errorf("an empty histogram says %v, want 0", got)
	}
	h.Add(-time.Second) // a clock that stepped back
	h.Add(1000 * time.Hour)
	if got := h.Quantile(1); got > 1000*time.Hour || got < time.Hour {
		t.Errorf("the largest is %v, want it held at the last step", got)
	}
	last := -1
	for us := time.Microsecond; us < 10*time.Second; us += us/100 + time.Microsecond {
		b := bucket(us)
		if b < last {
			t.Fatalf("step %d of %v is below the one before", b, us)
		}
		if upper(b) < us {
			t.Fatalf("step %d of %v ends at %v, before it", b, us, upper(b))
		}
		last = b
	}
}

func pow10(x float64) float64 {
	r := 1.0
	for ; x >= 1; x-- {
		r *= 10
	}
	return r * (1 + x*9)
}
