package v1alpha1

// Condition types. Ready, Reconciling and Stalled follow kstatus and speak of the object; Delivering and Healthy speak of
// an endpoint's traffic, and never make Ready false.
const (
	// ConditionReady is True once the object is accepted, its references resolve and it is live on the pool's workers.
	ConditionReady = "Ready"
	// ConditionReconciling is True while Ready is False for something that may still come, such as a missing Secret.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True while Ready is False and only an edit can help.
	ConditionStalled = "Stalled"
	// ConditionDelivering says what the endpoint's lane does; its reason is one of the Lane reasons.
	ConditionDelivering = "Delivering"
	// ConditionStorePressure, of a DeliveryPool, is True while its volume has little room left.
	ConditionStorePressure = "StorePressure"
	// ConditionHealthy says what the receiver answers.
	ConditionHealthy = "Healthy"
)

// Reasons of Ready=True, and of Ready=False with Reconciling: what is missing may come late.
const (
	// ReasonAccepted means that the object is accepted and resolved.
	ReasonAccepted = "Accepted"
	// ReasonProgressing means that a pass over the object is under way.
	ReasonProgressing = "Progressing"
	// ReasonSecretNotFound means that a Secret the object refers to does not exist.
	ReasonSecretNotFound = "SecretNotFound"
	// ReasonConfigMapNotFound means that a ConfigMap the object refers to does not exist.
	ReasonConfigMapNotFound = "ConfigMapNotFound"
	// ReasonRetryPolicyNotFound means that the RetryPolicy of retryPolicyRef does not exist.
	ReasonRetryPolicyNotFound = "RetryPolicyNotFound"
	// ReasonServiceNotFound means that the Service of serviceRef does not exist, or has no address yet.
	ReasonServiceNotFound = "ServiceNotFound"
	// ReasonPoolNotFound means that the DeliveryPool of the endpoint does not exist.
	ReasonPoolNotFound = "PoolNotFound"
	// ReasonPoolNotReady means that the DeliveryPool of the endpoint has no worker that takes its plan yet.
	ReasonPoolNotReady = "PoolNotReady"
	// ReasonPlanPending means that the endpoint is resolved, and not all workers have it yet.
	ReasonPlanPending = "PlanPending"
	// ReasonNamespaceNotAllowed means that the DeliveryPool does not admit the endpoint's namespace.
	ReasonNamespaceNotAllowed = "NamespaceNotAllowed"
	// ReasonPoolUnavailable, with Ready=Unknown, means that no worker of the DeliveryPool was heard of for minutes.
	ReasonPoolUnavailable = "PoolUnavailable"
)

// Reasons of Ready=False with Stalled: the object waits for an edit, of itself or of what it refers to.
const (
	// ReasonSecretKeyMissing means that a Secret exists without the key that secretKeyRef names.
	ReasonSecretKeyMissing = "SecretKeyMissing"
	// ReasonKeyInvalid means that a signing key's text is not a key of the endpoint's scheme.
	ReasonKeyInvalid = "KeyInvalid"
	// ReasonRotationPending means that a key has a new value which does not sign yet, since as many former values as may
	// are still signing. The endpoint is not held.
	ReasonRotationPending = "RotationPending"
	// ReasonFilterInvalid means that filter can't be compiled, or costs too much.
	ReasonFilterInvalid = "FilterInvalid"
	// ReasonCertificateInvalid means that a certificate or its key can't be read.
	ReasonCertificateInvalid = "CertificateInvalid"
	// ReasonURLInvalid means that url can't be requested.
	ReasonURLInvalid = "URLInvalid"
	// ReasonRetryPolicyInvalid means that a RetryPolicy, or the one of an endpoint or a pool, can't be used.
	ReasonRetryPolicyInvalid = "RetryPolicyInvalid"
	// ReasonRefNotPermitted means that an object of another namespace is referred to without its consent.
	ReasonRefNotPermitted = "RefNotPermitted"
	// ReasonServiceUnusable means that the Service of serviceRef can't be posted to: of type ExternalName, headless, without
	// selector or without that port.
	ReasonServiceUnusable = "ServiceUnusable"
	// ReasonPlanEntryTooLarge means that the endpoint, with its certificates, takes too much room in the plan.
	ReasonPlanEntryTooLarge = "PlanEntryTooLarge"
	// ReasonPlanFull means that the plan of the DeliveryPool has no room for the endpoint; of a DeliveryPool, that it has none
	// for some of its endpoints. All others go on.
	ReasonPlanFull = "PlanFull"
	// ReasonSpecInvalid means that a field without a reason of its own is out of its range. The API server refuses such
	// objects; this is for those that came past it.
	ReasonSpecInvalid = "SpecInvalid"
)

