package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DeliveryPoolSpec says how a pool of workers takes in, keeps and sends events.
// +kubebuilder:validation:XValidation:rule="quantity(has(self.store) && has(self.store.embedded) && has(self.store.embedded.size) ? string(self.store.embedded.size) : '10Gi').compareTo(quantity(has(oldSelf.store) && has(oldSelf.store.embedded) && has(oldSelf.store.embedded.size) ? string(oldSelf.store.embedded.size) : '10Gi')) >= 0",message="store.embedded.size can't be made smaller (unset, it is 10Gi), since volumes can't shrink; make a new DeliveryPool with a smaller one instead"
// +kubebuilder:validation:XValidation:rule="(has(self.store) && has(self.store.embedded) && has(self.store.embedded.storageClassName) ? self.store.embedded.storageClassName : \"\") == (has(oldSelf.store) && has(oldSelf.store.embedded) && has(oldSelf.store.embedded.storageClassName) ? oldSelf.store.embedded.storageClassName : \"\")",message="store.embedded.storageClassName can't be changed, added or removed, since a volume keeps its class; make a new DeliveryPool instead"
// +kubebuilder:validation:XValidation:rule="(has(self.store) && has(self.store.embedded) && has(self.store.embedded.accessMode) ? self.store.embedded.accessMode : 'ReadWriteOnce') == (has(oldSelf.store) && has(oldSelf.store.embedded) && has(oldSelf.store.embedded.accessMode) ? oldSelf.store.embedded.accessMode : 'ReadWriteOnce')",message="store.embedded.accessMode can't be changed, since a volume keeps its mode; make a new DeliveryPool instead"
type DeliveryPoolSpec struct {
	// store is where the queue is kept. Unset: an embedded store on a volume of 10Gi of the cluster's default storage class.
	// +optional
	Store *Store `json:"store,omitempty"`

	// replicas is how many workers there are. The embedded store serves exactly 1. Unset: 1.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:XValidation:rule="self == 1",message="replicas must be 1: an embedded store serves one worker; for more throughput make another DeliveryPool"
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// allowedNamespaces says whose endpoints the pool delivers to and whose events it takes. Unset: those of all namespaces.
	// +optional
	AllowedNamespaces *AllowedNamespaces `json:"allowedNamespaces,omitempty"`

	// updatePolicy says when workers get the manager's image: Automatic, once the manager has another one, or OnRequest, when
	// the annotation doorstep.dev/restart-requested-at changes. Unset: Automatic.
	// +optional
	UpdatePolicy UpdatePolicy `json:"updatePolicy,omitempty"`

	// networkPolicy says whether a NetworkPolicy for the workers is kept: Managed or None. Unset: Managed.
	// +optional
	NetworkPolicy NetworkPolicyMode `json:"networkPolicy,omitempty"`

	// monitoring is for the ServiceMonitor, which is made where that kind exists. Unset: it has the default of each field.
	// +optional
	Monitoring *Monitoring `json:"monitoring,omitempty"`

	// template is what the workers' pods have beside what the pool needs. Unset: nothing.
	// +optional
	Template *WorkerTemplate `json:"template,omitempty"`

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

	// tls makes ingest speak https. Unset: http, for callers in the cluster.
	// +optional
	TLS *IngestTLS `json:"tls,omitempty"`

	// service is for the Service that events are posted to. Unset: the default of each of its fields.
	// +optional
	Service *IngestService `json:"service,omitempty"`
}

// IngestTLS makes ingest speak https.
type IngestTLS struct {
	// secretRef names a Secret of type kubernetes.io/tls (tls.crt and tls.key; ca.crt is shown to callers if it is there) in
	// the pool's namespace. A renewed certificate is used without a restart.
	// +required
	SecretRef SecretReference `json:"secretRef"`
}

// IngestServiceType is a type of Service.
// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer
type IngestServiceType string

