package ingesttest

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// Queue is a queue.Queue in memory. Now must be set; times come from it.
type Queue struct {
	Now func() time.Time

	mu         sync.Mutex
	acceptErr  error
	healthErr  error
	accepts    int
	events     []*queue.StoredEvent // by Seq, from 1
	deliveries []*queue.Delivery    // in order of acceptance
	attempts   map[deliveryKey][]queue.Attempt
	lanes      map[plan.EndpointKey]queue.Lane
}

var _ queue.Queue = (*Queue)(nil)

type deliveryKey struct {
	seq      queue.Seq
	endpoint plan.EndpointKey
}

// NewQueue is an empty queue whose clock is now.
func NewQueue(now func() time.Time) *Queue {
	return &Queue{Now: now, attempts: make(map[deliveryKey][]queue.Attempt), lanes: make(map[plan.EndpointKey]queue.Lane)}
}

// FailAccept makes Accept fail until it is called with nil.
func (q *Queue) FailAccept(err error) { q.mu.Lock(); defer q.mu.Unlock(); q.acceptErr = err }

// FailHealth makes Health fail until it is called with nil.
func (q *Queue) FailHealth(err error) { q.mu.Lock(); defer q.mu.Unlock(); q.healthErr = err }

// Stored gives the events stored so far, and how often Accept was called.
func (q *Queue) Stored() (events []*queue.StoredEvent, accepts int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.events), q.accepts
}

// Accept stores events as queue.Queue says.
func (q *Queue) Accept(_ context.Context, events []queue.NewEvent) ([]queue.Accepted, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.accepts++
	if q.acceptErr != nil {
		return nil, q.acceptErr
	}
	before := len(q.events)
	results := make([]queue.Accepted, 0, len(events))
	for i, e := range events {
		if known := q.find(e.Event.Namespace, e.Event.WebhookID); known != nil {
			if known.Hash != e.Event.Hash {
				q.events = q.events[:before]
				q.deliveries = slices.DeleteFunc(q.deliveries, func(d *queue.Delivery) bool { return int(d.Seq) > before })
				return nil, &queue.ConflictError{Index: i, WebhookID: known.WebhookID, Within: int(known.Seq) > before}
			}
			results = append(results, queue.Accepted{Seq: known.Seq, Duplicate: true, Endpoints: len(known.Endpoints)})
			continue
		}
		results = append(results, q.add(e))
	}
	return results, nil
}

func (q *Queue) add(e queue.NewEvent) queue.Accepted {
	now := q.Now()
	stored := &queue.StoredEvent{Event: e.Event, Seq: queue.Seq(len(q.events) + 1), AcceptedAt: now,
		TraceParent: e.TraceParent, Endpoints: e.Endpoints}
	q.events = append(q.events, stored)
	for _, key := range e.Endpoints {
		q.deliveries = append(q.deliveries,
			&queue.Delivery{Seq: stored.Seq, Endpoint: key, State: queue.Pending, QueuedAt: now, DueAt: now})
	}
	return queue.Accepted{Seq: stored.Seq, Endpoints: len(e.Endpoints)}
}

// Record moves a delivery on and calls done before it returns.
func (q *Queue) Record(o queue.Outcome, done func(error)) {
	q.mu.Lock()
	d := q.delivery(o.Seq, o.Endpoint)
	var err error
	switch {
	case d == nil || !d.State.Waiting():
		err = queue.ErrNotWaiting
	default:
		d.State, d.Attempts, d.Budget, d.LastStatus = o.To, d.Attempts+1, d.Budget+1, o.Attempt.Status
		d.Reason, d.HandlerVersion, d.Delay, d.DueAt = o.Reason, o.Attempt.HandlerVersion, o.Delay, o.DueAt
		if o.To == queue.Retrying {
			d.Reason = o.Attempt.Reason
		} else {
			d.EndedAt = q.Now()
		}
		key := deliveryKey{o.Seq, o.Endpoint}
		o.Attempt.Number = d.Attempts
		q.attempts[key] = append(q.attempts[key], o.Attempt)
	}
	q.mu.Unlock()
	if done != nil {
		done(err)
	}
}

