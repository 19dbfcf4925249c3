package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/go-logr/logr"

	"github.com/doorstep-dev/doorstep/internal/clock"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// The version of pebble's files that this store writes. It is raised by an explicit
// step, never by an update of the library, so that an upgrade can be rolled back.
const filesVersion = pebbledb.FormatWALSyncChunks

const (
	memTableBytes = 16 << 20
	cacheBytes    = 32 << 20
	// opsQueued is how many changes may wait for the writer before callers block.
	opsQueued = 1024
	// batchOps and batchBytes bound one group commit.
	batchOps   = 512
	batchBytes = 4 << 20
	// syncInterval is how long an outcome may stay unsynced.
	syncInterval = 50 * time.Millisecond
	// stuckAfter is how long a commit may take before Health reports it.
	stuckAfter = 10 * time.Second
	// overloadAfter is how long Accept waits for a place before it gives up.
	overloadAfter = 5 * time.Second
)

// Options open a store.
type Options struct {
	// Dir is the store's folder; made when it doesn't exist.
	Dir string
	// FS is the file system; nil is the machine's.
	FS vfs.FS
	// Wall is the wall clock; nil is time.Now.
	Wall func() time.Time
	// Listener is told of arrivals and replays; may be nil.
	Listener queue.Listener
	// Reserve is the free space under which Accept answers ErrNoSpace; nil is the
	// default reserve (see reserve.go). Free is asked at most once a second.
	Reserve *Reserve
	// Fatal is called when pebble can't go on (a failed write to its log). It must not
	// return to a store in use: nil ends the process.
	Fatal func(cause string)
	Log   logr.Logger
}

// Store is an open store. See the package comment for how it works.
type Store struct {
	db       *pebbledb.DB
	lock     *ownerLock
	log      logr.Logger
	clock    *clock.Clock
	lastTime time.Time
	listener queue.Listener
	space    *spaceGuard

	ops     chan op
	commits chan *commit
	closing chan struct{}
	// accepting guards ops against a send after Close.
	accepting sync.RWMutex
	closed    bool
	done      sync.WaitGroup
	progress  progress
	// failed is set by the first write that failed: from then on memory and disk may
	// differ, and nothing more is taken.
	failed atomic.Pointer[error]

	endpoints endpointTable
	nextSeq   queue.Seq // the writer's
	pruneFrom queue.Seq // the writer's
}

var _ queue.Queue = (*Store)(nil)

// Open opens the store in a folder, or makes a new one where the folder is empty.
// It refuses, in words and without a change, a folder that another process holds,
// that holds something else, or that a newer Doorstep wrote.
func Open(o Options) (*Store, error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	lock, err := lockFolder(o.FS, o.Dir)
	if err != nil {
		return nil, err
	}
	s, err := open(o, lock)
	if err != nil {
		return nil, errors.Join(err, lock.release())
	}
	return s, nil
}

