package plan

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
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
	// Incomplete are the namespaces, sorted, of which endpoints may be missing since a part
	// of the plan could not be read. It is the reader's alone, and no part of the plan's
	// content.
	Incomplete []string `json:"-"`
}

// Lacks reports whether endpoints of a namespace may be missing from the plan, so that it
// can't be told who takes an event.
func (p *Plan) Lacks(namespace string) bool {
	_, found := slices.BinarySearch(p.Incomplete, namespace)
	return found
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
	// NamespaceUID is its namespace's uid: a namespace made anew inherits nothing. Empty
	// where objects come from files.
	NamespaceUID string `json:"namespaceUID,omitempty"`
	// Generation is the object's metadata.generation that this entry was made from; 0
	// where objects come from files.
	Generation int64 `json:"generation,omitempty"`
	// Version is the plan's version in which this entry took its present form.
	Version uint64 `json:"version,omitempty"`
	// Hash covers the resolved content (URL, keys, policy and so on, but no former keys).
	// A change of it is a "change of spec, Secret or policy": it brings a disabled endpoint
	// back. Time alone never changes it.
	Hash string `json:"hash"`
	// FirstSeen is when a plan first held this endpoint. Events accepted earlier
	// never had it among their endpoints.
	FirstSeen time.Time `json:"firstSeen"`
	// Problem, when set, holds the endpoint: events for it are kept, none is sent.
	// Hash, Signing and Retry are then those of its last usable form.
	Problem *Problem `json:"problem,omitempty"`
	// URL is the absolute http or https URL that deliveries are posted to.
	URL string `json:"url,omitempty"`
	// Service is set where URL names a Service of the cluster: these addresses alone are
	// dialled, without asking a resolver, the pool's egress rules or a proxy.
	Service *Service `json:"service,omitempty"`
	// EventTypes are the patterns it takes (event.MatchType); empty takes all.
	EventTypes []string `json:"eventTypes,omitempty"`
	// MatchAttributes must all equal those of an event; sorted by name.
	MatchAttributes []Attribute `json:"matchAttributes,omitempty"`
	// Filter is a CEL expression (package filter); empty takes all.
	Filter string `json:"filter,omitempty"`
	// DataOnly posts an event's data alone, not the event.
	DataOnly bool    `json:"dataOnly,omitempty"`
	Signing  Signing `json:"signing"`
	// Headers are added to every request; names are canonical and each stands once.
	Headers []Header `json:"headers,omitempty"`
	// Auth is nil for none.
	Auth *Auth `json:"auth,omitempty"`
	TLS  TLS   `json:"tls,omitzero"`
	// Timeout bounds one whole attempt, from resolving the name to the last byte read.
	Timeout time.Duration `json:"timeout"`
	// MaxInFlight is how many attempts may be open at once, 1 to 1000.
	MaxInFlight int `json:"maxInFlight"`
	// RateLimit is nil for none.
	RateLimit *RateLimit `json:"rateLimit,omitempty"`
	// Ordering is one of the Ordering constants; empty is none.
	Ordering string       `json:"ordering,omitempty"`
	Retry    retry.Policy `json:"retry"`
	// Suspend is a person's pause: events are held.
	Suspend bool `json:"suspend,omitempty"`
}

// Service is a Service of the cluster as it was resolved.
type Service struct {
	// Addresses are its cluster IPs with the port, in the Service's order.
	Addresses []netip.AddrPort `json:"addresses"`
}

// Problem says why an endpoint cannot be used, in the words of a condition.
type Problem struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Attribute is a name and the value it must have.
type Attribute struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// What Ordering may be beside empty.
const (
	OrderingPerKey = "PerKey" // one at a time for each partitionkey attribute
	OrderingAll    = "All"    // one at a time
)

// RateLimit is how many attempts may be made: over any time t at most
// Burst + Requests·t/Interval.
type RateLimit struct {
	Requests int           `json:"requests"`
	Interval time.Duration `json:"interval"`
	Burst    int           `json:"burst"`
}

// Header is a header that is added to every request. Its value is Value, or what the
// event has for Event (id, type, source, subject, time, attributes.<name>) where that
// is set.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
	Event string `json:"event,omitempty"`
}

// Auth is how Doorstep identifies itself to a receiver; exactly one field is set.
type Auth struct {
	// Authorization is the value of that header (Basic and Bearer).
	Authorization string  `json:"authorization,omitempty"`
	OAuth2        *OAuth2 `json:"oauth2,omitempty"`
}

