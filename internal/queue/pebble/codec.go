package pebble

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// Records are sequences of numbered fields in protobuf's wire format: a reader
// skips the numbers it doesn't know, so that fields can be added without a new
// store format. Numbers are on disk: never reuse one.

var errRecord = errors.New("unreadable record")

// encoder appends fields, leaving out zero values.
type encoder struct{ b []byte }

func (e *encoder) uint(n protowire.Number, v uint64) {
	if v != 0 {
		e.b = protowire.AppendTag(e.b, n, protowire.VarintType)
		e.b = protowire.AppendVarint(e.b, v)
	}
}

func (e *encoder) int(n protowire.Number, v int)           { e.uint(n, uint64(max(v, 0))) }
func (e *encoder) time(n protowire.Number, t time.Time)    { e.uint(n, uint64(nanos(t))) }
func (e *encoder) dur(n protowire.Number, d time.Duration) { e.uint(n, uint64(max(d, 0))) }

// date keeps a producer's time, which may be of any year: seconds since year 1 and
// nanoseconds. A date must be read in the order it was written.
func (e *encoder) date(seconds, nanoseconds protowire.Number, t time.Time) {
	e.uint(seconds, protowire.EncodeZigZag(t.Unix()-time.Time{}.Unix()))
	e.int(nanoseconds, t.Nanosecond())
}

// fixed is for numbers that are seldom small, such as hashes.
func (e *encoder) fixed(n protowire.Number, v uint64) {
	if v != 0 {
		e.b = protowire.AppendTag(e.b, n, protowire.Fixed64Type)
		e.b = protowire.AppendFixed64(e.b, v)
	}
}

func (e *encoder) string(n protowire.Number, s string) {
	if s != "" {
		e.b = protowire.AppendTag(e.b, n, protowire.BytesType)
		e.b = protowire.AppendString(e.b, s)
	}
}

func (e *encoder) bytes(n protowire.Number, s []byte) {
	if len(s) != 0 {
		e.b = protowire.AppendTag(e.b, n, protowire.BytesType)
		e.b = protowire.AppendBytes(e.b, s)
	}
}

func (e *encoder) pair(n protowire.Number, a, b string) {
	e.b = protowire.AppendTag(e.b, n, protowire.BytesType)
	size := protowire.SizeBytes(len(a)) + protowire.SizeBytes(len(b))
	e.b = protowire.AppendVarint(e.b, uint64(size)) //nolint:gosec // a length
	e.b = protowire.AppendString(e.b, a)
	e.b = protowire.AppendString(e.b, b)
}

// field is one field as read: u for numbers, b (which aliases the record) for the rest.
type field struct {
	n protowire.Number
	u uint64
	b []byte
}

func (f field) time() time.Time { return fromNanos(int64(f.u)) } //nolint:gosec // written by time
func (f field) date() time.Time {
	return time.Unix(protowire.DecodeZigZag(f.u)+time.Time{}.Unix(), 0).UTC()
}
func (f field) dur() time.Duration { return time.Duration(f.u) } //nolint:gosec // written by dur
func (f field) int() int           { return int(f.u) }           //nolint:gosec // written by int
func (f field) pair() (a, b string, err error) {
	x, n := protowire.ConsumeBytes(f.b)
	if n < 0 {
		return "", "", errRecord
	}
	y, m := protowire.ConsumeBytes(f.b[n:])
	if m < 0 {
		return "", "", errRecord
	}
	return string(x), string(y), nil
}

// decode calls f for each field of a record.
func decode(b []byte, f func(field) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errRecord
		}
		b = b[n:]
		fd := field{n: num}
		switch typ {
		case protowire.VarintType:
			fd.u, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			fd.b, n = protowire.ConsumeBytes(b)
		case protowire.Fixed64Type:
			fd.u, n = protowire.ConsumeFixed64(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return errRecord
		}
		b = b[n:]
		if err := f(fd); err != nil {
			return err
		}
	}
	return nil
}

func encodeEvent(b []byte, ev *queue.StoredEvent, eps []endpointID) []byte {
	e := encoder{b}
	e.string(1, ev.Namespace)
	e.string(2, ev.Source)
	e.string(3, ev.ID)
	e.string(4, ev.WebhookID)
	e.string(5, ev.Type)
	e.string(6, ev.Subject)
	e.date(7, 16, ev.Time)
	e.uint(8, uint64(ev.Mode))
	e.string(9, ev.ContentType)
	for _, h := range ev.Headers {
		e.pair(10, h.Name, h.Value)
	}
	for _, a := range ev.Attributes {
		e.pair(11, a.Name, a.Value)
	}
	e.bytes(12, ev.Hash[:])
	e.time(13, ev.AcceptedAt)
	e.string(14, ev.TraceParent)
	for _, ep := range eps {
		e.uint(15, uint64(ep))
	}
	e.time(17, ev.Erased)
	e.int(18, ev.Size)
	return e.b
}

