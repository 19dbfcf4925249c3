package event

import "time"

// Mode says how an event came, and so how it is sent.
type Mode uint8

const (
	// ModePlain is Doorstep's own JSON envelope; the whole body is sent.
	ModePlain Mode = iota + 1
	// ModeStructured is a CloudEvent as one JSON object; the whole body is sent.
	ModeStructured
	// ModeBinary is a CloudEvent in ce-* headers; the body (the data) is sent with these headers.
	ModeBinary
)

// String returns "plain", "structured" or "binary".
func (m Mode) String() string {
	switch m {
	case ModePlain:
		return "plain"
	case ModeStructured:
		return "structured"
	case ModeBinary:
		return "binary"
	}
	return "unknown"
}

// Event is one accepted event. Body is exactly the bytes that came; nothing re-encodes it.
//
// Body shares memory with the request body given to Parse; every string is a copy or comes from the headers.
type Event struct {
	Namespace string
	// Source and ID are, with Namespace, the identity. Source is empty for a plain event without one. Both may hold
	// any character, NUL and line breaks too: only WebhookID may go into a header, a path or a log line.
	Source, ID string
	// WebhookID is the receiver's dedupe key, see WebhookID.
	WebhookID string
	Type      string
	// Subject is the CloudEvents subject, empty when not given.
	Subject string
	// Time is the producer's created_at or time, in UTC; zero when not given.
	Time time.Time
	Mode Mode
	// ContentType is sent to receivers: the request's own, and application/cloudevents+json for an element of a batch.
	// It may be empty in binary mode.
	ContentType string
	// Headers are, in binary mode, the ce-* headers as they came, sorted by name; else nil.
	Headers []Header
	// Attributes are what endpoints match on, sorted by name, each name once: the "attributes" of a plain event; the
	// extensions of a CloudEvent with its subject and dataschema, the same in every mode.
	Attributes []Attribute
	Body       []byte
	// Hash tells the same bytes from others under one identity, see hashEvent.
	Hash [32]byte
}

// Header is one ce-* header: Name in lower case, Value verbatim (still quoted or percent-encoded).
type Header struct{ Name, Value string }

// Attribute is one name and its value as text: a string as it is, a boolean as true or false, an integer as its digits.
type Attribute struct{ Name, Value string }

// Limits bound one request; each is inclusive, and a value of zero or less means its default.
type Limits struct {
	// MaxPayloadBytes bounds the body of one event, also of each element of a batch (default 262,144).
	MaxPayloadBytes int
	// MaxBatchEvents bounds the elements of a batch (default 1,000).
	MaxBatchEvents int
	// MaxBatchBytes bounds the body of a batch (default 4 MiB).
	MaxBatchBytes int
}

// The defaults of Limits.
const (
	DefaultMaxPayloadBytes = 256 << 10
	DefaultMaxBatchEvents  = 1000
	DefaultMaxBatchBytes   = 4 << 20
)

func (l Limits) withDefaults() Limits {
	if l.MaxPayloadBytes <= 0 {
		l.MaxPayloadBytes = DefaultMaxPayloadBytes
	}
	if l.MaxBatchEvents <= 0 {
		l.MaxBatchEvents = DefaultMaxBatchEvents
	}
	if l.MaxBatchBytes <= 0 {
		l.MaxBatchBytes = DefaultMaxBatchBytes
	}
	return l
}

// Bounds of an event's own parts, in bytes of their decoded form.
const (
	maxIDBytes             = 1 << 10
	maxSourceBytes         = 2 << 10
	maxTypeBytes           = 256
	maxAttributes          = 64
	maxAttributeNameBytes  = 64
	maxAttributeValueBytes = 8 << 10
)
