package queuetest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// check compares all that can be read.
func (m *model) check(*rapid.T) {
	if got := m.listener.seqs(); !slices.Equal(got, append([]queue.Seq{}, m.told...)) {
		m.Fatalf("the listener was told of %v, want %v", got, m.told)
	}
	if got, want := m.queue.Endpoints(), slices.SortedFunc(maps.Keys(m.known), plan.EndpointKey.Compare); !slices.Equal(got, want) {
		m.Fatalf("endpoints %v, want %v", got, want)
	}
	for _, ep := range modelEndpoints {
		m.checkEndpoint(ep)
	}
	for _, ns := range []string{"shop", "bank"} {
		m.checkList(ns)
	}
	for seq := range m.last + 1 {
		e := m.events[seq]
		got, err := m.queue.Event(m.ctx, seq)
		if e == nil {
			if !errors.Is(err, queue.ErrNotFound) {
				m.Fatalf("event %d: %v, want ErrNotFound", seq, err)
			}
			continue
		}
		wantErr, wantEvent := error(nil), e.Event
		if e.dropped || !e.erased.IsZero() {
			bare := *e.Event
			bare.Body, wantErr, wantEvent = nil, queue.ErrPayloadMissing, &bare
		}
		if !e.erased.IsZero() {
			wantErr = queue.ErrErased
		}
		if !errors.Is(err, wantErr) {
			m.Fatalf("event %d: %v, want %v", seq, err, wantErr)
		}
		if !reflect.DeepEqual(got.Event, wantEvent) || !got.Erased.Equal(e.erased) || got.Size != len(e.Event.Body) || !got.AcceptedAt.Equal(e.acceptedAt) || !slices.Equal(got.Endpoints, e.Endpoints) {
			m.Fatalf("event %d: %+v, want %+v", seq, got, e)
		}
		m.checkDeliveries(seq, e)
	}
}

// checkList compares the events of a namespace, in both directions.
func (m *model) checkList(ns string) {
	var want []queue.Seq
	for _, seq := range slices.Sorted(maps.Keys(m.events)) {
		if m.events[seq].Event.Namespace == ns {
			want = append(want, seq)
		}
	}
	for _, ascending := range []bool{true, false} {
		var got []queue.Seq
		for q := (queue.EventQuery{Ascending: ascending}); ; {
			page, next, err := m.queue.Events(m.ctx, ns, q, 3)
			m.must(err)
			for _, e := range page {
				got = append(got, e.Seq)
			}
			if q.Cursor = next; next == 0 {
				break
			}
		}
		if !ascending {
			slices.Reverse(got)
		}
		if !slices.Equal(got, want) {
			m.Fatalf("events of %s, ascending %t: %v, want %v", ns, ascending, got, want)
		}
	}
}

func (m *model) checkDeliveries(seq queue.Seq, e *modelEvent) {
	ds, err := m.queue.Deliveries(m.ctx, seq)
	m.must(err)
	var want []queue.Delivery
	for _, ep := range slices.SortedFunc(maps.Keys(e.deliveries), plan.EndpointKey.Compare) {
		want = append(want, e.deliveries[ep].Delivery)
		as, err := m.queue.Attempts(m.ctx, seq, ep)
		m.must(err)
		if !reflect.DeepEqual(as, e.deliveries[ep].attempts) {
			m.Fatalf("attempts of %d to %s: %+v, want %+v", seq, ep, as, e.deliveries[ep].attempts)
		}
	}
	m.same(fmt.Sprintf("deliveries of %d", seq), ds, want)
}

func (m *model) checkEndpoint(ep plan.EndpointKey) {
	if got := m.queue.Lane(ep); got != m.lanes[ep] {
		m.Fatalf("lane of %s: %+v, want %+v", ep, got, m.lanes[ep])
	}
	by := map[queue.State][]queue.Delivery{}
	var fresh, retrying []queue.Delivery
	for _, seq := range slices.Sorted(maps.Keys(m.events)) {
		d := m.events[seq].deliveries[ep]
		if d == nil {
			continue
		}
		by[d.State] = append(by[d.State], d.Delivery)
		switch {
		case d.State == queue.Pending && d.Attempts == 0 && d.Replays == 0:
			fresh = append(fresh, d.Delivery)
		case d.State.Waiting():
			retrying = append(retrying, d.Delivery)
		}
	}
	want := queue.Counts{
		Pending: len(by[queue.Pending]), Retrying: len(by[queue.Retrying]), DeadLettered: len(by[queue.DeadLettered]),
		FilterError: len(by[queue.FilterError]),
	}
	for _, d := range slices.Concat(by[queue.Pending], by[queue.Retrying]) {
		want.WaitingBytes += int64(d.Size)
	}
	if got := m.queue.Counts(ep); got != want {
		m.Fatalf("counts of %s: %+v, want %+v", ep, got, want)
	}
	for _, s := range allStates {
		m.same(fmt.Sprintf("%s of %s", s, ep), m.list(ep, s, 2), by[s])
	}
	got, err := m.queue.Fresh(m.ctx, ep, 0, 1000)
	m.must(err)
	m.same("fresh of "+ep.String(), got, fresh)
	got, err = m.queue.Retrying(m.ctx, ep, 0, 1000)
	m.must(err)
	m.same("retrying of "+ep.String(), got, retrying)
	slices.SortStableFunc(retrying, func(a, b queue.Delivery) int {
		return cmp.Or(a.DueAt.Compare(b.DueAt), cmp.Compare(a.Seq, b.Seq))
	})
	got, next, err := m.queue.Due(m.ctx, ep, m.now().Add(24*time.Hour), 1000)
	m.must(err)
	m.same("due of "+ep.String(), got, retrying)
	if !next.IsZero() {
		m.Fatalf("more of %s is due at %s", ep, next)
	}
}

func (m *model) same(what string, got, want []queue.Delivery) {
	if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
		m.Fatalf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}
