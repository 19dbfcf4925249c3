package queue

import "time"

// Retention says what Prune forgets.
//
// An event is forgotten when its last change (acceptance, replay, end of a delivery) lies
// before Delivered, and where it has dead letters or deliveries in state FilterError
// before DeadLetters as well. One with a waiting delivery never is.
type Retention struct {
	// Delivered is the time before which events are forgotten whose deliveries are all
	// delivered or discarded, or that never had one. Times are steady.
	Delivered time.Time
	// DeadLetters is the same for events with dead letters, and for audit records.
	DeadLetters time.Time
	// Identities is the time of acceptance before which an identity is forgotten; it is
	// kept as long as its event.
	Identities time.Time
	// MaxBytes is the size of the store over which events are forgotten that wait for
	// nothing but Delivered, oldest first; 0: 60 percent of its volume, if the store can
	// tell that.
	MaxBytes int64
	// DropPayloads forgets payloads whose deliveries are all delivered or discarded.
	DropPayloads bool
}

// Pruned counts what was forgotten.
type Pruned struct {
	// Events were forgotten whole, with payloads of Bytes in all.
	Events, Bytes int64
	// ByBytes of them, with payloads of ByBytesBytes, were forgotten before their time.
	ByBytes, ByBytesBytes int64
	// Payloads were dropped of events that are kept, and Identities, AuditRecords forgotten.
	Payloads, Identities, AuditRecords int64
}

// Add adds other to p.
func (p *Pruned) Add(other Pruned) {
	p.Events += other.Events
	p.Bytes += other.Bytes
	p.ByBytes += other.ByBytes
	p.ByBytesBytes += other.ByBytesBytes
	p.Payloads += other.Payloads
	p.Identities += other.Identities
	p.AuditRecords += other.AuditRecords
}

// Usage is the size of a store.
type Usage struct {
	// UsedBytes are taken by the store's files.
	UsedBytes int64
	// CapacityBytes is the size of its volume; 0 if it can't tell.
	CapacityBytes int64
	// Damaged is how many records and parts of files could not be read since the store was
	// opened. They are passed over; the rest is served.
	Damaged int64
}

// Erased is what Erase did.
type Erased struct {
	// At is when the payload was erased, in steady time.
	At time.Time
	// Again: it had been erased before, and nothing was changed.
	Again bool
	// Bytes of payload and answers were removed; DeadLettered waiting deliveries ended.
	Bytes        int64
	DeadLettered int
}

// AuditRecord says what a person did.
type AuditRecord struct {
	// At is steady time, set by the store.
	At        time.Time
	Namespace string
	// Caller is who did it, as authorization calls them.
	Caller string
	// Action is the verb (replay, erase, enable …), Target the webhook-id or endpoint.
	Action, Target string
	// Detail is one plain sentence; it holds no payload and no secret.
	Detail string
	// Count is how many deliveries it concerned.
	Count int
}
