package pebble

import (
	"encoding/binary"
	"errors"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// op is one change. apply reads what it needs and adds its writes to the batch, on
// the writer's goroutine; finish answers the caller, on the syncer's, after the
// batch is durable (or with the error why it isn't).
type op interface {
	apply(b *batch) error
	finish(s *Store, err error)
}

// batch is a group commit in the making.
type batch struct {
	*pebbledb.Batch
	s *Store
	// now is the steady time of the batch.
	now time.Time
	// durable: somebody waits for the disk.
	durable bool
	// identities and deliveries are what ops of this batch have written, for the ops
	// after them.
	identities map[string]identity
	deliveries map[deliveryKey]*queue.Delivery
	// key and value are scratch space.
	key, value []byte
}

type deliveryKey struct {
	ep  endpointID
	seq queue.Seq
}

// commit is a batch on its way to the disk, with the ops to answer.
type commit struct {
	batch   *pebbledb.Batch
	durable bool
	ops     []op
	errs    []error
}

// write is the writer: it turns waiting ops into commits until ops is closed.
func (s *Store) write() {
	defer s.done.Done()
	defer close(s.commits)
	w := &batch{s: s, identities: map[string]identity{}, deliveries: map[deliveryKey]*queue.Delivery{}}
	syncDue := time.NewTimer(syncInterval)
	defer syncDue.Stop()
	var unsynced bool
	var clockAt time.Time
	for {
		var first op
		var ok bool
		if unsynced {
			select {
			case first, ok = <-s.ops:
			case <-syncDue.C:
				first, ok = syncOp{}, true
			}
		} else {
			first, ok = <-s.ops
		}
		if !ok {
			if unsynced {
				s.commit(w, []op{syncOp{}}, &clockAt)
			}
			return
		}
		durable := s.commit(w, s.gather(first), &clockAt)
		switch {
		case durable:
			unsynced = false
		case !unsynced:
			unsynced = true
			syncDue.Reset(syncInterval)
		}
	}
}

// gather takes the ops that wait, up to a bound.
func (s *Store) gather(first op) []op {
	ops := make([]op, 1, 16)
	ops[0] = first
	size := opSize(first)
	for len(ops) < batchOps && size < batchBytes {
		select {
		case o, ok := <-s.ops:
			if !ok {
				return ops
			}
			ops = append(ops, o)
			size += opSize(o)
		default:
			return ops
		}
	}
	return ops
}

// commit applies ops as one batch and hands it to the syncer. It reports whether a
// sync was asked for.
func (s *Store) commit(w *batch, ops []op, clockAt *time.Time) bool {
	w.begin(s.db.NewBatch(), s.clock.Now())
	errs := make([]error, len(ops))
	for i, o := range ops {
		errs[i] = o.apply(w)
	}
	if w.now.Sub(*clockAt) >= time.Second || w.durable && clockAt.IsZero() {
		*clockAt = w.now
		w.saveClock()
	}
	c := &commit{batch: w.Batch, durable: w.durable, ops: ops, errs: errs}
	opt := pebbledb.NoSync
	if w.durable {
		opt = pebbledb.Sync
	}
	s.progress.begin()
	err := s.failure()
	if err != nil {
		// refuse: memory and disk may differ
	} else if w.Empty() {
		if w.durable {
			err = s.db.LogData(nil, pebbledb.Sync)
		}
		c.durable = false // nothing left to wait for but the commits before it
	} else if w.durable {
		err = s.db.ApplyNoSyncWait(w.Batch, opt)
	} else {
		err = s.db.Apply(w.Batch, opt)
	}
	if err != nil {
		s.fail(err)
		c.durable = false
		for i := range errs {
			errs[i] = errors.Join(errs[i], err)
		}
	}
	durable := w.durable && err == nil
	w.Batch = nil
	s.commits <- c
	return durable
}

func (w *batch) begin(b *pebbledb.Batch, now time.Time) {
	w.Batch, w.now, w.durable = b, now, false
	clear(w.identities)
	clear(w.deliveries)
}

// saveClock remembers the time and the last sequence number.
func (w *batch) saveClock() {
	w.put(keyClock(), binary.BigEndian.AppendUint64(nil, uint64(nanos(w.now))))
	w.put([]byte{kindClock, 's'}, binary.BigEndian.AppendUint64(nil, uint64(w.s.nextSeq-1)))
}

// put and del never fail: a batch in memory has no reason to, and Apply reports
// what comes later.
func (w *batch) put(key, value []byte) { _ = w.Set(key, value, nil) }
func (w *batch) del(key []byte)        { _ = w.Delete(key, nil) }

// sync is the syncer: it waits for each commit's fsync and answers its ops.
func (s *Store) sync() {
	defer s.done.Done()
	for c := range s.commits {
		var err error
		if c.durable {
			err = c.batch.SyncWait()
		}
		s.progress.end()
		s.fail(err)
		s.tell(c, err)
		for i, o := range c.ops {
			o.finish(s, errors.Join(c.errs[i], err))
		}
		_ = c.batch.Close()
	}
}

// tell passes new deliveries to the listener, in order, before the callers are
// answered.
func (s *Store) tell(c *commit, err error) {
	if s.listener == nil || err != nil {
		return
	}
	var arrived []*queue.StoredEvent
	for i, o := range c.ops {
		if a, ok := o.(*acceptOp); ok && c.errs[i] == nil {
			arrived = append(arrived, a.stored...)
		}
	}
	if len(arrived) > 0 {
		s.listener.Accepted(arrived)
	}
	for i, o := range c.ops {
		if r, ok := o.(*replayOp); ok && c.errs[i] == nil {
			s.listener.Requeued(r.delivery)
		}
	}
}

// syncOp asks for nothing but a sync.
type syncOp struct{}

func (syncOp) apply(b *batch) error { b.durable = true; return nil }
func (syncOp) finish(*Store, error) {}

// waitOp is what a caller waits on.
type waitOp struct{ done chan error }

func newWaitOp() waitOp                     { return waitOp{done: make(chan error, 1)} }
func (w waitOp) finish(_ *Store, err error) { w.done <- err }

func opSize(o op) int {
	if a, ok := o.(*acceptOp); ok {
		return a.size
	}
	return 256
}
