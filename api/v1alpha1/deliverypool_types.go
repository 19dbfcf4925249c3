package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DeliveryPoolSpec says how a pool of workers takes in, keeps and sends events.
type DeliveryPoolSpec struct {
	// suspend pauses every endpoint of the pool: events are accepted and held, nothing is sent. Unset: false.
	// +optional
	Suspend *bool `json:"suspend,omitempty"`

	// defaultRetryPolicy is the retry policy of the pool's endpoints without retryPolicyRef. Unset: the built-in policy.
	// +optional
	DefaultRetryPolicy *RetryPolicySpec `json:"defaultRetryPolicy,omitempty"`

	// ingest says which events are taken. Unset: the default of each of its fields.
	// +optional
	Ingest *Ingest `json:"ingest,omitempty"`

	// limits bound what the pool does at once. Unset: the default of each of its fields.
	// +optional
	Limits *PoolLimits `json:"limits,omitempty"`

	// egress says which destinations may be dialled. Unset: https to public addresses only.
	// +optional
	Egress *Egress `json:"egress,omitempty"`

	// retention says how long finished deliveries are kept. Unset: the default of each of its fields.
	// +optional
	Retention *Retention `json:"retention,omitempty"`
}

// Ingest says which events are taken.
// +kubebuilder:validation:MinProperties=1
type Ingest struct {
	// maxPayloadBytes is the largest event that is taken, in bytes of its request body: 1024 to 1048576 (1 MiB); a larger
	// one is answered 413. Unset: 262144 (256 KiB).
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=1048576
	// +optional
	MaxPayloadBytes *int32 `json:"maxPayloadBytes,omitempty"`

	// dedupeWindow is how long an event's identity is remembered, so that the same event posted again is answered as a
	// duplicate and not sent twice: at least 1s. Unset: 24h.
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,5}(h|m|s|ms)){1,4}$') || duration(self) >= duration('1s')",message="dedupeWindow must be at least 1s"
	// +optional
	DedupeWindow Duration `json:"dedupeWindow,omitempty"`

	// apiKeysSecretRef names a Secret with the API keys of callers outside the cluster: one entry for each key's id, whose
	// value is YAML {sha256, namespaces, verbs, endpoints, expiresAt}. Unset: there are none.
	// +optional
	APIKeysSecretRef *SecretReference `json:"apiKeysSecretRef,omitempty"`
}

// PoolLimits bound what the pool does at once.
// +kubebuilder:validation:MinProperties=1
type PoolLimits struct {
	// maxInFlight is how many requests to all endpoints together may be under way at once, shared fairly between them:
	// 1 to 10000. Unset: 512.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	// +optional
	MaxInFlight *int32 `json:"maxInFlight,omitempty"`

	// perNamespace bounds what each namespace may use, so that none harms another. Over it events are answered 429. Unset:
	// the default of each of its fields.
	// +optional
	PerNamespace *NamespaceLimits `json:"perNamespace,omitempty"`

	// perEndpoint bounds what each endpoint may use. Events that match an endpoint over it are answered 429. Unset: the
	// default of each of its fields.
	// +optional
	PerEndpoint *EndpointLimits `json:"perEndpoint,omitempty"`
}

// NamespaceLimits bound what each namespace may use.
// +kubebuilder:validation:MinProperties=1
type NamespaceLimits struct {
	// eventsPerSecond is how many events each namespace may send: 1 to 1000000, with a burst of as many. Unset: no limit.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	EventsPerSecond *int32 `json:"eventsPerSecond,omitempty"`

	// waitingBytesPercent is how much of the store's volume the waiting events of one namespace may take: 1 to 100. Unset:
	// 50.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	WaitingBytesPercent *int32 `json:"waitingBytesPercent,omitempty"`
}

// EndpointLimits bound what each endpoint may use.
// +kubebuilder:validation:MinProperties=1
type EndpointLimits struct {
	// waitingBytesPercent is how much of the store's volume the waiting events of one endpoint may take: 1 to 100. Unset:
	// 25.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +optional
	WaitingBytesPercent *int32 `json:"waitingBytesPercent,omitempty"`
}

// Egress says which destinations may be dialled.
// +kubebuilder:validation:MinProperties=1
type Egress struct {
	// allow lists networks that may be dialled beside the public ones, 1 to 100 entries: private networks, or loopback by an
	// entry within 127.0.0.0/8 or ::1/128. Link-local addresses and cloud metadata services are never dialled. Unset: none.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Allow []EgressNetwork `json:"allow,omitempty"`

	// deny lists networks that are never dialled, 1 to 100 entries, such as those of pods, services and nodes where these
	// are public addresses. It beats allow, and addresses of IPv4 written as IPv6 ones too. Unset: none.
	// +listType=map
	// +listMapKey=cidr
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Deny []DeniedNetwork `json:"deny,omitempty"`

	// allowHTTP permits http URLs beside https. Unset: false.
	// +optional
	AllowHTTP *bool `json:"allowHTTP,omitempty"`

	// proxy is the forward proxy that all requests go through, which then decides where they may go: names are resolved and
	// addresses judged by it, not by Doorstep. Unset: requests are made directly. A proxy of the environment is never used.
	// +optional
	Proxy *EgressProxy `json:"proxy,omitempty"`

	// caCertificateRefs name authorities that may have signed receivers' certificates, beside those that the worker's system
	// trusts, 1 to 8. Endpoints with caCertificateRefs of their own do not use them. Unset: none.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +optional
	CACertificateRefs []CACertificateReference `json:"caCertificateRefs,omitempty"`
}

