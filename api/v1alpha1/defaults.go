package v1alpha1

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// What holds where a field is unset. Nothing writes these values into a spec.
const (
	// DefaultTimeout is spec.timeout of a WebhookEndpoint.
	DefaultTimeout = 15 * time.Second
	// DefaultEndpointMaxInFlight is spec.maxInFlight of a WebhookEndpoint.
	DefaultEndpointMaxInFlight int32 = 16
	// DefaultSignatureScheme is spec.signing.scheme of a WebhookEndpoint.
	DefaultSignatureScheme = SignatureSchemeStandardWebhooks

	// DefaultRequestBody is spec.body of a WebhookEndpoint.
	DefaultRequestBody = RequestBodyEvent
	// DefaultOrdering is spec.ordering of a WebhookEndpoint.
	DefaultOrdering = OrderingNone
	// DefaultRateInterval is spec.rateLimit.interval of a WebhookEndpoint.
	DefaultRateInterval = time.Second
	// DefaultRotationOverlap is spec.signing.rotationOverlap of a WebhookEndpoint.
	DefaultRotationOverlap = 24 * time.Hour
	// DefaultHMACContent is spec.signing.hmac.content of a WebhookEndpoint.
	DefaultHMACContent = "{body}"
	// DefaultCACertificateKey is the key of a CACertificateReference.
	DefaultCACertificateKey = "ca.crt"

	// DefaultMaxAge is spec.maxAge of a RetryPolicy.
	DefaultMaxAge = 72 * time.Hour
	// DefaultJitterType is spec.jitter.type of a RetryPolicy without jitter.
	DefaultJitterType = JitterProportional
	// DefaultJitterPercent is spec.jitter.percent of a RetryPolicy, where the type is Proportional.
	DefaultJitterPercent int32 = 10
	// DefaultRetryAfterPolicy is spec.retryAfter.policy of a RetryPolicy.
	DefaultRetryAfterPolicy = RetryAfterHonor
	// DefaultRetryAfterMax is spec.retryAfter.max of a RetryPolicy, where the policy is Honor.
	DefaultRetryAfterMax = 6 * time.Hour
	// DefaultOnRecovery is spec.onRecovery of a RetryPolicy.
	DefaultOnRecovery = OnRecoveryExpedite

	// DefaultPoolName is the DeliveryPool of an endpoint without poolRef.
	DefaultPoolName = "default"
	// DefaultMaxPayloadBytes is spec.ingest.maxPayloadBytes of a DeliveryPool: 256 KiB.
	DefaultMaxPayloadBytes int32 = 256 << 10
	// DefaultDedupeWindow is spec.ingest.dedupeWindow of a DeliveryPool.
	DefaultDedupeWindow = 24 * time.Hour
	// DefaultPoolMaxInFlight is spec.limits.maxInFlight of a DeliveryPool.
	DefaultPoolMaxInFlight int32 = 512
	// DefaultNamespaceWaitingBytesPercent is spec.limits.perNamespace.waitingBytesPercent of a DeliveryPool.
	DefaultNamespaceWaitingBytesPercent int32 = 50
	// DefaultEndpointWaitingBytesPercent is spec.limits.perEndpoint.waitingBytesPercent of a DeliveryPool.
	DefaultEndpointWaitingBytesPercent int32 = 25
	// DefaultMaxBytesPercent is how much of its volume the store of a DeliveryPool without spec.retention.maxBytes uses.
	DefaultMaxBytesPercent int32 = 60
	// DefaultPayloadRetention is spec.retention.payloads of a DeliveryPool.
	DefaultPayloadRetention = PayloadsWithRecord
	// DefaultResponseBodyRetention is spec.retention.responseBodies of a DeliveryPool.
	DefaultResponseBodyRetention = ResponseBodiesOnFailure
	// DefaultRetainDelivered is spec.retention.delivered of a DeliveryPool.
	DefaultRetainDelivered = 72 * time.Hour
	// DefaultRetainDeadLetters is spec.retention.deadLetters of a DeliveryPool.
	DefaultRetainDeadLetters = 720 * time.Hour
)

// DefaultSchedule returns the delays after the first, second … failure where backoff is unset: seven attempts in all,
// spread over 36 h 36 m, which leaves room within DefaultMaxAge.
func DefaultSchedule() []time.Duration {
	return []time.Duration{
		60 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 10 * time.Hour, 24 * time.Hour,
	}
}

// DefaultRetryResponses returns spec.responses.retry of a RetryPolicy where that list is unset.
func DefaultRetryResponses() []ResponsePattern {
	return []ResponsePattern{"3xx", "408", "409", "425", "429", "5xx"}
}

// DefaultDisableResponses returns spec.responses.disable of a RetryPolicy where that list is unset.
func DefaultDisableResponses() []ResponsePattern {
	return []ResponsePattern{"410"}
}

// DefaultStoreSize returns spec.store.embedded.size of a DeliveryPool where it is unset.
func DefaultStoreSize() resource.Quantity { return resource.MustParse("10Gi") }