const (
	// IngestServiceClusterIP is reached from within the cluster.
	IngestServiceClusterIP IngestServiceType = "ClusterIP"
	// IngestServiceNodePort is reached at a port of every node.
	IngestServiceNodePort IngestServiceType = "NodePort"
	// IngestServiceLoadBalancer is reached through a load balancer.
	IngestServiceLoadBalancer IngestServiceType = "LoadBalancer"
)

// IPFamilyPolicy is a Service's use of IPv4 and IPv6.
// +kubebuilder:validation:Enum=SingleStack;PreferDualStack;RequireDualStack
type IPFamilyPolicy string

// IngestService is for the Service that events are posted to.
// +kubebuilder:validation:MinProperties=1
type IngestService struct {
	// type is ClusterIP, NodePort or LoadBalancer. Unset: ClusterIP.
	// +optional
	Type IngestServiceType `json:"type,omitempty"`

	// annotations are put on the Service, 1 to 32. Unset: none.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// ipFamilyPolicy is SingleStack, PreferDualStack or RequireDualStack. Unset: as the cluster has it.
	// +optional
	IPFamilyPolicy IPFamilyPolicy `json:"ipFamilyPolicy,omitempty"`
}

// StoreType is a kind of store.
// +kubebuilder:validation:Enum=Embedded
type StoreType string

const (
	// StoreTypeEmbedded is a store on the worker's own volume.
	StoreTypeEmbedded StoreType = "Embedded"
)

// Store is where the queue is kept.
type Store struct {
	// type is Embedded: on the worker's own volume. It can't be changed.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="store.type can't be changed, since the queue would be left behind; make a new DeliveryPool instead"
	// +required
	Type StoreType `json:"type"`

	// embedded is for type Embedded. Unset: the default of each of its fields.
	// +optional
	Embedded *EmbeddedStore `json:"embedded,omitempty"`
}

