package pebble

import (
	"bytes"
	"context"
	"slices"
	"strings"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// A namespace that is deleted and made anew is another one, with another uid, and inherits
// nothing of the former. The store sets the former one aside: nothing of it is written
// anew but the names that lead to it, which become such that nobody can ask for them,
// namespace@uid. What the names led to keeps its numbers, and so its place:
//
//	m  namespace           a new number; m namespace@uid has the former's
//	n  namespace 0 name    none; n namespace@uid 0 name has the endpoint's number
//	i  namespace 0 …       none: identities are free again
//	w  namespace           the new uid, and where the former one's events end
//
// An event's record says the name as it was; by the event's sequence number the store
// knows whose it is (namespaceTable.of).

// asideMark is in no name of a namespace.
const asideMark = "@"

func isAside(namespace string) bool { return strings.Contains(namespace, asideMark) }

// naming is which namespaces of the cluster a name has meant. It is guarded by the table's
// lock.
type naming struct {
	uid string // empty: not known
	// formers were set aside, oldest first.
	formers []former
}

// former is a namespace that was set aside: events before until are its own.
type former struct {
	uid   string
	until queue.Seq
}

// what a uid is to the name, and whether that is noted already.
func (n *naming) what(uid string) (what queue.Naming, noted bool) {
	switch {
	case n.uid == uid:
		return queue.SameNamespace, true
	case slices.ContainsFunc(n.formers, func(f former) bool { return f.uid == uid }):
		return queue.FormerNamespace, true
	case n.uid == "":
		return queue.SameNamespace, false
	}
	return queue.NewNamespace, false
}

// at gives the former that an event is of; nil for none.
func (n *naming) at(seq queue.Seq) *former {
	for i := range n.formers {
		if seq < n.formers[i].until {
			return &n.formers[i]
		}
	}
	return nil
}

// of gives the name under which an event's namespace is known.
func (t *namespaceTable) of(name string, seq queue.Seq) string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if ns := t.named[name]; ns != nil {
		if f := ns.at(seq); f != nil {
			return name + asideMark + f.uid
		}
	}
	return name
}

// taken reports whether the identity of an event, by its key, went with its namespace.
func (t *namespaceTable) taken(identity []byte, seq queue.Seq) bool {
	name, _, _ := bytes.Cut(identity[1:], []byte{0})
	return t.of(string(name), seq) != string(name)
}

func encodeNaming(n *naming) []byte {
	e := encoder{}
	e.string(1, n.uid)
	for _, f := range n.formers {
		one := encoder{}
		one.string(1, f.uid)
		one.uint(2, uint64(f.until))
		e.bytes(2, one.b)
	}
	return e.b
}

func decodeNaming(b []byte) (n naming, err error) {
	err = decode(b, func(f field) error {
		switch f.n {
		case 1:
			n.uid = string(f.b)
		case 2:
			var one former
			if err := decode(f.b, func(f field) error {
				switch f.n {
				case 1:
					one.uid = string(f.b)
				case 2:
					one.until = queue.Seq(f.u)
				}
				return nil
			}); err != nil {
				return err
			}
			n.formers = append(n.formers, one)
		}
		return nil
	})
	return n, err
}

// loadNamings reads what the names mean. One that can't be read keeps the store from
// opening: a namespace would be shown what is another's.
func (t *namespaceTable) loadNamings(r pebbledb.Reader) error {
	return scan(context.Background(), r, []byte{kindNaming}, nil, func(k, v []byte) error {
		n, err := decodeNaming(v)
		if err != nil {
			return err
		}
		ns, _ := t.ensure(string(k[1:]))
		ns.naming = n
		return nil
	})
}

// Namespace tells the store which namespace a name means now.
func (s *Store) Namespace(ctx context.Context, name, uid string) (queue.Naming, error) {
	if uid == "" {
		return queue.SameNamespace, ctx.Err()
	}
	if what, noted := s.Naming(name, uid); noted {
		return what, ctx.Err()
	}
	op := &namingOp{waitOp: newWaitOp(), name: name, uid: uid}
	err := s.run(ctx, op, op.done)
	return op.what, err
}

func (t *namespaceTable) what(name, uid string) (queue.Naming, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if ns := t.named[name]; ns != nil {
		return ns.what(uid)
	}
	return queue.SameNamespace, false
}

// Naming is what Namespace would answer, and whether it would change nothing.
func (s *Store) Naming(name, uid string) (what queue.Naming, noted bool) {
	return s.endpoints.namespaces.what(name, uid)
}

type namingOp struct {
	waitOp
	name, uid string
	what      queue.Naming
}

