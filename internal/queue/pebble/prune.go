package pebble

import (
	"context"
	"errors"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// Prune forgets what need not be kept any more. It works segment by segment (segments.go):
// an op begins the look, so that the writer notes from then on which events change; the
// look reads a snapshot, beside the writer; a second op removes what was found, but for
// what has changed meanwhile. Both ops take the writer a millisecond or so.
func (s *Store) Prune(ctx context.Context, r queue.Retention) (queue.Pruned, error) {
	if err := ctx.Err(); err != nil {
		return queue.Pruned{}, err
	}
	s.pruning.Lock()
	defer s.pruning.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	p := &pruner{s: s, Retention: r}
	err := p.run(ctx)
	s.pruned.add(p.done)
	if s.isClosing() {
		err = queue.ErrClosed
	}
	return p.done, err
}

// Pruned is what was forgotten since the store was opened.
func (s *Store) Pruned() queue.Pruned { return s.pruned.get() }

// pruner is one call of Prune.
type pruner struct {
	s *Store
	queue.Retention
	done queue.Pruned
	// hurry: events are forgotten before their time, of early bytes in all.
	hurry bool
	early int64
}

func (p *pruner) run(ctx context.Context) error {
	for _, step := range []func(context.Context) error{p.endAside, p.byAge, p.bySize, p.orphans, p.audits, p.erasures} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// byAge forgets what is old enough.
func (p *pruner) byAge(ctx context.Context) error {
	if _, err := p.segments(ctx); err != nil {
		return err
	}
	return p.s.reclaim.run(ctx, p.s, reclaimInPassing)
}

// bySize forgets the oldest delivered events while the store is over its size. What was
// forgotten takes its place on disk until it is compacted, so that is done, and the size
// looked at again.
func (p *pruner) bySize(ctx context.Context) error {
	for begun := time.Now(); time.Since(begun) < bySizeAtMost; {
		over := p.s.overSize(p.MaxBytes)
		if over <= 0 {
			return nil
		}
		if p.s.reclaim.bytes == 0 {
			p.hurry, p.early = true, over
			forgot, err := p.segments(ctx)
			p.hurry = false
			if err != nil || forgot == 0 {
				return err // nothing is left that may go
			}
		}
		if err := p.s.reclaim.run(ctx, p.s, 1); err != nil {
			return err
		}
	}
	return nil
}

// bySizeAtMost bounds how long a call goes on while as much comes in as it forgets.
const bySizeAtMost = 10 * time.Second

// segments looks at all segments that may have something to forget, and gives the number
// of events forgotten.
func (p *pruner) segments(ctx context.Context) (forgot int64, err error) {
	before := p.done.Events
	for id := uint64(0); ; id++ {
		begun := time.Now()
		var ok bool
		if id, ok, err = p.next(id); err != nil || !ok {
			break
		}
		if err = p.segment(ctx, id); err != nil || p.hurry && p.early <= 0 {
			break
		}
		if !p.hurry {
			rest(ctx, time.Since(begun)) // it takes half of a processor at most
		}
	}
	return p.done.Events - before, errors.Join(err, ctx.Err())
}

// next gives the next segment to look at, from an id on.
func (p *pruner) next(from uint64) (id uint64, ok bool, err error) {
	id, known := p.s.segments.due(from, &p.Retention, p.hurry)
	if known {
		return id, true, nil
	}
	// Never looked at: it is worth a look if its first event is old enough.
	err = p.s.read(func(r pebbledb.Reader) error {
		seq, at, err := p.s.firstEvent(r, queue.Seq(id<<segmentShift))
		if err != nil || seq == 0 {
			return err
		}
		id = segmentOf(seq)
		ok = p.hurry || p.DropPayloads || at.Before(p.Delivered) || at.Before(p.DeadLetters)
		return nil
	})
	return id, ok, err
}

// segment looks at one segment and forgets what is found.
func (p *pruner) segment(ctx context.Context, id uint64) error {
	begin := &beginOp{waitOp: newWaitOp(), segment: id}
	if err := p.s.run(ctx, begin, begin.done); err != nil {
		return err
	}
	l := &look{s: p.s, Retention: p.Retention}
	if p.hurry {
		l.early = p.early
	}
	l.left.id = id
	end := &forgetOp{waitOp: newWaitOp(), look: l, identities: p.Identities}
	err := p.s.view(func(r pebbledb.Reader) error { return l.read(ctx, r) })
	if err != nil {
		// Nothing is removed, and the segment is looked at again.
		*l = look{s: p.s, left: unknown(id)}
	}
	// The look must be ended, whatever else happens and however long it takes.
	if serr := p.s.submit(context.WithoutCancel(ctx), end, 0); serr != nil {
		return errors.Join(err, serr)
	}
	if err = errors.Join(err, <-end.done); err != nil {
		return err
	}
	p.done.Add(end.removed)
	p.early -= end.removed.ByBytesBytes + end.removed.ByBytes*recordBytes
	if n := end.removed.Bytes + end.removed.Events*recordBytes + end.dropped; n > 0 {
		p.s.reclaim.add(id, n)
	}
	return nil
}

// firstEvent gives the first readable event from a sequence number on; 0 if there is none.
func (s *Store) firstEvent(r pebbledb.Reader, from queue.Seq) (seq queue.Seq, at time.Time, err error) {
	err = s.scanPast(context.Background(), r, []byte{kindEvent}, appendSeqKey(nil, kindEvent, from), func(k, v []byte) error {
		ev, _, err := decodeEvent(parseSeq(k), v)
		if err != nil {
			return err // past it
		}
		seq, at = ev.Seq, ev.AcceptedAt
		return errStop
	})
	return seq, at, err
}

func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// beginOp begins a look at a segment. It is an op so that all changes before it are in the
// store, and so in the look's snapshot, and all after it are noted.
type beginOp struct {
	waitOp
	segment uint64
}

func (o *beginOp) apply(b *batch) error {
	b.s.segments.begin(o.segment)
	return nil
}
