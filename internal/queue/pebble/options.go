package pebble

import (
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/go-logr/logr"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// The version of pebble's files that this store writes. It is raised by an explicit
// step, never by an update of the library, so that an upgrade can be rolled back.
const filesVersion = pebbledb.FormatWALSyncChunks

const (
	memTableBytes = 16 << 20
	memTables     = 4
	// cacheBytes bounds blocks and memtables together: pebble counts both.
	cacheBytes = 80 << 20
	// lbaseBytes is the size of the first level under the newest files. The default of 64 MiB
	// makes a store of some hundred MiB write everything once more: a quarter of all CPU.
	lbaseBytes = 256 << 20
	// opsQueued is how many changes may wait for the writer before callers block.
	opsQueued = 1024
	// batchOps and batchBytes bound one group commit.
	batchOps   = 512
	batchBytes = 4 << 20
	// syncInterval is how long an outcome may stay unsynced.
	syncInterval = 50 * time.Millisecond
	// stuckAfter is how long a commit may take before Health reports it.
	stuckAfter = 10 * time.Second
	// overloadAfter is how long a change waits for a place before it gives up.
	overloadAfter = 5 * time.Second
)

// Options open a store.
type Options struct {
	// Dir is the store's folder; made when it doesn't exist.
	Dir string
	// FS is the file system; nil is the machine's. On a *vfs.MemFS, which only tests
	// use, the store has no work of its own while it is idle: days of virtual time cost
	// nothing.
	FS vfs.FS
	// Wall is the wall clock; nil is time.Now.
	Wall func() time.Time
	// Listener is told of arrivals and replays; may be nil.
	Listener queue.Listener
	// Reserve is the free space under which Accept answers ErrNoSpace; nil is the
	// default reserve (space.go). Free space is asked for at most once a second.
	Reserve *Reserve
	// Fatal is called when pebble can't go on (a failed write to its log). It must not
	// return to a store in use: nil ends the process.
	Fatal func(cause string)
	Log   logr.Logger
}

// pebbleOptions are pebble's settings. mustExist keeps pebble from beginning anew
// where its own marker is missing among its files.
func pebbleOptions(o *Options, mustExist bool) *pebbledb.Options {
	logger := &pebbleLogger{log: o.Log, fatal: o.Fatal}
	po := &pebbledb.Options{
		FS:                          markerFS{o.FS},
		ErrorIfNotExists:            mustExist,
		FormatMajorVersion:          filesVersion,
		MemTableSize:                memTableBytes,
		MemTableStopWritesThreshold: memTables,
		CacheSize:                   cacheBytes,
		LBaseMaxBytes:               lbaseBytes,
		// Higher than the default: fewer and larger compactions, a fifth less CPU.
		L0CompactionThreshold: 8,
		Logger:                logger,
		EventListener:         logger.listener(),
	}
	for i := range po.Levels {
		// Every event looks its identity up and nearly none finds one.
		po.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	if _, memory := o.FS.(*vfs.MemFS); memory {
		// The default scheduler looks for work ten times a second. This one only when
		// some was finished, which is enough where the limit never changes.
		po.Experimental.CompactionScheduler = pebbledb.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()
	}
	return po
}
