package pebble

import (
	"encoding/binary"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// op is one change. apply reads what it needs and then adds its writes to the batch,
// on the writer's goroutine; one that answers an error must have written nothing.
// finish answers the caller, on the syncer's goroutine, after the batch is durable (or
// with the error why it isn't).
type op interface {
	apply(b *batch) error
	finish(err error)
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
	// after them; the zero identity is a forgotten one.
	identities map[string]identity
	deliveries map[deliveryKey]*queue.Delivery
	// forgotten are events that this batch has removed.
	forgotten map[queue.Seq]bool
	// aside are names whose former namespace this batch has set aside.
	aside map[string]bool
	// erased are events whose payload this batch has erased.
	erased map[queue.Seq]bool
	// answers are attempts of this batch with bodies.
	answers []answer
	// arrived are the events stored by this batch, whose numbers follow one another.
	arrived []*queue.StoredEvent
	// known is the batch's view of the identities stored before it; nil until asked.
	known *pebbledb.Iterator
	// key and value are scratch space.
	key, value []byte
}

type deliveryKey struct {
	ep  endpointID
	seq queue.Seq
}

// commit is a batch on its way to the disk, with the ops to answer.
type commit struct {
	ops  []op
	errs []error // of the ops; nil if none failed
	// err: the batch was not applied.
	err error
	// batch is nil where there was nothing to write.
	batch *pebbledb.Batch
	// synced: an fsync was asked for with the batch and must be waited for.
	synced bool
}

func (c *commit) opErr(i int) error {
	if c.errs == nil {
		return nil
	}
	return c.errs[i]
}

// write is the writer: it turns waiting ops into commits until ops is closed.
func (s *Store) write() {
	defer s.done.Done()
	defer close(s.commits)
	w := &batch{s: s, identities: map[string]identity{}, deliveries: map[deliveryKey]*queue.Delivery{}}
	var unsynced time.Time // when the first write was applied that no fsync covers; zero: none
	syncDue := time.NewTimer(syncInterval)
	syncDue.Stop()
	defer syncDue.Stop()
	for {
		var first op
		open := true
		select {
		case first, open = <-s.ops:
		case <-syncDue.C:
			first = syncOp{}
		}
		if !open {
			s.commit(w, []op{syncOp{}}, true) // also keeps the time of the stop
			return
		}
		overdue := !unsynced.IsZero() && time.Since(unsynced) >= syncInterval
		c := s.commit(w, s.gather(first), overdue)
		switch {
		case c.synced:
			unsynced = time.Time{}
			syncDue.Stop()
		case c.batch != nil && unsynced.IsZero():
			unsynced = time.Now()
			syncDue.Reset(syncInterval)
		}
	}
}

// gather takes the ops that wait, up to a bound.
func (s *Store) gather(first op) []op {
	ops := make([]op, 1, 1+min(len(s.ops), batchOps))
	ops[0] = first
	size := opSize(first)
	for len(ops) < batchOps && size < batchBytes {
		select {
		case o, open := <-s.ops:
			if !open {
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

// commit applies ops as one batch and hands it to the syncer; durable asks for an
// fsync even if none of the ops does. From the first failed write on nothing is
// applied: memory and disk may differ.
func (s *Store) commit(w *batch, ops []op, durable bool) *commit {
	s.progress.begin()
	c := &commit{ops: ops, err: s.failure()}
	if c.err == nil {
		w.begin(s.db.NewBatch(), s.clock.Now(), durable)
		for i, o := range ops {
			if err := o.apply(w); err != nil {
				if c.errs == nil {
					c.errs = make([]error, len(ops))
				}
				c.errs[i] = err
			}
		}
		if w.known != nil {
			_ = w.known.Close() // its errors were answered by the ops that met them
			w.known = nil
		}
		s.hand(c, w)
	}
	s.commits <- c
	return c
}

// hand applies the batch to the store, without waiting for the disk.
func (s *Store) hand(c *commit, w *batch) {
	b := w.Batch
	w.Batch = nil
	if b.Empty() && !w.durable {
		_ = b.Close()
		return
	}
	w.saveClock(b)
	if w.durable {
		c.err = s.db.ApplyNoSyncWait(b, pebbledb.Sync)
	} else {
		c.err = s.db.Apply(b, pebbledb.NoSync)
	}
	if c.err != nil {
		s.fail(c.err)
		return
	}
	c.batch, c.synced = b, w.durable
}

func (b *batch) begin(next *pebbledb.Batch, now time.Time, durable bool) {
	b.Batch, b.now, b.durable = next, now, durable
	clear(b.identities)
	clear(b.deliveries)
	b.erased, b.answers, b.aside = nil, nil, nil
	if len(b.forgotten) > 0 || b.forgotten == nil {
		b.forgotten = map[queue.Seq]bool{}
	}
	clear(b.arrived)
	b.arrived = b.arrived[:0]
}

// saveClock remembers the time and the last sequence number with every batch: a
// number is never given twice, and the time never goes back behind a record's.
func (b *batch) saveClock(to *pebbledb.Batch) {
	b.value = binary.BigEndian.AppendUint64(b.value[:0], uint64(nanos(b.now)))
	b.value = binary.BigEndian.AppendUint64(b.value, uint64(b.s.nextSeq-1))
	_ = to.Set(keyClock(), b.value, nil)
}

// put and del never fail: a batch in memory has no reason to, and Apply reports
// what comes later.
func (b *batch) put(key, value []byte) { _ = b.Set(key, value, nil) }
func (b *batch) del(key []byte)        { _ = b.Delete(key, nil) }

// sync is the syncer: it waits for each commit's fsync and answers its ops. Commits
// come in order, so an op that wrote nothing (a duplicate's) is answered after what it
// found there is durable, and after a failed one all fail.
func (s *Store) sync() {
	defer s.done.Done()
	var failed error
	for c := range s.commits {
		if c.synced {
			if err := c.batch.SyncWait(); err != nil && failed == nil {
				s.fail(err)
				failed = s.failure()
			}
		}
		if failed == nil {
			failed = c.err
		}
		s.progress.end()
		if failed == nil {
			s.tell(c)
		}
		for i, o := range c.ops {
			if failed != nil {
				o.finish(failed)
			} else {
				o.finish(c.opErr(i))
			}
		}
		if c.batch != nil {
			_ = c.batch.Close()
		}
	}
}

// tell passes new deliveries to the listener, in order, before the callers are
// answered.
func (s *Store) tell(c *commit) {
	if s.listener == nil {
		return
	}
	var arrived []*queue.StoredEvent
	for i, o := range c.ops {
		if a, ok := o.(*acceptOp); ok && c.opErr(i) == nil {
			arrived = append(arrived, a.stored...)
		}
	}
	if len(arrived) > 0 {
		s.listener.Accepted(arrived)
	}
	for i, o := range c.ops {
		if c.opErr(i) != nil {
			continue
		}
		switch o := o.(type) {
		case *replayOp:
			s.listener.Requeued(o.delivery)
		case *eraseOp:
			if !o.erased.Again {
				s.listener.Erased(o.seq, o.ended)
			}
		}
	}
}

// syncOp asks for nothing but a sync.
type syncOp struct{}

func (syncOp) apply(b *batch) error { b.durable = true; return nil }
func (syncOp) finish(error)         {}

// waitOp is what a caller waits on.
type waitOp struct{ done chan error }

func newWaitOp() waitOp           { return waitOp{done: make(chan error, 1)} }
func (w waitOp) finish(err error) { w.done <- err }

func opSize(o op) int {
	if a, ok := o.(*acceptOp); ok {
		return a.size
	}
	return 256
}
