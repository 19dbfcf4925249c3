package queuetest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// testModel makes random changes to a store and to a model of a few maps, closing and
// opening the store in between, and compares everything that can be read.
func testModel(t *testing.T, place func(*testing.T) Open) {
	rapid.Check(t, func(r *rapid.T) {
		m := &model{
			fixture:    &fixture{tb: r, ctx: t.Context(), open: place(t), wall: newWallClock(), listener: &recorder{}},
			events:     map[queue.Seq]*modelEvent{},
			identities: map[string]queue.Seq{},
			lanes:      map[plan.EndpointKey]queue.Lane{},
			known:      map[plan.EndpointKey]bool{},
		}
		m.start()
		defer func() { _ = m.queue.Close() }()
		r.Repeat(map[string]func(*rapid.T){
			"accept":     m.accept,
			"record":     m.recordOne,
			"settle":     m.settle,
			"reschedule": m.reschedule,
			"replay":     m.replay,
			"setLane":    m.setLane,
			"prune":      m.prune,
			"reopen":     func(*rapid.T) { m.reopen() },
			"":           m.check,
		})
	})
}

type model struct {
	*fixture
	last       queue.Seq
	told       []queue.Seq
	events     map[queue.Seq]*modelEvent
	identities map[string]queue.Seq // namespace/webhook-id
	lanes      map[plan.EndpointKey]queue.Lane
	known      map[plan.EndpointKey]bool
}

type modelEvent struct {
	queue.NewEvent
	acceptedAt time.Time
	deliveries map[plan.EndpointKey]*modelDelivery
}

type modelDelivery struct {
	queue.Delivery
	attempts []queue.Attempt
}

var modelEndpoints = []plan.EndpointKey{orders, billing, {Namespace: "shop", Name: "audit"}}

func (m *model) accept(r *rapid.T) {
	var events []queue.NewEvent
	for range rapid.IntRange(1, 3).Draw(r, "events") {
		events = append(events, newEvent(
			rapid.SampledFrom([]string{"shop", "bank"}).Draw(r, "namespace"),
			rapid.SampledFrom([]string{"", "urn:a"}).Draw(r, "source"),
			rapid.StringMatching(`[a-h]`).Draw(r, "id"),
			// Mostly the same bytes under one id.
			rapid.SampledFrom([]string{"x", "x", "x", "x", "x", "y"}).Draw(r, "body"),
			rapid.SliceOfNDistinct(rapid.SampledFrom(modelEndpoints), 0, 3, rapid.ID).Draw(r, "endpoints")...))
	}
	acc, err := m.queue.Accept(m.ctx, events)
	known := maps.Clone(m.identities)
	body := map[string]string{}
	conflict := -1
	for i, e := range events {
		k := e.Event.Namespace + "/" + e.Event.WebhookID
		if seq, ok := known[k]; ok {
			body[k] = string(m.events[seq].Event.Body)
		}
		if b, ok := body[k]; ok && b != string(e.Event.Body) {
			conflict = i
			break
		}
		body[k] = string(e.Event.Body)
	}
	var c *queue.ConflictError
	if conflict >= 0 {
		if !errors.As(err, &c) {
			m.Fatalf("element %d should conflict, answer %v", conflict, err)
		}
		return
	}
	m.must(err)
	for i, e := range events {
		k := e.Event.Namespace + "/" + e.Event.WebhookID
		if seq, ok := m.identities[k]; ok {
			if want := (queue.Accepted{Seq: seq, Duplicate: true, Endpoints: len(m.events[seq].Endpoints)}); acc[i] != want {
				m.Fatalf("element %d: %+v, want %+v", i, acc[i], want)
			}
			continue
		}
		m.last++
		if want := (queue.Accepted{Seq: m.last, Endpoints: len(e.Endpoints)}); acc[i] != want {
			m.Fatalf("element %d: %+v, want %+v", i, acc[i], want)
		}
		m.identities[k] = m.last
		m.told = append(m.told, m.last)
		stored, err := m.queue.Event(m.ctx, m.last)
		m.must(err)
		me := &modelEvent{NewEvent: e, acceptedAt: stored.AcceptedAt, deliveries: map[plan.EndpointKey]*modelDelivery{}}
		for _, ep := range e.Endpoints {
			m.known[ep] = true
			me.deliveries[ep] = &modelDelivery{Delivery: queue.Delivery{
				Seq: m.last, Endpoint: ep, State: queue.Pending, QueuedAt: stored.AcceptedAt, DueAt: stored.AcceptedAt,
				Size: len(e.Event.Body), Share: len(e.Event.Body) / len(e.Endpoints),
			}}
		}
		m.events[m.last] = me
	}
}