// Settle dead-letters waiting deliveries.
func (q *Queue) Settle(_ context.Context, endpoint plan.EndpointKey, seqs []queue.Seq, reason string) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, seq := range seqs {
		if d := q.delivery(seq, endpoint); d != nil && d.State.Waiting() {
			d.State, d.Reason, d.EndedAt = queue.DeadLettered, reason, q.Now()
			n++
		}
	}
	return n, nil
}

// Reschedule brings retrying deliveries forward.
func (q *Queue) Reschedule(_ context.Context, endpoint plan.EndpointKey, due map[queue.Seq]time.Time) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for seq, at := range due {
		if d := q.delivery(seq, endpoint); d != nil && d.State == queue.Retrying && at.Before(d.DueAt) {
			d.DueAt = at
			n++
		}
	}
	return n, nil
}

// Replay queues a finished delivery again.
func (q *Queue) Replay(_ context.Context, endpoint plan.EndpointKey, seq queue.Seq, force bool) (queue.Delivery, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	d := q.delivery(seq, endpoint)
	switch {
	case d == nil:
		return queue.Delivery{}, queue.ErrNotFound
	case d.State.Waiting():
		return queue.Delivery{}, queue.ErrAlreadyWaiting
	case d.State == queue.Delivered && !force:
		return queue.Delivery{}, queue.ErrDelivered
	}
	d.State, d.Budget, d.Reason, d.EndedAt = queue.Pending, 0, "", time.Time{}
	d.QueuedAt, d.DueAt, d.Replays = q.Now(), q.Now(), d.Replays+1
	return *d, nil
}

// SetLane remembers a lane.
func (q *Queue) SetLane(_ context.Context, endpoint plan.EndpointKey, lane queue.Lane) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lanes[endpoint] = lane
	return nil
}

// Prune forgets nothing.
func (q *Queue) Prune(context.Context, time.Time, time.Time, int) (int, bool, error) {
	return 0, true, nil
}

// Health is what FailHealth set.
func (q *Queue) Health() error { q.mu.Lock(); defer q.mu.Unlock(); return q.healthErr }

// Close does nothing.
func (q *Queue) Close() error { return nil }

func (q *Queue) find(namespace, webhookID string) *queue.StoredEvent {
	for _, e := range q.events {
		if e.Namespace == namespace && e.WebhookID == webhookID {
			return e
		}
	}
	return nil
}

func (q *Queue) delivery(seq queue.Seq, endpoint plan.EndpointKey) *queue.Delivery {
	for _, d := range q.deliveries {
		if d.Seq == seq && d.Endpoint == endpoint {
			return d
		}
	}
	return nil
}

// Event gives an event.
func (q *Queue) Event(_ context.Context, seq queue.Seq) (*queue.StoredEvent, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if seq == 0 || int(seq) > len(q.events) {
		return nil, queue.ErrNotFound
	}
	return q.events[seq-1], nil
}

// Find gives the event with a webhook-id.
func (q *Queue) Find(_ context.Context, namespace, webhookID string) (*queue.StoredEvent, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.find(namespace, webhookID); e != nil {
		return e, nil
	}
	return nil, queue.ErrNotFound
}

// Events looks at limit events of all namespaces, so that pages are short wherever namespaces are mixed.
func (q *Queue) Events(_ context.Context, namespace string, before queue.Seq, limit int) ([]*queue.StoredEvent, queue.Seq, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := len(q.events)
	if before > 0 {
		at = min(at, int(before)-1)
	}
	var list []*queue.StoredEvent
	for ; at > 0 && limit > 0; at, limit = at-1, limit-1 {
		if e := q.events[at-1]; e.Namespace == namespace {
			meta := *e
			bare := *e.Event
			bare.Body, meta.Event = nil, &bare
			list = append(list, &meta)
		}
	}
	if at <= 0 {
		return list, 0, nil
	}
	return list, queue.Seq(at + 1), nil
}

// Deliveries gives the deliveries of an event.
func (q *Queue) Deliveries(_ context.Context, seq queue.Seq) ([]queue.Delivery, error) {
	list := q.filter(func(d *queue.Delivery) bool { return d.Seq == seq })
	slices.SortFunc(list, func(a, b queue.Delivery) int { return a.Endpoint.Compare(b.Endpoint) })
	return list, nil
}

