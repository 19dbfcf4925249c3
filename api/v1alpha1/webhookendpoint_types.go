package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WebhookEndpointSpec says where events go, which ones, and how they are sent and signed.
// +kubebuilder:validation:XValidation:rule="!has(self.signing) || !has(self.signing.hmac) || !has(self.headers) || !self.headers.exists(h, h.name.lowerAscii() == self.signing.hmac.header.lowerAscii() || has(self.signing.hmac.timestamp) && h.name.lowerAscii() == self.signing.hmac.timestamp.header.lowerAscii())",message="a header that signing.hmac sends can't stand in headers too; remove it there"
// +kubebuilder:validation:XValidation:rule="has(self.poolRef) == has(oldSelf.poolRef)",message="poolRef can't be added or removed later, since waiting deliveries would be left behind; make a new WebhookEndpoint instead"
// +kubebuilder:validation:XValidation:rule="[has(self.url), has(self.urlFrom), has(self.serviceRef)].filter(set, set).size() == 1",message="exactly one of url, urlFrom and serviceRef must be set; remove the others, or add one"
type WebhookEndpointSpec struct {
	// url is where events are posted: an absolute http or https URL of at most 2048 characters, without user name,
	// password or fragment. http needs egress.allowHTTP of the DeliveryPool. It is never printed in full, since query
	// strings hold tokens. Exactly one of url, urlFrom and serviceRef is set.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^https?://')`,message="url must begin with https:// or http://"
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'^https?://[^/?#]*@')`,message="url must not hold a user name or password; remove everything up to and including the @"
	// +kubebuilder:validation:XValidation:rule=`!self.contains('#')`,message="url must not have a fragment; remove everything from the # on"
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[!-\[\]-~]*$')`,message="url must be printable ASCII without spaces and backslashes; percent-encode other characters, and write an international host name in its xn-- form"
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'%([^0-9A-Fa-f]|.[^0-9A-Fa-f]|.?$)')`,message="url must use % only in encodings such as %20; write a plain percent sign as %25"
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'^https?://[^/?#@]*([/?#]|$)') || self.matches(r'^https?://([0-9A-Za-z_]([-0-9A-Za-z_.]*[0-9A-Za-z_])?\.?|\[[0-9A-Fa-f:.]+\])([:/?#]|$)')`,message="url must name a host: a DNS name or an IP address, IPv6 in brackets"
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'^https?://(\[[^/?#@]*\]|[^/?#@:\[]*):[^/?#@]*([/?#]|$)') || self.matches(r'^https?://(\[[^/?#@]*\]|[^/?#@:\[]*):([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])([/?#]|$)')`,message="url must have a port from 1 to 65535 after the colon, or no colon"
	// +optional
	URL string `json:"url,omitempty"`

	// urlFrom takes the URL from a Secret, for one whose path is itself a secret. The same rules hold for it as for url.
	// Exactly one of url, urlFrom and serviceRef is set.
	// +optional
	URLFrom *URLSource `json:"urlFrom,omitempty"`

	// serviceRef names a Service of the cluster that events are posted to. Its own address is dialled, and nothing else: no
	// entry of egress.allow is needed, and egress.proxy is not used. Exactly one of url, urlFrom and serviceRef is set.
	// +optional
	ServiceRef *ServiceReference `json:"serviceRef,omitempty"`

	// eventTypes are the types of event this endpoint gets, 1 to 100 entries of at most 256 characters: an exact type
	// (payment.completed), a type with * for one or more segments at its end (order.* takes order.created and
	// order.item.added, but not order), or * alone. Unset: every type, except Doorstep's own doorstep.* events, which
	// must be named.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +optional
	EventTypes []EventTypePattern `json:"eventTypes,omitempty"`

	// matchAttributes are attributes that an event must have, 1 to 16, each with exactly this value: CloudEvents extensions
	// (and subject, dataschema), or members of a plain event's "attributes". They are looked up in an index, so that
	// thousands of endpoints told apart by one cost no more than the few that match. Unset: any event.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +optional
	MatchAttributes []AttributeMatch `json:"matchAttributes,omitempty"`

	// filter is a CEL expression over event {id, type, source, time, attributes, data} that must be true for an event to be
	// sent, such as event.data.amount >= 1000. It is asked last, after eventTypes and matchAttributes. An event for which it
	// can't be evaluated is kept as filterError and can be replayed; an expression that can't be compiled holds the
	// endpoint. Unset: every event.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Filter string `json:"filter,omitempty"`

	// body says what is posted. Event: the bytes as they were accepted. Data: the bytes of the event's data alone, as the
	// producer wrote them. Unset: Event.
	// +optional
	Body RequestBody `json:"body,omitempty"`

	// signing says how requests are signed. Unset: Standard Webhooks, with a key that Doorstep generates.
	// +optional
	Signing *Signing `json:"signing,omitempty"`

	// headers are added to every request, 1 to 20. Headers of HTTP itself, of signatures and of Doorstep can't be set.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +optional
	Headers []Header `json:"headers,omitempty"`

	// auth says how Doorstep identifies itself to the receiver, in the header Authorization. Unset: not at all, beside the
	// signature.
	// +optional
	Auth *Auth `json:"auth,omitempty"`

	// tls says which certificates are used with https. Unset: the receiver's certificate must be signed by an authority that
	// the worker's system trusts, and no certificate is sent.
	// +optional
	TLS *TLS `json:"tls,omitempty"`

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

	// rateLimit is how many requests may be made at most in a while. Retries count; what waits for its turn has not failed.
	// Unset: no limit.
	// +optional
	RateLimit *RateLimit `json:"rateLimit,omitempty"`

	// ordering says which deliveries wait for the ones before them. None: no order is kept. PerKey: events with the same
	// partitionkey attribute are delivered one at a time, in the order of acceptance; those without one in any order. All:
	// every event, one at a time. A failing delivery holds those behind it until it is delivered or dead-lettered. Unset:
	// None.
	// +optional
	Ordering Ordering `json:"ordering,omitempty"`

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

// URLSource says where a URL comes from.
type URLSource struct {
	// secretKeyRef names the Secret's key that holds the URL, without a line break at its end.
	// +required
	SecretKeyRef SecretKeyReference `json:"secretKeyRef"`
}

// ServiceReference names a Service that events are posted to. The Service must have a selector and a cluster IP: one of
// type ExternalName, a headless one, and one whose endpoints are written by hand could lead anywhere.
// +kubebuilder:validation:XValidation:rule="!has(self.path) || !self.path.contains('#')",message="path must not have a fragment; remove everything from the # on"
type ServiceReference struct {
	// name is the Service's name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +required
	Name string `json:"name"`

	// namespace is the Service's namespace. Another one than the endpoint's needs a ReferenceGrant there, from
	// WebhookEndpoints of doorstep.dev to Services. Unset: the endpoint's namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// port is one of the Service's ports: 1 to 65535. Unset: 443 with scheme HTTPS, else 80.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Port *int32 `json:"port,omitempty"`

	// path is the path, with a query if there is one, that events are posted to; it begins with a slash. Unset: /.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^/[!-\[\]-~]*$')`,message="path must begin with a slash and be printable ASCII without spaces and backslashes; percent-encode other characters"
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'%([^0-9A-Fa-f]|.[^0-9A-Fa-f]|.?$)')`,message="path must use % only in encodings such as %20; write a plain percent sign as %25"
	// +optional
	Path string `json:"path,omitempty"`

	// scheme is HTTP or HTTPS; with HTTPS the certificate must be for name.namespace.svc, unless tls.serverName says
	// otherwise. Unset: HTTP.
	// +optional
	Scheme ServiceScheme `json:"scheme,omitempty"`
}

// ServiceScheme is how a Service is spoken to.
// +kubebuilder:validation:Enum=HTTP;HTTPS
type ServiceScheme string

const (
	// ServiceSchemeHTTP is plain HTTP, which stays within the cluster.
	ServiceSchemeHTTP ServiceScheme = "HTTP"
	// ServiceSchemeHTTPS is HTTP over TLS.
	ServiceSchemeHTTPS ServiceScheme = "HTTPS"
)

// EventTypePattern is one event type, or a pattern that ends in an asterisk.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=256
// +kubebuilder:validation:XValidation:rule=`self == '*' || self.matches(r'^[^.*\s\x00-\x1f\x7f]+(\.[^.*\s\x00-\x1f\x7f]+)*(\.\*)?$')`,message="each entry of eventTypes must be a type such as order.created, a type with .* at its end such as order.*, or * alone; an asterisk can stand nowhere else"
type EventTypePattern string

// AttributeMatch is one attribute that an event must have.
type AttributeMatch struct {
	// name is the attribute's name: lower-case letters and digits, at most 64, as CloudEvents has it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[a-z0-9]+$`
	// +required
	Name string `json:"name"`

	// value is what the attribute must equal, as text: a boolean as true or false, a number as its digits.
	// +kubebuilder:validation:MaxLength=1024
	// +required
	Value string `json:"value"`
}

