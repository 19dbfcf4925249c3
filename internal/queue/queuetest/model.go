package queuetest

import (
	"errors"
	"maps"
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
			identities: map[string]*modelIdentity{},
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
			"erase":      m.erase,
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
	identities map[string]*modelIdentity // namespace/webhook-id
	lanes      map[plan.EndpointKey]queue.Lane
	known      map[plan.EndpointKey]bool
}

// modelIdentity is remembered by its own time, its event by others.
type modelIdentity struct {
	seq        queue.Seq
	body       string
	endpoints  int
	acceptedAt time.Time
}

type modelEvent struct {
	queue.NewEvent
	acceptedAt time.Time
	erased     time.Time
	dropped    bool
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
		e := &events[len(events)-1]
		for _, ep := range e.Endpoints {
			switch rapid.SampledFrom([]string{"true", "true", "undecided", "error"}).Draw(r, "filter") {
			case "undecided":
				e.Undecided = append(e.Undecided, ep)
			case "error":
				e.FilterErrors = append(e.FilterErrors, ep)
			}
		}
	}
	for i := range events { // as NewEvent wants them
		slices.SortFunc(events[i].Undecided, plan.EndpointKey.Compare)
		slices.SortFunc(events[i].FilterErrors, plan.EndpointKey.Compare)
	}
	acc, err := m.queue.Accept(m.ctx, events)
	known := maps.Clone(m.identities)
	body := map[string]string{}
	conflict := -1
	for i, e := range events {
		k := e.Event.Namespace + "/" + e.Event.WebhookID
		if id := known[k]; id != nil {
			body[k] = id.body
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
		if id := m.identities[k]; id != nil {
			if want := (queue.Accepted{Seq: id.seq, Duplicate: true, Endpoints: id.endpoints}); acc[i] != want {
				m.Fatalf("element %d: %+v, want %+v", i, acc[i], want)
			}
			continue
		}
		m.last++
		if want := (queue.Accepted{Seq: m.last, Endpoints: len(e.Endpoints)}); acc[i] != want {
			m.Fatalf("element %d: %+v, want %+v", i, acc[i], want)
		}
		m.told = append(m.told, m.last)
		stored, err := m.queue.Event(m.ctx, m.last)
		m.must(err)
		m.identities[k] = &modelIdentity{m.last, string(e.Event.Body), len(e.Endpoints), stored.AcceptedAt}
		me := &modelEvent{NewEvent: e, acceptedAt: stored.AcceptedAt, deliveries: map[plan.EndpointKey]*modelDelivery{}}
		for _, ep := range e.Endpoints {
			m.known[ep] = true
			d := queue.Delivery{
				Seq: m.last, Endpoint: ep, State: queue.Pending, QueuedAt: stored.AcceptedAt, DueAt: stored.AcceptedAt,
				Size: len(e.Event.Body), Share: len(e.Event.Body) / len(e.Endpoints), Undecided: slices.Contains(e.Undecided, ep),
			}
			if slices.Contains(e.FilterErrors, ep) {
				d.State, d.Reason, d.DueAt, d.EndedAt = queue.FilterError, queue.ReasonFilterError, time.Time{}, stored.AcceptedAt
			}
			me.deliveries[ep] = &modelDelivery{Delivery: d}
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
		d.DueAt, d.Delay, d.Asked, d.Undecided = time.Time{}, 0, 0, false
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
	d.Undecided = false
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
	to := rapid.SampledFrom([]queue.State{queue.DeadLettered, queue.FilterError, queue.Discarded}).Draw(r, "to")
	var ask []queue.Seq
	var hit []*modelDelivery
	for _, s := range seqs {
		seq := queue.Seq(s)
		ask = append(ask, seq)
		if e := m.events[seq]; e != nil {
			if d := e.deliveries[ep]; d != nil && d.State.Waiting() {
				d.State, d.Reason = to, queue.ReasonExpired
				hit = append(hit, d)
			}
		}
	}
	n, err := m.queue.Settle(m.ctx, ep, ask, to, queue.ReasonExpired)
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
	case d.State == queue.Discarded && !force:
		want = queue.ErrDiscarded
	case !m.events[seq].erased.IsZero():
		want = queue.ErrErased
	case m.events[seq].dropped:
		want = queue.ErrPayloadMissing
	}
	_, err := m.queue.Replay(m.ctx, ep, seq, force)
	if !errors.Is(err, want) {
		m.Fatalf("answer %v, want %v", err, want)
	}
	if want == nil {
		ended := d.EndedAt
		d.Undecided = d.State == queue.FilterError
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
	ret := queue.Retention{
		Delivered: line("delivered"), DeadLetters: line("deadLetters"), Identities: line("identities"),
		DropPayloads: rapid.IntRange(0, 3).Draw(r, "drop") == 0,
	}
	var want queue.Pruned
	for seq, e := range m.events {
		gone, done := len(e.deliveries) > 0 || e.acceptedAt.Before(ret.Delivered), true
		for _, d := range e.deliveries {
			at := slices.MaxFunc([]time.Time{e.acceptedAt, d.QueuedAt, d.EndedAt}, time.Time.Compare)
			before := ret.Delivered
			if d.State == queue.DeadLettered || d.State == queue.FilterError {
				before = ret.DeadLetters
			}
			gone = gone && !d.State.Waiting() && at.Before(before)
			done = done && (d.State == queue.Delivered || d.State == queue.Discarded)
		}
		switch {
		case gone:
			want.Events++
			delete(m.events, seq)
		case done && ret.DropPayloads && !e.dropped && e.erased.IsZero():
			want.Payloads++
			e.dropped = true
		}
	}
	for k, id := range m.identities {
		if m.events[id.seq] == nil && id.acceptedAt.Before(ret.Identities) {
			delete(m.identities, k)
		}
	}
	n, err := m.queue.Prune(m.ctx, ret)
	m.must(err)
	if n.Events != want.Events || n.Payloads != want.Payloads {
		m.Fatalf("forgot %+v, want %+v", n, want)
	}
}

// erase takes an event's payload and the bodies of its answers.
func (m *model) erase(r *rapid.T) {
	seq := queue.Seq(rapid.Uint64Range(0, uint64(m.last)+1).Draw(r, "seq"))
	done, err := m.queue.Erase(m.ctx, seq)
	e := m.events[seq]
	if e == nil {
		if !errors.Is(err, queue.ErrNotFound) {
			m.Fatalf("answer %v, want ErrNotFound", err)
		}
		return
	}
	m.must(err)
	if !e.erased.IsZero() {
		if done != (queue.Erased{At: e.erased, Again: true}) {
			m.Fatalf("erased again: %+v, first at %s", done, e.erased)
		}
		return
	}
	e.erased = done.At
	want := queue.Erased{At: done.At}
	if !e.dropped {
		want.Bytes = int64(len(e.Event.Body))
	}
	for _, d := range e.deliveries {
		for i := range d.attempts {
			want.Bytes += int64(len(d.attempts[i].Response))
			d.attempts[i].Response = nil
		}
		if d.State.Waiting() {
			want.DeadLettered++
			d.State, d.Reason = queue.DeadLettered, queue.ReasonErased
			m.moved(d, d.QueuedAt)
		}
	}
	if done != want {
		m.Fatalf("erased %+v, want %+v", done, want)
	}
}