// EmbeddedStore is a store on the worker's own volume.
// +kubebuilder:validation:MinProperties=1
type EmbeddedStore struct {
	// size is the volume's size, such as 20Gi: at least 1Gi. It can grow where the storage class allows that, and never
	// shrinks. Unset: 10Gi.
	// +kubebuilder:validation:XValidation:rule="!isQuantity(string(self)) || quantity(string(self)).compareTo(quantity('1Gi')) >= 0",message="size must be at least 1Gi"
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`

	// storageClassName is the volume's storage class. It can't be changed. Unset: the cluster's default.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +optional
	StorageClassName *string `json:"storageClassName,omitempty"`

	// accessMode is the volume's access mode: ReadWriteOnce or ReadWriteOncePod. It can't be changed. Unset: ReadWriteOnce.
	// +optional
	AccessMode StoreAccessMode `json:"accessMode,omitempty"`
}

// StoreAccessMode is who may use a volume at once.
// +kubebuilder:validation:Enum=ReadWriteOnce;ReadWriteOncePod
type StoreAccessMode string

const (
	// StoreReadWriteOnce is the pods of one node.
	StoreReadWriteOnce StoreAccessMode = "ReadWriteOnce"
	// StoreReadWriteOncePod is one pod.
	StoreReadWriteOncePod StoreAccessMode = "ReadWriteOncePod"
)

// AllowedNamespacesFrom says which namespaces are meant.
// +kubebuilder:validation:Enum=All;Same;Selector
type AllowedNamespacesFrom string

const (
	// NamespacesFromAll is every namespace.
	NamespacesFromAll AllowedNamespacesFrom = "All"
	// NamespacesFromSame is the pool's own.
	NamespacesFromSame AllowedNamespacesFrom = "Same"
	// NamespacesFromSelector is those whose labels fit selector.
	NamespacesFromSelector AllowedNamespacesFrom = "Selector"
)

// AllowedNamespaces says whose endpoints a pool delivers to.
// +kubebuilder:validation:XValidation:rule="has(self.selector) == (self.from == 'Selector')",message="selector must be set with from Selector, and with no other"
type AllowedNamespaces struct {
	// from is All, Same (the pool's own namespace) or Selector. A namespace that is not admitted any more loses nothing: its
	// events are held.
	// +required
	From AllowedNamespacesFrom `json:"from"`

	// selector is for from Selector: the labels of namespaces.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// UpdatePolicy says when workers get the manager's image.
// +kubebuilder:validation:Enum=Automatic;OnRequest
type UpdatePolicy string

const (
	// UpdateAutomatic is as soon as the manager has another one.
	UpdateAutomatic UpdatePolicy = "Automatic"
	// UpdateOnRequest is when the annotation doorstep.dev/restart-requested-at changes.
	UpdateOnRequest UpdatePolicy = "OnRequest"
)

// NetworkPolicyMode says who keeps the workers' NetworkPolicy.
// +kubebuilder:validation:Enum=Managed;None
type NetworkPolicyMode string

const (
	// NetworkPolicyManaged is the manager.
	NetworkPolicyManaged NetworkPolicyMode = "Managed"
	// NetworkPolicyNone is nobody.
	NetworkPolicyNone NetworkPolicyMode = "None"
)

// Monitoring is for the ServiceMonitor.
// +kubebuilder:validation:MinProperties=1
type Monitoring struct {
	// labels are put on the ServiceMonitor, 1 to 32: Prometheus finds it by them. Unset: none.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// interval is the time between two scrapes: at least 1s. Unset: Prometheus's own.
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,5}(h|m|s|ms)){1,4}$') || duration(self) >= duration('1s')",message="interval must be at least 1s"
	// +optional
	Interval Duration `json:"interval,omitempty"`
}

// WorkerTemplate is what the workers' pods have beside what the pool needs.
// +kubebuilder:validation:MinProperties=1
type WorkerTemplate struct {
	// labels are put on the pods beside Doorstep's own, 1 to 32. Unset: none.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, k.startsWith('doorstep.dev/') || k.startsWith('app.kubernetes.io/'))",message="labels of doorstep.dev/ and app.kubernetes.io/ are set by Doorstep; remove them"
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// annotations are put on the pods, 1 to 32. Unset: none.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// resources are the worker's requests and limits. Unset: 100m CPU and 256Mi memory are requested, and memory is limited
	// to 512Mi.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// nodeSelector chooses nodes by their labels, 1 to 32. Unset: any.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// tolerations let the pods run on nodes with these taints, 1 to 32. Unset: none.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// affinity is the pods' affinity. Unset: none.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// topologySpreadConstraints spread the pods, 1 to 16. Unset: none.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +optional
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`

	// priorityClassName is the pods' priority class. Unset: the cluster's default.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// imagePullSecrets name Secrets of the pool's namespace for the image's registry, 1 to 16. Unset: none.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +optional
	ImagePullSecrets []SecretReference `json:"imagePullSecrets,omitempty"`

	// podSecurityContext is laid over the pods' security context, for clusters that give out user and group ids. What the
	// restricted Pod Security Standard asks for stays. Unset: user and group 65532, and fsGroup 65532.
	// +optional
	PodSecurityContext *PodSecurityContext `json:"podSecurityContext,omitempty"`
}

