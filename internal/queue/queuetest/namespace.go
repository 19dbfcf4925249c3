package queuetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// name tells the store a uid, and wants it to be what it is.
func (f *fixture) name(namespace, uid string, want queue.Naming) {
	f.Helper()
	got, err := f.queue.Namespace(f.ctx, namespace, uid)
	f.must(err)
	if got != want {
		f.Fatalf("uid %s of %s is %d to the store, want %d", uid, namespace, got, want)
	}
}

// testNamespace: a namespace made anew inherits nothing.
func testNamespace(t *testing.T, place func(*testing.T) Open) {
	t.Run("the first uid is of what is there", func(t *testing.T) {
		f := start(t, place)
		seq := f.one("1", orders)
		f.name("shop", "", queue.SameNamespace)
		f.name("shop", "u1", queue.SameNamespace)
		f.name("bank", "u9", queue.SameNamespace) // nothing is there
		for range 2 {
			f.name("shop", "u1", queue.SameNamespace)
			f.name("shop", "", queue.SameNamespace)
			f.wantState(orders, seq, queue.Pending)
			f.reopen()
		}
	})
	t.Run("nothing of a former one is found", func(t *testing.T) {
		f := start(t, place)
		seqs := f.furnish()
		bank := f.one("b", foreign)
		f.name("shop", "u2", queue.NewNamespace)
		for range 3 {
			f.name("shop", "u2", queue.SameNamespace)
			f.wantBare()
			if got := f.queue.Endpoints(); !slices.Equal(got, []plan.EndpointKey{foreign}) {
				t.Errorf("the store knows %v", got)
			}
			for _, seq := range seqs {
				if err := f.record(delivered(orders, seq)); !errors.Is(err, queue.ErrNotWaiting) {
					t.Errorf("an attempt that was under way: %v", err)
				}
				if _, err := f.queue.Replay(f.ctx, orders, seq, true); !errors.Is(err, queue.ErrNotFound) {
					t.Errorf("replay of %d: %v", seq, err)
				}
			}
			f.wantState(foreign, bank, queue.Pending)
			if n := f.queue.NamespaceWaiting("bank"); n == 0 {
				t.Error("what waits in the other namespace is not counted any more")
			}
			f.prune(time.Time{}, time.Time{})
			f.reopen()
		}
	})
	t.Run("who is late changes nothing", func(t *testing.T) {
		f := start(t, place)
		f.name("shop", "u1", queue.SameNamespace)
		f.name("shop", "u2", queue.NewNamespace)
		f.name("shop", "u3", queue.NewNamespace)
		seq := f.one("1", orders)
		for range 2 {
			f.name("shop", "u1", queue.FormerNamespace)
			f.name("shop", "u2", queue.FormerNamespace)
			f.wantState(orders, seq, queue.Pending)
			f.reopen()
		}
	})
	t.Run("the new one has all to itself", func(t *testing.T) {
		f := start(t, place)
		f.furnish()
		f.name("shop", "u2", queue.NewNamespace)
		// The same identities, with other content.
		seq := f.accept(newEvent("shop", "", "1", "another one", orders))[0].Seq
		f.must(f.queue.AddAudit(f.ctx, queue.AuditRecord{Namespace: "shop", Action: "mine"}))
		for range 2 {
			f.prune(time.Time{}, time.Time{})
			f.wantCounts(orders, queue.Counts{Pending: 1})
			if ev, err := f.queue.Find(f.ctx, "shop", "1"); err != nil || ev.Seq != seq || ev.Namespace != "shop" {
				t.Fatalf("found %+v, %v", ev, err)
			}
			if a := f.accept(newEvent("shop", "", "1", "another one", orders))[0]; !a.Duplicate || a.Seq != seq {
				t.Errorf("the same again: %+v", a)
			}
			if list, _, err := f.queue.Events(f.ctx, "shop", queue.EventQuery{}, 10); err != nil || len(list) != 1 || list[0].Seq != seq {
				t.Errorf("events %v, %v", list, err)
			}
			if records, _, err := f.queue.Audits(f.ctx, "shop", 0, 10); err != nil || len(records) != 1 || records[0].Action != "mine" {
				t.Errorf("records %v, %v", records, err)
			}
			f.reopen()
		}
		f.must(f.record(delivered(orders, seq)))
		f.wantState(orders, seq, queue.Delivered)
	})
	t.Run("the former one is forgotten, and nothing else with it", func(t *testing.T) {
		f := start(t, place)
		f.furnish()
		f.name("shop", "u2", queue.NewNamespace)
		f.name("shop", "u3", queue.NewNamespace)
		seq := f.accept(newEvent("shop", "", "1", "another one", orders))[0].Seq
		// Delivered and dead letters of now and before go, with what waited: only the new
		// event waits. Identities are kept for longer, the former ones' as orphans.
		later := f.wall.now().Add(time.Hour)
		retention := queue.Retention{Delivered: later, DeadLetters: later}
		done, err := f.queue.Prune(f.ctx, retention)
		f.must(err)
		if done.Events != 4 || done.AuditRecords != 1 {
			t.Errorf("forgot %+v, want the four events and the record of the former one", done)
		}
		retention.Identities = later
		for range 2 {
			if _, err := f.queue.Prune(f.ctx, retention); err != nil {
				t.Fatal(err)
			}
			if a := f.accept(newEvent("shop", "", "1", "another one", orders))[0]; !a.Duplicate || a.Seq != seq {
				t.Errorf("the new one's identity went with the former's: %+v", a)
			}
			f.wantState(orders, seq, queue.Pending)
			f.reopen()
		}
	})
	t.Run("orphans from before are not the new one's", func(t *testing.T) {
		f := start(t, place)
		f.name("shop", "u1", queue.SameNamespace)
		old := f.one("1", orders)
		f.must(f.record(delivered(orders, old)))
		later := f.wall.now().Add(time.Hour)
		_, err := f.queue.Prune(f.ctx, queue.Retention{Delivered: later}) // its identity stays
		f.must(err)
		f.name("shop", "u2", queue.NewNamespace)
		seq := f.one("1", orders)
		for range 2 {
			_, err = f.queue.Prune(f.ctx, queue.Retention{Identities: later})
			f.must(err)
			if a := f.accept(newEvent("shop", "", "1", "body of 1", orders))[0]; !a.Duplicate || a.Seq != seq {
				t.Errorf("the identity of the new one's event was forgotten: %+v", a)
			}
			f.reopen()
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		f := start(t, place)
		f.name("shop", "u1", queue.SameNamespace)
		seq := f.one("1", orders)
		wantCancelled(t, func(ctx context.Context) error { _, err := f.queue.Namespace(ctx, "shop", "u2"); return err })
		f.wantState(orders, seq, queue.Pending)
	})
}

// furnish gives namespace shop a uid, one of everything, and gives its events.
func (f *fixture) furnish() []queue.Seq {
	f.Helper()
	f.name("shop", "u1", queue.SameNamespace)
	seqs := f.many(2, orders) // wait
	seqs = append(seqs, f.one("1", orders), f.one("2", orders))
	f.must(f.record(failed(orders, seqs[1], f.now().Add(time.Hour), time.Hour)))
	f.must(f.record(delivered(orders, seqs[2])))
	f.must(f.record(dead(orders, seqs[3])))
	f.must(f.queue.SetLane(f.ctx, orders, queue.Lane{Disabled: true, Reason: "Gone", Hash: "h"}))
	f.must(f.queue.AddAudit(f.ctx, queue.AuditRecord{Namespace: "shop", Action: "replay"}))
	return seqs
}

// wantBare wants nothing to be found in namespace shop.
func (f *fixture) wantBare() {
	f.Helper()
	f.wantCounts(orders, queue.Counts{})
	if l := f.queue.Lane(orders); l != (queue.Lane{}) {
		f.Errorf("the lane is %+v", l)
	}
	if n := f.queue.NamespaceWaiting("shop"); n != 0 {
		f.Errorf("%d bytes wait", n)
	}
	if list, _, err := f.queue.Events(f.ctx, "shop", queue.EventQuery{}, 10); err != nil || len(list) != 0 {
		f.Errorf("events %v, %v", list, err)
	}
	for _, id := range []string{"1", "2", "orders-0", "orders-1"} {
		if _, err := f.queue.Find(f.ctx, "shop", id); !errors.Is(err, queue.ErrNotFound) {
			f.Errorf("event %s: %v", id, err)
		}
	}
	for _, s := range []queue.State{queue.Pending, queue.Retrying, queue.Delivered, queue.DeadLettered} {
		f.wantSeqs(s.String(), f.list(orders, s, 10))
	}
	if records, _, err := f.queue.Audits(f.ctx, "shop", 0, 10); err != nil || len(records) != 0 {
		f.Errorf("records %v, %v", records, err)
	}
	if ds, err := f.queue.Fresh(f.ctx, orders, 0, 10); err != nil || len(ds) != 0 {
		f.Errorf("fresh %v, %v", ds, err)
	}
	if ds, _, err := f.queue.Due(f.ctx, orders, f.now().Add(24*time.Hour), 10); err != nil || len(ds) != 0 {
		f.Errorf("due %v, %v", ds, err)
	}
}
