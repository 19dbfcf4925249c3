package pebble

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"

	pebbledb "github.com/cockroachdb/pebble/v2"
)

// namespace is what the store keeps in memory of a namespace it knows. The writer
// changes it; everybody reads.
type namespace struct {
	id   namespaceID
	name string
	// waiting is what its waiting deliveries take on disk, in bytes.
	waiting atomic.Int64
	naming
	// firstAudit is the number of its oldest audit record, 0 if there is none.
	firstAudit atomic.Uint64
}

// namespaceTable is every namespace the store has ever had an event or an audit record of.
type namespaceTable struct {
	mu    sync.RWMutex
	named map[string]*namespace
	last  namespaceID
}

func (t *namespaceTable) get(name string) *namespace {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.named[name]
}

func (t *namespaceTable) ensure(name string) (ns *namespace, made bool) {
	if ns := t.get(name); ns != nil {
		return ns, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	ns = &namespace{id: t.last, name: name}
	t.named[name] = ns
	return ns, true
}

// all are the namespaces in no order.
func (t *namespaceTable) all() []*namespace {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := make([]*namespace, 0, len(t.named))
	for _, ns := range t.named {
		out = append(out, ns)
	}
	return out
}

func (t *namespaceTable) load(r pebbledb.Reader) error {
	t.named = map[string]*namespace{}
	err := scan(context.Background(), r, []byte{kindNamespace}, nil, func(k, v []byte) error {
		if len(v) != 4 {
			return errRecord
		}
		ns := &namespace{id: namespaceID(binary.BigEndian.Uint32(v)), name: string(k[1:])}
		t.named[ns.name] = ns
		t.last = max(t.last, ns.id)
		return nil
	})
	if err != nil {
		return err
	}
	return t.loadNamings(r)
}

// NamespaceWaiting is how many bytes a namespace's waiting deliveries take.
func (s *Store) NamespaceWaiting(name string) int64 {
	if ns := s.endpoints.namespaces.get(name); ns != nil {
		return ns.waiting.Load()
	}
	return 0
}

// namespace gives the record of a namespace, made at its first event.
func (b *batch) namespace(name string) *namespace {
	ns, made := b.s.endpoints.namespaces.ensure(name)
	if made {
		b.put(keyNamespace(name), appendNamespaceKey(nil, kindNamespace, ns.id)[1:])
	}
	return ns
}
