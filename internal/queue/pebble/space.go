package pebble

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// Reserve is the free space that ingest leaves on the volume. A store that runs its
// disk full hangs without an error, so new events are refused while there is still
// room for the outcomes of the old ones.
type Reserve struct {
	// Bytes must stay free; 0 is a tenth of the volume, at most 2 GiB and at least 96 MiB
	// or half of a smaller volume.
	Bytes uint64
	// Usage gives the volume's free and total bytes; nil asks the file system.
	Usage func() (free, total uint64, err error)
}

const (
	maxReserve = 2 << 30
	minReserve = 96 << 20
)

// spaceGuard asks for the free space once a second, and when what was written since may
// have used it up.
type spaceGuard struct {
	reserve Reserve
	last    atomic.Pointer[error]
	// mu is held by whoever asks; the others take the last answer meanwhile.
	mu    sync.Mutex
	asked time.Time
	// spent is what has been written since, room what there was above the reserve.
	spent atomic.Int64
	room  atomic.Uint64
}

func newSpaceGuard(fs vfs.FS, dir string, r *Reserve) *spaceGuard {
	g := &spaceGuard{}
	if r != nil {
		g.reserve = *r
	}
	if g.reserve.Usage == nil {
		g.reserve.Usage = func() (free, total uint64, err error) {
			u, err := fs.GetDiskUsage(dir)
			return u.AvailBytes, u.TotalBytes, err
		}
	}
	return g
}

// amplification is how many bytes on disk one accepted byte may take before old files
// are removed: in the log, in a flushed table, and in a compaction of it.
const amplification = 3

// check is nil while there is room for new events, of the given size and of those
// accepted since the volume was last asked.
func (g *spaceGuard) check(size int) error {
	spent := g.spent.Add(int64(size) * amplification)
	if g.mu.TryLock() {
		if now := time.Now(); g.asked.IsZero() || now.Sub(g.asked) >= time.Second || uint64(spent) > g.room.Load() { //nolint:gosec // never negative
			err := g.ask()
			g.asked = now
			g.last.Store(&err)
		}
		g.mu.Unlock()
	}
	if err := g.last.Load(); err != nil {
		return *err
	}
	return nil
}

func (g *spaceGuard) ask() error {
	free, total, err := g.reserve.Usage()
	if err != nil {
		return nil // a file system that can't tell isn't full
	}
	reserve := g.reserve.Bytes
	if reserve == 0 {
		// What pebble lays out in advance (log and memtables) must fit in as well.
		reserve = max(min(total/10, maxReserve), min(minReserve, total/2))
	}
	g.spent.Store(0)
	g.room.Store(free - min(free, reserve))
	if free < reserve {
		return fmt.Errorf("%w (%d MiB free, %d MiB are kept in reserve)", queue.ErrNoSpace, free>>20, reserve>>20)
	}
	return nil
}