// pick draws a delivery, now and then one that isn't there.
func (m *model) pick(r *rapid.T) (plan.EndpointKey, queue.Seq, *modelDelivery) {
	ep := rapid.SampledFrom(modelEndpoints).Draw(r, "endpoint")
	seq := queue.Seq(rapid.Uint64Range(0, uint64(m.last)+1).Draw(r, "seq"))
	if e := m.events[seq]; e != nil {
		return ep, seq, e.deliveries[ep]
	}
	return ep, seq, nil
}

// moved takes over the times the store gave, once they are plausible.
func (m *model) moved(d *modelDelivery, since time.Time) {
	got := m.get(d.Endpoint, d.Seq)
	for _, at := range []time.Time{got.EndedAt, got.QueuedAt} {
		if !at.IsZero() && at.Before(since) {
			m.Errorf("delivery %d to %s: %s lies before its last change at %s", d.Seq, d.Endpoint, at, since)
		}
	}
	d.QueuedAt, d.EndedAt = got.QueuedAt, got.EndedAt
	if !d.State.Waiting() {
		d.DueAt, d.Delay, d.Asked = time.Time{}, 0, 0
		if got.EndedAt.IsZero() {
			m.Errorf("delivery %d to %s ended at no time", d.Seq, d.Endpoint)
		}
	} else if d.State == queue.Pending {
		d.DueAt, d.Delay, d.Asked = d.QueuedAt, 0, 0
	}
}

func (m *model) recordOne(r *rapid.T) {
	ep, seq, d := m.pick(r)
	o := map[string]queue.Outcome{
		"delivered": delivered(ep, seq), "dead": dead(ep, seq),
		"failed": failed(ep, seq, m.now().Add(time.Duration(rapid.IntRange(-3, 9).Draw(r, "due"))*time.Minute), time.Minute),
	}[rapid.SampledFrom([]string{"delivered", "dead", "failed", "failed"}).Draw(r, "outcome")]
	err := m.record(o)
	if d == nil || !d.State.Waiting() {
		if !errors.Is(err, queue.ErrNotWaiting) {
			m.Fatalf("answer %v, want ErrNotWaiting", err)
		}
		return
	}
	m.must(err)
	d.Attempts++
	d.Budget++
	d.State, d.LastStatus, d.Reason, d.DueAt, d.Delay, d.Asked = o.To, o.Attempt.Status, o.Reason, o.DueAt, o.Delay, o.Asked
	if o.To == queue.Retrying {
		d.Reason = o.Attempt.Reason
	}
	if v := o.Attempt.HandlerVersion; v != "" {
		d.HandlerVersion = v
	}
	o.Attempt.Number = d.Attempts
	d.attempts = append(d.attempts, o.Attempt)
	m.moved(d, d.QueuedAt)
}

func (m *model) settle(r *rapid.T) {
	ep := rapid.SampledFrom(modelEndpoints).Draw(r, "endpoint")
	seqs := rapid.SliceOfN(rapid.Uint64Range(0, uint64(m.last)+1), 0, 4).Draw(r, "seqs")
	var ask []queue.Seq
	var hit []*modelDelivery
	for _, s := range seqs {
		seq := queue.Seq(s)
		ask = append(ask, seq)
		if e := m.events[seq]; e != nil {
			if d := e.deliveries[ep]; d != nil && d.State.Waiting() {
				d.State, d.Reason = queue.DeadLettered, queue.ReasonExpired
				hit = append(hit, d)
			}
		}
	}
	n, err := m.queue.Settle(m.ctx, ep, ask, queue.DeadLettered, queue.ReasonExpired)
	if err != nil || n != len(hit) {
		m.Fatalf("settled %d, %v, want %d", n, err, len(hit))
	}
	for _, d := range hit {
		m.moved(d, d.QueuedAt)
	}
}

