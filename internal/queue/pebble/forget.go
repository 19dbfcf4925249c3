package pebble

import (
	"encoding/binary"
	"time"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

// leastRange is from how many records on a range tombstone takes the place of one for each:
// it costs more to read past.
const leastRange = 16

// forgetOp removes what a look has found, and ends the look.
type forgetOp struct {
	waitOp
	*look
	// identities: those accepted before go with their events.
	identities time.Time
	removed    queue.Pruned
	// dropped are the bytes of payloads of events that are kept.
	dropped int64
}

func (f *forgetOp) apply(b *batch) error {
	if f.leaveOut(b.s.segments.seen()) {
		f.left.merge(unknown(f.left.id)) // it is looked at again
	}
	b.s.segments.end(f.left)
	if len(f.forget) > 0 {
		f.removeEvents(b)
	}
	if len(f.drop) > 0 {
		r := ranges{b: b, append: func(k []byte, seq queue.Seq) []byte { return appendSeqKey(k, kindPayload, seq) }}
		for _, d := range f.drop {
			r.add(d.seq, d.run)
			f.dropped += int64(d.size)
		}
		r.flush()
		f.removed.Payloads = int64(len(f.drop))
	}
	return nil
}

// leaveOut takes out what has changed since it was read, and reports whether there was
// something. What lies on both sides of such an event is in two runs from now on.
func (f *forgetOp) leaveOut(touched map[queue.Seq]bool) bool {
	if len(touched) == 0 {
		return false
	}
	const split = 1 << segmentShift // more than there are runs
	var forget []forgotten
	for shift, i := 0, 0; i < len(f.forget); i++ {
		x := f.forget[i]
		if touched[x.seq] {
			shift += split
			continue
		}
		x.run += shift
		forget = append(forget, x)
	}
	var drop []dropped
	for shift, i := 0, 0; i < len(f.drop); i++ {
		d := f.drop[i]
		if touched[d.seq] {
			shift += split
			continue
		}
		d.run += shift
		drop = append(drop, d)
	}
	left := len(forget) < len(f.forget) || len(drop) < len(f.drop)
	f.forget, f.drop = forget, drop
	return left
}

func (f *forgetOp) removeEvents(b *batch) {
	events := ranges{b: b, append: func(k []byte, seq queue.Seq) []byte { return appendSeqKey(k, kindEvent, seq) }}
	payloads := ranges{b: b, append: func(k []byte, seq queue.Seq) []byte { return appendSeqKey(k, kindPayload, seq) }}
	attempts := ranges{b: b, append: func(k []byte, seq queue.Seq) []byte { return appendSeqKey(k, kindAttempt, seq) }}
	listed := map[namespaceID]*ranges{}
	deliveries := map[deliveryPlace]*ranges{}
	for _, x := range f.forget {
		events.add(x.seq, x.run)
		payloads.add(x.seq, x.run)
		in(listed, x.namespace, func() *ranges {
			return &ranges{b: b, append: func(k []byte, seq queue.Seq) []byte { return appendListedKey(k, x.namespace, seq) }}
		}).add(x.seq, x.run)
		for _, d := range x.deliveries {
			attempts.add(x.seq, x.run)
			for n := 1; n <= d.delivery.Attempts; n++ {
				attempts.keys = append(attempts.keys, appendAttemptKey(nil, x.seq, d.endpoint.id, n))
			}
			place := deliveryPlace{kindOf(d.delivery), d.endpoint.id}
			in(deliveries, place, func() *ranges {
				return &ranges{b: b, append: func(k []byte, seq queue.Seq) []byte {
					return appendDeliveryKey(k, place.kind, place.endpoint, seq)
				}}
			}).add(x.seq, x.run)
			d.endpoint.count(d.delivery, -1)
		}
		b.forgetIdentity(&x, f.identities)
		f.removed.Events++
		f.removed.Bytes += int64(x.size)
		if x.early {
			f.removed.ByBytes++
			f.removed.ByBytesBytes += int64(x.size)
		}
		b.forgotten[x.seq] = true
	}
	events.flush()
	payloads.flush()
	attempts.flush()
	for _, r := range listed {
		r.flush()
	}
	for _, r := range deliveries {
		r.flush()
	}
}

// deliveryPlace is where deliveries of an endpoint in one state lie.
type deliveryPlace struct {
	kind     byte
	endpoint endpointID
}

func in[K comparable](m map[K]*ranges, k K, make1 func() *ranges) *ranges {
	r := m[k]
	if r == nil {
		r = make1()
		m[k] = r
	}
	return r
}

// forgetIdentity lets an event's identity go with it, or notes it as an orphan until its
// time has come. An identity belongs to one event, or one orphan, as long as it is there.
func (b *batch) forgetIdentity(x *forgotten, before time.Time) {
	if x.acceptedAt.Before(before) {
		b.del(x.identity)
		b.identities[string(x.identity)] = identity{}
		return
	}
	b.value = binary.BigEndian.AppendUint64(b.value[:0], uint64(nanos(x.acceptedAt))) //nolint:gosec // never negative
	b.value = append(b.value, x.identity...)
	b.key = appendSeqKey(b.key[:0], kindOrphan, x.seq)
	b.put(b.key, b.value)
}

// ranges removes records that lie in order of sequence numbers: many of one run by one
// range tombstone, few by one each.
type ranges struct {
	b      *batch
	append func(k []byte, seq queue.Seq) []byte
	run    int
	seqs   []queue.Seq
	// keys are those of the records, where append gives only their beginning.
	keys [][]byte
}

// add removes the records of a sequence number. Those of one run have no kept one between
// them. They come in order, and one may come several times in a row.
func (r *ranges) add(seq queue.Seq, run int) {
	if run != r.run {
		r.flush()
		r.run = run
	}
	if n := len(r.seqs); n == 0 || r.seqs[n-1] != seq {
		r.seqs = append(r.seqs, seq)
	}
}

func (r *ranges) flush() {
	switch {
	case len(r.seqs) >= leastRange:
		r.b.delRange(r.append(nil, r.seqs[0]), r.append(nil, r.seqs[len(r.seqs)-1]+1))
	case len(r.keys) > 0:
		for _, k := range r.keys {
			r.b.del(k)
		}
	default:
		for _, seq := range r.seqs {
			r.b.key = r.append(r.b.key[:0], seq)
			r.b.del(r.b.key)
		}
	}
	r.seqs, r.keys = r.seqs[:0], r.keys[:0]
}

// delRange removes what lies from a key to before another.
func (b *batch) delRange(from, to []byte) { _ = b.DeleteRange(from, to, nil) }
