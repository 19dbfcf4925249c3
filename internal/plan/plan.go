package plan

import (
	"iter"
	"net/netip"
	"strings"
	"time"

	"github.com/doorstep-dev/doorstep/internal/retry"
)

// Format is the version of the plan's wire form that this build writes.
const Format = 1

// Plan is what a worker works by. Endpoints, Absent and Tombstones are sorted
// by namespace and name, so that equal inputs give equal bytes.
type Plan struct {
	Format int `json:"format"`
	// Version rises by one each time the content changes.
	Version    uint64      `json:"version"`
	Pool       Pool        `json:"pool"`
	Endpoints  []Endpoint  `json:"endpoints,omitempty"`
	Absent     []Absence   `json:"absent,omitempty"`
	Tombstones []Tombstone `json:"tombstones,omitempty"`
}

// EndpointKey is an endpoint's identity: its namespace and name.
type EndpointKey struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String is namespace/name.
func (k EndpointKey) String() string { return k.Namespace + "/" + k.Name }

// Compare orders keys by namespace, then name.
func (k EndpointKey) Compare(o EndpointKey) int {
	if c := strings.Compare(k.Namespace, o.Namespace); c != 0 {
		return c
	}
	return strings.Compare(k.Name, o.Name)
}

// Endpoint is one WebhookEndpoint with everything it refers to resolved.
type Endpoint struct {
	EndpointKey
	// UID is the object's uid; empty where objects come from files.
	UID string `json:"uid,omitempty"`
	// Hash covers the resolved content (URL, keys, policy and so on). A change of
	// it is a "change of spec, Secret or policy": it brings a disabled endpoint back.
	Hash string `json:"hash"`
	// FirstSeen is when a plan first held this endpoint. Events accepted earlier
	// never had it among their endpoints.
	FirstSeen time.Time `json:"firstSeen"`
	// Problem, when set, holds the endpoint: events for it are kept, none is sent.
	// Hash and Signing are then those of its last usable form.
	Problem *Problem `json:"problem,omitempty"`
	// URL is the absolute http or https URL that deliveries are posted to.
	URL string `json:"url,omitempty"`
	// EventTypes are the patterns it takes (event.MatchType); empty takes all.
	EventTypes []string `json:"eventTypes,omitempty"`
	Signing    Signing  `json:"signing"`
	// Timeout bounds one whole attempt, from resolving the name to the last byte read.
	Timeout time.Duration `json:"timeout"`
	// MaxInFlight is how many attempts may be open at once, 1 to 1000.
	MaxInFlight int          `json:"maxInFlight"`
	Retry       retry.Policy `json:"retry"`
	// Suspend is a person's pause: events are held.
	Suspend bool `json:"suspend,omitempty"`
}

// Problem says why an endpoint cannot be used, in the words of a condition.
type Problem struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Signing is how an endpoint's deliveries are signed.
type Signing struct {
	Scheme string       `json:"scheme"`
	Keys   []SigningKey `json:"keys,omitempty"`
}

// SchemeStandardWebhooks signs by the Standard Webhooks specification 1.0.0.
const SchemeStandardWebhooks = "StandardWebhooks"

// SigningKey is one key in its stored text form, prefix included (whsec_… or
// whsk_…), already checked by sign.ParseKey.
type SigningKey struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// Pool holds the settings of the DeliveryPool.
type Pool struct {
	// Source is the namespace/name of the DeliveryPool that these settings come
	// from; empty where none exists and the defaults hold.
	Source string `json:"source,omitempty"`
	// AbsentSince is when a complete look first missed the DeliveryPool of Source.
	// Its settings stay in force for a while, since absence alone is not deletion.
	AbsentSince time.Time `json:"absentSince,omitzero"`
	// DefaultRetry is the retry policy of endpoints that name none; nil means the
	// built-in one. Each Endpoint holds its own policy resolved: this one only
	// carries the setting from one plan to the next.
	DefaultRetry *retry.Policy `json:"defaultRetry,omitempty"`
	// Suspend holds every endpoint; ingest goes on.
	Suspend bool `json:"suspend,omitempty"`
	// MaxInFlight caps open attempts over all endpoints.
	MaxInFlight int       `json:"maxInFlight"`
	Ingest      Ingest    `json:"ingest"`
	Egress      Egress    `json:"egress"`
	Retention   Retention `json:"retention"`
}

// Ingest bounds what producers may send.
type Ingest struct {
	MaxPayloadBytes int `json:"maxPayloadBytes"`
	// DedupeWindow is how long an event's identity is remembered at least.
	DedupeWindow time.Duration `json:"dedupeWindow"`
}

// Egress says which destinations are allowed beside the public internet.
type Egress struct {
	Allow     []netip.Prefix `json:"allow,omitempty"`
	AllowHTTP bool           `json:"allowHTTP,omitempty"`
	// LoopbackOnly closes everything but this machine: a laptop's run without an address
	// to forward to.
	LoopbackOnly bool `json:"loopbackOnly,omitempty"`
	// Local is set where loopback and http are allowed (Allow and AllowHTTP hold
	// them) by --dev or --forward-to rather than by the DeliveryPool.
	Local bool `json:"local,omitempty"`
}

// Retention says how long finished work is kept.
type Retention struct {
	Delivered   time.Duration `json:"delivered"`
	DeadLetters time.Duration `json:"deadLetters"`
}

// Absence notes an endpoint that a former plan held and that is not to be seen
// now. It is not a deletion: its events are held.
type Absence struct {
	// Endpoint is as it was last seen. Nothing is sent to it, but new events that it
	// would take are kept for it.
	Endpoint
	// Since is when a complete look first missed it; zero while no look was complete.
	Since time.Time `json:"since,omitzero"`
}

// Tombstone is a deletion that was seen for certain.
type Tombstone struct {
	EndpointKey
	DeletedAt time.Time `json:"deletedAt"`
}

// Index gives each endpoint by its key.
func (p *Plan) Index() map[EndpointKey]*Endpoint {
	m := make(map[EndpointKey]*Endpoint, len(p.Endpoints))
	for i := range p.Endpoints {
		m[p.Endpoints[i].EndpointKey] = &p.Endpoints[i]
	}
	return m
}

// Known gives the endpoints that exist as far as is known: those of the plan, and
// those that are absent, which may only be out of sight. Each group is sorted.
func (p *Plan) Known() iter.Seq[*Endpoint] {
	return func(yield func(*Endpoint) bool) {
		for i := range p.Endpoints {
			if !yield(&p.Endpoints[i]) {
				return
			}
		}
		for i := range p.Absent {
			if !yield(&p.Absent[i].Endpoint) {
				return
			}
		}
	}
}
