package queuetest

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

var allStates = []queue.State{queue.Pending, queue.Retrying, queue.Delivered, queue.DeadLettered, queue.FilterError, queue.Discarded}

func testRecord(t *testing.T, place func(*testing.T) Open) {
	t.Run("from every state to every state", func(t *testing.T) {
		f := start(t, place)
		id := 0
		for _, from := range allStates {
			for _, to := range []queue.State{queue.Retrying, queue.Delivered, queue.DeadLettered} {
				id++
				seq := f.one(string(rune('a'+id)), orders)
				f.bring(orders, seq, from)
				before := f.get(orders, seq)
				o := map[queue.State]queue.Outcome{
					queue.Retrying: failed(orders, seq, f.now().Add(time.Minute), time.Minute), queue.Delivered: delivered(orders, seq), queue.DeadLettered: dead(orders, seq),
				}[to]
				err := f.record(o)
				if !from.Waiting() {
					if !errors.Is(err, queue.ErrNotWaiting) {
						t.Errorf("%s to %s: %v, want ErrNotWaiting", from, to, err)
					}
					if now := f.get(orders, seq); !reflect.DeepEqual(now, before) {
						t.Errorf("%s to %s was refused, but changed %+v to %+v", from, to, before, now)
					}
					continue
				}
				f.must(err)
				d := f.wantState(orders, seq, to)
				if d.Attempts != before.Attempts+1 || d.Budget != before.Budget+1 || d.LastStatus != o.Attempt.Status {
					t.Errorf("%s to %s: %+v", from, to, d)
				}
				if to == queue.Retrying {
					if !d.DueAt.Equal(o.DueAt) || d.Delay != o.Delay || d.Reason != "server_error" || !d.EndedAt.IsZero() {
						t.Errorf("%s to %s: %+v", from, to, d)
					}
				} else if !d.DueAt.IsZero() || d.EndedAt.Before(d.QueuedAt) || d.Reason != o.Reason {
					t.Errorf("%s to %s: %+v", from, to, d)
				}
			}
		}
	})
	t.Run("what isn't there is not waiting", func(t *testing.T) {
		f := start(t, place)
		seq := f.one("1", orders)
		for name, o := range map[string]queue.Outcome{
			"unknown event": delivered(orders, 99), "unknown endpoint": delivered(foreign, seq), "no event": delivered(orders, 0),
		} {
			if err := f.record(o); !errors.Is(err, queue.ErrNotWaiting) {
				t.Errorf("%s: %v, want ErrNotWaiting", name, err)
			}
		}
		f.wantState(orders, seq, queue.Pending)
	})
	t.Run("an outcome that is no outcome is refused", func(t *testing.T) {
		f := start(t, place)
		seq := f.one("1", orders)
		for _, to := range []queue.State{0, queue.Pending, 9} {
			o := delivered(orders, seq)
			if o.To = to; f.record(o) == nil {
				t.Errorf("an outcome to state %d is taken", to)
			}
		}
		f.wantState(orders, seq, queue.Pending)
		f.wantCounts(orders, queue.Counts{Pending: 1})
	})
	t.Run("of many outcomes at once for one delivery one is stored", func(t *testing.T) {
		f := start(t, place)
		seq := f.one("1", orders)
		var mu sync.Mutex
		var stored, calls int
		var wg sync.WaitGroup
		for range 50 {
			wg.Add(1)
			go f.queue.Record(delivered(orders, seq), func(err error) {
				mu.Lock()
				defer mu.Unlock()
				calls++
				if err == nil {
					stored++
				} else if !errors.Is(err, queue.ErrNotWaiting) {
					t.Errorf("answer %v", err)
				}
				wg.Done() // panics if called more often
			})
		}
		wg.Wait()
		if stored != 1 || calls != 50 {
			t.Errorf("%d of %d answers were good", stored, calls)
		}
		as, err := f.queue.Attempts(t.Context(), seq, orders)
		if err != nil || len(as) != 1 {
			t.Errorf("attempts %v, %v", as, err)
		}
	})
	t.Run("attempts are kept whole and in order, across replays and restarts", func(t *testing.T) {
		f := start(t, place)
		seq := f.one("1", orders)
		var want []queue.Attempt
		do := func(o queue.Outcome, replay bool) {
			t.Helper()
			o.Attempt.Replay, o.Attempt.Number = replay, len(want)+1
			f.must(f.record(o))
			want = append(want, o.Attempt)
		}
		for i := range 11 {
			do(failed(orders, seq, f.now(), time.Duration(i)), false)
		}
		do(dead(orders, seq), false)
		f.reopen()
		if _, err := f.queue.Replay(t.Context(), orders, seq, false); err != nil {
			t.Fatal(err)
		}
		do(failed(orders, seq, f.now(), 0), true)
		do(delivered(orders, seq), true)
		f.reopen()
		got, err := f.queue.Attempts(t.Context(), seq, orders)
		f.must(err)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
		d := f.wantState(orders, seq, queue.Delivered)
		if d.Attempts != 14 || d.Budget != 2 || d.Replays != 1 || d.HandlerVersion != "v2" || d.LastStatus != 204 {
			t.Errorf("%+v", d)
		}
		for _, other := range []plan.EndpointKey{billing, foreign} {
			if as, err := f.queue.Attempts(t.Context(), seq, other); err != nil || len(as) != 0 {
				t.Errorf("attempts to %s: %v, %v", other, as, err)
			}
		}
	})
}