// EgressNetwork is a network that may be dialled.
type EgressNetwork struct {
	// cidr is the network in CIDR notation, such as 10.20.0.0/16 or fd00:20::/64; the bits after the prefix are zero.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self) == cidr(self).masked()",message="cidr must be a network such as 10.20.0.0/16 or fd00:20::/64, with zeros after the prefix"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || !(cidr('169.254.0.0/16').containsCIDR(self) || cidr('fe80::/10').containsCIDR(self))",message="cidr is link-local, which is never dialled (cloud metadata services live there); remove the entry"
	// +required
	CIDR string `json:"cidr"`

	// ports are the ports that may be dialled there by this entry, 1 to 32. They may name ports that are closed by default
	// (those of SSH, mail, DNS, Redis, Memcached, Docker, etcd and Kubernetes). Unset: every port that is not closed.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=65535
	// +optional
	Ports []int32 `json:"ports,omitempty"`

	// namespaces are those whose endpoints may dial the network, 1 to 100. Unset: all.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +optional
	Namespaces []string `json:"namespaces,omitempty"`
}

// DeniedNetwork is a network that is never dialled.
type DeniedNetwork struct {
	// cidr is the network in CIDR notation, such as 10.20.0.0/16 or fd00:20::/64; the bits after the prefix are zero.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self) == cidr(self).masked()",message="cidr must be a network such as 10.20.0.0/16 or fd00:20::/64, with zeros after the prefix"
	// +required
	CIDR string `json:"cidr"`
}

// EgressProxy is a forward proxy.
type EgressProxy struct {
	// url is the proxy's address: http or https, host and port, such as http://proxy.example.com:3128, and nothing else. It is
	// dialled wherever it is, also on a private network.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=300
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^https?://([^/?#@:\s\[\]]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}/?$')`,message="url must be http:// or https:// with a host and a port, without user name, path and query"
	// +required
	URL string `json:"url"`

	// credentialsSecretRef names a Secret with the keys username and password for the proxy. Unset: none are sent.
	// +optional
	CredentialsSecretRef *SecretReference `json:"credentialsSecretRef,omitempty"`
}

// Retention says how long finished deliveries are kept. Waiting ones are kept until they are delivered or dead-lettered.
// +kubebuilder:validation:MinProperties=1
type Retention struct {
	// delivered is how long an event is kept once every delivery of it is delivered: at least 1s. Unset: 72h.
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,5}(h|m|s|ms)){1,4}$') || duration(self) >= duration('1s')",message="delivered must be at least 1s"
	// +optional
	Delivered Duration `json:"delivered,omitempty"`

	// deadLetters is how long a dead letter is kept for replay: at least 1s. Unset: 720h (30 days).
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,5}(h|m|s|ms)){1,4}$') || duration(self) >= duration('1s')",message="deadLetters must be at least 1s"
	// +optional
	DeadLetters Duration `json:"deadLetters,omitempty"`

	// maxBytes is how much of the volume the store may use, such as 20Gi: at least 64Mi. Over it delivered events are
	// forgotten, oldest first, before their time; waiting deliveries and dead letters are never. Unset: 60 percent of the
	// volume.
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || quantity(string(self)).compareTo(quantity('64Mi')) >= 0",message="maxBytes must be at least 64Mi"
	// +optional
	MaxBytes *resource.Quantity `json:"maxBytes,omitempty"`

	// payloads says how long the bodies of delivered events are kept. WithRecord: as long as the event, so that it can be
	// replayed. UntilDelivered: until its last delivery is made. Unset: WithRecord.
	// +optional
	Payloads PayloadRetention `json:"payloads,omitempty"`

	// responseBodies says of which answers the beginning is kept. OnFailure: of failed attempts. Never: of none. Unset:
	// OnFailure.
	// +optional
	ResponseBodies ResponseBodyRetention `json:"responseBodies,omitempty"`
}

// PayloadRetention says how long the bodies of delivered events are kept.
// +kubebuilder:validation:Enum=WithRecord;UntilDelivered
type PayloadRetention string

const (
	// PayloadsWithRecord keeps bodies as long as their events.
	PayloadsWithRecord PayloadRetention = "WithRecord"
	// PayloadsUntilDelivered keeps bodies until the last delivery is made.
	PayloadsUntilDelivered PayloadRetention = "UntilDelivered"
)

// ResponseBodyRetention says of which answers the beginning is kept.
// +kubebuilder:validation:Enum=OnFailure;Never
type ResponseBodyRetention string

const (
	// ResponseBodiesOnFailure keeps the beginning of the answers of failed attempts.
	ResponseBodiesOnFailure ResponseBodyRetention = "OnFailure"
	// ResponseBodiesNever keeps none.
	ResponseBodiesNever ResponseBodyRetention = "Never"
)

// DeliveryPoolStatus is what Doorstep reports about a pool. It follows kstatus: the object is current when observedGeneration
// equals metadata.generation and Ready is True.
type DeliveryPoolStatus struct {
	// observedGeneration is the metadata.generation that the conditions speak of; -1 before the first pass.
	// +default=-1
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are the latest observations, one entry a type.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DeliveryPool is a set of workers with their store, and the rules by which they take in, keep and send events.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=dpool,categories=doorstep
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Takes and delivers events"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="metadata.name must be at most 63 characters; choose a shorter name"
type DeliveryPool struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says how the pool takes in, keeps and sends events.
	// +required
	Spec DeliveryPoolSpec `json:"spec"`

	// status is what Doorstep reports about the pool.
	// +default={"observedGeneration":-1}
	// +optional
	Status DeliveryPoolStatus `json:"status,omitzero"`
}

// DeliveryPoolList is a list of DeliveryPools.
// +kubebuilder:object:root=true
type DeliveryPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []DeliveryPool `json:"items"`
}