// RequestBody is what is posted of an event.
// +kubebuilder:validation:Enum=Event;Data
type RequestBody string

const (
	// RequestBodyEvent posts the event as it was accepted.
	RequestBodyEvent RequestBody = "Event"
	// RequestBodyData posts the event's data alone.
	RequestBodyData RequestBody = "Data"
)

// Ordering says which deliveries wait for the ones before them.
// +kubebuilder:validation:Enum=None;PerKey;All
type Ordering string

const (
	// OrderingNone keeps no order.
	OrderingNone Ordering = "None"
	// OrderingPerKey keeps the order of events with the same partitionkey attribute.
	OrderingPerKey Ordering = "PerKey"
	// OrderingAll keeps the order of all events.
	OrderingAll Ordering = "All"
)

// RateLimit is how many requests may be made at most in a while.
type RateLimit struct {
	// requests is how many requests may be made in each interval: 1 to 1000000.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +required
	Requests *int32 `json:"requests,omitempty"`

	// interval is the time that requests counts for: 100ms to 24h. Unset: 1s.
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,5}(h|m|s|ms)){1,4}$') || (duration(self) >= duration('100ms') && duration(self) <= duration('24h'))",message="interval must be from 100ms to 24h"
	// +optional
	Interval Duration `json:"interval,omitempty"`

	// burst is how many requests may be made at once after a quiet time: 1 to 1000000. Unset: as many as requests.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	Burst *int32 `json:"burst,omitempty"`
}