func testSettle(t *testing.T, place func(*testing.T) Open) {
	f := start(t, place)
	seqs := f.many(len(allStates), orders)
	for i, s := range allStates {
		f.bring(orders, seqs[i], s)
	}
	ask := append(slices.Clone(seqs), seqs[0], 99, 0) // one twice, and two that aren't there
	n, err := f.queue.Settle(t.Context(), orders, ask, queue.DeadLettered, queue.ReasonExpired)
	if err != nil || n != 2 {
		t.Fatalf("settled %d, %v; want the two that waited", n, err)
	}
	f.reopen()
	for i, want := range []queue.Delivery{
		{State: queue.DeadLettered, Reason: queue.ReasonExpired},
		{State: queue.DeadLettered, Reason: queue.ReasonExpired, Attempts: 1, LastStatus: 503},
		{State: queue.Delivered, Attempts: 1, LastStatus: 204},
		{State: queue.DeadLettered, Reason: queue.ReasonRejected, Attempts: 1, LastStatus: 400},
		{State: queue.FilterError, Reason: queue.ReasonFilterError},
		{State: queue.Discarded, Reason: queue.ReasonFilterFalse},
	} {
		d := f.wantState(orders, seqs[i], want.State)
		if d.Reason != want.Reason || d.Attempts != want.Attempts || d.LastStatus != want.LastStatus || d.EndedAt.IsZero() || !d.DueAt.IsZero() {
			t.Errorf("delivery %d: %+v, want %+v", i, d, want)
		}
	}
	f.wantCounts(orders, queue.Counts{DeadLettered: 3, FilterError: 1})
	if n, err := f.queue.Settle(t.Context(), foreign, seqs, queue.DeadLettered, "x"); n != 0 || err != nil {
		t.Errorf("an unknown endpoint: %d, %v", n, err)
	}
	if err := f.record(delivered(orders, seqs[0])); !errors.Is(err, queue.ErrNotWaiting) {
		t.Errorf("an outcome after the end: %v", err)
	}
	wantCancelled(t, func(ctx context.Context) error {
		_, err := f.queue.Settle(ctx, orders, seqs, queue.DeadLettered, "x")
		return err
	})
}

func testReschedule(t *testing.T, place func(*testing.T) Open) {
	f := start(t, place)
	seqs := f.many(5, orders)
	due := f.now().Add(time.Hour)
	for _, i := range []int{0, 1, 2} {
		f.must(f.record(failed(orders, seqs[i], due, time.Hour)))
	}
	f.must(f.record(delivered(orders, seqs[3])))
	earlier, much := due.Add(-10*time.Minute), due.Add(-3*time.Hour)
	n, err := f.queue.Reschedule(t.Context(), orders, map[queue.Seq]time.Time{
		seqs[0]: earlier, seqs[1]: due, seqs[2]: due.Add(time.Second), seqs[3]: earlier, seqs[4]: much, 99: earlier,
	})
	if err != nil || n != 1 {
		t.Errorf("moved %d, %v; want the one that comes earlier", n, err)
	}
	check := func(seq queue.Seq, at time.Time, delay time.Duration) {
		t.Helper()
		if d := f.wantState(orders, seq, queue.Retrying); !d.DueAt.Equal(at) || d.Delay != delay || d.Attempts != 1 {
			t.Errorf("delivery %d: %+v, want due at %s after %s", seq, d, at, delay)
		}
	}
	check(seqs[0], earlier, 50*time.Minute)
	check(seqs[1], due, time.Hour)
	check(seqs[2], due, time.Hour)
	ds, next, err := f.queue.Due(t.Context(), orders, earlier, 10)
	f.must(err)
	f.wantSeqs("due", ds, seqs[0])
	if !next.Equal(due) {
		t.Errorf("next is due at %s, want %s", next, due)
	}
	if n, err := f.queue.Reschedule(t.Context(), orders, map[queue.Seq]time.Time{seqs[1]: much}); n != 1 || err != nil {
		t.Errorf("moved %d, %v", n, err)
	}
	f.reopen()
	check(seqs[1], much, 0)
	f.wantCounts(orders, queue.Counts{Pending: 1, Retrying: 3})
	wantCancelled(t, func(ctx context.Context) error {
		_, err := f.queue.Reschedule(ctx, orders, map[queue.Seq]time.Time{seqs[2]: much})
		return err
	})
	check(seqs[2], due, time.Hour)
}

