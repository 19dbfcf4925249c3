package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WebhookEndpointSpec says where events go, which ones, and how they are sent and signed.
// +kubebuilder:validation:XValidation:rule="has(self.poolRef) == has(oldSelf.poolRef)",message="poolRef can't be added or removed later, since waiting deliveries would be left behind; make a new WebhookEndpoint instead"
type WebhookEndpointSpec struct {
	// url is where events are posted: an absolute http or https URL of at most 2048 characters, without user name,
	// password or fragment. http needs egress.allowHTTP of the DeliveryPool. It is never printed in full, since query
	// strings hold tokens.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^https?://')`,message="url must begin with https:// or http://"
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'^https?://[^/?#]*@')`,message="url must not hold a user name or password; remove everything up to and including the @"
	// +kubebuilder:validation:XValidation:rule=`!self.contains('#')`,message="url must not have a fragment; remove everything from the # on"
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[!-\[\]-~]*$')`,message="url must be printable ASCII without spaces and backslashes; percent-encode other characters, and write an international host name in its xn-- form"
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'%([^0-9A-Fa-f]|.[^0-9A-Fa-f]|.?$)')`,message="url must use % only in encodings such as %20; write a plain percent sign as %25"
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'^https?://[^/?#@]*([/?#]|$)') || self.matches(r'^https?://([0-9A-Za-z_]([-0-9A-Za-z_.]*[0-9A-Za-z_])?\.?|\[[0-9A-Fa-f:.]+\])([:/?#]|$)')`,message="url must name a host: a DNS name or an IP address, IPv6 in brackets"
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'^https?://(\[[^/?#@]*\]|[^/?#@:\[]*):[^/?#@]*([/?#]|$)') || self.matches(r'^https?://(\[[^/?#@]*\]|[^/?#@:\[]*):([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])([/?#]|$)')`,message="url must have a port from 1 to 65535 after the colon, or no colon"
	// +required
	URL string `json:"url"`

	// eventTypes are the types of event this endpoint gets, 1 to 100 entries of at most 256 characters: an exact type
	// (payment.completed), a type with * for one or more segments at its end (order.* takes order.created and
	// order.item.added, but not order), or * alone. Unset: every type, except Doorstep's own doorstep.* events, which
	// must be named.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +optional
	EventTypes []EventTypePattern `json:"eventTypes,omitempty"`

	// signing says how requests are signed. Unset: Standard Webhooks, with a key that Doorstep generates.
	// +optional
	Signing *Signing `json:"signing,omitempty"`

	// timeout is how long one whole attempt may take, from the name lookup to the end of the answer: 1s to 60s.
	// Unset: 15s.
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,5}(h|m|s|ms)){1,4}$') || (duration(self) >= duration('1s') && duration(self) <= duration('60s'))",message="timeout must be from 1s to 60s"
	// +optional
	Timeout Duration `json:"timeout,omitempty"`

	// maxInFlight is how many requests to this endpoint may be under way at once: 1 to 1000. Unset: 16.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	MaxInFlight *int32 `json:"maxInFlight,omitempty"`

	// retryPolicyRef names the RetryPolicy that decides when failed deliveries are tried again. A change of it applies to
	// waiting deliveries. Unset: the DeliveryPool's defaultRetryPolicy, else the built-in policy.
	// +optional
	RetryPolicyRef *RetryPolicyReference `json:"retryPolicyRef,omitempty"`

	// suspend pauses this endpoint: events are accepted and held, nothing is sent. Unset: false.
	// +optional
	Suspend *bool `json:"suspend,omitempty"`

	// poolRef names the DeliveryPool whose workers deliver to this endpoint. It can't be changed, added or removed after
	// creation. Unset: the pool named default of this installation.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="poolRef can't be changed, since waiting deliveries would be left behind; make a new WebhookEndpoint instead"
	// +optional
	PoolRef *DeliveryPoolReference `json:"poolRef,omitempty"`
}

// EventTypePattern is one event type, or a pattern that ends in an asterisk.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=256
// +kubebuilder:validation:XValidation:rule=`self == '*' || self.matches(r'^[^.*\s\x00-\x1f\x7f]+(\.[^.*\s\x00-\x1f\x7f]+)*(\.\*)?$')`,message="each entry of eventTypes must be a type such as order.created, a type with .* at its end such as order.*, or * alone; an asterisk can stand nowhere else"
type EventTypePattern string

// SignatureScheme is a way of signing requests.
// +kubebuilder:validation:Enum=StandardWebhooks
type SignatureScheme string

const (
	// SignatureSchemeStandardWebhooks signs id, timestamp and body as the Standard Webhooks specification says, with one
	// signature a key.
	SignatureSchemeStandardWebhooks SignatureScheme = "StandardWebhooks"
)

// Signing says how requests are signed.
// +kubebuilder:validation:MinProperties=1
type Signing struct {
	// scheme is the way of signing. StandardWebhooks puts id, timestamp and one signature a key into the headers
	// webhook-id, webhook-timestamp and webhook-signature. Unset: StandardWebhooks.
	// +optional
	Scheme SignatureScheme `json:"scheme,omitempty"`

	// keys are the signing keys, 1 to 5. Every key signs every request, so that a receiver can change from one to the
	// next. Unset: Doorstep generates one key.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=5
	// +optional
	Keys []SigningKey `json:"keys,omitempty"`
}

// SigningKey is one signing key.
type SigningKey struct {
	// name tells this key from the others of the endpoint: lower-case letters, digits and dashes, at most 63. It is never
	// sent.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +required
	Name string `json:"name"`

	// secretKeyRef names the Secret's key that holds the signing key as text: whsec_ and the base64 of 24 to 64 random
	// bytes.
	// +required
	SecretKeyRef SecretKeyReference `json:"secretKeyRef"`
}

// WebhookEndpointStatus is what Doorstep reports about an endpoint. It follows kstatus: the object is current when observedGeneration
// equals metadata.generation and Ready is True.
type WebhookEndpointStatus struct {
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

// WebhookEndpoint is a receiver of events: where they are posted, which ones, and how they are signed and retried.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=whe,categories=doorstep
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Accepted, resolved and live on the pool's workers"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="metadata.name must be at most 63 characters; choose a shorter name"
type WebhookEndpoint struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says where events go, which ones, and how they are sent and signed.
	// +required
	Spec WebhookEndpointSpec `json:"spec"`

	// status is what Doorstep reports about the endpoint.
	// +default={"observedGeneration":-1}
	// +optional
	Status WebhookEndpointStatus `json:"status,omitzero"`
}

// WebhookEndpointList is a list of WebhookEndpoints.
// +kubebuilder:object:root=true
type WebhookEndpointList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []WebhookEndpoint `json:"items"`
}
