package pebble

import (
	"encoding/binary"

	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

// A fresh delivery's record is short, since every delivery has one for a while: eight
// bytes of the time of acceptance, a byte of flags, the payload's size and this delivery's
// share of it as varints, and the order key where there is one. Of format 1 there are only
// the eight bytes.
const (
	freshUndecided = 1 << iota
	freshKey
)

func encodeFresh(b []byte, d *queue.Delivery) []byte {
	var flags byte
	if d.Undecided {
		flags |= freshUndecided
	}
	if d.Key != 0 {
		flags |= freshKey
	}
	b = binary.BigEndian.AppendUint64(b, uint64(nanos(d.QueuedAt))) //nolint:gosec // never negative
	b = append(b, flags)
	b = binary.AppendUvarint(b, uint64(max(d.Size, 0)))
	b = binary.AppendUvarint(b, uint64(max(d.Share, 0)))
	if d.Key != 0 {
		b = binary.BigEndian.AppendUint64(b, d.Key)
	}
	return b
}

func decodeFresh(b []byte, d *queue.Delivery) error {
	if len(b) < 8 {
		return errRecord
	}
	d.State = queue.Pending
	d.QueuedAt = fromNanos(int64(binary.BigEndian.Uint64(b))) //nolint:gosec // written by encodeFresh
	d.DueAt = d.QueuedAt
	if b = b[8:]; len(b) == 0 {
		return nil // format 1
	}
	flags := b[0]
	d.Undecided = flags&freshUndecided != 0
	size, n := binary.Uvarint(b[1:])
	if n <= 0 {
		return errRecord
	}
	b = b[1+n:]
	share, n := binary.Uvarint(b)
	if n <= 0 {
		return errRecord
	}
	d.Size, d.Share = int(size), int(share) //nolint:gosec // written from ints
	if b = b[n:]; flags&freshKey != 0 {
		if len(b) < 8 {
			return errRecord
		}
		d.Key = binary.BigEndian.Uint64(b)
	}
	return nil
}

func encodeAttempt(b []byte, a *queue.Attempt) []byte {
	e := encoder{b}
	e.int(1, a.Number)
	e.time(2, a.StartedAt)
	e.dur(3, a.Duration)
	e.int(4, a.Status)
	e.uint(5, uint64(a.Class))
	e.string(6, a.Reason)
	e.string(7, a.Message)
	e.uint(8, uint64(a.Sent))
	if a.Replay {
		e.uint(9, 1)
	}
	e.string(10, a.HandlerVersion)
	e.bytes(11, a.Response)
	return e.b
}

func decodeAttempt(b []byte) (a queue.Attempt, err error) {
	err = decode(b, func(f field) error {
		switch f.n {
		case 1:
			a.Number = f.int()
		case 2:
			a.StartedAt = f.time()
		case 3:
			a.Duration = f.dur()
		case 4:
			a.Status = f.int()
		case 5:
			a.Class = retry.Class(f.u) //nolint:gosec // written from a Class
		case 6:
			a.Reason = string(f.b)
		case 7:
			a.Message = string(f.b)
		case 8:
			a.Sent = queue.Sent(f.u) //nolint:gosec // written from a Sent
		case 9:
			a.Replay = f.u == 1
		case 10:
			a.HandlerVersion = string(f.b)
		case 11:
			a.Response = append([]byte(nil), f.b...)
		}
		return nil
	})
	return a, err
}

func encodeLane(l queue.Lane) []byte {
	e := encoder{}
	if l.Disabled {
		e.uint(1, 1)
	}
	e.string(2, l.Reason)
	e.string(3, l.Message)
	e.time(4, l.At)
	e.string(5, l.Hash)
	e.string(6, l.RetryHash)
	if l.BackingOff {
		e.uint(7, 1)
	}
	e.time(8, l.Until)
	return e.b
}

func decodeLane(b []byte) (l queue.Lane, err error) {
	err = decode(b, func(f field) error {
		switch f.n {
		case 1:
			l.Disabled = f.u == 1
		case 2:
			l.Reason = string(f.b)
		case 3:
			l.Message = string(f.b)
		case 4:
			l.At = f.time()
		case 5:
			l.Hash = string(f.b)
		case 6:
			l.RetryHash = string(f.b)
		case 7:
			l.BackingOff = f.u == 1
		case 8:
			l.Until = f.time()
		}
		return nil
	})
	return l, err
}

func encodeAudit(r *queue.AuditRecord) []byte {
	e := encoder{}
	e.time(1, r.At)
	e.string(2, r.Caller)
	e.string(3, r.Action)
	e.string(4, r.Target)
	e.string(5, r.Detail)
	e.int(6, r.Count)
	return e.b
}

func decodeAudit(b []byte) (r queue.AuditRecord, err error) {
	err = decode(b, func(f field) error {
		switch f.n {
		case 1:
			r.At = f.time()
		case 2:
			r.Caller = string(f.b)
		case 3:
			r.Action = string(f.b)
		case 4:
			r.Target = string(f.b)
		case 5:
			r.Detail = string(f.b)
		case 6:
			r.Count = f.int()
		}
		return nil
	})
	return r, err
}
