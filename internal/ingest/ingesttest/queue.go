package ingesttest

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/doorstep-dev/doorstep/internal/event"
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
	erased     map[queue.Seq]*queue.StoredEvent // what Event gives of them
	audits     []queue.AuditRecord
	usage      queue.Usage
}

var _ queue.Queue = (*Queue)(nil)

type deliveryKey struct {
	seq      queue.Seq
	endpoint plan.EndpointKey
}

// NewQueue is an empty queue whose clock is now.
func NewQueue(now func() time.Time) *Queue {
	return &Queue{
		Now: now, attempts: make(map[deliveryKey][]queue.Attempt), lanes: make(map[plan.EndpointKey]queue.Lane),
		erased: make(map[queue.Seq]*queue.StoredEvent),
	}
}

// FailAccept makes Accept fail until it is called with nil.
func (q *Queue) FailAccept(err error) { q.mu.Lock(); defer q.mu.Unlock(); q.acceptErr = err }

// FailHealth makes Health fail until it is called with nil.
func (q *Queue) FailHealth(err error) { q.mu.Lock(); defer q.mu.Unlock(); q.healthErr = err }

// SetUsage is what Usage says from now on.
func (q *Queue) SetUsage(u queue.Usage) { q.mu.Lock(); defer q.mu.Unlock(); q.usage = u }

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
		TraceParent: e.TraceParent, Endpoints: e.Endpoints, Size: len(e.Event.Body), Undecided: e.Undecided, FilterErrors: e.FilterErrors}
	q.events = append(q.events, stored)
	for _, key := range e.Endpoints {
		d := stored.New(key)
		q.deliveries = append(q.deliveries, &d)
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

// Settle ends waiting deliveries.
func (q *Queue) Settle(_ context.Context, endpoint plan.EndpointKey, seqs []queue.Seq, to queue.State, reason string) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for _, seq := range seqs {
		if d := q.delivery(seq, endpoint); d != nil && d.State.Waiting() {
			d.State, d.Reason, d.EndedAt, d.Undecided = to, reason, q.Now(), false
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
	case d.State == queue.Discarded && !force:
		return queue.Delivery{}, queue.ErrDiscarded
	case q.erased[seq] != nil:
		return queue.Delivery{}, queue.ErrErased
	}
	d.Undecided = d.State == queue.FilterError
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

// Erase takes the payload and the bodies of answers from an event.
func (q *Queue) Erase(_ context.Context, seq queue.Seq) (queue.Erased, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if seq == 0 || int(seq) > len(q.events) {
		return queue.Erased{}, queue.ErrNotFound
	}
	if e := q.erased[seq]; e != nil {
		return queue.Erased{At: e.Erased, Again: true}, nil
	}
	e, bare := *q.events[seq-1], *q.events[seq-1].Event
	done := queue.Erased{At: q.Now(), Bytes: int64(len(bare.Body))}
	bare.Body, bare.Subject, bare.Headers, bare.Attributes = nil, "", nil, nil
	e.Event, e.Erased, e.TraceParent = &bare, done.At, ""
	q.erased[seq] = &e
	for _, d := range q.deliveries {
		if d.Seq != seq {
			continue
		}
		as := q.attempts[deliveryKey{seq, d.Endpoint}]
		for i := range as {
			done.Bytes += int64(len(as[i].Response))
			as[i].Response = nil
		}
		if d.State.Waiting() {
			d.State, d.Reason, d.EndedAt = queue.DeadLettered, queue.ReasonErased, done.At
			done.DeadLettered++
		}
	}
	return done, nil
}

// AddAudit keeps a record.
func (q *Queue) AddAudit(_ context.Context, r queue.AuditRecord) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	r.At = q.Now()
	q.audits = append(q.audits, r)
	return nil
}

// Audits gives a namespace's records, newest first; they are numbered from 1.
func (q *Queue) Audits(_ context.Context, namespace string, before uint64, limit int) (list []queue.AuditRecord, next uint64, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := len(q.audits)
	if before > 0 {
		at = min(at, int(before)-1)
	}
	for ; at > 0; at-- {
		if q.audits[at-1].Namespace != namespace {
			continue
		}
		if len(list) == limit {
			return list, uint64(at) + 1, nil
		}
		list = append(list, q.audits[at-1])
	}
	return list, 0, nil
}

// Namespace takes every name for what it was.
func (q *Queue) Namespace(context.Context, string, string) (queue.Naming, error) {
	return queue.SameNamespace, nil
}

// Prune forgets nothing.
func (q *Queue) Prune(context.Context, queue.Retention) (queue.Pruned, error) {
	return queue.Pruned{}, nil
}

// Pruned is nothing.
func (q *Queue) Pruned() queue.Pruned { return queue.Pruned{} }

// Usage is what SetUsage set.
func (q *Queue) Usage() queue.Usage { q.mu.Lock(); defer q.mu.Unlock(); return q.usage }

// NamespaceWaiting is the shares of what waits.
func (q *Queue) NamespaceWaiting(namespace string) int64 {
	sum := int64(0)
	for _, d := range q.filter(func(d *queue.Delivery) bool { return d.Endpoint.Namespace == namespace && d.State.Waiting() }) {
		sum += int64(d.Share)
	}
	return sum
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
	return q.kept(seq)
}

// kept is an event as it is kept.
func (q *Queue) kept(seq queue.Seq) (*queue.StoredEvent, error) {
	if e := q.erased[seq]; e != nil {
		return e, queue.ErrErased
	}
	return q.events[seq-1], nil
}

// Find gives the event with a webhook-id.
func (q *Queue) Find(_ context.Context, namespace, webhookID string) (*queue.StoredEvent, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.find(namespace, webhookID); e != nil {
		return q.kept(e.Seq)
	}
	return nil, queue.ErrNotFound
}

// Events looks at limit events of all namespaces, so that pages are short wherever namespaces are mixed.
func (q *Queue) Events(_ context.Context, namespace string, query queue.EventQuery, limit int) ([]*queue.StoredEvent, queue.Seq, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at, step := len(q.events), -1
	if query.Ascending {
		at, step = int(query.Cursor)+1, 1
	} else if query.Cursor > 0 {
		at = min(at, int(query.Cursor)-1)
	}
	var list []*queue.StoredEvent
	for ; at > 0 && at <= len(q.events) && limit > 0; at, limit = at+step, limit-1 {
		e, _ := q.kept(queue.Seq(at))
		if e.Namespace != namespace || !selects(query, e) {
			continue
		}
		meta, bare := *e, *e.Event
		bare.Body, meta.Event = nil, &bare
		list = append(list, &meta)
	}
	if at <= 0 || at > len(q.events) {
		return list, 0, nil
	}
	return list, queue.Seq(at - step), nil
}

func selects(query queue.EventQuery, e *queue.StoredEvent) bool {
	return (query.Since.IsZero() || !e.AcceptedAt.Before(query.Since)) && (query.Until.IsZero() || e.AcceptedAt.Before(query.Until)) &&
		(len(query.Types) == 0 || slices.ContainsFunc(query.Types, func(p string) bool { return event.MatchType(p, e.Type) }))
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

// DueUnkeyed is Due for deliveries without an order key.
func (q *Queue) DueUnkeyed(ctx context.Context, endpoint plan.EndpointKey, until time.Time, limit int) ([]queue.Delivery, time.Time, error) {
	list, next, err := q.Due(ctx, endpoint, until, limit)
	return slices.DeleteFunc(list, func(d queue.Delivery) bool { return d.Key != 0 }), next, err
}

// Head gives the waiting delivery that was accepted first.
func (q *Queue) Head(_ context.Context, endpoint plan.EndpointKey, key uint64) (queue.Delivery, error) {
	list := q.filter(func(d *queue.Delivery) bool {
		return d.Endpoint == endpoint && d.State.Waiting() && (key == 0 || d.Key == key)
	})
	if len(list) == 0 {
		return queue.Delivery{}, queue.ErrNotFound
	}
	return slices.MinFunc(list, func(a, b queue.Delivery) int { return cmp.Compare(a.Seq, b.Seq) }), nil
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
		case queue.FilterError:
			c.FilterError++
		}
		if d.State.Waiting() {
			c.WaitingBytes += int64(d.Size)
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