// Header is one header that is added to every request.
// +kubebuilder:validation:XValidation:rule="has(self.value) != has(self.valueFrom)",message="each header must have exactly one of value and valueFrom"
type Header struct {
	// name is the header's name, in any case.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[A-Za-z0-9!#$%&*+.^_|~-]+$')`,message="name must be a header name: letters, digits and dashes, without spaces or colons"
	// +kubebuilder:validation:XValidation:rule=`!(self.lowerAscii().replace('_', '-') in ['host', 'content-length', 'content-type', 'content-encoding', 'transfer-encoding', 'connection', 'upgrade', 'te', 'trailer', 'expect', 'keep-alive', 'user-agent', 'traceparent', 'idempotency-key', 'x-idempotency-key', 'metadata', 'metadata-flavor', 'stripe-signature', 'x-hub-signature', 'x-hub-signature-256', 'x-github-delivery', 'x-github-event']) && !self.lowerAscii().replace('_', '-').matches('^(webhook-|doorstep-|ce-|proxy-|x-google-|x-aws-ec2-metadata)')`,message="name is reserved: headers of HTTP itself, of signatures, of events and of metadata services can't be set; choose another name"
	// +required
	Name string `json:"name"`

	// value is the header's value: printable ASCII, at most 4096 characters. Exactly one of value and valueFrom is set.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[!-~]([ -~\t]*[!-~])?$')`,message="value must be printable ASCII without line breaks, and neither begin nor end with a space"
	// +optional
	Value string `json:"value,omitempty"`

	// valueFrom says where the value comes from.
	// +optional
	ValueFrom *HeaderSource `json:"valueFrom,omitempty"`
}

// HeaderSource says where a header's value comes from: exactly one of its fields is set.
// +kubebuilder:validation:ExactlyOneOf=secretKeyRef;event
type HeaderSource struct {
	// secretKeyRef takes the value from a Secret. It is never shown.
	// +optional
	SecretKeyRef *SecretKeyReference `json:"secretKeyRef,omitempty"`

	// event takes the value from the event: id, type, source, subject, time, or attributes. and the name of an attribute. A
	// header that the event has no value for is left out.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=80
	// +kubebuilder:validation:Pattern=`^(id|type|source|subject|time|attributes\.[a-z0-9]{1,64})$`
	// +optional
	Event string `json:"event,omitempty"`
}

// AuthType is a way of identifying Doorstep to a receiver.
// +kubebuilder:validation:Enum=Basic;Bearer;OAuth2ClientCredentials
type AuthType string

const (
	// AuthTypeBasic sends user name and password with every request.
	AuthTypeBasic AuthType = "Basic"
	// AuthTypeBearer sends a token with every request.
	AuthTypeBearer AuthType = "Bearer"
	// AuthTypeOAuth2ClientCredentials asks an authorization server for tokens and sends those.
	AuthTypeOAuth2ClientCredentials AuthType = "OAuth2ClientCredentials"
)

