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
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/go-logr/logr"

	"github.com/doorstep-dev/doorstep/internal/clock"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

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
	done    sync.WaitGroup
	// closing ends the wait of those who have an op to hand over; accepting guards ops
	// against a send after Close.
	closing   chan struct{}
	accepting sync.RWMutex
	closed    bool
	// reading guards db against reads after Close.
	reading    sync.RWMutex
	readClosed bool
	closeOnce  sync.Once
	closeErr   error

	progress progress
	failed   atomic.Pointer[error]

	endpoints endpointTable
	usage     usage
	damage    damage
	segments  segments
	// pruning is held by Prune, and guards reclaim.
	pruning sync.Mutex
	reclaim reclaim
	pruned  prunedCounts

	nextSeq   queue.Seq // the writer's
	lastAudit uint64    // the writer's
}

var _ queue.Queue = (*Store)(nil)

// Open opens the store in a folder, or makes a new one where the folder is empty.
// It refuses, in words and without a change, a folder that another process holds,
// that holds something else, or that a newer Doorstep wrote.
func Open(o Options) (*Store, error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	// Looked at before anything is written, and again when nobody else can.
	if _, err := checkFormat(o.FS, o.Dir); err != nil {
		return nil, err
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
	version, err := checkFormat(o.FS, o.Dir)
	if err != nil {
		return nil, err
	}
	if err := lock.sign(); err != nil {
		return nil, err
	}
	fresh := version == 0
	switch {
	case fresh:
		err = begin(o.FS, o.Dir)
	case version < formatVersion:
		err = writeFormat(o.FS, o.Dir, formatReady) // see upgrade
	}
	if err != nil {
		return nil, err
	}
	db, err := pebbledb.Open(o.FS.PathJoin(o.Dir, dbFolder), pebbleOptions(&o, !fresh))
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

// load reads what is kept in memory: the time, the last sequence number, and the
// endpoints with their counts.
func (s *Store) load(o Options) error {
	v, err := get(s.db, keyClock())
	switch {
	case errors.Is(err, queue.ErrNotFound):
	case err != nil:
		return err
	case len(v) != 16:
		return fmt.Errorf("clock: %w", errRecord)
	default:
		s.lastTime = fromNanos(int64(binary.BigEndian.Uint64(v))) //nolint:gosec // written by nanos
		s.nextSeq = queue.Seq(binary.BigEndian.Uint64(v[8:]))
	}
	s.nextSeq++
	s.clock = clock.New(o.Wall, s.lastTime)
	if err := s.loadEndpoints(); err != nil {
		return err
	}
	if err := s.upgrade(); err != nil {
		return err
	}
	return s.loadAudits()
}

// LastTime is the steady time of the latest durable change when the store was opened.
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

// isClosing reports whether Close was called.
func (s *Store) isClosing() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// Close waits for what was handed over, makes it durable and releases the folder. A
// disk that hangs holds it up; nothing else does.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		close(s.closing)
		s.accepting.Lock()
		s.closed = true
		close(s.ops)
		s.accepting.Unlock()
		s.done.Wait()
		s.reading.Lock()
		s.readClosed = true
		s.reading.Unlock()
		s.closeErr = errors.Join(s.db.Close(), s.lock.release())
	})
	return s.closeErr
}

// submit hands an op to the writer. While there is no place it waits for patience (0:
// as long as it takes) and then answers ErrOverloaded.
func (s *Store) submit(ctx context.Context, o op, patience time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
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
	var late <-chan time.Time
	if patience > 0 {
		t := time.NewTimer(patience)
		defer t.Stop()
		late = t.C
	}
	select {
	case s.ops <- o:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closing:
		return queue.ErrClosed
	case <-late:
		return queue.ErrOverloaded
	}
}

// read calls f with the database, which stays open meanwhile.
func (s *Store) read(f func(r pebbledb.Reader) error) error {
	s.reading.RLock()
	defer s.reading.RUnlock()
	if s.readClosed {
		return queue.ErrClosed
	}
	return f(s.db)
}

// view is read with one state of the store for everything that f reads.
func (s *Store) view(f func(r pebbledb.Reader) error) error {
	return s.read(func(pebbledb.Reader) error {
		snap := s.db.NewSnapshot()
		return errors.Join(f(snap), snap.Close())
	})
}
