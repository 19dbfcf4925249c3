package pebble

import (
	"context"
	"slices"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// Accept stores events and their deliveries in one durable step.
func (s *Store) Accept(ctx context.Context, events []queue.NewEvent) ([]queue.Accepted, error) {
	if len(events) == 0 {
		return nil, nil
	}
	a := &acceptOp{waitOp: newWaitOp(), events: events}
	for i := range events {
		a.size += len(events[i].Event.Body) + 512
	}
	if err := s.space.check(a.size); err != nil {
		return nil, err
	}
	if err := s.submit(ctx, a, overloadAfter); err != nil {
		return nil, err
	}
	select {
	case err := <-a.done:
		return a.accepted, err
	case <-ctx.Done():
		// It may still become durable; a producer that asks again gets a duplicate's answer.
		return nil, ctx.Err()
	}
}

type acceptOp struct {
	waitOp
	events []queue.NewEvent
	size   int
	// results
	accepted []queue.Accepted
	stored   []*queue.StoredEvent
}

func (a *acceptOp) apply(b *batch) error {
	known := make([]*identity, len(a.events))
	for i := range a.events {
		id, err := b.identity(a.events[i])
		if err != nil {
			return err
		}
		if id != nil && id.hash != a.events[i].Event.Hash {
			return &queue.ConflictError{Index: i, WebhookID: a.events[i].Event.WebhookID}
		}
		known[i] = id
	}
	if err := a.checkWithin(known); err != nil {
		return err
	}
	// Nothing fails from here on. A duplicate needs no fsync of its own: it is answered
	// after the batches before it, and the first one is in one of them or in this.
	a.accepted = make([]queue.Accepted, len(a.events))
	for i := range a.events {
		if known[i] == nil {
			// An earlier element of this call may have stored it meanwhile.
			if id, ok := b.identities[identityKey(a.events[i])]; ok && id.seq != 0 {
				known[i] = &id
			}
		}
		if id := known[i]; id != nil {
			a.accepted[i] = queue.Accepted{Seq: id.seq, Duplicate: true, Endpoints: id.endpoints}
			continue
		}
		ev := b.store(a.events[i])
		b.durable = true
		a.stored = append(a.stored, ev)
		a.accepted[i] = queue.Accepted{Seq: ev.Seq, Endpoints: len(ev.Endpoints)}
	}
	return nil
}

// checkWithin finds two elements of one call with the same identity and other
// content: nothing of the call has been stored yet.
func (a *acceptOp) checkWithin(known []*identity) error {
	if len(a.events) == 1 {
		return nil
	}
	seen := make(map[string]int, len(a.events))
	for i := range a.events {
		if known[i] != nil {
			continue
		}
		k := identityKey(a.events[i])
		if j, ok := seen[k]; !ok {
			seen[k] = i
		} else if a.events[j].Event.Hash != a.events[i].Event.Hash {
			return &queue.ConflictError{Index: i, WebhookID: a.events[i].Event.WebhookID, Within: true}
		}
	}
	return nil
}

func identityKey(e queue.NewEvent) string {
	return string(appendIdentityKey(nil, e.Event.Namespace, e.Event.WebhookID))
}

// identity finds what is known of an event's identity; nil if nothing is.
func (b *batch) identity(e queue.NewEvent) (*identity, error) {
	b.key = appendIdentityKey(b.key[:0], e.Event.Namespace, e.Event.WebhookID)
	if id, ok := b.identities[string(b.key)]; ok {
		if id.seq == 0 {
			return nil, nil // forgotten by this batch
		}
		return &id, nil
	}
	if b.aside[e.Event.Namespace] {
		return nil, nil // what the store has is a former namespace's
	}
	it, err := b.identityIterator()
	if err != nil {
		return nil, err
	}
	if !it.SeekPrefixGE(b.key) {
		return nil, it.Error()
	}
	v, err := it.ValueAndErr()
	if err != nil {
		return nil, err
	}
	id, err := decodeIdentity(v)
	return &id, err
}

// identityIterator looks identities up. Nearly none is there, and unlike Get an
// iterator can be told to ask the filters of the last level too, where most of the
// store lies; one serves a whole batch.
func (b *batch) identityIterator() (*pebbledb.Iterator, error) {
	if b.known == nil {
		it, err := b.s.db.NewIter(&pebbledb.IterOptions{
			LowerBound: []byte{kindIdentity}, UpperBound: upper([]byte{kindIdentity}), UseL6Filters: true,
		})
		if err != nil {
			return nil, err
		}
		b.known = it
	}
	return b.known, nil
}

// store writes a new event with its deliveries.
func (b *batch) store(n queue.NewEvent) *queue.StoredEvent {
	ev := &queue.StoredEvent{
		Event: n.Event, Seq: b.s.nextSeq, AcceptedAt: b.now, TraceParent: n.TraceParent,
		Size: len(n.Event.Body), Undecided: sorted(n.Undecided), FilterErrors: sorted(n.FilterErrors),
	}
	b.s.nextSeq++
	b.arrived = append(b.arrived, ev)
	eps := make([]*endpoint, 0, len(n.Endpoints))
	ids := make([]endpointID, 0, len(n.Endpoints))
	// Twice the same would be one record counted twice. An event may have thousands.
	seen := make(map[endpointID]bool, len(n.Endpoints))
	for _, k := range n.Endpoints {
		if ep := b.endpoint(k); !seen[ep.id] {
			seen[ep.id] = true
			eps, ids = append(eps, ep), append(ids, ep.id)
			ev.Endpoints = append(ev.Endpoints, k)
		}
	}

	b.key = appendSeqKey(b.key[:0], kindEvent, ev.Seq)
	b.value = encodeEvent(b.value[:0], ev, ids)
	b.put(b.key, b.value)
	b.key = appendSeqKey(b.key[:0], kindPayload, ev.Seq)
	b.put(b.key, ev.Body)
	b.key = appendListedKey(b.key[:0], b.namespace(ev.Namespace).id, ev.Seq)
	b.value = append(b.value[:0], ev.Type...)
	b.put(b.key, b.value)

	id := identity{seq: ev.Seq, hash: ev.Hash, at: b.now, endpoints: len(eps)}
	b.key = appendIdentityKey(b.key[:0], ev.Namespace, ev.WebhookID)
	b.value = encodeIdentity(b.value[:0], id)
	b.put(b.key, b.value)
	b.identities[string(b.key)] = id

	for _, ep := range eps {
		d := ev.New(ep.key)
		kind := kindOf(&d)
		b.key = appendDeliveryKey(b.key[:0], kind, ep.id, ev.Seq)
		b.value = encodeAs(b.value[:0], kind, &d)
		b.put(b.key, b.value)
		b.line(ep, nil, &d)
		ep.count(&d, 1)
		if !d.State.Waiting() {
			b.s.segments.ended(ev.Seq, d.State, b.now)
		}
	}
	if len(eps) == 0 {
		b.s.segments.ended(ev.Seq, queue.Delivered, b.now)
	}
	return ev
}

// endpoint gives the record of an endpoint, made at its first delivery.
func (b *batch) endpoint(k plan.EndpointKey) *endpoint {
	if ep := b.s.endpoints.get(k); ep != nil {
		return ep
	}
	ep, _ := b.s.endpoints.ensure(k, b.namespace(k.Namespace))
	b.put(keyEndpoint(k.Namespace, k.Name), appendEndpointKey(nil, kindEndpoint, ep.id)[1:])
	return ep
}

// sorted gives keys in order; an event may have thousands.
func sorted(keys []plan.EndpointKey) []plan.EndpointKey {
	if slices.IsSortedFunc(keys, plan.EndpointKey.Compare) {
		return keys
	}
	return slices.SortedFunc(slices.Values(keys), plan.EndpointKey.Compare)
}