func decodeEvent(seq queue.Seq, b []byte) (*queue.StoredEvent, []endpointID, error) {
	ev := &queue.StoredEvent{Event: &event.Event{}, Seq: seq}
	var eps []endpointID
	err := decode(b, func(f field) (err error) {
		switch f.n {
		case 1:
			ev.Namespace = string(f.b)
		case 2:
			ev.Source = string(f.b)
		case 3:
			ev.ID = string(f.b)
		case 4:
			ev.WebhookID = string(f.b)
		case 5:
			ev.Type = string(f.b)
		case 6:
			ev.Subject = string(f.b)
		case 7:
			ev.Time = f.date()
		case 16:
			ev.Time = ev.Time.Add(time.Duration(f.int()))
		case 8:
			ev.Mode = event.Mode(f.u) //nolint:gosec // written from a Mode
		case 9:
			ev.ContentType = string(f.b)
		case 10:
			var h event.Header
			h.Name, h.Value, err = f.pair()
			ev.Headers = append(ev.Headers, h)
		case 11:
			var a event.Attribute
			a.Name, a.Value, err = f.pair()
			ev.Attributes = append(ev.Attributes, a)
		case 12:
			copy(ev.Hash[:], f.b)
		case 13:
			ev.AcceptedAt = f.time()
		case 14:
			ev.TraceParent = string(f.b)
		case 15:
			eps = append(eps, endpointID(f.u)) //nolint:gosec // written from an endpointID
		case 17:
			ev.Erased = f.time()
		case 18:
			ev.Size = f.int()
		}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("event %d: %w", seq, err)
	}
	return ev, eps, nil
}

// identity is what is remembered of an event's (namespace, source, id).
type identity struct {
	seq  queue.Seq
	hash [32]byte
	at   time.Time
	// endpoints is how many deliveries the event has, for a duplicate's answer.
	endpoints int
}

func encodeIdentity(b []byte, id identity) []byte {
	e := encoder{b}
	e.uint(1, uint64(id.seq))
	e.bytes(2, id.hash[:])
	e.time(3, id.at)
	e.int(4, id.endpoints)
	return e.b
}

func decodeIdentity(b []byte) (id identity, err error) {
	err = decode(b, func(f field) error {
		switch f.n {
		case 1:
			id.seq = queue.Seq(f.u)
		case 2:
			copy(id.hash[:], f.b)
		case 3:
			id.at = f.time()
		case 4:
			id.endpoints = f.int()
		}
		return nil
	})
	return id, err
}

func encodeDelivery(b []byte, d *queue.Delivery) []byte {
	e := encoder{b}
	e.uint(1, uint64(d.State))
	e.int(2, d.Attempts)
	e.int(3, d.Budget)
	e.time(4, d.QueuedAt)
	e.time(5, d.DueAt)
	e.dur(6, d.Delay)
	e.time(7, d.EndedAt)
	e.string(8, d.Reason)
	e.int(9, d.LastStatus)
	e.string(10, d.HandlerVersion)
	e.int(11, d.Replays)
	e.dur(12, d.Asked)
	e.fixed(13, d.Key)
	e.int(14, d.Size)
	if d.Share != d.Size {
		e.int(15, d.Share+1) // most events have one delivery, whose share is all
	}
	if d.Undecided {
		e.uint(16, 1)
	}
	return e.b
}

func decodeDelivery(b []byte, d *queue.Delivery) error {
	share := 0
	err := decode(b, func(f field) error {
		switch f.n {
		case 1:
			d.State = queue.State(f.u) //nolint:gosec // written from a State
		case 2:
			d.Attempts = f.int()
		case 3:
			d.Budget = f.int()
		case 4:
			d.QueuedAt = f.time()
		case 5:
			d.DueAt = f.time()
		case 6:
			d.Delay = f.dur()
		case 12:
			d.Asked = f.dur()
		case 7:
			d.EndedAt = f.time()
		case 8:
			d.Reason = string(f.b)
		case 9:
			d.LastStatus = f.int()
		case 10:
			d.HandlerVersion = string(f.b)
		case 11:
			d.Replays = f.int()
		case 13:
			d.Key = f.u
		case 14:
			d.Size = f.int()
		case 15:
			share = f.int()
		case 16:
			d.Undecided = f.u == 1
		}
		return nil
	})
	if d.Share = d.Size; share > 0 {
		d.Share = share - 1
	}
	return err
}