// Reasons of Delivering: the states of an endpoint's lane, and why deliveries are held beside them.
const (
	// ReasonActive means that deliveries are attempted as they fall due.
	ReasonActive = "Active"
	// ReasonBackingOff means that the receiver fails: one attempt at a time, after growing pauses.
	ReasonBackingOff = "BackingOff"
	// ReasonRejecting is BackingOff after a run of 401, 403, 404, 405 or 407; such answers dead-letter nothing meanwhile.
	ReasonRejecting = "Rejecting"
	// ReasonAuthFailed means that no OAuth2 token can be had for the endpoint; no attempt is burnt meanwhile.
	ReasonAuthFailed = "AuthFailed"
	// ReasonDraining means that the receiver is back and waiting deliveries are brought forward, ramped up.
	ReasonDraining = "Draining"
	// ReasonDisabled means that nothing is attempted until the endpoint is enabled or its spec changes.
	ReasonDisabled = "Disabled"
	// ReasonSuspended means that suspend is set on the endpoint or its pool.
	ReasonSuspended = "Suspended"
	// ReasonUnresolved means that the endpoint is not usable as it is (Ready says why); its deliveries are held.
	ReasonUnresolved = "Unresolved"
	// ReasonEndpointMissing means that the endpoint was deleted and its deliveries wait for it to be made again.
	ReasonEndpointMissing = "EndpointMissing"
	// ReasonNotInPlan means that the endpoint is absent without having been deleted; its deliveries are held.
	ReasonNotInPlan = "NotInPlan"
)

// Reasons of Healthy.
const (
	// ReasonSucceeding means that the receiver answers 2xx to as many attempts as it should.
	ReasonSucceeding = "Succeeding"
	// ReasonDegraded means that fewer attempts than that succeeded, over 5 minutes and over an hour.
	ReasonDegraded = "Degraded"
	// ReasonNoAttempts means that there was no attempt in 24 hours.
	ReasonNoAttempts = "NoAttempts"
)

// Reasons of StorePressure.
const (
	// ReasonEnoughSpace means that the volume has room.
	ReasonEnoughSpace = "EnoughSpace"
	// ReasonLowSpace means that free space is near the reserve under which no more events are taken.
	ReasonLowSpace = "LowSpace"
)

// Reasons of a DeliveryPool's Ready=False.
const (
	// ReasonVolumePending means that the volume of the store is not there yet.
	ReasonVolumePending = "VolumePending"
	// ReasonVolumeNotExpandable means that the volume can't be made as large as store.embedded.size says.
	ReasonVolumeNotExpandable = "VolumeNotExpandable"
	// ReasonQuotaExceeded means that a ResourceQuota keeps the volume from becoming as large as store.embedded.size says.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonWorkerUnavailable means that no worker of the pool was heard of for a minute, or that none has ever come up.
	ReasonWorkerUnavailable = "WorkerUnavailable"
	// ReasonWorkerFailed means that no worker was heard of for five minutes, for a cause that does not pass by itself, such
	// as an image that can't be had or a program that ends again and again.
	ReasonWorkerFailed = "WorkerFailed"
	// ReasonUpdateStuck means that a worker is there, and its update to another image has not come to an end for ten minutes.
	ReasonUpdateStuck = "UpdateStuck"
	// ReasonNameTaken means that an object that the pool needs exists under its name and is somebody else's.
	ReasonNameTaken = "NameTaken"
	// ReasonObjectsFailed means that objects of the pool can't be made.
	ReasonObjectsFailed = "ObjectsFailed"
)

// Stalls reports whether a reason of Ready=False means that only an edit can help, or that there was no progress within a
// deadline, so that kstatus counts the object as failed; for every other the object is under way.
func Stalls(reason string) bool {
	switch reason {
	case ReasonSecretKeyMissing, ReasonKeyInvalid, ReasonFilterInvalid, ReasonCertificateInvalid, ReasonURLInvalid,
		ReasonRetryPolicyInvalid, ReasonRefNotPermitted, ReasonServiceUnusable, ReasonPlanEntryTooLarge, ReasonSpecInvalid,
		ReasonNamespaceNotAllowed, ReasonVolumeNotExpandable, ReasonPlanFull, ReasonWorkerFailed, ReasonUpdateStuck, ReasonNameTaken:
		return true
	}
	return false
}