func testReplay(t *testing.T, place func(*testing.T) Open) {
	t.Run("from every state", func(t *testing.T) { // cases DD78, DD82, DL159
		for _, c := range []struct {
			name  string
			from  queue.State
			force bool
			want  error
		}{
			{"a pending one is waiting", queue.Pending, false, queue.ErrAlreadyWaiting},
			{"a pending one is waiting, forced too", queue.Pending, true, queue.ErrAlreadyWaiting},
			{"a retrying one is waiting", queue.Retrying, false, queue.ErrAlreadyWaiting}, // cases DD78, DL159
			{"a retrying one is waiting, forced too", queue.Retrying, true, queue.ErrAlreadyWaiting},
			{"a delivered one needs force", queue.Delivered, false, queue.ErrDelivered}, // case DD82
			{"a delivered one, forced", queue.Delivered, true, nil},
			{"a dead one", queue.DeadLettered, false, nil},
			{"a dead one, forced", queue.DeadLettered, true, nil},
			{"one whose filter failed", queue.FilterError, false, nil},
			{"one whose filter failed, forced", queue.FilterError, true, nil},
			{"a discarded one needs force", queue.Discarded, false, queue.ErrDiscarded},
			{"a discarded one, forced", queue.Discarded, true, nil},
		} {
			t.Run(c.name, func(t *testing.T) {
				f := start(t, place)
				seq := f.one("1", orders)
				f.bring(orders, seq, c.from)
				before := f.get(orders, seq)
				at := f.now()
				got, err := f.queue.Replay(t.Context(), orders, seq, c.force)
				if !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
					t.Fatalf("answer %v, want %v", err, c.want)
				}
				f.reopen()
				now := f.get(orders, seq)
				if c.want != nil {
					if !reflect.DeepEqual(now, before) || len(f.listener.replays()) != 0 {
						t.Errorf("refused, but %+v became %+v, and the listener was told %v", before, now, f.listener.replays())
					}
					return
				}
				if !reflect.DeepEqual(now, got) || !reflect.DeepEqual(f.listener.replays(), []queue.Delivery{got}) {
					t.Errorf("answered %+v, stored %+v, told %+v", got, now, f.listener.replays())
				}
				if now.State != queue.Pending || now.Attempts != before.Attempts || now.Budget != 0 || now.Replays != 1 || now.Reason != "" ||
					now.Undecided != (c.from == queue.FilterError) || !now.EndedAt.IsZero() || now.QueuedAt.Before(at) || !now.DueAt.Equal(now.QueuedAt) {
					t.Errorf("%+v became %+v", before, now)
				}
				f.wantCounts(orders, queue.Counts{Pending: 1})
			})
		}
	})
	t.Run("it reaches the endpoint that missed the event, and no other", func(t *testing.T) { // case DL157
		f := start(t, place)
		seq := f.accept(newEvent("shop", "", "1", "x", orders, billing))[0].Seq
		f.bring(orders, seq, queue.Delivered)
		f.bring(billing, seq, queue.DeadLettered)
		before := f.get(orders, seq)
		_, err := f.queue.Replay(t.Context(), billing, seq, false)
		f.must(err)
		f.wantState(billing, seq, queue.Pending)
		if now := f.get(orders, seq); !reflect.DeepEqual(now, before) {
			t.Errorf("%+v became %+v", before, now)
		}
		f.wantCounts(orders, queue.Counts{})
	})
	t.Run("what isn't there is not found", func(t *testing.T) {
		f := start(t, place)
		seq := f.one("1", orders)
		for _, k := range []plan.EndpointKey{orders, foreign} {
			if _, err := f.queue.Replay(t.Context(), k, seq+1, true); !errors.Is(err, queue.ErrNotFound) {
				t.Errorf("%s: %v", k, err)
			}
		}
	})
	t.Run("twenty people at once queue it once", func(t *testing.T) { // case DL159
		f := start(t, place)
		seq := f.one("1", orders)
		f.bring(orders, seq, queue.DeadLettered)
		errs := make([]error, 20)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { _, errs[i] = f.queue.Replay(f.ctx, orders, seq, i%2 == 0) })
		}
		wg.Wait()
		good := 0
		for _, err := range errs {
			if err == nil {
				good++
			} else if !errors.Is(err, queue.ErrAlreadyWaiting) {
				t.Errorf("answer %v", err)
			}
		}
		if d := f.get(orders, seq); good != 1 || d.Replays != 1 || len(f.listener.replays()) != 1 {
			t.Errorf("%d replays were good, the listener was told of %d, %+v", good, len(f.listener.replays()), d)
		}
	})
	t.Run("a replayed one is due and not fresh, once only", func(t *testing.T) { // case DD78
		f := start(t, place)
		seqs := f.many(3, orders)
		f.bring(orders, seqs[1], queue.DeadLettered)
		d, err := f.queue.Replay(t.Context(), orders, seqs[1], false)
		f.must(err)
		fresh, err := f.queue.Fresh(t.Context(), orders, 0, 10)
		f.must(err)
		f.wantSeqs("fresh", fresh, seqs[0], seqs[2])
		due, next, err := f.queue.Due(t.Context(), orders, d.DueAt, 10)
		f.must(err)
		f.wantSeqs("due", due, seqs[1])
		retrying, err := f.queue.Retrying(t.Context(), orders, 0, 10)
		f.must(err)
		f.wantSeqs("retrying", retrying, seqs[1])
		f.wantSeqs("pending", f.list(orders, queue.Pending, 2), seqs...)
		f.wantSeqs("listed as retrying", f.list(orders, queue.Retrying, 2))
		if !next.IsZero() {
			t.Errorf("something else is due at %s", next)
		}
		// Settled without a new attempt, and queued again.
		n, err := f.queue.Settle(t.Context(), orders, seqs[1:2], queue.DeadLettered, queue.ReasonExpired)
		if n != 1 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		d, err = f.queue.Replay(t.Context(), orders, seqs[1], false)
		if err != nil || d.Replays != 2 || d.Attempts != 1 {
			t.Errorf("%+v, %v", d, err)
		}
	})
	t.Run("one never tried is replayed as due", func(t *testing.T) {
		f := start(t, place)
		seqs := f.many(2, orders)
		if n, err := f.queue.Settle(t.Context(), orders, seqs[:1], queue.DeadLettered, queue.ReasonEndpointDeleted); n != 1 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		d, err := f.queue.Replay(t.Context(), orders, seqs[0], false)
		f.must(err)
		f.reopen()
		fresh, err := f.queue.Fresh(t.Context(), orders, 0, 10)
		f.must(err)
		f.wantSeqs("fresh", fresh, seqs[1])
		due, _, err := f.queue.Due(t.Context(), orders, d.DueAt, 10)
		f.must(err)
		f.wantSeqs("due", due, seqs[0])
		f.must(f.record(delivered(orders, seqs[0])))
		f.wantCounts(orders, queue.Counts{Pending: 1})
	})
	t.Run("cancelled", func(t *testing.T) {
		f := start(t, place)
		seq := f.one("1", orders)
		f.bring(orders, seq, queue.DeadLettered)
		wantCancelled(t, func(ctx context.Context) error {
			_, err := f.queue.Replay(ctx, orders, seq, false)
			return err
		})
		f.wantState(orders, seq, queue.DeadLettered)
	})
}

