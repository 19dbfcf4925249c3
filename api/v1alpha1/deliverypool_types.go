package v1alpha1

import (
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
}

// Egress says which destinations may be dialled.
// +kubebuilder:validation:MinProperties=1
type Egress struct {
	// allow lists networks that may be dialled beside the public ones, 1 to 100 entries: private networks, or loopback.
	// Link-local addresses and cloud metadata services are never dialled. Unset: none.
	// +listType=map
	// +listMapKey=cidr
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Allow []EgressNetwork `json:"allow,omitempty"`

	// allowHTTP permits http URLs beside https. Unset: false.
	// +optional
	AllowHTTP *bool `json:"allowHTTP,omitempty"`
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
}

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