// Attempts gives the attempts of a delivery.
func (q *Queue) Attempts(_ context.Context, seq queue.Seq, endpoint plan.EndpointKey) ([]queue.Attempt, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.attempts[deliveryKey{seq, endpoint}]), nil
}

// List gives deliveries of an endpoint in one state.
func (q *Queue) List(_ context.Context, endpoint plan.EndpointKey, state queue.State, after queue.Seq, limit int) ([]queue.Delivery, queue.Seq, error) {
	list := q.filter(func(d *queue.Delivery) bool { return d.Endpoint == endpoint && d.State == state && d.Seq > after })
	if len(list) <= limit {
		return list, 0, nil
	}
	return list[:limit], list[limit-1].Seq, nil
}

func (q *Queue) filter(keep func(*queue.Delivery) bool) []queue.Delivery {
	q.mu.Lock()
	defer q.mu.Unlock()
	var list []queue.Delivery
	for _, d := range q.deliveries {
		if keep(d) {
			list = append(list, *d)
		}
	}
	return list
}

func isFresh(d *queue.Delivery) bool { return d.State == queue.Pending && d.Replays == 0 }

// Fresh gives never tried deliveries.
func (q *Queue) Fresh(_ context.Context, endpoint plan.EndpointKey, after queue.Seq, limit int) ([]queue.Delivery, error) {
	list := q.filter(func(d *queue.Delivery) bool { return d.Endpoint == endpoint && d.Seq > after && isFresh(d) })
	return list[:min(limit, len(list))], nil
}

// Due gives retrying and replayed deliveries by due time.
func (q *Queue) Due(_ context.Context, endpoint plan.EndpointKey, until time.Time, limit int) ([]queue.Delivery, time.Time, error) {
	list := q.filter(func(d *queue.Delivery) bool { return d.Endpoint == endpoint && d.State.Waiting() && !isFresh(d) })
	slices.SortStableFunc(list, func(a, b queue.Delivery) int { return a.DueAt.Compare(b.DueAt) })
	n := 0
	for n < len(list) && n < limit && !list[n].DueAt.After(until) {
		n++
	}
	if n < len(list) {
		return list[:n], list[n].DueAt, nil
	}
	return list, time.Time{}, nil
}

// Retrying gives retrying and replayed deliveries in order of acceptance.
func (q *Queue) Retrying(_ context.Context, endpoint plan.EndpointKey, after queue.Seq, limit int) ([]queue.Delivery, error) {
	list := q.filter(func(d *queue.Delivery) bool {
		return d.Endpoint == endpoint && d.Seq > after && d.State.Waiting() && !isFresh(d)
	})
	slices.SortStableFunc(list, func(a, b queue.Delivery) int { return cmp.Compare(a.Seq, b.Seq) })
	return list[:min(limit, len(list))], nil
}

// Endpoints names every endpoint that ever had a delivery.
func (q *Queue) Endpoints() []plan.EndpointKey {
	var keys []plan.EndpointKey
	for _, d := range q.filter(func(*queue.Delivery) bool { return true }) {
		keys = append(keys, d.Endpoint)
	}
	slices.SortFunc(keys, plan.EndpointKey.Compare)
	return slices.Compact(keys)
}

// Counts counts an endpoint's deliveries.
func (q *Queue) Counts(endpoint plan.EndpointKey) queue.Counts {
	var c queue.Counts
	for _, d := range q.filter(func(d *queue.Delivery) bool { return d.Endpoint == endpoint }) {
		switch d.State {
		case queue.Pending:
			c.Pending++
		case queue.Retrying:
			c.Retrying++
		case queue.DeadLettered:
			c.DeadLettered++
		}
	}
	return c
}

// Lane gives what SetLane remembered.
func (q *Queue) Lane(endpoint plan.EndpointKey) queue.Lane {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lanes[endpoint]
}

// LastTime is zero: nothing was kept from before.
func (q *Queue) LastTime() time.Time { return time.Time{} }