// Auth says how Doorstep identifies itself to a receiver. The field that belongs to type is set, and no other.
// +kubebuilder:validation:XValidation:rule="has(self.basic) == (self.type == 'Basic')",message="basic must be set with type Basic, and with no other"
// +kubebuilder:validation:XValidation:rule="has(self.bearer) == (self.type == 'Bearer')",message="bearer must be set with type Bearer, and with no other"
// +kubebuilder:validation:XValidation:rule="has(self.oauth2) == (self.type == 'OAuth2ClientCredentials')",message="oauth2 must be set with type OAuth2ClientCredentials, and with no other"
type Auth struct {
	// type is the way of identifying.
	// +required
	Type AuthType `json:"type"`

	// basic is for type Basic.
	// +optional
	Basic *BasicAuth `json:"basic,omitempty"`

	// bearer is for type Bearer.
	// +optional
	Bearer *BearerAuth `json:"bearer,omitempty"`

	// oauth2 is for type OAuth2ClientCredentials.
	// +optional
	OAuth2 *OAuth2ClientCredentials `json:"oauth2,omitempty"`
}

// BasicAuth is HTTP basic authentication.
type BasicAuth struct {
	// secretRef names a Secret with the keys username and password, as those of type kubernetes.io/basic-auth have.
	// +required
	SecretRef SecretReference `json:"secretRef"`
}

// BearerAuth is a token that is always the same.
type BearerAuth struct {
	// secretKeyRef names the Secret's key that holds the token.
	// +required
	SecretKeyRef SecretKeyReference `json:"secretKeyRef"`
}

// OAuth2ClientCredentials asks for tokens by the client credentials grant of OAuth 2.0 (RFC 6749 section 4.4).
type OAuth2ClientCredentials struct {
	// tokenURL is the authorization server's token endpoint, under the same rules as url.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^https?://[^/?#@\s]+([/?][^#\s]*)?$')`,message="tokenURL must be an http or https URL without user name, password, spaces and fragment"
	// +required
	TokenURL string `json:"tokenURL"`

	// secretRef names a Secret with the keys clientID and clientSecret.
	// +required
	SecretRef SecretReference `json:"secretRef"`

	// scopes are asked for, 1 to 20. Unset: none is named.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^[!#-\[\]-~]+$`
	// +optional
	Scopes []string `json:"scopes,omitempty"`

	// audience is sent as the parameter audience, which some servers ask for. Unset: it is not sent.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Audience string `json:"audience,omitempty"`

	// clientAuthentication says how the client's id and secret are sent: Header (HTTP basic) or Body (form fields). Unset:
	// Header.
	// +optional
	ClientAuthentication ClientAuthentication `json:"clientAuthentication,omitempty"`
}

// ClientAuthentication says how a client's id and secret are sent to an authorization server.
// +kubebuilder:validation:Enum=Header;Body
type ClientAuthentication string

const (
	// ClientAuthenticationHeader sends them by HTTP basic authentication.
	ClientAuthenticationHeader ClientAuthentication = "Header"
	// ClientAuthenticationBody sends them as form fields.
	ClientAuthenticationBody ClientAuthentication = "Body"
)

// TLS says which certificates are used with https.
// +kubebuilder:validation:MinProperties=1
type TLS struct {
	// caCertificateRefs name the authorities that may have signed the receiver's certificate, 1 to 8, instead of those that
	// the worker's system trusts.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +optional
	CACertificateRefs []CACertificateReference `json:"caCertificateRefs,omitempty"`

	// clientCertificateRef names a Secret of type kubernetes.io/tls (tls.crt and tls.key) with the certificate that is sent
	// to the receiver. Unset: none is sent.
	// +optional
	ClientCertificateRef *SecretReference `json:"clientCertificateRef,omitempty"`

	// serverName is the name that the receiver's certificate must be for, and that is sent as SNI. Unset: the host of url.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_]([-A-Za-z0-9_.]*[A-Za-z0-9_])?$`
	// +optional
	ServerName string `json:"serverName,omitempty"`
}

// SignatureScheme is a way of signing requests.
// +kubebuilder:validation:Enum=StandardWebhooks;GitHub;Stripe;HMAC;None
type SignatureScheme string

const (
	// SignatureSchemeStandardWebhooks signs id, timestamp and body as the Standard Webhooks specification says, with one
	// signature a key.
	SignatureSchemeStandardWebhooks SignatureScheme = "StandardWebhooks"
	// SignatureSchemeGitHub signs the body as GitHub does, in X-Hub-Signature-256, and sends X-GitHub-Event and
	// X-GitHub-Delivery.
	SignatureSchemeGitHub SignatureScheme = "GitHub"
	// SignatureSchemeStripe signs timestamp and body as Stripe does, in Stripe-Signature.
	SignatureSchemeStripe SignatureScheme = "Stripe"
	// SignatureSchemeHMAC signs as hmac says.
	SignatureSchemeHMAC SignatureScheme = "HMAC"
	// SignatureSchemeNone does not sign.
	SignatureSchemeNone SignatureScheme = "None"
)

