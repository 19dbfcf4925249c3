package pebble

import (
	"context"
	"encoding/binary"
	"errors"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// Audit records are numbered by the nanosecond of their time, or the next free one: they
// lie in order, and what is older than a time is one range of keys.

// AddAudit keeps a record of what a person did.
func (s *Store) AddAudit(ctx context.Context, r queue.AuditRecord) error {
	op := &auditOp{waitOp: newWaitOp(), record: r}
	return s.run(ctx, op, op.done)
}

type auditOp struct {
	waitOp
	record queue.AuditRecord
}

func (a *auditOp) apply(b *batch) error {
	ns := b.namespace(a.record.Namespace)
	a.record.At = b.now
	b.s.lastAudit = max(b.s.lastAudit+1, uint64(nanos(b.now))) //nolint:gosec // never negative
	b.put(appendAuditKey(nil, ns.id, b.s.lastAudit), encodeAudit(&a.record))
	b.durable = true
	return nil
}

// Audits gives a namespace's audit records, newest first.
func (s *Store) Audits(ctx context.Context, namespace string, before uint64, limit int) (out []queue.AuditRecord, next uint64, err error) {
	limit = max(limit, 1)
	err = s.read(func(r pebbledb.Reader) error {
		ns := s.endpoints.namespaces.get(namespace)
		if ns == nil {
			return ctx.Err()
		}
		prefix := appendNamespaceKey(nil, kindAudit, ns.id)
		o := &pebbledb.IterOptions{LowerBound: prefix, UpperBound: upper(prefix)}
		if before > 0 {
			o.UpperBound = appendAuditKey(nil, ns.id, before)
		}
		it, err := r.NewIter(o)
		if err != nil {
			return err
		}
		for ok := it.Last(); ok && err == nil; ok = it.Prev() {
			if len(out) == limit {
				next = binary.BigEndian.Uint64(it.Key()[5:]) + 1
				break
			}
			var v []byte
			if v, err = it.ValueAndErr(); err != nil {
				break
			}
			var rec queue.AuditRecord
			if rec, err = decodeAudit(v); err == nil {
				rec.Namespace = namespace
				out = append(out, rec)
				err = ctx.Err()
			}
		}
		return errors.Join(err, it.Error(), it.Close())
	})
	return out, next, err
}

// loadAudits finds the last number given.
func (s *Store) loadAudits() error {
	for _, ns := range s.endpoints.namespaces.all() {
		prefix := appendNamespaceKey(nil, kindAudit, ns.id)
		it, err := s.db.NewIter(&pebbledb.IterOptions{LowerBound: prefix, UpperBound: upper(prefix)})
		if err != nil {
			return err
		}
		if it.Last() {
			s.lastAudit = max(s.lastAudit, binary.BigEndian.Uint64(it.Key()[5:]))
		}
		if err := errors.Join(it.Error(), it.Close()); err != nil {
			return err
		}
	}
	return nil
}
