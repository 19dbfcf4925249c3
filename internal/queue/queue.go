package queue

import (
	"context"
	"errors"
	"hash/fnv"
	"io"
	"slices"
	"time"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// Queue is a store of events and deliveries. Implementations are safe for
// concurrent use.
//
// Changes are applied one after another in the order they were handed over; a
// caller that gets an error from a change knows that nothing of it was stored. There
// are two exceptions, after which the change may or may not have happened: ctx ended
// while Accept waited for the disk, and the store failed (Health says so from then on).
//
// The Listener and the done functions of Record are called from the store's own
// goroutine, which every change waits for. They must be short, must not wait for
// anything that waits for a change, and must not make changes themselves. So a lock
// that they take may not be held by anyone who calls a change, Record included.
// Reads take no lock that a change waits for: they may be made from anywhere.
//
// After Close every change, and every read that can answer an error, is ErrClosed.
type Queue interface {
	Reader

	// Accept stores events and a delivery for each of their endpoints, all or nothing,
	// and returns once that is durable. A delivery is pending, or in state FilterError where
	// NewEvent says so. The results are in the
	// order of the events. An event whose identity is known is a duplicate when its
	// hash is the same: nothing is stored for it. With another hash the whole call
	// fails with a *ConflictError. ErrOverloaded and ErrNoSpace mean that nothing was
	// stored and that the producer should try again. An endpoint that is named twice
	// gets one delivery. The events must not be changed afterwards, whatever the answer:
	// they may be in the store's hands still.
	Accept(ctx context.Context, events []NewEvent) ([]Accepted, error)

	// Record stores the outcome of an attempt and moves its delivery on. It returns
	// when the outcome has been taken for writing and calls done, once, from the
	// writer, after it is written: the caller's slot need not wait for the disk. An
	// outcome for a delivery that isn't waiting is ErrNotWaiting. It blocks while too
	// many outcomes are unwritten. The store numbers attempts: the delivery's count and
	// one. After a crash the outcomes of the last moment may be missing, whole, and
	// their deliveries are waiting as before.
	Record(o Outcome, done func(error))

	// Settle ends waiting deliveries without an attempt: to DeadLettered (too old,
	// endpoint deleted), FilterError or Discarded (as the filter said). It returns how many
	// were waiting and have ended now; the others are left as they are.
	Settle(ctx context.Context, endpoint plan.EndpointKey, seqs []Seq, to State, reason string) (int, error)

	// Reschedule brings retrying deliveries forward. A due time that isn't earlier
	// than the stored one is left out. It returns how many were moved.
	Reschedule(ctx context.Context, endpoint plan.EndpointKey, due map[Seq]time.Time) (int, error)

	// Replay queues a finished delivery again with a full retry budget: dead letters and
	// those in state FilterError always (the latter Undecided: the filter is asked again),
	// delivered and discarded ones only with force. ErrAlreadyWaiting, ErrNotFound,
	// ErrDelivered, ErrDiscarded, ErrErased and ErrPayloadMissing say why not.
	Replay(ctx context.Context, endpoint plan.EndpointKey, seq Seq, force bool) (Delivery, error)

	// Erase removes an event's payload, its subject, headers and attributes, and the bodies
	// of all answers, durably, and keeps its identity, hash and outcomes. What waits of it
	// is dead-lettered in the same step, with ReasonErased. The bytes leave the disk with
	// the next Prune. Of an event that is erased already it answers when that was.
	// ErrNotFound if there is none.
	Erase(ctx context.Context, seq Seq) (Erased, error)

	// SetLane remembers what must outlive a restart of an endpoint's lane.
	SetLane(ctx context.Context, endpoint plan.EndpointKey, lane Lane) error

	// AddAudit keeps a record of what a person did. At is set by the store.
	AddAudit(ctx context.Context, r AuditRecord) error

	// Namespace tells the store which namespace of the cluster a name means now, by its uid.
	// Where it was another one until now, that one is set aside (NewNamespace): from then on
	// neither its events, deliveries and audit records nor its endpoints' lanes and counts are
	// found under the name, its identities are free again, and Prune dead-letters what waits of
	// it, with ReasonEndpointDeleted, and forgets the rest as it does everything. The first uid
	// that the store is told is of what it has already. It returns once that is durable.
	Namespace(ctx context.Context, name, uid string) (Naming, error)

	// Prune forgets what need not be kept any more, and returns what this call has
	// forgotten. It reads beside the changes, and makes its own in short steps, so that it
	// may be called at any time, as often as once a second. One call runs at a time; a
	// second one waits.
	Prune(ctx context.Context, r Retention) (Pruned, error)

	// Health is nil while the store takes writes.
	Health() error

	// Close waits for what was handed over, makes it durable and releases the store.
	// Whoever still waits to hand something over gets ErrClosed.
	Close() error
}

// Reader is the read side of a Queue.
type Reader interface {
	// Event gives one event with its payload; ErrNotFound if there is none,
	// ErrPayloadMissing or ErrErased (with the event) if its payload is not kept. What is
	// damaged is missing: ErrPayloadMissing, with the event where that can be read.
	Event(ctx context.Context, seq Seq) (*StoredEvent, error)
	// Find gives the event with a webhook-id in a namespace, as Event does; ErrNotFound if
	// there is none.
	Find(ctx context.Context, namespace, webhookID string) (*StoredEvent, error)
	// Events lists events of a namespace without payloads, at most limit. A page may be
	// short where few events are of the types asked for; next is where to go on
	// (EventQuery.Cursor), 0 at the end.
	Events(ctx context.Context, namespace string, q EventQuery, limit int) (events []*StoredEvent, next Seq, err error)
	// Audits gives a namespace's audit records, newest first, from before (0: the newest).
	// next is where to go on, 0 at the end.
	Audits(ctx context.Context, namespace string, before uint64, limit int) (records []AuditRecord, next uint64, err error)
	// Deliveries gives the deliveries of one event, by endpoint.
	Deliveries(ctx context.Context, seq Seq) ([]Delivery, error)
	// Attempts gives the attempts of one delivery, first to last.
	Attempts(ctx context.Context, seq Seq, endpoint plan.EndpointKey) ([]Attempt, error)
	// List gives deliveries of an endpoint in one state, oldest event first, from
	// after (0: from the oldest). next is where to go on, 0 at the end.
	List(ctx context.Context, endpoint plan.EndpointKey, state State, after Seq, limit int) (deliveries []Delivery, next Seq, err error)

	// Fresh gives never tried deliveries in order of acceptance, after a sequence
	// number. Replayed ones are not among them: they are due, not fresh.
	Fresh(ctx context.Context, endpoint plan.EndpointKey, after Seq, limit int) ([]Delivery, error)
	// Due gives retrying and replayed deliveries whose due time is not after until,
	// in order of due time, and the due time of the first one after those (zero:
	// none).
	Due(ctx context.Context, endpoint plan.EndpointKey, until time.Time, limit int) ([]Delivery, time.Time, error)
	// DueUnkeyed is Due for deliveries without an order key (Delivery.Key). The due time
	// that it gives may be of one with a key.
	DueUnkeyed(ctx context.Context, endpoint plan.EndpointKey, until time.Time, limit int) ([]Delivery, time.Time, error)
	// Head gives the waiting delivery that was accepted first of those with an order key,
	// or, with key 0, of all; ErrNotFound if none waits.
	Head(ctx context.Context, endpoint plan.EndpointKey, key uint64) (Delivery, error)
	// Retrying gives retrying and replayed deliveries in order of acceptance, after
	// a sequence number, whatever their due time.
	Retrying(ctx context.Context, endpoint plan.EndpointKey, after Seq, limit int) ([]Delivery, error)

	// Endpoints names every endpoint the store knows.
	Endpoints() []plan.EndpointKey
	// Counts gives an endpoint's deliveries by state.
	Counts(endpoint plan.EndpointKey) Counts
	// NamespaceWaiting is how many bytes a namespace's waiting deliveries take: each its
	// Share and what the store needs for its records.
	NamespaceWaiting(namespace string) int64
	// Usage says how large the store and its volume are; it may be a second old.
	Usage() Usage
	// Pruned is what Prune has forgotten since the store was opened.
	Pruned() Pruned
	// Lane gives what SetLane remembered; the zero Lane if nothing.
	Lane(endpoint plan.EndpointKey) Lane
	// LastTime is the steady time of the latest durable change when the store was
	// opened; zero for a new one. Times go on from there whatever the wall clock says.
	LastTime() time.Time
}

// Naming is what a name of a namespace means to the store.
type Naming uint8

// What a uid may be to a name.
const (
	// SameNamespace: the name means what it meant before.
	SameNamespace Naming = iota
	// NewNamespace: the name means this one from now on, and another one was set aside.
	NewNamespace
	// FormerNamespace: it is one that was set aside. Who asks is late; nothing was changed.
	FormerNamespace
)

// Listener is told of changes after they are durable, from the writer and in the
// order of their sequence numbers, before the change is answered. See Queue for what
// the calls must not do.
type Listener interface {
	// Accepted tells of new deliveries. The events may be kept and must not be changed.
	Accepted(events []*StoredEvent)
	// Requeued tells that a delivery was replayed.
	Requeued(d Delivery)
	// Erased tells that an event's payload was erased: nothing of it must be sent any
	// more. The endpoints are those whose deliveries of it waited and are dead letters now.
	Erased(seq Seq, endpoints []plan.EndpointKey)
}

// Errors that callers decide by.
var (
	ErrNotFound       = errors.New("not found")
	ErrPayloadMissing = errors.New("the event's payload is not in the store (any more), so that it can't be sent")
	ErrNotWaiting     = errors.New("the delivery is not waiting")
	ErrAlreadyWaiting = errors.New("the delivery is already waiting")
	ErrDelivered      = errors.New("the delivery was already delivered; use force to send it again")
	ErrOverloaded     = errors.New("the store can't keep up; try again later")
	ErrDiscarded      = errors.New("the delivery was discarded by the endpoint's filter; use force to send it all the same")
	ErrErased         = errors.New("the event's payload was erased, so that it can't be sent again")
	ErrNoSpace        = errors.New("free space on the store's volume is under its reserve; try again later")
	ErrFailed         = errors.New("the store failed a write and must be restarted")
	ErrClosed         = errors.New("the store is closed")
)

// ConflictError says that an event's identity is taken by another content.
type ConflictError struct {
	// Index is the event's place in the Accept call.
	Index int
	// WebhookID is the id both events would have.
	WebhookID string
	// Within: the other event is of the same call, and nothing was stored under the id.
	Within bool
}

// Error says which event is in the way.
func (e *ConflictError) Error() string {
	return "an event with the same source and id but other content was already accepted as " + e.WebhookID
}

// Seq is an event's place in the order of acceptance, from 1.
type Seq uint64

// NewEvent is an event to accept, with the endpoints it goes to.
type NewEvent struct {
	Event *event.Event
	// TraceParent is the producer's W3C traceparent, if it sent a valid one.
	TraceParent string
	Endpoints   []plan.EndpointKey
	// Of Endpoints: those whose filter could not be asked (Delivery.Undecided), and those
	// whose filter failed for this event (state FilterError).
	Undecided, FilterErrors []plan.EndpointKey
}

// Accepted is the result of accepting one event.
type Accepted struct {
	Seq       Seq
	Duplicate bool
	// Endpoints is how many deliveries the event has.
	Endpoints int
}

// StoredEvent is an event as kept.
type StoredEvent struct {
	*event.Event
	Seq Seq
	// AcceptedAt is steady time, from which ages are counted.
	AcceptedAt  time.Time
	TraceParent string
	Endpoints   []plan.EndpointKey
	// Size is that of the payload as it was accepted, known also where Body isn't read. 0 of
	// what the first format stored.
	Size int
	// Erased is when its payload was erased, in steady time; zero: it was not.
	Erased time.Time
	// Undecided and FilterErrors are those of NewEvent. They are told to the Listener and
	// not kept: later the deliveries say so. Both are sorted.
	Undecided, FilterErrors []plan.EndpointKey
}

// New is the delivery of a new event to one of its endpoints, as it is stored at
// acceptance.
func (e *StoredEvent) New(endpoint plan.EndpointKey) Delivery {
	d := Delivery{
		Seq: e.Seq, Endpoint: endpoint, State: Pending, QueuedAt: e.AcceptedAt, DueAt: e.AcceptedAt,
		Key: OrderKey(e.Event), Size: len(e.Body), Share: len(e.Body) / max(len(e.Endpoints), 1),
	}
	switch {
	case contains(e.FilterErrors, endpoint):
		d.State, d.Reason, d.DueAt, d.EndedAt = FilterError, ReasonFilterError, time.Time{}, e.AcceptedAt
	case contains(e.Undecided, endpoint):
		d.Undecided = true
	}
	return d
}

// contains looks for a key in sorted ones: an event may have thousands.
func contains(keys []plan.EndpointKey, k plan.EndpointKey) bool {
	_, ok := slices.BinarySearchFunc(keys, k, plan.EndpointKey.Compare)
	return ok
}

// OrderKey is the Key of an event's deliveries: a hash (64-bit FNV-1a) of its partitionkey
// attribute, 0 without one and never 0 with one.
func OrderKey(e *event.Event) uint64 {
	for _, a := range e.Attributes {
		if a.Name == orderAttribute {
			h := fnv.New64a()
			_, _ = io.WriteString(h, a.Value)
			return max(h.Sum64(), 1)
		}
	}
	return 0
}

// orderAttribute names the events that ordering PerKey keeps in order (CloudEvents
// partitioning extension).
const orderAttribute = "partitionkey"

// EventQuery says which events of a namespace are listed.
type EventQuery struct {
	// Types are patterns (event.MatchType) of which one must match; empty takes all.
	Types []string
	// Since and Until bound the time of acceptance: from Since, before Until. Zero: no bound.
	Since, Until time.Time
	// Ascending lists the oldest first, instead of the newest.
	Ascending bool
	// Cursor is where to go on: only events after it (Ascending), or before it. 0: from the
	// first.
	Cursor Seq
}