func (o *namingOp) apply(b *batch) error {
	ns := b.namespace(o.name)
	var noted bool
	if o.what, noted = ns.what(o.uid); noted {
		return nil // somebody else was first
	}
	now := naming{uid: o.uid, formers: slices.Clone(ns.formers)}
	if o.what == queue.NewNamespace {
		now.formers = append(now.formers, former{ns.uid, b.s.nextSeq})
		b.setAside(ns, o.name+asideMark+ns.uid)
		ns = b.namespace(o.name)
	}
	b.put(keyNaming(o.name), encodeNaming(&now))
	table := &b.s.endpoints.namespaces
	table.mu.Lock()
	defer table.mu.Unlock()
	ns.naming = now
	b.durable = true
	return nil
}

// setAside gives a namespace and its endpoints a name that nobody asks for, and lets its
// identities go.
func (b *batch) setAside(ns *namespace, aside string) {
	name := ns.name
	b.put(keyNamespace(aside), appendNamespaceKey(nil, kindNamespace, ns.id)[1:])
	for _, ep := range b.s.endpoints.setAside(ns, aside) {
		b.del(keyEndpoint(name, ep.key.Name))
		b.put(keyEndpoint(aside, ep.key.Name), appendEndpointKey(nil, kindEndpoint, ep.id)[1:])
	}
	identities := appendIdentityKey(nil, name, "")
	b.delRange(identities, upper(identities))
	for k := range b.identities {
		if strings.HasPrefix(k, string(identities)) {
			delete(b.identities, k)
		}
	}
	if b.aside == nil {
		b.aside = map[string]bool{}
	}
	b.aside[name] = true
}

// setAside moves a namespace and its endpoints to a name; it gives the endpoints.
func (t *endpointTable) setAside(ns *namespace, aside string) (moved []*endpoint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, ep := range t.named {
		if ep.namespace != ns {
			continue
		}
		// Another one, since whoever reads has this one.
		is := &endpoint{id: ep.id, key: plan.EndpointKey{Namespace: aside, Name: k.Name}, namespace: ns}
		is.pending.Store(ep.pending.Load())
		is.retrying.Store(ep.retrying.Load())
		is.dead.Store(ep.dead.Load())
		is.filterErrors.Store(ep.filterErrors.Load())
		is.waitingBytes.Store(ep.waitingBytes.Load())
		t.list[ep.id-1] = is
		delete(t.named, k)
		moved = append(moved, is)
	}
	t.aside = append(t.aside, moved...)
	t.namespaces.setAside(ns, aside)
	return moved
}

func (t *namespaceTable) setAside(ns *namespace, aside string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.named, ns.name)
	ns.name, ns.naming = aside, naming{}
	t.named[aside] = ns
}

// waitingAside are the endpoints that were set aside and of which something waits.
func (t *endpointTable) waitingAside() (out []*endpoint) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, ep := range t.aside {
		if ep.pending.Load()+ep.retrying.Load() > 0 {
			out = append(out, ep)
		}
	}
	return out
}

// asideAtOnce bounds one step.
const asideAtOnce = 500

// endAside dead-letters what waits of namespaces that were set aside. A crash in the middle
// is made up for by the next call.
func (p *pruner) endAside(ctx context.Context) error {
	for _, ep := range p.s.endpoints.waitingAside() {
		ended := 0
		for _, kind := range []byte{kindFresh, kindRetrying} {
			n, err := p.endKind(ctx, ep, kind)
			if ended += n; err != nil {
				return err
			}
		}
		if ended == 0 {
			continue
		}
		name, _, _ := strings.Cut(ep.key.Namespace, asideMark)
		p.s.log.Info("Waiting deliveries were dead-lettered: their namespace was deleted, and another one of the name made",
			"endpoint", name+"/"+ep.key.Name, "reason", queue.ReasonEndpointDeleted, "deliveries", ended)
	}
	return nil
}

func (p *pruner) endKind(ctx context.Context, ep *endpoint, kind byte) (ended int, err error) {
	for after := queue.Seq(0); ; {
		var ds []queue.Delivery
		if err := p.s.read(func(r pebbledb.Reader) error {
			ds, err = p.s.records(ctx, r, ep, kind, page{after, asideAtOnce}, nil)
			return err
		}); err != nil || len(ds) == 0 {
			return ended, err
		}
		op := &changeOp{waitOp: newWaitOp(), ep: ep, durable: true}
		for i := range ds {
			op.seqs = append(op.seqs, ds[i].Seq)
			after = ds[i].Seq
		}
		op.to = ending(queue.DeadLettered, queue.ReasonEndpointDeleted)
		if err := p.s.run(ctx, op, op.done); err != nil {
			return ended, err
		}
		ended += op.changed
	}
}
