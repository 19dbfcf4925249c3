package harness

import (
	"math"
	"math/bits"
	"sync"
	"time"
)

// Each power of two of microseconds is cut into 64 steps, so that a quantile is at
// most 1.6 % over the true value; 33 powers reach past two hours.
const (
	subBits = 6
	sub     = 1 << subBits
	octaves = 33
)

// Histogram counts times in a fixed amount of memory. It is safe for concurrent use.
type Histogram struct {
	mu     sync.Mutex
	counts [octaves * sub]int64
	n      int64
	max    time.Duration
}

// Add counts d; less than a microsecond counts as a microsecond.
func (h *Histogram) Add(d time.Duration) {
	i := bucket(d)
	h.mu.Lock()
	h.counts[i]++
	h.n++
	h.max = max(h.max, d)
	h.mu.Unlock()
}

// Count is how many times were added.
func (h *Histogram) Count() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

// Quantile is the smallest step that at least the share q (0 to 1) of the times do
// not exceed; 0 of an empty histogram.
func (h *Histogram) Quantile(q float64) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	rank := max(1, int64(math.Ceil(q*float64(h.n))))
	var seen int64
	for i, c := range h.counts {
		if seen += c; seen >= rank {
			return min(upper(i), h.max)
		}
	}
	return h.max
}

// bucket is the step of d. Under 64 µs a step is a microsecond.
func bucket(d time.Duration) int {
	us := max(d.Microseconds(), 1)
	shift := max(bits.Len64(uint64(us))-subBits-1, 0)
	return min(shift*sub+int(us>>shift), octaves*sub-1)
}

// upper is the longest time of step i.
func upper(i int) time.Duration {
	shift := 0
	if i >= 2*sub {
		shift = i/sub - 1
	}
	return time.Duration(int64(i-shift*sub+1)<<shift)*time.Microsecond - 1
}
