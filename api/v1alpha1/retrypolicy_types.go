package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RetryPolicySpec says when a failed delivery is tried again, how often, and which answers are worth another attempt.
type RetryPolicySpec struct {
	// backoff gives the delays between attempts, and with them their number. Unset: the schedule
	// 60s, 5m, 30m, 2h, 10h, 24h, which makes seven attempts in all.
	// +optional
	Backoff *Backoff `json:"backoff,omitempty"`

	// jitter varies each delay, so that deliveries that failed together do not come back together. Unset: Proportional
	// with 10 percent.
	// +optional
	Jitter *Jitter `json:"jitter,omitempty"`

	// maxAge is the longest a delivery is kept trying, from acceptance or from its last replay, held or not; after it the
	// delivery is dead-lettered. A retry that would come later is made once, at maxAge. Unset: 72h.
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,5}(h|m|s|ms)){1,4}$') || duration(self) >= duration('1s')",message="maxAge must be at least 1s"
	// +optional
	MaxAge Duration `json:"maxAge,omitempty"`

	// responses sorts the receiver's answers. 2xx always means delivered. An exact code beats a class; between equals
	// disable comes before fail, and fail before retry. Every other answer dead-letters the delivery at once. Unset: the
	// default of each list.
	// +optional
	Responses *Responses `json:"responses,omitempty"`

	// retryAfter says what is made of a Retry-After header of the answers 408, 425, 429 and 5xx. Unset: honoured, up to
	// 6h.
	// +optional
	RetryAfter *RetryAfter `json:"retryAfter,omitempty"`

	// onRecovery says what becomes of waiting deliveries when the receiver answers again after failures. Expedite brings
	// them forward, oldest first, slowly at first; Wait leaves each to its own time. Unset: Expedite.
	// +optional
	OnRecovery OnRecovery `json:"onRecovery,omitempty"`
}

// Backoff gives the delays between attempts: exactly one of its fields.
// +kubebuilder:validation:XValidation:rule="has(self.schedule) != has(self.exponential)",message="backoff must have exactly one of schedule and exponential; remove the other"
type Backoff struct {
	// schedule lists the delays after the first, second … failure, 1 to 100 of them, each longer than 0s. There is one
	// attempt more than there are delays.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:XValidation:rule="!self.matches('^([0-9]{1,5}(h|m|s|ms)){1,4}$') || duration(self) > duration('0s')",message="each delay of schedule must be longer than 0s"
	// +optional
	Schedule []Duration `json:"schedule,omitempty"`

	// exponential makes each delay a multiple of the one before it.
	// +optional
	Exponential *ExponentialBackoff `json:"exponential,omitempty"`
}

// ExponentialBackoff is the delay initial · factorⁿ after failure n+1, never more than max.
// +kubebuilder:validation:XValidation:rule="![self.initial, self.max].all(d, d.matches('^([0-9]{1,5}(h|m|s|ms)){1,4}$')) || duration(self.max) >= duration(self.initial)",message="exponential.max must not be shorter than exponential.initial; raise max or lower initial"
type ExponentialBackoff struct {
	// initial is the delay after the first failure, longer than 0s.
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]{1,5}(h|m|s|ms)){1,4}$') || duration(self) > duration('0s')",message="exponential.initial must be longer than 0s"
	// +required
	Initial Duration `json:"initial"`

	// factor is what each delay is multiplied by to give the next: a whole number from 1 to 10. 1 makes every delay the
	// same. For anything between, write a schedule.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	// +required
	Factor int32 `json:"factor"`

	// max is the longest delay, not shorter than initial.
	// +required
	Max Duration `json:"max"`

	// maxAttempts is how many attempts are made in all, the first one included: 1 to 200.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=200
	// +required
	MaxAttempts int32 `json:"maxAttempts"`
}

// JitterType is a way of varying a delay.
// +kubebuilder:validation:Enum=Proportional;Full;Equal;None
type JitterType string

const (
	// JitterProportional adds 0 to percent of the delay.
	JitterProportional JitterType = "Proportional"
	// JitterFull takes anything from 0 to the delay.
	JitterFull JitterType = "Full"
	// JitterEqual takes anything from half the delay to the delay.
	JitterEqual JitterType = "Equal"
	// JitterNone leaves the delay as it is.
	JitterNone JitterType = "None"
)

// Jitter varies delays.
// +kubebuilder:validation:XValidation:rule="self.type == 'Proportional' || !has(self.percent)",message="jitter.percent belongs to type Proportional; remove percent, or set type to Proportional"
type Jitter struct {
	// type is how a delay d is varied. Proportional adds 0 to percent of d; Full takes 0 to d; Equal takes d/2 to d; None
	// leaves d.
	// +required
	Type JitterType `json:"type"`

	// percent is the most that Proportional adds, in percent of the delay: 0 to 100. Unset: 10.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	Percent *int32 `json:"percent,omitempty"`
}

