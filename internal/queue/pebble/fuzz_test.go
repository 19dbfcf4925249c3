package pebble

import (
	"reflect"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// FuzzRecords reads anything as every kind of record: none panics, and what is read can be
// written and read again as the same.
func FuzzRecords(f *testing.F) {
	at := time.Unix(5, 6).UTC()
	d := queue.Delivery{
		State: queue.Retrying, Attempts: 3, Budget: 2, QueuedAt: at, DueAt: at, Delay: time.Minute, Reason: "timeout",
		LastStatus: 503, HandlerVersion: "v1", Replays: 1, Key: 1 << 63, Size: 7, Share: 3, Undecided: true,
	}
	f.Add(encodeDelivery(nil, &d))
	f.Add(encodeFresh(nil, &d))
	f.Add(make([]byte, 8)) // a fresh one of format 1
	f.Add(encodeIdentity(nil, identity{seq: 1, at: at, endpoints: 2}))
	f.Add(encodeAttempt(nil, &queue.Attempt{Number: 1, StartedAt: at, Status: 500, Response: []byte("x")}))
	f.Add(encodeAudit(&queue.AuditRecord{At: at, Caller: "c", Action: "a", Target: "t", Detail: "d", Count: 1}))
	f.Add(encodeLane(queue.Lane{Disabled: true, Reason: "Gone", At: at}))
	ev := &queue.StoredEvent{AcceptedAt: at, Erased: at, Size: 9, Event: &event.Event{
		Namespace: "n", ID: "1", Type: "a", Time: at, Attributes: []event.Attribute{{Name: "a", Value: "b"}},
		Headers: []event.Header{{Name: "ce-a", Value: ""}},
	}}
	f.Add(encodeEvent(nil, ev, []endpointID{1, 2}))
	f.Fuzz(func(t *testing.T, b []byte) {
		again(t, b, func(b []byte) (d queue.Delivery, err error) { err = decodeDelivery(b, &d); return d, err },
			func(d queue.Delivery) []byte { return encodeDelivery(nil, &d) })
		again(t, b, func(b []byte) (d queue.Delivery, err error) { err = decodeFresh(b, &d); return d, err },
			func(d queue.Delivery) []byte { return encodeFresh(nil, &d) })
		again(t, b, decodeIdentity, func(id identity) []byte { return encodeIdentity(nil, id) })
		again(t, b, decodeAttempt, func(a queue.Attempt) []byte { return encodeAttempt(nil, &a) })
		again(t, b, decodeAudit, func(r queue.AuditRecord) []byte { return encodeAudit(&r) })
		again(t, b, decodeLane, encodeLane)
		_, _, _ = decodeEvent(1, b)
	})
}

// again reads b, writes what it read and reads that. What was read of another's bytes may hold
// numbers that nobody writes, so that it settles with the second time only.
func again[T any](t *testing.T, b []byte, read func([]byte) (T, error), write func(T) []byte) {
	t.Helper()
	first, err := read(b)
	if err != nil {
		return
	}
	second, err := read(write(first))
	if err != nil {
		t.Fatalf("%+v was written so that it can't be read: %v", first, err)
	}
	third, err := read(write(second))
	if err != nil || !reflect.DeepEqual(second, third) {
		t.Errorf("%+v became %+v, %v", second, third, err)
	}
}
