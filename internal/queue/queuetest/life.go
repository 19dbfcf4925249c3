package queuetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

func testTime(t *testing.T, place func(*testing.T) Open) {
	t.Run("a new store has seen none", func(t *testing.T) {
		f := start(t, place)
		if got := f.queue.LastTime(); !got.IsZero() {
			t.Errorf("last time %s", got)
		}
	})
	for _, c := range []struct {
		name string
		step time.Duration
	}{
		{"steps back 50 ms", -50 * time.Millisecond}, // case TM75
		{"steps back an hour", -time.Hour},           // case TM72
		{"steps back ten years", -10 * 365 * 24 * time.Hour},
		{"stands still", 0},
		{"steps on an hour", time.Hour},
	} {
		t.Run("the wall clock "+c.name+" over a restart", func(t *testing.T) {
			f := start(t, place)
			seqs := f.many(3, orders)
			due := f.now().Add(6 * time.Hour)
			f.must(f.record(failed(orders, seqs[0], due, 6*time.Hour)))
			f.must(f.record(delivered(orders, seqs[1])))
			ended := f.get(orders, seqs[1]).EndedAt
			f.must(f.queue.Close())
			f.wall.step(c.step)
			f.start()
			if last := f.queue.LastTime(); last.Before(ended) {
				t.Errorf("last time %s lies before what happened at %s", last, ended)
			}
			// case TM76: due times are kept exactly.
			if d := f.get(orders, seqs[0]); !d.DueAt.Equal(due) || d.Delay != 6*time.Hour {
				t.Errorf("%+v, want due at %s", d, due)
			}
			seq := f.one("later", orders)
			if d := f.get(orders, seq); d.QueuedAt.Before(f.queue.LastTime()) {
				t.Errorf("queued at %s, before the last time %s", d.QueuedAt, f.queue.LastTime())
			} else if at := d.QueuedAt.Sub(ended); at > c.step+time.Minute && at > time.Minute {
				t.Errorf("queued %s after the last change", at)
			}
		})
	}
}

func testClose(t *testing.T, place func(*testing.T) Open) {
	t.Run("after it all is closed", func(t *testing.T) {
		f := start(t, place)
		f.one("1", orders)
		f.must(f.queue.Close())
		f.must(f.queue.Close())
		q, ctx := f.queue, t.Context()
		for name, call := range map[string]func() error{
			"Accept": func() error {
				_, err := q.Accept(ctx, []queue.NewEvent{newEvent("shop", "", "2", "x", orders)})
				return err
			},
			"Record":     func() error { return f.record(delivered(orders, 1)) },
			"Settle":     func() error { _, err := q.Settle(ctx, orders, []queue.Seq{1}, queue.DeadLettered, "x"); return err },
			"Reschedule": func() error { _, err := q.Reschedule(ctx, orders, nil); return err },
			"Replay":     func() error { _, err := q.Replay(ctx, orders, 1, true); return err },
			"SetLane":    func() error { return q.SetLane(ctx, orders, queue.Lane{}) },
			"Prune":      func() error { _, err := q.Prune(ctx, queue.Retention{}); return err },
			"Event":      func() error { _, err := q.Event(ctx, 1); return err },
			"Find":       func() error { _, err := q.Find(ctx, "shop", "1"); return err },
			"Events":     func() error { _, _, err := q.Events(ctx, "shop", queue.EventQuery{}, 1); return err },
			"Erase":      func() error { _, err := q.Erase(ctx, 1); return err },
			"AddAudit":   func() error { return q.AddAudit(ctx, queue.AuditRecord{Namespace: "shop"}) },
			"Audits":     func() error { _, _, err := q.Audits(ctx, "shop", 0, 1); return err },
			"Deliveries": func() error { _, err := q.Deliveries(ctx, 1); return err },
			"Attempts":   func() error { _, err := q.Attempts(ctx, 1, orders); return err },
			"List":       func() error { _, _, err := q.List(ctx, orders, queue.Pending, 0, 1); return err },
			"Fresh":      func() error { _, err := q.Fresh(ctx, orders, 0, 1); return err },
			"Due":        func() error { _, _, err := q.Due(ctx, orders, time.Now(), 1); return err },
			"Retrying":   func() error { _, err := q.Retrying(ctx, orders, 0, 1); return err },
		} {
			if err := call(); !errors.Is(err, queue.ErrClosed) {
				t.Errorf("%s: %v, want ErrClosed", name, err)
			}
		}
	})
	t.Run("in the middle of work loses nothing that was answered", func(t *testing.T) {
		f := start(t, place)
		seqs := f.many(50, billing)
		var mu sync.Mutex
		var accepted, recorded []queue.Seq
		begun := make(chan struct{})
		var once sync.Once
		var wg sync.WaitGroup
		q := f.queue
		for g := range 8 {
			wg.Go(func() {
				for i := 0; ; i++ {
					acc, err := q.Accept(context.Background(), []queue.NewEvent{newEvent("shop", "", fmt.Sprintf("%d-%d", g, i), "x", orders)})
					if err != nil {
						if !errors.Is(err, queue.ErrClosed) {
							t.Errorf("answer %v", err)
						}
						return
					}
					mu.Lock()
					if accepted = append(accepted, acc[0].Seq); len(accepted) > 20 {
						once.Do(func() { close(begun) })
					}
					mu.Unlock()
				}
			})
			wg.Go(func() {
				for i := g; i < len(seqs); i += 8 {
					done := make(chan error, 1)
					q.Record(delivered(billing, seqs[i]), func(err error) { done <- err })
					if err := <-done; err == nil {
						mu.Lock()
						recorded = append(recorded, seqs[i])
						mu.Unlock()
					} else if !errors.Is(err, queue.ErrClosed) {
						t.Errorf("answer %v", err)
					}
				}
			})
		}
		<-begun
		f.must(q.Close())
		wg.Wait()
		f.start()
		for _, seq := range accepted {
			f.wantState(orders, seq, queue.Pending)
		}
		for _, seq := range recorded {
			f.wantState(billing, seq, queue.Delivered)
		}
		f.wantCounts(billing, queue.Counts{Pending: 50 - len(recorded)})
	})
}
