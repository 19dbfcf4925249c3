package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// upgrade brings the records of a former format to this one. The folder's FORMAT says so
// before: from then on no former version opens it, whose reading stops at a fresh delivery
// of this one. A crash in the middle is made up for at the next open, since only the record
// written last says that it is done.
func (s *Store) upgrade() error {
	v, err := get(s.db, keyVersion())
	switch {
	case err == nil && len(v) == 1 && v[0] == formatVersion:
		return nil
	case err != nil && !errors.Is(err, queue.ErrNotFound):
		return err
	}
	if err := s.listByNamespace(); err != nil {
		return fmt.Errorf("bring the store to format %d: %w", formatVersion, err)
	}
	return s.db.Set(keyVersion(), []byte{formatVersion}, pebbledb.Sync)
}

// listByNamespace writes the namespaces, and each event's place among those of its own.
func (s *Store) listByNamespace() error {
	b := s.db.NewBatch()
	written := map[namespaceID]bool{}
	note := func(ns *namespace) error {
		if written[ns.id] {
			return nil
		}
		written[ns.id] = true
		return b.Set(keyNamespace(ns.name), binary.BigEndian.AppendUint32(nil, uint32(ns.id)), nil)
	}
	for _, ns := range s.endpoints.namespaces.all() {
		if err := note(ns); err != nil {
			return err
		}
	}
	err := s.scanPast(context.Background(), s.db, []byte{kindEvent}, nil, func(k, v []byte) error {
		ev, _, err := decodeEvent(parseSeq(k), v)
		if err != nil {
			return err // past it: it is in no list
		}
		ns, _ := s.endpoints.namespaces.ensure(ev.Namespace)
		if err := errors.Join(note(ns), b.Set(appendListedKey(nil, ns.id, ev.Seq), []byte(ev.Type), nil)); err != nil {
			return err
		}
		if b.Len() < batchBytes {
			return nil
		}
		err = errors.Join(b.Commit(pebbledb.NoSync), b.Close())
		b = s.db.NewBatch()
		return err
	})
	return errors.Join(err, b.Commit(pebbledb.NoSync), b.Close())
}
