package pebble

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// endpoint is what the store keeps in memory of an endpoint it knows. The writer
// changes it; everybody reads.
type endpoint struct {
	id        endpointID
	key       plan.EndpointKey
	namespace *namespace
	lane      atomic.Pointer[queue.Lane]

	pending, retrying, dead, filterErrors atomic.Int64
	// waitingBytes are the whole payloads of what waits.
	waitingBytes atomic.Int64
}

// count adds a delivery to the counts (n 1) or takes it out (-1).
func (e *endpoint) count(d *queue.Delivery, n int64) {
	switch d.State {
	case queue.Pending:
		e.pending.Add(n)
	case queue.Retrying:
		e.retrying.Add(n)
	case queue.DeadLettered:
		e.dead.Add(n)
	case queue.FilterError:
		e.filterErrors.Add(n)
	case queue.Delivered, queue.Discarded:
	}
	if d.State.Waiting() {
		e.waitingBytes.Add(n * int64(d.Size))
		e.namespace.waiting.Add(n * int64(d.Share+recordBytes))
	}
}

// recordBytes is what a waiting delivery takes on disk beside its share of the payload:
// the records of the event and of the delivery, as measured (docs/store.md).
const recordBytes = 200

// endpointTable is every endpoint the store has ever had a delivery or a lane for.
type endpointTable struct {
	mu    sync.RWMutex
	named map[plan.EndpointKey]*endpoint
	list  []*endpoint // by id-1; nil where an id was never given
	// aside are those of namespaces that were set aside: they are in list, and not in named.
	aside []*endpoint

	namespaces namespaceTable
}

// ensure gives an endpoint, made on first sight; ns is its namespace's.
func (t *endpointTable) ensure(k plan.EndpointKey, ns *namespace) (ep *endpoint, made bool) {
	if ep := t.get(k); ep != nil {
		return ep, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	ep = &endpoint{id: endpointID(len(t.list) + 1), key: k, namespace: ns} //nolint:gosec // far below 2³²
	t.named[k] = ep
	t.list = append(t.list, ep)
	return ep, true
}

func (t *endpointTable) get(k plan.EndpointKey) *endpoint {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.named[k]
}

func (t *endpointTable) byID(id endpointID) *endpoint {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if id == 0 || int(id) > len(t.list) {
		return nil
	}
	return t.list[id-1]
}

func (t *endpointTable) keys() []plan.EndpointKey {
	t.mu.RLock()
	defer t.mu.RUnlock()
	keys := make([]plan.EndpointKey, 0, len(t.named))
	for k := range t.named {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, plan.EndpointKey.Compare)
	return keys
}

func (t *endpointTable) counts(k plan.EndpointKey) queue.Counts {
	ep := t.get(k)
	if ep == nil {
		return queue.Counts{}
	}
	return queue.Counts{
		Pending: int(ep.pending.Load()), Retrying: int(ep.retrying.Load()), DeadLettered: int(ep.dead.Load()),
		FilterError: int(ep.filterErrors.Load()), WaitingBytes: ep.waitingBytes.Load(),
	}
}

func (t *endpointTable) lane(k plan.EndpointKey) queue.Lane {
	if ep := t.get(k); ep != nil {
		if l := ep.lane.Load(); l != nil {
			return *l
		}
	}
	return queue.Lane{}
}

// load reads the names. One that can't be read keeps the store from opening: its deliveries
// would have no endpoint.
func (t *endpointTable) load(r pebbledb.Reader) error {
	t.named = map[plan.EndpointKey]*endpoint{}
	if err := t.namespaces.load(r); err != nil {
		return err
	}
	return scan(context.Background(), r, []byte{kindEndpoint}, nil, func(k, v []byte) error {
		ns, name, ok := bytes.Cut(k[1:], []byte{0})
		if !ok || len(v) != 4 {
			return errRecord
		}
		ep := &endpoint{
			id:  endpointID(binary.BigEndian.Uint32(v)),
			key: plan.EndpointKey{Namespace: string(ns), Name: string(name)},
		}
		// Of format 1 there is none yet; the upgrade writes it.
		ep.namespace, _ = t.namespaces.ensure(ep.key.Namespace)
		for len(t.list) < int(ep.id) {
			t.list = append(t.list, nil)
		}
		t.list[ep.id-1] = ep
		if isAside(ep.key.Namespace) {
			t.aside = append(t.aside, ep)
		} else {
			t.named[ep.key] = ep
		}
		return nil
	})
}