// Signing says how requests are signed.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="has(self.hmac) == (has(self.scheme) && self.scheme == 'HMAC')",message="hmac must be set with scheme HMAC, and with no other"
// +kubebuilder:validation:XValidation:rule="!(has(self.scheme) && self.scheme == 'None') || !has(self.keys) && !has(self.rotationOverlap)",message="keys and rotationOverlap have no meaning with scheme None; remove them"
type Signing struct {
	// scheme is the way of signing. StandardWebhooks puts id, timestamp and one signature a key into the headers
	// webhook-id, webhook-timestamp and webhook-signature. GitHub and Stripe send the headers of those providers, for
	// receivers that were written for them. HMAC is any other that signs by a shared key. None sends events unsigned.
	// Unset: StandardWebhooks.
	// +optional
	Scheme SignatureScheme `json:"scheme,omitempty"`

	// hmac describes the signature with scheme HMAC.
	// +optional
	HMAC *HMAC `json:"hmac,omitempty"`

	// keys are the signing keys, 1 to 5. With StandardWebhooks and Stripe every key signs every request between its
	// notBefore and its expiresAt, so that a receiver can change from one to the next; GitHub and HMAC have room for one
	// signature, and the newest key makes it: the one with the latest notBefore, or else the first of the list. Unset:
	// Doorstep generates one key.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=5
	// +optional
	Keys []SigningKey `json:"keys,omitempty"`

	// rotationOverlap is how long the former value of a key goes on signing beside the new one when a Secret's value
	// changes: 0s to 720h. 0s: not at all. It has no effect with GitHub and HMAC, which sign once. Unset: 24h.
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,5}(h|m|s|ms)){1,4}$') || duration(self) <= duration('720h')",message="rotationOverlap must be at most 720h"
	// +optional
	RotationOverlap Duration `json:"rotationOverlap,omitempty"`
}

// HMAC describes a signature by a shared key.
// +kubebuilder:validation:XValidation:rule="!has(self.timestamp) || self.timestamp.header.lowerAscii() != self.header.lowerAscii()",message="timestamp.header must be another header than header"
type HMAC struct {
	// header is the name of the header that holds the signature.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[A-Za-z0-9!#$%&*+.^_|~-]+$')`,message="header must be a header name: letters, digits and dashes, without spaces or colons"
	// +kubebuilder:validation:XValidation:rule=`!(self.lowerAscii().replace('_', '-') in ['host', 'content-length', 'content-type', 'content-encoding', 'transfer-encoding', 'connection', 'upgrade', 'te', 'trailer', 'expect', 'keep-alive', 'user-agent', 'traceparent', 'idempotency-key', 'x-idempotency-key', 'metadata', 'metadata-flavor', 'authorization', 'cookie', 'webhook-id', 'webhook-timestamp']) && !self.lowerAscii().replace('_', '-').matches('^(doorstep-|ce-|proxy-|x-google-|x-aws-ec2-metadata)')`,message="header is reserved: headers of HTTP itself, of events and of metadata services can't hold a signature; choose another name"
	// +required
	Header string `json:"header"`

	// algorithm is the hash function. Unset: SHA256.
	// +optional
	Algorithm HMACAlgorithm `json:"algorithm,omitempty"`

	// encoding is how the signature is written. Unset: Hex.
	// +optional
	Encoding HMACEncoding `json:"encoding,omitempty"`

	// prefix stands before the signature in the header, such as "sha256=". {id} and {timestamp} stand for those of the
	// request, as in "ts={timestamp};h1=". Unset: nothing.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[!-~][ -~]*$')`,message="prefix must be printable ASCII and not begin with a space"
	// +kubebuilder:validation:XValidation:rule="!self.replace('{id}', '').replace('{timestamp}', '').matches('[{}]')",message="prefix can hold {id} and {timestamp}, and no other braces"
	// +optional
	Prefix string `json:"prefix,omitempty"`

	// keyEncoding is how the key is written in its Secret. Unset: Text.
	// +optional
	KeyEncoding HMACKeyEncoding `json:"keyEncoding,omitempty"`

	// content is what is signed: text in which {id}, {timestamp} and {body} stand for those of the request. It must hold
	// {body}. Unset: {body}.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.split('{body}').size() == 2",message="content must hold {body} exactly once, since an unsigned body can be forged"
	// +kubebuilder:validation:XValidation:rule="!self.replace('{id}', '').replace('{timestamp}', '').replace('{body}', '').matches('[{}]')",message="content can hold {id}, {timestamp} and {body}, and no other braces"
	// +optional
	Content string `json:"content,omitempty"`

	// timestamp says how the time of the attempt is sent. Unset: it is not sent, beside webhook-timestamp.
	// +optional
	Timestamp *HMACTimestamp `json:"timestamp,omitempty"` //nolint:kubeapilinter // what the docs of receivers, and {timestamp}, call it
}