func open(o Options, lock *ownerLock) (*Store, error) {
	fresh, err := checkFormat(o.FS, o.Dir)
	if err != nil {
		return nil, err
	}
	logger := &pebbleLogger{log: o.Log, fatal: o.Fatal}
	db, err := pebbledb.Open(o.FS.PathJoin(o.Dir, dbFolder), pebbleOptions(o.FS, logger))
	if err != nil {
		return nil, fmt.Errorf("open the store in %s: %w", o.Dir, err)
	}
	s := &Store{
		db: db, lock: lock, log: o.Log, listener: o.Listener,
		space:   newSpaceGuard(o.FS, o.Dir, o.Reserve),
		ops:     make(chan op, opsQueued),
		commits: make(chan *commit, 1),
		closing: make(chan struct{}),
	}
	if err := s.load(o); err != nil {
		return nil, errors.Join(fmt.Errorf("read the store in %s: %w", o.Dir, err), db.Close())
	}
	if fresh {
		if err := writeFormat(o.FS, o.Dir, formatReady); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	s.done.Add(2)
	go s.write()
	go s.sync()
	return s, nil
}

func pebbleOptions(fs vfs.FS, logger *pebbleLogger) *pebbledb.Options {
	o := &pebbledb.Options{
		FS:                          fs,
		FormatMajorVersion:          filesVersion,
		MemTableSize:                memTableBytes,
		MemTableStopWritesThreshold: 4,
		CacheSize:                   cacheBytes,
		L0CompactionThreshold:       4,
		Logger:                      logger,
		EventListener:               logger.listener(),
	}
	for i := range o.Levels {
		// Every event looks its identity up and nearly none finds one.
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	return o
}

// load reads what is kept in memory: the endpoints with their counts, the next
// sequence number, and the time.
func (s *Store) load(o Options) error {
	v, err := s.get(keyClock())
	if err != nil && !errors.Is(err, queue.ErrNotFound) {
		return err
	}
	if len(v) == 8 {
		s.lastTime = fromNanos(int64(binary.BigEndian.Uint64(v))) //nolint:gosec // written by nanos
	}
	s.clock = clock.New(o.Wall, s.lastTime)
	if err := s.endpoints.load(s); err != nil {
		return err
	}
	s.nextSeq, err = s.lastSeq()
	s.nextSeq++
	return err
}

// lastSeq is the highest sequence number ever given that is still on record, also
// by deliveries and attempts whose event is gone.
func (s *Store) lastSeq() (queue.Seq, error) {
	it, err := s.db.NewIter(&pebbledb.IterOptions{LowerBound: []byte{kindEvent}, UpperBound: []byte{kindEvent + 1}})
	if err != nil {
		return 0, err
	}
	var last queue.Seq
	if it.Last() {
		last = parseDeliverySeq(it.Key())
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return 0, err
	}
	// The newest events may have been pruned: the clock record carries the number too.
	v, err := s.get([]byte{kindClock, 's'})
	if errors.Is(err, queue.ErrNotFound) {
		return last, nil
	}
	if err != nil || len(v) != 8 {
		return 0, errors.Join(errRecord, err)
	}
	return max(last, queue.Seq(binary.BigEndian.Uint64(v))), nil
}

// get reads one value. The result is the caller's own.
func (s *Store) get(key []byte) ([]byte, error) {
	v, closer, err := s.db.Get(key)
	if errors.Is(err, pebbledb.ErrNotFound) {
		return nil, queue.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	out := append(make([]byte, 0, len(v)), v...)
	return out, closer.Close()
}

// LastTime is the latest steady time the store had seen when it was opened.
func (s *Store) LastTime() time.Time { return s.lastTime }

// Clock is the store's steady clock; everything that compares due times and ages
// with it must use this one.
func (s *Store) Clock() *clock.Clock { return s.clock }

// Endpoints names every endpoint the store knows.
func (s *Store) Endpoints() []plan.EndpointKey { return s.endpoints.keys() }

// Counts gives an endpoint's deliveries by state.
func (s *Store) Counts(ep plan.EndpointKey) queue.Counts { return s.endpoints.counts(ep) }

// Lane gives what SetLane remembered.
func (s *Store) Lane(ep plan.EndpointKey) queue.Lane { return s.endpoints.lane(ep) }

// Health says what keeps the store from taking writes: one that failed, or one that
// hangs, which is what a full or broken disk does to pebble.
func (s *Store) Health() error {
	if err := s.failure(); err != nil {
		return err
	}
	if s.progress.stuckFor() > stuckAfter {
		return fmt.Errorf("a write to the store has been waiting for over %s; the disk may be full or broken", stuckAfter)
	}
	return nil
}

func (s *Store) fail(err error) {
	if err != nil && s.failed.CompareAndSwap(nil, &err) {
		s.log.Error(err, "The store failed a write and takes no more: everything acknowledged before is on disk; restart to go on")
	}
}

func (s *Store) failure() error {
	if e := s.failed.Load(); e != nil {
		return fmt.Errorf("the store failed a write and must be restarted: %w", *e)
	}
	return nil
}

// progress notices commits that hang.
type progress struct {
	open  atomic.Int64
	since atomic.Int64 // unix nanoseconds of the last step while open > 0
}

func (p *progress) begin() {
	if p.open.Add(1) == 1 {
		p.since.Store(time.Now().UnixNano())
	}
}

func (p *progress) end() {
	p.since.Store(time.Now().UnixNano())
	p.open.Add(-1)
}

func (p *progress) stuckFor() time.Duration {
	if p.open.Load() == 0 {
		return 0
	}
	return time.Since(time.Unix(0, p.since.Load()))
}

// Close waits for what was handed over, makes it durable and releases the folder.
// Changes after it answer ErrClosed.
func (s *Store) Close() error {
	s.accepting.Lock()
	if s.closed {
		s.accepting.Unlock()
		return nil
	}
	s.closed = true
	close(s.ops)
	s.accepting.Unlock()
	s.done.Wait()
	close(s.closing)
	return errors.Join(s.db.Close(), s.lock.release())
}

// submit hands an op to the writer.
func (s *Store) submit(ctx context.Context, o op, patience time.Duration) error {
	s.accepting.RLock()
	defer s.accepting.RUnlock()
	if s.closed {
		return queue.ErrClosed
	}
	select {
	case s.ops <- o:
		return nil
	default:
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case s.ops <- o:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return queue.ErrOverloaded
	}
}
