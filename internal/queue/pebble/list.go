package pebble

import (
	"context"
	"errors"
	"slices"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// maxLook bounds how many events of other types one page looks past.
const maxLook = 10_000

// Events lists events of a namespace.
func (s *Store) Events(ctx context.Context, name string, q queue.EventQuery, limit int) (events []*queue.StoredEvent, next queue.Seq, err error) {
	err = s.view(func(r pebbledb.Reader) error {
		ns := s.endpoints.namespaces.get(name)
		if ns == nil {
			return ctx.Err()
		}
		l := &lister{s: s, r: r, ns: ns.id, query: q}
		events, next, err = l.page(ctx, max(limit, 1))
		return err
	})
	return events, next, err
}

// lister reads a page of a namespace's events by their index.
type lister struct {
	s     *Store
	r     pebbledb.Reader
	ns    namespaceID
	query queue.EventQuery
}

func (l *lister) page(ctx context.Context, limit int) (events []*queue.StoredEvent, next queue.Seq, err error) {
	from, to, err := l.bounds(ctx)
	if err != nil || from >= to {
		return nil, 0, err
	}
	it, err := l.r.NewIter(&pebbledb.IterOptions{
		LowerBound: appendListedKey(nil, l.ns, from), UpperBound: appendListedKey(nil, l.ns, to),
	})
	if err != nil {
		return nil, 0, err
	}
	first, advance := it.Last, it.Prev
	if l.query.Ascending {
		first, advance = it.First, it.Next
	}
	var last queue.Seq
	looked := 0
	for ok := first(); ok && err == nil; ok = advance() {
		if len(events) == limit || looked == maxLook {
			next = last
			break
		}
		looked++
		last = parseSeq(it.Key())
		var ev *queue.StoredEvent
		if ev, err = l.event(it); ev != nil {
			events = append(events, ev)
		}
		if err == nil && looked%64 == 0 {
			err = ctx.Err()
		}
	}
	return events, next, errors.Join(err, it.Error(), it.Close(), ctx.Err())
}

// event gives the event that the iterator is at; nil if it isn't of the types asked for.
func (l *lister) event(it *pebbledb.Iterator) (*queue.StoredEvent, error) {
	typ, err := it.ValueAndErr()
	if err != nil || !l.wants(string(typ)) {
		return nil, err
	}
	seq := parseSeq(it.Key())
	ev, _, err := l.s.envelope(l.r, seq)
	if isDamage(err) {
		// An event that can't be read doesn't hide the others.
		return nil, l.s.passOver(appendSeqKey(nil, kindEvent, seq), err)
	}
	if errors.Is(err, queue.ErrNotFound) {
		return nil, nil
	}
	return ev, err
}

func (l *lister) wants(typ string) bool {
	return len(l.query.Types) == 0 ||
		slices.ContainsFunc(l.query.Types, func(p string) bool { return event.MatchType(p, typ) })
}

// bounds gives the sequence numbers between which the page's events lie: from, and below
// to.
func (l *lister) bounds(ctx context.Context) (from, to queue.Seq, err error) {
	first, last, err := l.ends()
	if err != nil || last == 0 {
		return 0, 0, err
	}
	from, to = first, last+1
	if t := l.query.Since; !t.IsZero() {
		if from, err = l.firstFrom(ctx, t, from, to); err != nil {
			return 0, 0, err
		}
	}
	if t := l.query.Until; !t.IsZero() {
		if to, err = l.firstFrom(ctx, t, from, to); err != nil {
			return 0, 0, err
		}
	}
	if c := l.query.Cursor; c > 0 && l.query.Ascending {
		from = max(from, min(c, last)+1) // no cursor overflows
	} else if c > 0 {
		to = min(to, c)
	}
	return from, to, nil
}

// ends gives the namespace's first and last event; zeros if it has none.
func (l *lister) ends() (first, last queue.Seq, err error) {
	prefix := appendNamespaceKey(nil, kindListed, l.ns)
	it, err := l.r.NewIter(&pebbledb.IterOptions{LowerBound: prefix, UpperBound: upper(prefix)})
	if err != nil {
		return 0, 0, err
	}
	if it.First() {
		first = parseSeq(it.Key())
	}
	if it.Last() {
		last = parseSeq(it.Key())
	}
	return first, last, errors.Join(it.Error(), it.Close())
}

// firstFrom finds the first event accepted at a time or later, between two sequence
// numbers; to if there is none. Sequence numbers follow the time of acceptance, so that
// half of what is left is ruled out with each look.
func (l *lister) firstFrom(ctx context.Context, t time.Time, from, to queue.Seq) (queue.Seq, error) {
	it, err := l.r.NewIter(&pebbledb.IterOptions{UpperBound: appendListedKey(nil, l.ns, to)})
	if err != nil {
		return 0, err
	}
	for from < to && err == nil {
		middle := from + (to-from)/2
		seq, at, ok, rerr := l.acceptedFrom(it, middle)
		switch {
		case rerr != nil:
			err = rerr
		case !ok || !at.Before(t):
			to = middle // and what lies between middle and seq is not there
		default:
			from = seq + 1
		}
		err = errors.Join(err, ctx.Err())
	}
	return to, errors.Join(err, it.Close())
}

// acceptedFrom gives the first readable event from a sequence number on.
func (l *lister) acceptedFrom(it *pebbledb.Iterator, seq queue.Seq) (queue.Seq, time.Time, bool, error) {
	for ok := it.SeekGE(appendListedKey(nil, l.ns, seq)); ok; ok = it.Next() {
		seq = parseSeq(it.Key())
		ev, _, err := l.s.envelope(l.r, seq)
		switch {
		case err == nil:
			return seq, ev.AcceptedAt, true, nil
		case !isDamage(err) && !errors.Is(err, queue.ErrNotFound):
			return 0, time.Time{}, false, err
		}
	}
	return 0, time.Time{}, false, it.Error()
}