func testLane(t *testing.T, place func(*testing.T) Open) {
	f := start(t, place)
	want := queue.Lane{
		Disabled: true, Reason: "Gone", Message: "the receiver answered 410 ☠", At: f.now(), Hash: "h1", RetryHash: "r1",
	}
	f.must(f.queue.SetLane(t.Context(), orders, want))
	f.must(f.queue.SetLane(t.Context(), billing, queue.Lane{RetryHash: "r2"}))
	for range 2 {
		if got := f.queue.Lane(orders); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
		if got := f.queue.Lane(billing); got != (queue.Lane{RetryHash: "r2"}) {
			t.Errorf("%+v", got)
		}
		if got := f.queue.Lane(foreign); got != (queue.Lane{}) {
			t.Errorf("a lane nobody set: %+v", got)
		}
		if got := f.queue.Endpoints(); !slices.Equal(got, []plan.EndpointKey{billing, orders}) {
			t.Errorf("endpoints %v", got)
		}
		f.reopen()
	}
	f.must(f.queue.SetLane(t.Context(), orders, queue.Lane{}))
	f.reopen()
	if got := f.queue.Lane(orders); got != (queue.Lane{}) {
		t.Errorf("an enabled lane came back as %+v", got)
	}
	wantCancelled(t, func(ctx context.Context) error { return f.queue.SetLane(ctx, orders, want) })
	if got := f.queue.Lane(orders); got != (queue.Lane{}) {
		t.Errorf("a cancelled change was made: %+v", got)
	}
}

func wantCancelled(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled call answers %v", err)
	}
}