// HMACAlgorithm is the hash function of an HMAC.
// +kubebuilder:validation:Enum=SHA1;SHA256;SHA512
type HMACAlgorithm string

const (
	// HMACAlgorithmSHA1 is HMAC-SHA1, for receivers that know nothing better.
	HMACAlgorithmSHA1 HMACAlgorithm = "SHA1"
	// HMACAlgorithmSHA256 is HMAC-SHA256.
	HMACAlgorithmSHA256 HMACAlgorithm = "SHA256"
	// HMACAlgorithmSHA512 is HMAC-SHA512.
	HMACAlgorithmSHA512 HMACAlgorithm = "SHA512"
)

// HMACEncoding is how a signature is written.
// +kubebuilder:validation:Enum=Hex;Base64
type HMACEncoding string

const (
	// HMACEncodingHex writes lower-case hexadecimal digits.
	HMACEncodingHex HMACEncoding = "Hex"
	// HMACEncodingBase64 writes standard base64 with padding.
	HMACEncodingBase64 HMACEncoding = "Base64"
)

// HMACKeyEncoding is how a key is written in its Secret.
// +kubebuilder:validation:Enum=Text;Base64;Hex
type HMACKeyEncoding string

const (
	// HMACKeyEncodingText takes the bytes as they are.
	HMACKeyEncodingText HMACKeyEncoding = "Text"
	// HMACKeyEncodingBase64 decodes standard base64.
	HMACKeyEncodingBase64 HMACKeyEncoding = "Base64"
	// HMACKeyEncodingHex decodes hexadecimal digits.
	HMACKeyEncodingHex HMACKeyEncoding = "Hex"
)

// HMACTimestamp says how the time of an attempt is sent.
type HMACTimestamp struct {
	// header is the name of the header that holds the time.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[A-Za-z0-9!#$%&*+.^_|~-]+$')`,message="header must be a header name: letters, digits and dashes, without spaces or colons"
	// +kubebuilder:validation:XValidation:rule=`!(self.lowerAscii().replace('_', '-') in ['host', 'content-length', 'content-type', 'content-encoding', 'transfer-encoding', 'connection', 'upgrade', 'te', 'trailer', 'expect', 'keep-alive', 'user-agent', 'traceparent', 'idempotency-key', 'x-idempotency-key', 'metadata', 'metadata-flavor', 'authorization', 'cookie', 'webhook-id', 'webhook-timestamp']) && !self.lowerAscii().replace('_', '-').matches('^(doorstep-|ce-|proxy-|x-google-|x-aws-ec2-metadata)')`,message="header is reserved: headers of HTTP itself, of events and of metadata services can't hold the time; choose another name"
	// +required
	Header string `json:"header"`

	// unit is how the time is written, also where content holds {timestamp}. Unset: Seconds.
	// +optional
	Unit TimestampUnit `json:"unit,omitempty"`
}

// TimestampUnit is how a time is written.
// +kubebuilder:validation:Enum=Seconds;Milliseconds;RFC3339
type TimestampUnit string

const (
	// TimestampUnitSeconds writes seconds since 1970.
	TimestampUnitSeconds TimestampUnit = "Seconds"
	// TimestampUnitMilliseconds writes milliseconds since 1970.
	TimestampUnitMilliseconds TimestampUnit = "Milliseconds"
	// TimestampUnitRFC3339 writes a UTC date such as 2026-11-30T12:00:00Z.
	TimestampUnitRFC3339 TimestampUnit = "RFC3339"
)

// SigningKey is one signing key.
// +kubebuilder:validation:XValidation:rule="!has(self.notBefore) || !has(self.expiresAt) || self.notBefore < self.expiresAt",message="expiresAt must be after notBefore"
type SigningKey struct {
	// name tells this key from the others of the endpoint: lower-case letters, digits and dashes, at most 63. It is never
	// sent.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +required
	Name string `json:"name"`

	// secretKeyRef names the Secret's key that holds the signing key as text. For StandardWebhooks: whsec_ and the base64 of
	// 24 to 64 random bytes, or whsk_ and the base64 of an Ed25519 key pair. For GitHub and Stripe: the text itself is the
	// key, a whsec_ in front included. For HMAC: as keyEncoding says.
	// +required
	SecretKeyRef SecretKeyReference `json:"secretKeyRef"`

	// notBefore is when the key begins to sign. Unset: at once.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty"`

	// expiresAt is when the key stops signing. At least one key must sign at any time, or the endpoint is held. Unset:
	// never.
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
}

