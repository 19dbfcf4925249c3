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
	ns.firstAudit.CompareAndSwap(0, b.s.lastAudit)
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

// loadAudits finds the first and the last numbers.
func (s *Store) loadAudits() error {
	for _, ns := range s.endpoints.namespaces.all() {
		prefix := appendNamespaceKey(nil, kindAudit, ns.id)
		it, err := s.db.NewIter(&pebbledb.IterOptions{LowerBound: prefix, UpperBound: upper(prefix)})
		if err != nil {
			return err
		}
		if it.First() {
			ns.firstAudit.Store(binary.BigEndian.Uint64(it.Key()[5:]))
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

// audits forgets records that are as old as dead letters that are forgotten.
func (p *pruner) audits(ctx context.Context) error {
	line := uint64(nanos(p.DeadLetters)) //nolint:gosec // never negative
	for _, ns := range p.s.endpoints.namespaces.all() {
		if first := ns.firstAudit.Load(); first == 0 || first >= line {
			continue
		}
		op := &forgetAuditsOp{waitOp: newWaitOp(), namespace: ns, before: line}
		if err := p.s.run(ctx, op, op.done); err != nil {
			return err
		}
		p.done.AuditRecords += op.removed
	}
	return nil
}

// forgetAuditsOp forgets a namespace's records below a number.
type forgetAuditsOp struct {
	waitOp
	namespace *namespace
	before    uint64
	removed   int64
}

func (o *forgetAuditsOp) apply(b *batch) error {
	left := uint64(0)
	err := scan(context.Background(), b.s.db, appendNamespaceKey(nil, kindAudit, o.namespace.id), nil, func(k, _ []byte) error {
		if n := binary.BigEndian.Uint64(k[5:]); n >= o.before {
			left = n
			return errStop
		}
		o.removed++
		return nil
	})
	if err != nil {
		return err
	}
	b.delRange(appendAuditKey(nil, o.namespace.id, 0), appendAuditKey(nil, o.namespace.id, o.before))
	o.namespace.firstAudit.Store(left)
	return nil
}
