package pebble_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/queue/pebble"
	"github.com/doorstep-dev/doorstep/internal/queue/queuetest"
)

func TestConformanceInMemory(t *testing.T) {
	t.Parallel()
	queuetest.Run(t, func(*testing.T) queuetest.Open { return place(vfs.NewMem(), "q") })
}

func TestConformanceOnDisk(t *testing.T) {
	t.Parallel()
	queuetest.Run(t, func(t *testing.T) queuetest.Open { return place(vfs.Default, t.TempDir()) })
}

func place(fs vfs.FS, dir string) queuetest.Open {
	return func(o queuetest.Options) (queue.Queue, error) {
		return pebble.Open(pebble.Options{Dir: dir, FS: fs, Wall: o.Wall, Listener: o.Listener})
	}
}