// WebhookEndpointStatus is what Doorstep reports about an endpoint. It follows kstatus: the object is current when observedGeneration
// equals metadata.generation and Ready is True. The manager writes observedGeneration, the conditions Ready, Reconciling and
// Stalled, host, effectiveRetry, dedupeHorizon and signing; the pool's worker writes the conditions Delivering and Healthy,
// health and deliveries.
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

	// host is the host, with its port where it has one, that events are posted to. The rest of the URL is never shown.
	// +kubebuilder:validation:MaxLength=300
	// +optional
	Host string `json:"host,omitempty"`

	// pool is the DeliveryPool that delivers to the endpoint, as namespace/name.
	// +kubebuilder:validation:MaxLength=127
	// +optional
	Pool string `json:"pool,omitempty"`

	// effectiveRetry is the retry policy in force.
	// +optional
	EffectiveRetry *EffectiveRetry `json:"effectiveRetry,omitempty"`

	// dedupeHorizon is how long a receiver should remember webhook-ids: longer than any of them can come again, replays
	// apart.
	// +optional
	DedupeHorizon Duration `json:"dedupeHorizon,omitempty"`

	// signing tells of the signing keys.
	// +optional
	Signing *SigningStatus `json:"signing,omitempty"`

	// health tells what the receiver answered.
	// +optional
	Health *EndpointHealth `json:"health,omitempty"`

	// deliveries counts what is queued for the endpoint.
	// +optional
	Deliveries *EndpointDeliveries `json:"deliveries,omitempty"`
}

// EffectiveRetry is a retry policy in force.
type EffectiveRetry struct {
	// policy is where it comes from: RetryPolicy/<name>, DeliveryPool/<name>, or BuiltIn.
	// +kubebuilder:validation:MaxLength=96
	// +optional
	Policy string `json:"policy,omitempty"`

	// attempts is how many attempts are made in all.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`

	// span is the time from the first attempt to the last, without jitter.
	// +optional
	Span Duration `json:"span,omitempty"`
}

// SigningStatus tells of the signing keys.
type SigningStatus struct {
	// keys are the keys that sign or will sign, in the order of the spec, former values of a key after it: at most 30.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=30
	// +optional
	Keys []SigningKeyStatus `json:"keys,omitempty"`
}

// SigningKeyOrigin says where a signing key comes from.
// +kubebuilder:validation:Enum=Referenced;Generated;Former
type SigningKeyOrigin string

const (
	// SigningKeyReferenced is a key of the spec.
	SigningKeyReferenced SigningKeyOrigin = "Referenced"
	// SigningKeyGenerated is the key that Doorstep made.
	SigningKeyGenerated SigningKeyOrigin = "Generated"
	// SigningKeyFormer is the value that a key had before: it signs until expiresAt.
	SigningKeyFormer SigningKeyOrigin = "Former"
)

// SigningKeyStatus tells of one signing key, without giving it away.
type SigningKeyStatus struct {
	// name is the key's name in the spec, or generated.
	// +kubebuilder:validation:MaxLength=63
	// +required
	Name string `json:"name"`

	// secretName is the Secret that holds the key.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	SecretName string `json:"secretName,omitempty"`

	// fingerprint is the beginning of a SHA-256 of the key, by which two values can be told apart.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Fingerprint string `json:"fingerprint,omitempty"`

	// origin is Referenced, Generated or Former.
	// +optional
	Origin SigningKeyOrigin `json:"origin,omitempty"`

	// notBefore is when the key begins to sign. Unset: it signs.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty"`

	// expiresAt is when the key stops signing. Unset: never.
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`
}

// EndpointHealth tells what the receiver answered. It is rounded, and written at most every 30 s but for changes of a
// condition. Test sends do not count.
type EndpointHealth struct {
	// score is 0 to 100, in steps of 5: 0.5 of the success percentage of 5 minutes, 0.3 of one hour and 0.2 of 24 hours, of
	// those with attempts. Unset: there was no attempt in 24 hours.
	// +optional
	Score *int32 `json:"score,omitempty"`

	// successPercent is how many of the attempts were answered 2xx.
	// +optional
	SuccessPercent *SuccessPercent `json:"successPercent,omitempty"`

	// attempts is how many attempts were made within the last hour, to two digits.
	// +optional
	Attempts *int64 `json:"attempts,omitempty"`

	// p50 is the time within which half of the last attempts ended.
	// +optional
	P50 Duration `json:"p50,omitempty"`

	// p95 is the time within which 95 of 100 of the last attempts ended.
	// +optional
	P95 Duration `json:"p95,omitempty"`

	// lastSuccessTime is when a delivery was last answered 2xx.
	// +optional
	LastSuccessTime *metav1.Time `json:"lastSuccessTime,omitempty"`

	// lastEventTime is when an event was last accepted for the endpoint.
	// +optional
	LastEventTime *metav1.Time `json:"lastEventTime,omitempty"`

	// lastFailure is the last failed attempt.
	// +optional
	LastFailure *AttemptFailure `json:"lastFailure,omitempty"`

	// limitedBy names the setting that keeps deliveries from going faster now: rateLimit, maxInFlight,
	// ordering, or pool (the pool's limits.maxInFlight). Unset: nothing does.
	// +kubebuilder:validation:MaxLength=32
	// +optional
	LimitedBy string `json:"limitedBy,omitempty"`
}

// SuccessPercent is how many of 100 attempts were answered 2xx, within some windows of time. A window without attempts
// is unset.
type SuccessPercent struct {
	// fiveMinutes is the last 5 minutes.
	// +optional
	FiveMinutes *int32 `json:"fiveMinutes,omitempty"`

	// oneHour is the last hour.
	// +optional
	OneHour *int32 `json:"oneHour,omitempty"`

	// oneDay is the last 24 hours.
	// +optional
	OneDay *int32 `json:"oneDay,omitempty"`
}

// AttemptFailure is a failed attempt.
type AttemptFailure struct {
	// time is when it began.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`

	// reason is its class: timeout, connect, dns, tls, denied, server_error, client_error, rate_limited, auth_rejected and
	// the like.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Reason string `json:"reason,omitempty"`

	// statusCode is the answer's; unset without an answer.
	// +optional
	StatusCode *int32 `json:"statusCode,omitempty"`

	// message is one sentence, without addresses and bodies.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
}