func (m *model) reschedule(r *rapid.T) {
	ep, seq, d := m.pick(r)
	at := m.now().Add(time.Duration(rapid.IntRange(-5, 9).Draw(r, "due")) * time.Minute)
	want := 0
	// A replayed one is retrying in this sense, a fresh one isn't.
	if d != nil && d.State.Waiting() && (d.Attempts > 0 || d.Replays > 0) && at.Before(d.DueAt) {
		want = 1
		d.Delay = max(0, d.Delay-d.DueAt.Sub(at))
		d.DueAt = at
	}
	n, err := m.queue.Reschedule(m.ctx, ep, map[queue.Seq]time.Time{seq: at})
	if err != nil || n != want {
		m.Fatalf("moved %d, %v, want %d", n, err, want)
	}
}

func (m *model) replay(r *rapid.T) {
	ep, seq, d := m.pick(r)
	force := rapid.Bool().Draw(r, "force")
	var want error
	switch {
	case d == nil:
		want = queue.ErrNotFound
	case d.State.Waiting():
		want = queue.ErrAlreadyWaiting
	case d.State == queue.Delivered && !force:
		want = queue.ErrDelivered
	}
	_, err := m.queue.Replay(m.ctx, ep, seq, force)
	if !errors.Is(err, want) {
		m.Fatalf("answer %v, want %v", err, want)
	}
	if want == nil {
		ended := d.EndedAt
		d.State, d.Reason, d.Budget = queue.Pending, "", 0
		d.Replays++
		m.moved(d, time.Time{})
		if d.QueuedAt.Before(ended) || !d.EndedAt.IsZero() {
			m.Fatalf("replayed at %s after an end at %s", d.QueuedAt, ended)
		}
	}
}

func (m *model) setLane(r *rapid.T) {
	ep := rapid.SampledFrom(modelEndpoints).Draw(r, "endpoint")
	l := queue.Lane{Disabled: rapid.Bool().Draw(r, "disabled"), Reason: "Gone", Hash: rapid.StringN(0, 3, 9).Draw(r, "hash")}
	m.must(m.queue.SetLane(m.ctx, ep, l))
	m.lanes[ep], m.known[ep] = l, true
}

// prune forgets by lines between the times of changes, or after all of them.
func (m *model) prune(r *rapid.T) {
	line := func(name string) time.Time {
		times := []time.Time{{}, m.now().Add(time.Hour)}
		for _, seq := range slices.Sorted(maps.Keys(m.events)) {
			times = append(times, m.events[seq].acceptedAt.Add(time.Microsecond))
		}
		return rapid.SampledFrom(times).Draw(r, name)
	}
	delivered, deadLetters := line("delivered"), line("deadLetters")
	want := 0
	for seq, e := range m.events {
		gone := len(e.deliveries) > 0 || e.acceptedAt.Before(delivered)
		for _, d := range e.deliveries {
			at := slices.MaxFunc([]time.Time{e.acceptedAt, d.QueuedAt, d.EndedAt}, time.Time.Compare)
			gone = gone && (d.State == queue.Delivered && at.Before(delivered) || d.State == queue.DeadLettered && at.Before(deadLetters))
		}
		if gone {
			want++
			delete(m.events, seq)
			delete(m.identities, e.Event.Namespace+"/"+e.Event.WebhookID)
		}
	}
	n, err := m.queue.Prune(m.ctx, queue.Retention{Delivered: delivered, DeadLetters: deadLetters, Identities: m.now().Add(time.Hour)})
	m.must(err)
	if n.Events != int64(want) {
		m.Fatalf("forgot %+v, want %d events", n, want)
	}
}

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
	for seq := range m.last + 1 {
		e := m.events[seq]
		got, err := m.queue.Event(m.ctx, seq)
		if e == nil {
			if !errors.Is(err, queue.ErrNotFound) {
				m.Fatalf("event %d: %v, want ErrNotFound", seq, err)
			}
			continue
		}
		m.must(err)
		if !reflect.DeepEqual(got.Event, e.Event) || !got.AcceptedAt.Equal(e.acceptedAt) || !slices.Equal(got.Endpoints, e.Endpoints) {
			m.Fatalf("event %d: %+v, want %+v", seq, got, e)
		}
		m.checkDeliveries(seq, e)
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
	want := queue.Counts{Pending: len(by[queue.Pending]), Retrying: len(by[queue.Retrying]), DeadLettered: len(by[queue.DeadLettered])}
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
