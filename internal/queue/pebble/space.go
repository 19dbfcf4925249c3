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
	// Bytes must stay free; 0 is a tenth of the volume, at most 2 GiB.
	Bytes uint64
	// Usage gives the volume's free and total bytes; nil asks the file system.
	Usage func() (free, total uint64, err error)
}

const maxReserve = 2 << 30

// spaceGuard asks for the free space at most once a second.
type spaceGuard struct {
	reserve Reserve
	last    atomic.Pointer[error]
	// mu is held by whoever asks; the others take the last answer meanwhile.
	mu    sync.Mutex
	asked time.Time
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

// check is nil while there is room for new events.
func (g *spaceGuard) check() error {
	if g.mu.TryLock() {
		if now := time.Now(); g.asked.IsZero() || now.Sub(g.asked) >= time.Second {
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
		reserve = min(total/10, maxReserve)
	}
	if free < reserve {
		return fmt.Errorf("%w (%d MiB free, %d MiB are kept in reserve)", queue.ErrNoSpace, free>>20, reserve>>20)
	}
	return nil
}
