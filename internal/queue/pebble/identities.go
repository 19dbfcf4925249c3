package pebble

import (
	"context"
	"encoding/binary"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// An identity goes with its event, which costs nothing but the removal. Only where the
// event is forgotten first (for its bytes, or since retention.delivered is shorter than the
// dedupe window) an orphan is noted in order of acceptance, and removed with the identity
// when its time has come: no event pays for an index by time that nearly none needs.

// orphans forgets identities whose event is gone and whose time has come.
func (p *pruner) orphans(ctx context.Context) error {
	for {
		op := &orphanOp{waitOp: newWaitOp()}
		err := p.s.read(func(r pebbledb.Reader) error { return op.find(ctx, r, p.Identities) })
		if err != nil || len(op.keys) == 0 {
			return err
		}
		if err := p.s.run(ctx, op, op.done); err != nil {
			return err
		}
		p.done.Identities += int64(len(op.keys))
	}
}

// orphanOp removes orphans with their identities. Nobody else does, and while they are
// there the identities can't become another event's.
type orphanOp struct {
	waitOp
	keys [][]byte // of identities
	seqs []queue.Seq
}

// orphansAtOnce bounds one step.
const orphansAtOnce = 4096

func (o *orphanOp) find(ctx context.Context, r pebbledb.Reader, before time.Time) error {
	return scan(ctx, r, []byte{kindOrphan}, nil, func(k, v []byte) error {
		if len(v) < 8 || len(o.keys) == orphansAtOnce || int64(binary.BigEndian.Uint64(v)) >= nanos(before) { //nolint:gosec // written by nanos
			return errStop
		}
		o.keys = append(o.keys, append([]byte(nil), v[8:]...))
		o.seqs = append(o.seqs, parseSeq(k))
		return nil
	})
}

func (o *orphanOp) apply(b *batch) error {
	for i, k := range o.keys {
		if b.s.endpoints.namespaces.taken(k, o.seqs[i]) {
			continue // it went with its namespace, and may be another event's by now
		}
		b.del(k)
		b.identities[string(k)] = identity{}
	}
	b.delRange([]byte{kindOrphan}, appendSeqKey(nil, kindOrphan, o.seqs[len(o.seqs)-1]+1))
	return nil
}