// PodSecurityContext is what may be chosen of a pod's security context.
// +kubebuilder:validation:MinProperties=1
type PodSecurityContext struct {
	// runAsUser is the user id: not 0. Unset: 65532.
	// +kubebuilder:validation:Minimum=1
	// +optional
	RunAsUser *int64 `json:"runAsUser,omitempty"`

	// runAsGroup is the group id. Unset: 65532.
	// +kubebuilder:validation:Minimum=1
	// +optional
	RunAsGroup *int64 `json:"runAsGroup,omitempty"`

	// fsGroup is the group that owns the volume. Unset: 65532.
	// +kubebuilder:validation:Minimum=1
	// +optional
	FSGroup *int64 `json:"fsGroup,omitempty"`

	// supplementalGroups are further groups, 1 to 16. Unset: none.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +optional
	SupplementalGroups []int64 `json:"supplementalGroups,omitempty"`
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
// equals metadata.generation and Ready is True. The manager writes observedGeneration, the conditions Ready, Reconciling and
// Stalled, address, endpoints and readyReplicas; the pool's worker writes the condition StorePressure, store and queue.
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

	// address is where events are posted, as Knative's Addressable has it.
	// +optional
	Address *Address `json:"address,omitempty"`

	// endpoints is how many WebhookEndpoints the pool delivers to.
	// +optional
	Endpoints *int32 `json:"endpoints,omitempty"`

	// readyReplicas is how many workers are ready.
	// +optional
	ReadyReplicas *int32 `json:"readyReplicas,omitempty"`

	// store tells of the store's volume.
	// +optional
	Store *StoreStatus `json:"store,omitempty"`

	// queue counts what is queued.
	// +optional
	Queue *QueueStatus `json:"queue,omitempty"`
}

// Address is where events are posted.
type Address struct {
	// url is the beginning of the API's addresses, such as http://default-ingest.doorstep-system.svc.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	URL string `json:"url,omitempty"`

	// CACerts are the authorities of its certificate in PEM, where ca.crt is in the Secret of ingest.tls.
	// +kubebuilder:validation:MaxLength=65536
	// +optional
	CACerts string `json:"CACerts,omitempty"` //nolint:kubeapilinter // Knative's name

	// audience is what ServiceAccount tokens must be made for.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Audience string `json:"audience,omitempty"`
}

// StoreStatus tells of the store's volume; to two digits.
type StoreStatus struct {
	// usedBytes is how much of the volume the store uses.
	// +optional
	UsedBytes *int64 `json:"usedBytes,omitempty"`

	// capacityBytes is the volume's size.
	// +optional
	CapacityBytes *int64 `json:"capacityBytes,omitempty"`

	// usedPercent is usedBytes in percent of capacityBytes.
	// +optional
	UsedPercent *int32 `json:"usedPercent,omitempty"`
}

// QueueStatus counts what is queued in a pool: exact up to 100, then to two digits.
type QueueStatus struct {
	// waiting is how many deliveries wait, for a first attempt, for a retry or held.
	// +optional
	Waiting *int64 `json:"waiting,omitempty"`

	// retrying is how many of the waiting ones were tried.
	// +optional
	Retrying *int64 `json:"retrying,omitempty"`

	// held is how many of the waiting ones are held.
	// +optional
	Held *int64 `json:"held,omitempty"`

	// deadLettered is how many dead letters there are.
	// +optional
	DeadLettered *int64 `json:"deadLettered,omitempty"`

	// oldestDueTime is since when the oldest delivery that should have been attempted waits. Unset: none is due.
	// +optional
	OldestDueTime *metav1.Time `json:"oldestDueTime,omitempty"`
}

// DeliveryPool is a set of workers with their store, and the rules by which they take in, keep and send events.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=dpool,categories=doorstep
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Takes and delivers events"
// +kubebuilder:printcolumn:name="Workers",type=integer,JSONPath=`.status.readyReplicas`,description="Workers that are ready"
// +kubebuilder:printcolumn:name="Store%",type=integer,JSONPath=`.status.store.usedPercent`,description="How much of the volume the store uses, in percent"
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.queue.waiting`,description="Deliveries that wait"
// +kubebuilder:printcolumn:name="Oldest",type=date,JSONPath=`.status.queue.oldestDueTime`,description="Since when the oldest due delivery waits"
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.address.url`,description="Where events are posted"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.size() <= 45",message="metadata.name must be at most 45 characters, since the names of the pool's objects are made from it; choose a shorter name",optionalOldSelf=true
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !self.metadata.name.contains('.')",message="metadata.name must not contain a dot, since Services are named after it; use dashes",optionalOldSelf=true
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