// EndpointDeliveries counts what is queued for an endpoint: exact up to 100, then to two digits.
type EndpointDeliveries struct {
	// waiting is how many wait, for a first attempt, for a retry or held.
	// +optional
	Waiting *int64 `json:"waiting,omitempty"`

	// retrying is how many of the waiting ones were tried.
	// +optional
	Retrying *int64 `json:"retrying,omitempty"`

	// inFlight is how many are being attempted.
	// +optional
	InFlight *int64 `json:"inFlight,omitempty"`

	// held is how many of the waiting ones are held, since nothing is attempted now.
	// +optional
	Held *int64 `json:"held,omitempty"`

	// deadLettered is how many dead letters there are that were neither replayed nor forgotten.
	// +optional
	DeadLettered *int64 `json:"deadLettered,omitempty"`

	// oldestDueTime is since when the oldest delivery that should have been attempted waits. Unset: none is due.
	// +optional
	OldestDueTime *metav1.Time `json:"oldestDueTime,omitempty"`

	// heldUntil is when the first of the held deliveries is dead-lettered for its age. Unset: none is held.
	// +optional
	HeldUntil *metav1.Time `json:"heldUntil,omitempty"`
}

// WebhookEndpoint is a receiver of events: where they are posted, which ones, and how they are signed and retried.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=whe,categories=doorstep
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Accepted, resolved and live on the pool's workers"
// +kubebuilder:printcolumn:name="Delivering",type=string,JSONPath=`.status.conditions[?(@.type=="Delivering")].reason`,description="What is done with deliveries at the moment"
// +kubebuilder:printcolumn:name="Success",type=integer,JSONPath=`.status.health.successPercent.fiveMinutes`,description="Of 100 attempts in the last 5 minutes, how many were answered 2xx"
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.deliveries.waiting`,description="Deliveries that wait, retrying and held ones among them"
// +kubebuilder:printcolumn:name="Oldest",type=date,JSONPath=`.status.deliveries.oldestDueTime`,description="Since when the oldest due delivery waits"
// +kubebuilder:printcolumn:name="Dead",type=integer,JSONPath=`.status.deliveries.deadLettered`,description="Dead letters"
// +kubebuilder:printcolumn:name="Last-Success",type=date,JSONPath=`.status.health.lastSuccessTime`,description="When a delivery was last answered 2xx"
// +kubebuilder:printcolumn:name="Score",type=integer,JSONPath=`.status.health.score`,priority=1,description="Health, 0 to 100"
// +kubebuilder:printcolumn:name="Last-Error",type=string,JSONPath=`.status.health.lastFailure.reason`,priority=1,description="Why the last failed attempt failed"
// +kubebuilder:printcolumn:name="Last-Event",type=date,JSONPath=`.status.health.lastEventTime`,priority=1,description="When an event was last accepted"
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.status.host`,priority=1,description="Where events are posted"
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.status.pool`,priority=1,description="The DeliveryPool that delivers"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.size() <= 63",message="metadata.name must be at most 63 characters; choose a shorter name",optionalOldSelf=true
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
