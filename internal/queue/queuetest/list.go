package queuetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/queue"
)

func testEvents(t *testing.T, place func(*testing.T) Open) {
	f := start(t, place)
	types := []string{"order.created", "order.paid", "user.created"}
	var times []time.Time // of each fourth event
	for i := range 24 {
		if i%4 == 0 {
			f.must(f.queue.Close())
			f.wall.step(time.Hour)
			times = append(times, f.wall.now().Add(-time.Minute))
			f.start()
		}
		n := newEvent([]string{"shop", "bank"}[i%2], "", fmt.Sprint(i), "x")
		n.Event.Type = types[i%3]
		f.accept(n)
	}
	// shop has the odd numbers, two of them after each of times.
	all := []queue.Seq{1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23}
	for _, c := range []struct {
		name  string
		query queue.EventQuery
		want  []queue.Seq // oldest first
	}{
		{"all", queue.EventQuery{}, all},
		{"one type", queue.EventQuery{Types: []string{"order.paid"}}, []queue.Seq{5, 11, 17, 23}},
		{"types by pattern", queue.EventQuery{Types: []string{"order.*"}}, []queue.Seq{1, 5, 7, 11, 13, 17, 19, 23}},
		{"two types", queue.EventQuery{Types: []string{"order.paid", "user.*"}}, []queue.Seq{3, 5, 9, 11, 15, 17, 21, 23}},
		{"a type nobody has", queue.EventQuery{Types: []string{"invoice.*"}}, nil},
		{"since before the first", queue.EventQuery{Since: times[0]}, all},
		{"since the middle", queue.EventQuery{Since: times[3]}, all[6:]},
		{"since the last ones", queue.EventQuery{Since: times[5]}, all[10:]},
		{"since after the last", queue.EventQuery{Since: times[5].Add(time.Hour)}, nil},
		{"until before the first", queue.EventQuery{Until: times[0]}, nil},
		{"until the middle", queue.EventQuery{Until: times[3]}, all[:6]},
		{"until after the last", queue.EventQuery{Until: times[5].Add(time.Hour)}, all},
		{"between", queue.EventQuery{Since: times[1], Until: times[3]}, all[2:6]},
		{"between, of one type", queue.EventQuery{Since: times[1], Until: times[3], Types: []string{"order.paid"}}, []queue.Seq{5, 11}},
		{"between nothing", queue.EventQuery{Since: times[3], Until: times[1]}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, ascending := range []bool{true, false} {
				for _, limit := range []int{1, 2, 5, 100} {
					q := c.query
					q.Ascending = ascending
					got := f.pages(t, q, limit)
					if !ascending {
						slices.Reverse(got)
					}
					if !slices.Equal(got, c.want) {
						t.Errorf("ascending %t, in pages of %d: %v, want %v", ascending, limit, got, c.want)
					}
				}
			}
		})
	}
	t.Run("what comes later is found from the cursor on", func(t *testing.T) {
		got := f.pages(t, queue.EventQuery{Ascending: true}, 5)
		seq := f.accept(newEvent("shop", "", "later", "x"))[0].Seq
		more := f.pages(t, queue.EventQuery{Ascending: true, Cursor: got[len(got)-1]}, 5)
		if !slices.Equal(more, []queue.Seq{seq}) {
			t.Errorf("%v, want %d", more, seq)
		}
	})
	t.Run("what is forgotten is in no list", func(t *testing.T) {
		if n := f.prune(times[3], time.Time{}); n.Events != 12 {
			t.Errorf("forgot %+v", n)
		}
		if got := f.pages(t, queue.EventQuery{Ascending: true}, 5); !slices.Equal(got, append(all[6:], 25)) {
			t.Errorf("%v", got)
		}
		if got := f.pages(t, queue.EventQuery{Ascending: true, Since: times[1], Until: times[4]}, 5); !slices.Equal(got, all[6:8]) {
			t.Errorf("since a forgotten one: %v", got)
		}
	})
	t.Run("of an unknown namespace there are none", func(t *testing.T) {
		if got, next, err := f.queue.Events(t.Context(), "nobody", queue.EventQuery{}, 5); len(got) != 0 || next != 0 || err != nil {
			t.Errorf("%v, %d, %v", got, next, err)
		}
	})
}

// pages reads a list to its end.
func (f *fixture) pages(t *testing.T, q queue.EventQuery, limit int) (all []queue.Seq) {
	t.Helper()
	for calls := 0; ; calls++ {
		page, next, err := f.queue.Events(t.Context(), "shop", q, limit)
		f.must(err)
		if len(page) > limit || calls > 100 {
			t.Fatalf("a page of %d, call %d", len(page), calls)
		}
		for _, e := range page {
			if e.Namespace != "shop" || e.Body != nil || e.WebhookID == "" {
				t.Errorf("%+v", e)
			}
			all = append(all, e.Seq)
		}
		if next == 0 {
			return all
		}
		q.Cursor = next
	}
}