// OAuth2 is a client of the client credentials grant (RFC 6749 §4.4).
type OAuth2 struct {
	TokenURL     string   `json:"tokenURL"`
	ClientID     string   `json:"clientID"`
	ClientSecret string   `json:"clientSecret"`
	Scopes       []string `json:"scopes,omitempty"`
	Audience     string   `json:"audience,omitempty"`
	// InBody sends id and secret as form fields, not by HTTP basic authentication.
	InBody bool `json:"inBody,omitempty"`
}

// TLS is what an endpoint wants of https beside the defaults. Its texts are PEM.
type TLS struct {
	// CACertificates are the only authorities trusted; empty: those of the pool and the
	// system.
	CACertificates    string `json:"caCertificates,omitempty"`
	ClientCertificate string `json:"clientCertificate,omitempty"`
	ClientKey         string `json:"clientKey,omitempty"`
	ServerName        string `json:"serverName,omitempty"`
}

// Signing is how an endpoint's deliveries are signed.
type Signing struct {
	Scheme string `json:"scheme"`
	// HMAC is set with SchemeHMAC only.
	HMAC *HMAC        `json:"hmac,omitempty"`
	Keys []SigningKey `json:"keys,omitempty"`
}

// The signature schemes.
const (
	// SchemeStandardWebhooks signs by the Standard Webhooks specification 1.0.0.
	SchemeStandardWebhooks = "StandardWebhooks"
	SchemeGitHub           = "GitHub"
	SchemeStripe           = "Stripe"
	SchemeHMAC             = "HMAC"
	SchemeNone             = "None"
)

// HMAC describes a signature by a shared key. Unset fields of the endpoint hold their
// defaults here.
type HMAC struct {
	Header      string `json:"header"`
	Algorithm   string `json:"algorithm"`   // SHA1, SHA256, SHA512
	Encoding    string `json:"encoding"`    // Hex, Base64
	KeyEncoding string `json:"keyEncoding"` // Text, Base64, Hex
	// Prefix may hold {id} and {timestamp}.
	Prefix  string `json:"prefix,omitempty"`
	Content string `json:"content"` // holds {body} once, and may hold {id} and {timestamp}
	// TimestampHeader is empty where the time is not sent in a header of its own.
	TimestampHeader string `json:"timestampHeader,omitempty"`
	TimestampUnit   string `json:"timestampUnit"` // Seconds, Milliseconds, RFC3339
}

// SigningKey is one key in its stored text form, already checked by package sign for
// the endpoint's scheme.
type SigningKey struct {
	Name string `json:"name"`
	// Ref is the Secret and key that the text came from: another Ref is another key, and
	// another text under the same Ref is a rotation.
	Ref string `json:"ref,omitempty"`
	Key string `json:"key"`
	// NotBefore and ExpiresAt bound when it signs, in wall time; zero: no bound.
	NotBefore time.Time `json:"notBefore,omitzero"`
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// FormerUntil marks the former value of a key: it signs until then, in steady time.
	FormerUntil time.Time `json:"formerUntil,omitzero"`
}

// Pool holds the settings of the DeliveryPool.
type Pool struct {
	// Source is the namespace/name of the DeliveryPool that these settings come
	// from; empty where none exists and the defaults hold.
	Source string `json:"source,omitempty"`
	// AbsentSince is when a complete look first missed the DeliveryPool of Source.
	// Its settings stay in force for a while, since absence alone is not deletion.
	AbsentSince time.Time `json:"absentSince,omitzero"`
	// Namespaces are those whose events are taken, sorted; nil: all. An empty list that is
	// not nil admits none.
	Namespaces *[]string `json:"namespaces,omitempty"`
	// DefaultRetry is the retry policy of endpoints that name none; nil means the
	// built-in one. Each Endpoint holds its own policy resolved: this one only
	// carries the setting from one plan to the next.
	DefaultRetry *retry.Policy `json:"defaultRetry,omitempty"`
	// Suspend holds every endpoint; ingest goes on.
	Suspend bool `json:"suspend,omitempty"`
	// MaxInFlight caps open attempts over all endpoints.
	MaxInFlight int       `json:"maxInFlight"`
	Ingest      Ingest    `json:"ingest"`
	Limits      Limits    `json:"limits"`
	Egress      Egress    `json:"egress"`
	Retention   Retention `json:"retention"`
	// APIKeys are what callers outside the cluster show; sorted by ID.
	APIKeys []APIKey `json:"apiKeys,omitempty"`
}