// ResponsePattern is an HTTP status code such as "429", or a class of them such as "5xx".
// +kubebuilder:validation:MinLength=3
// +kubebuilder:validation:MaxLength=3
// +kubebuilder:validation:XValidation:rule="self.matches('^[345](xx|[0-9][0-9])$')",message="each entry of responses must be a code from \"300\" to \"599\" or one of \"3xx\", \"4xx\" and \"5xx\"; 2xx always means delivered and can't be listed"
type ResponsePattern string

// Responses sorts the receiver's answers.
// +kubebuilder:validation:MinProperties=1
type Responses struct {
	// retry lists the answers after which the delivery is tried again, 1 to 100 codes or classes. A list replaces the
	// default. Unset: 3xx, 408, 409, 425, 429, 5xx.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Retry []ResponsePattern `json:"retry,omitempty"`

	// fail lists the answers that dead-letter the delivery at once, 1 to 100 codes or classes: exceptions from a class in
	// retry, such as 501. Unset: none beyond the answers that no list names.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Fail []ResponsePattern `json:"fail,omitempty"`

	// disable lists the answers that disable the endpoint at once, 1 to 100 codes or classes. A list replaces the
	// default. Unset: 410.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Disable []ResponsePattern `json:"disable,omitempty"`
}

// RetryAfterPolicy says whether a Retry-After header counts.
// +kubebuilder:validation:Enum=Honor;Ignore
type RetryAfterPolicy string

const (
	// RetryAfterHonor waits at least as long as the receiver asks, up to max.
	RetryAfterHonor RetryAfterPolicy = "Honor"
	// RetryAfterIgnore takes no notice of the header.
	RetryAfterIgnore RetryAfterPolicy = "Ignore"
)

// RetryAfter says what is made of a Retry-After header.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.policy) || self.policy == 'Honor' || !has(self.max)",message="retryAfter.max belongs to policy Honor; remove max, or set policy to Honor"
type RetryAfter struct {
	// policy is Honor (the next attempt comes no sooner than the receiver asks, and answers 429 and 503 pause the whole
	// endpoint that long) or Ignore. Unset: Honor.
	// +optional
	Policy RetryAfterPolicy `json:"policy,omitempty"`

	// max is the longest that a receiver can put an attempt off; a longer Retry-After is cut to it. Unset: 6h.
	// +optional
	Max Duration `json:"max,omitempty"`
}

// OnRecovery says what becomes of waiting deliveries when the receiver is back.
// +kubebuilder:validation:Enum=Expedite;Wait
type OnRecovery string

const (
	// OnRecoveryExpedite brings waiting deliveries forward, oldest first.
	OnRecoveryExpedite OnRecovery = "Expedite"
	// OnRecoveryWait leaves waiting deliveries to their own times.
	OnRecoveryWait OnRecovery = "Wait"
)

// RetryPolicyStatus is what Doorstep reports about a policy. It follows kstatus: the object is current when observedGeneration
// equals metadata.generation and Ready is True.
type RetryPolicyStatus struct {
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

	// effectiveSchedule lists the delays between attempts, without jitter, as they are in force: at most 200.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=200
	// +optional
	EffectiveSchedule []Duration `json:"effectiveSchedule,omitempty"`

	// attempts is how many attempts are made in all.
	// +optional
	Attempts *int32 `json:"attempts,omitempty"`

	// span is the time from the first attempt to the last, without jitter.
	// +optional
	Span Duration `json:"span,omitempty"`

	// endpoints is how many WebhookEndpoints use the policy.
	// +optional
	Endpoints *int32 `json:"endpoints,omitempty"`
}

// RetryPolicy says when failed deliveries are tried again. WebhookEndpoints of the same namespace name it in
// retryPolicyRef.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=retrypolicies,shortName=retry,categories=doorstep
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Accepted as it is"
// +kubebuilder:printcolumn:name="Attempts",type=integer,JSONPath=`.status.attempts`,description="Attempts in all"
// +kubebuilder:printcolumn:name="Span",type=string,JSONPath=`.status.span`,description="From the first attempt to the last"
// +kubebuilder:printcolumn:name="Endpoints",type=integer,JSONPath=`.status.endpoints`,description="WebhookEndpoints that use it"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || self.metadata.name.size() <= 63",message="metadata.name must be at most 63 characters; choose a shorter name",optionalOldSelf=true
type RetryPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says when a failed delivery is tried again, how often, and which answers are worth another attempt.
	// +required
	Spec RetryPolicySpec `json:"spec"`

	// status is what Doorstep reports about the policy.
	// +default={"observedGeneration":-1}
	// +optional
	Status RetryPolicyStatus `json:"status,omitzero"`
}

// RetryPolicyList is a list of RetryPolicies.
// +kubebuilder:object:root=true
type RetryPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []RetryPolicy `json:"items"`
}
