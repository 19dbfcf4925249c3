package pebble

import (
	"context"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// What is forgotten keeps its place on disk until the files it lies in are written anew or
// dropped. Pebble does that by itself where files lie wholly in a forgotten range, and
// sooner or later elsewhere; reclaim sees to it that it is sooner.

// reclaimInPassing is how much is forgotten before its space is given back while the store
// is not over its size: each time costs some rewriting of what lies beside it.
const reclaimInPassing = 256 << 20

// reclaim is what was forgotten and still takes its place. It is used under Store.pruning.
type reclaim struct {
	// spans of segments, in order; of those that follow one another one is made.
	spans []span
	bytes int64
}

// span is a row of segments, to before to.
type span struct{ from, to uint64 }

func (r *reclaim) add(segment uint64, bytes int64) {
	r.bytes += bytes
	if n := len(r.spans); n > 0 && segment >= r.spans[n-1].from && segment <= r.spans[n-1].to {
		r.spans[n-1].to = max(r.spans[n-1].to, segment+1)
		return
	}
	r.spans = append(r.spans, span{segment, segment + 1})
}

// run gives the space back if it is at least so many bytes.
func (r *reclaim) run(ctx context.Context, s *Store, least int64) error {
	if r.bytes < least {
		return nil
	}
	for _, sp := range r.spans {
		for _, kind := range []byte{kindPayload, kindEvent, kindAttempt} {
			from := appendSeqKey(nil, kind, queue.Seq(sp.from<<segmentShift))
			to := appendSeqKey(nil, kind, queue.Seq(sp.to<<segmentShift))
			if err := s.compact(ctx, from, to); err != nil {
				return err
			}
		}
	}
	r.spans, r.bytes = nil, 0
	return nil
}

// compact rewrites what lies between two keys without what was removed of it.
func (s *Store) compact(ctx context.Context, from, to []byte) error {
	return s.read(func(pebbledb.Reader) error { return s.db.Compact(ctx, from, to, false) })
}

// logRoom is what the store's log takes beside its tables: as many files as there are
// memtables, and one more than that which are kept to be written again.
const logRoom = (2*memTables + 1) * memTableBytes

// overSize is by how many bytes the store's tables are larger than a store of at most so
// many bytes should have, down to where forgetting stops; 0 while there is no need. What is
// removed already and only waits for its files to be deleted doesn't count.
func (s *Store) overSize(most int64) int64 {
	if most == 0 {
		most = s.Usage().CapacityBytes / 100 * defaultPercent
	}
	if most == 0 {
		return 0 // a volume that can't tell its size
	}
	room := most - min(logRoom, most/4)
	var tables int64
	err := s.read(func(pebbledb.Reader) error {
		tables = int64(s.db.Metrics().Table.Local.LiveSize) //nolint:gosec // far below 2⁶³
		return nil
	})
	if err != nil || tables <= room/100*95 {
		return 0
	}
	return tables - room/100*90
}

// defaultPercent of the volume is a store's size where none is given.
const defaultPercent = 60

// erasures has the bytes of erased events leave the disk.
func (p *pruner) erasures(ctx context.Context) error {
	var seqs []queue.Seq
	err := p.s.read(func(r pebbledb.Reader) error {
		return scan(ctx, r, []byte{kindErased}, nil, func(k, _ []byte) error {
			seqs = append(seqs, parseSeq(k))
			if len(seqs) == erasuresAtOnce {
				return errStop
			}
			return nil
		})
	})
	for _, seq := range seqs {
		for _, kind := range []byte{kindPayload, kindEvent, kindAttempt} {
			if err == nil {
				err = p.s.compact(ctx, appendSeqKey(nil, kind, seq), appendSeqKey(nil, kind, seq+1))
			}
		}
	}
	if err != nil || len(seqs) == 0 {
		return err
	}
	done := &reclaimedOp{waitOp: newWaitOp(), seqs: seqs}
	return p.s.run(ctx, done, done.done)
}

// erasuresAtOnce bounds how many erased events one call of Prune compacts away.
const erasuresAtOnce = 64

// reclaimedOp notes that the bytes of erased events have left the disk.
type reclaimedOp struct {
	waitOp
	seqs []queue.Seq
}

func (o *reclaimedOp) apply(b *batch) error {
	for _, seq := range o.seqs {
		b.key = appendSeqKey(b.key[:0], kindErased, seq)
		b.del(b.key)
	}
	return nil
}