// Admits reports whether events of a namespace are taken.
func (p *Pool) Admits(namespace string) bool {
	if p.Namespaces == nil {
		return true
	}
	_, found := slices.BinarySearch(*p.Namespaces, namespace)
	return found
}

// Ingest bounds what producers may send.
type Ingest struct {
	MaxPayloadBytes int `json:"maxPayloadBytes"`
	// DedupeWindow is how long an event's identity is remembered at least.
	DedupeWindow time.Duration `json:"dedupeWindow"`
}

// Limits bound what a namespace or an endpoint may use of the pool.
type Limits struct {
	// NamespaceEventsPerSecond is 0 for no limit.
	NamespaceEventsPerSecond int `json:"namespaceEventsPerSecond,omitempty"`
	// The percentages are of the store's volume, 1 to 100; 0 in a plan of before is no
	// limit.
	NamespaceWaitingPercent int `json:"namespaceWaitingPercent"`
	EndpointWaitingPercent  int `json:"endpointWaitingPercent"`
}

// APIKey is a key that callers outside the cluster show. The key itself is not kept.
type APIKey struct {
	ID string `json:"id"`
	// SHA256 is the hash of the whole key, dsk_<id>_<random>.
	SHA256 [32]byte `json:"sha256"`
	// Namespaces, Verbs and Endpoints (names, of any of the namespaces) bound what it is
	// good for; "*" alone in Namespaces is all of them, empty Endpoints too. Verbs are Key
	// constants.
	Namespaces []string `json:"namespaces"`
	Verbs      []string `json:"verbs"`
	Endpoints  []string `json:"endpoints,omitempty"`
	// ExpiresAt is wall time; zero: never.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
}

// What an APIKey's Verbs may be.
const (
	KeySend    = "send"    // post events
	KeyRead    = "read"    // events, deliveries and endpoints, without payloads
	KeyPayload = "payload" // the bytes of events
	KeyReplay  = "replay"  // send again what is finished
	KeyManage  = "manage"  // test an endpoint, bring it back, try its deliveries now
	KeyErase   = "erase"   // forget an event's payload
	KeyAudit   = "audit"   // read the audit records
)

// Egress says which destinations are allowed beside the public internet.
type Egress struct {
	Allow     []Network      `json:"allow,omitempty"`
	Deny      []netip.Prefix `json:"deny,omitempty"`
	AllowHTTP bool           `json:"allowHTTP,omitempty"`
	// LoopbackOnly closes everything but this machine: a laptop's run without an address
	// to forward to.
	LoopbackOnly bool `json:"loopbackOnly,omitempty"`
	// Local is set where loopback and http are allowed (Allow and AllowHTTP hold
	// them) by --dev or --forward-to rather than by the DeliveryPool.
	Local bool `json:"local,omitempty"`
	// Proxy is nil for none.
	Proxy *Proxy `json:"proxy,omitempty"`
	// CACertificates are authorities trusted beside the system's, in PEM.
	CACertificates string `json:"caCertificates,omitempty"`
	// Problem, when set, holds every endpoint of the pool: its proxy or its certificates
	// can't be had, and nothing may go out without them.
	Problem *Problem `json:"problem,omitempty"`
}

// Network is a network that may be dialled: by all namespaces and on every port that
// isn't closed by default, unless they are named.
type Network struct {
	Prefix     netip.Prefix `json:"prefix"`
	Ports      []uint16     `json:"ports,omitempty"`
	Namespaces []string     `json:"namespaces,omitempty"`
}

// Compare orders networks by prefix, ports and namespaces.
func (n Network) Compare(o Network) int {
	return cmp.Or(n.Prefix.Compare(o.Prefix), slices.Compare(n.Ports, o.Ports), slices.Compare(n.Namespaces, o.Namespaces))
}

// Proxy is the forward proxy that all requests go through. URL is http or https, host
// and port.
type Proxy struct {
	URL      string `json:"url"`
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
}

// Retention says how long finished work is kept.
type Retention struct {
	Delivered   time.Duration `json:"delivered"`
	DeadLetters time.Duration `json:"deadLetters"`
	// MaxBytes is the most that the store may use; 0: 60 percent of its volume.
	MaxBytes int64 `json:"maxBytes,omitempty"`
	// DropPayloads forgets an event's body once its last delivery is delivered.
	DropPayloads bool `json:"dropPayloads,omitempty"`
	// DropResponses keeps no body of any answer.
	DropResponses bool `json:"dropResponses,omitempty"`
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
