package pebble

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strconv"
	"testing"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// These tests put ops into one batch on purpose, in an order that the pipeline leaves
// to chance, and records on disk that no op writes.

var ep = plan.EndpointKey{Namespace: "shop", Name: "orders"}

func openTest(t *testing.T) *Store {
	t.Helper()
	s, err := Open(Options{Dir: "q", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func acceptTest(t *testing.T, s *Store, n int) {
	t.Helper()
	for i := range n {
		if _, err := s.Accept(t.Context(), []queue.NewEvent{testEvent(strconv.Itoa(i))}); err != nil {
			t.Fatal(err)
		}
	}
}

func testEvent(id string) queue.NewEvent {
	return queue.NewEvent{Endpoints: []plan.EndpointKey{ep}, Event: &event.Event{
		Namespace: "shop", ID: id, WebhookID: id, Type: "a", Mode: event.ModePlain, Body: []byte(id), Hash: sha256.Sum256([]byte(id)),
	}}
}

// together commits ops as one batch, past the writer, which must be idle.
func together(t *testing.T, s *Store, ops ...op) []error {
	t.Helper()
	w := &batch{s: s, identities: map[string]identity{}, deliveries: map[deliveryKey]*queue.Delivery{}}
	w.begin(s.db.NewBatch(), s.clock.Now(), true)
	errs := make([]error, len(ops))
	for i, o := range ops {
		errs[i] = o.apply(w)
	}
	if w.known != nil {
		if err := w.known.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.db.Apply(w.Batch, pebbledb.Sync); err != nil {
		t.Fatal(err)
	}
	return errs
}

func deliveredOp(seq queue.Seq) *recordOp {
	return &recordOp{outcome: queue.Outcome{Seq: seq, Endpoint: ep, To: queue.Delivered}}
}

func TestOpsOfOneBatchSeeEachOther(t *testing.T) {
	far := time.Now().Add(time.Hour)
	t.Run("accepted, delivered, replayed, delivered again", func(t *testing.T) {
		s := openTest(t)
		errs := together(t, s,
			&acceptOp{events: []queue.NewEvent{testEvent("1")}}, deliveredOp(1), deliveredOp(1),
			&replayOp{key: ep, seq: 1, force: true}, &replayOp{key: ep, seq: 1, force: true}, deliveredOp(1))
		for i, want := range []error{nil, nil, queue.ErrNotWaiting, nil, queue.ErrAlreadyWaiting, nil} {
			if !errors.Is(errs[i], want) {
				t.Errorf("op %d: %v, want %v", i, errs[i], want)
			}
		}
		ds, err := s.Deliveries(t.Context(), 1)
		if err != nil || len(ds) != 1 || ds[0].State != queue.Delivered || ds[0].Attempts != 2 || ds[0].Replays != 1 {
			t.Errorf("%+v, %v", ds, err)
		}
		if c := s.Counts(ep); c != (queue.Counts{}) {
			t.Errorf("%+v", c)
		}
	})
	t.Run("accepted twice", func(t *testing.T) {
		s := openTest(t)
		a := &acceptOp{events: []queue.NewEvent{testEvent("1")}}
		b := &acceptOp{events: []queue.NewEvent{testEvent("1")}}
		if errs := together(t, s, a, b); errs[0] != nil || errs[1] != nil || a.accepted[0].Duplicate || !b.accepted[0].Duplicate {
			t.Errorf("%v, %+v, %+v", errs, a.accepted, b.accepted)
		}
	})
	t.Run("accepted, set aside, recorded, accepted by the new namespace", func(t *testing.T) {
		s := openTest(t)
		acceptTest(t, s, 1)
		if _, err := s.Namespace(t.Context(), "shop", "u1"); err != nil {
			t.Fatal(err)
		}
		naming := &namingOp{name: "shop", uid: "u2"}
		stored, early, again := &acceptOp{events: []queue.NewEvent{testEvent("0")}}, &acceptOp{events: []queue.NewEvent{testEvent("1")}}, &acceptOp{events: []queue.NewEvent{testEvent("1")}}
		errs := together(t, s, early, naming, deliveredOp(1), again, stored, deliveredOp(1), deliveredOp(2), deliveredOp(3))
		for i, want := range []error{nil, nil, queue.ErrNotWaiting, nil, nil, queue.ErrNotWaiting, queue.ErrNotWaiting, nil} {
			if !errors.Is(errs[i], want) {
				t.Errorf("op %d: %v, want %v", i, errs[i], want)
			}
		}
		if naming.what != queue.NewNamespace || again.accepted[0].Duplicate || stored.accepted[0].Duplicate {
			t.Errorf("%d, %+v, %+v", naming.what, again.accepted, stored.accepted)
		}
		if c := s.Counts(ep); c.Waiting() != 1 {
			t.Errorf("%+v", c)
		}
	})
	t.Run("forgotten, then replayed, recorded, settled and accepted again", func(t *testing.T) {
		s := openTest(t)
		acceptTest(t, s, 1)
		if errs := together(t, s, deliveredOp(1)); errs[0] != nil {
			t.Fatal(errs)
		}
		prune := lookedAt(t, s, far)
		again := &acceptOp{events: []queue.NewEvent{testEvent("0")}}
		errs := together(t, s, prune, &replayOp{key: ep, seq: 1, force: true}, deliveredOp(1), again)
		for i, want := range []error{nil, queue.ErrNotFound, queue.ErrNotWaiting, nil} {
			if !errors.Is(errs[i], want) {
				t.Errorf("op %d: %v, want %v", i, errs[i], want)
			}
		}
		if prune.removed.Events != 1 || again.accepted[0].Duplicate || again.accepted[0].Seq != 2 {
			t.Errorf("%+v, %+v", prune, again.accepted)
		}
		if _, err := s.Event(t.Context(), 2); err != nil {
			t.Error(err)
		}
		if c := s.Counts(ep); c.Pending != 1 {
			t.Errorf("%+v", c)
		}
	})
	t.Run("replayed, then not forgotten", func(t *testing.T) {
		s := openTest(t)
		acceptTest(t, s, 1)
		if errs := together(t, s, deliveredOp(1)); errs[0] != nil {
			t.Fatal(errs)
		}
		prune := lookedAt(t, s, far)
		if errs := together(t, s, &replayOp{key: ep, seq: 1, force: true}, prune); errors.Join(errs...) != nil || prune.removed.Events != 0 {
			t.Errorf("%v, %+v", errs, prune.removed)
		}
		if errs := together(t, s, deliveredOp(1)); errs[0] != nil {
			t.Fatal(errs)
		}
		if n, err := s.Prune(t.Context(), queue.Retention{Delivered: far}); err != nil || n.Events != 1 {
			t.Errorf("later: %+v, %v", n, err)
		}
	})
}

// lookedAt has the first segment looked at, for an op that forgets what it found.
func lookedAt(t *testing.T, s *Store, before time.Time) *forgetOp {
	t.Helper()
	if errs := together(t, s, &beginOp{}); errs[0] != nil {
		t.Fatal(errs)
	}
	l := &look{s: s, Retention: queue.Retention{Delivered: before, DeadLetters: before}}
	if err := s.view(func(r pebbledb.Reader) error { return l.read(t.Context(), r) }); err != nil {
		t.Fatal(err)
	}
	return &forgetOp{look: l, identities: before}
}

// An op that fails in the middle leaves nothing in its batch, although others of the
// batch are stored.
func TestAFailedOpLeavesNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		fail func(s *Store) error
	}{
		{"Settle", func(s *Store) error {
			_, err := s.Settle(context.Background(), ep, []queue.Seq{1, 2, 3}, queue.DeadLettered, "x")
			return err
		}},
		{"Reschedule", func(s *Store) error {
			past := time.Unix(1, 0)
			_, err := s.Reschedule(context.Background(), ep, map[queue.Seq]time.Time{1: past, 2: past, 3: past})
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := openTest(t)
			acceptTest(t, s, 3)
			id := s.endpoints.get(ep).id
			for _, seq := range []queue.Seq{1, 2} {
				to := queue.Outcome{Seq: seq, Endpoint: ep, To: queue.Retrying, DueAt: time.Now(), Delay: time.Second}
				if errs := together(t, s, &recordOp{outcome: to}); errs[0] != nil {
					t.Fatal(errs)
				}
			}
			// The third one's record can't be read.
			if err := s.db.Set(appendDeliveryKey(nil, kindFresh, id, 3), []byte("?"), pebbledb.Sync); err != nil {
				t.Fatal(err)
			}
			before, counts := dump(t, s), s.Counts(ep)
			if err := c.fail(s); !errors.Is(err, errRecord) {
				t.Fatalf("answer %v, want the unreadable record's", err)
			}
			if after := dump(t, s); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
			if got := s.Counts(ep); got != counts {
				t.Errorf("counts %+v became %+v", counts, got)
			}
			if err := s.Health(); err != nil {
				t.Errorf("a refused op is not a broken store: %v", err)
			}
		})
	}
}

// dump is every record but the clock.
func dump(t *testing.T, s *Store) string {
	t.Helper()
	var out []byte
	for kind := byte('d'); kind <= 'z'; kind++ {
		err := scan(t.Context(), s.db, []byte{kind}, nil, func(k, v []byte) error {
			out = append(strconv.AppendQuote(append(strconv.AppendQuote(out, string(k)), ' '), string(v)), '\n')
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return string(out)
}

// A payload that is gone is told with the event.
func TestPayloadMissing(t *testing.T) {
	s := openTest(t)
	acceptTest(t, s, 1)
	if err := s.db.Delete(appendSeqKey(nil, kindPayload, 1), pebbledb.Sync); err != nil {
		t.Fatal(err)
	}
	ev, err := s.Event(t.Context(), 1)
	if !errors.Is(err, queue.ErrPayloadMissing) || ev == nil || ev.WebhookID != "0" {
		t.Errorf("%+v, %v", ev, err)
	}
}

// damaged is a store of which one record can't be read.
type damaged struct {
	pebbledb.Reader
	key []byte
}

func (d damaged) Get(key []byte) ([]byte, io.Closer, error) {
	if bytes.Equal(key, d.key) {
		return nil, nil, fmt.Errorf("checksum of a block: %w", pebbledb.ErrCorruption)
	}
	return d.Reader.Get(key)
}

// case DL153: what is damaged is missing, and no trouble of the moment.
func TestDamagedEvent(t *testing.T) {
	s := openTest(t)
	acceptTest(t, s, 2)
	for _, kind := range []byte{kindEvent, kindPayload} {
		ev, err := s.event(damaged{s.db, appendSeqKey(nil, kind, 1)}, 1)
		if !errors.Is(err, queue.ErrPayloadMissing) || !errors.Is(err, pebbledb.ErrCorruption) || (ev != nil) != (kind == kindPayload) {
			t.Errorf("with a damaged block of %c: %+v, %v", kind, ev, err)
		}
	}
	if err := s.db.Set(appendSeqKey(nil, kindEvent, 2), []byte("?"), pebbledb.Sync); err != nil {
		t.Fatal(err)
	}
	if ev, err := s.Event(t.Context(), 2); !errors.Is(err, queue.ErrPayloadMissing) || ev != nil {
		t.Errorf("with an unreadable record: %+v, %v", ev, err)
	}
}

// Fields that a later version adds are skipped; records cut short are not taken for
// whole ones.
func TestRecords(t *testing.T) {
	d := queue.Delivery{State: queue.Retrying, Attempts: 3, Budget: 2, QueuedAt: time.Unix(5, 6).UTC(), DueAt: time.Unix(7, 8).UTC(),
		Delay: time.Minute, Reason: "timeout", LastStatus: 503, HandlerVersion: "v1", Replays: 1}
	b := encodeDelivery(nil, &d)
	later := encoder{append([]byte(nil), b...)}
	later.string(99, "of a later version")
	later.uint(98, 1<<60)
	var got queue.Delivery
	if err := decodeDelivery(later.b, &got); err != nil || got != d {
		t.Errorf("%+v, %v, want %+v", got, err, d)
	}
	for n := range len(b) {
		var cut queue.Delivery
		if err := decodeDelivery(b[:n], &cut); err == nil && cut == d {
			t.Errorf("the first %d of %d bytes are taken for the whole", n, len(b))
		}
	}
}
