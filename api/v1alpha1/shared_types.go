package v1alpha1

import (
	"fmt"
	"regexp"
	"time"
)

// The CEL rules that compare durations let a malformed one pass: the pattern below has spoken, and CEL's own message about
// a failed conversion helps nobody.

// Duration is a length of time as text: one to four numbers of up to five digits, each with a unit of h, m, s or ms,
// such as "15s" or "1h30m". It is kept exactly as it was written, so that GitOps tools see no difference.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=28
// +kubebuilder:validation:Pattern=`^([0-9]{1,5}(h|m|s|ms)){1,4}$`
type Duration string

// durationPattern is the pattern of the CRD, held again in Go. Everything it lets through fits a time.Duration with
// room to spare: the longest, four times 99999h, is 46 years of the 292 there are.
var durationPattern = regexp.MustCompile(`^([0-9]{1,5}(h|m|s|ms)){1,4}$`)

// Parse returns the length of time that d spells. The error says what a duration looks like; it is returned for an empty
// text and for everything else the CRD would refuse, so the result is never negative and never overflows.
func (d Duration) Parse() (time.Duration, error) {
	if !durationPattern.MatchString(string(d)) {
		return 0, fmt.Errorf("%q is not a duration: write numbers of up to five digits with h, m, s or ms, such as 15s or 1h30m", string(d))
	}
	v, err := time.ParseDuration(string(d))
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration: %w", string(d), err)
	}
	return v, nil
}

// ParseOr is Parse, but an empty d means unset.
func (d Duration) ParseOr(unset time.Duration) (time.Duration, error) {
	if d == "" {
		return unset, nil
	}
	return d.Parse()
}

// SecretKeyReference names one key of a Secret in the namespace of the object that holds the reference.
type SecretKeyReference struct {
	// name is the Secret's name, in the same namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +required
	Name string `json:"name"`

	// key is the key within the Secret's data.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	// +required
	Key string `json:"key"`
}

// SecretReference names a Secret in the namespace of the object that holds the reference.
type SecretReference struct {
	// name is the Secret's name, in the same namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +required
	Name string `json:"name"`
}

// CACertificateKind is a kind of object that holds certificates.
// +kubebuilder:validation:Enum=ConfigMap;Secret
type CACertificateKind string

const (
	// CACertificateKindConfigMap is a ConfigMap.
	CACertificateKindConfigMap CACertificateKind = "ConfigMap"
	// CACertificateKindSecret is a Secret.
	CACertificateKindSecret CACertificateKind = "Secret"
)

// CACertificateReference names one key, of a ConfigMap or a Secret in the namespace of the object that holds the
// reference, that holds certificates of authorities in PEM.
type CACertificateReference struct {
	// kind is what holds the certificates. Unset: ConfigMap.
	// +optional
	Kind CACertificateKind `json:"kind,omitempty"`

	// name is the object's name, in the same namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +required
	Name string `json:"name"`

	// key is the key within the object's data. Unset: ca.crt.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	// +optional
	Key string `json:"key,omitempty"`
}

// RetryPolicyReference names a RetryPolicy in the namespace of the object that holds the reference.
type RetryPolicyReference struct {
	// name is the RetryPolicy's name, in the same namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +required
	Name string `json:"name"`
}

// DeliveryPoolReference names a DeliveryPool of any namespace.
type DeliveryPoolReference struct {
	// name is the DeliveryPool's name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +required
	Name string `json:"name"`

	// namespace is the DeliveryPool's namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +required
	Namespace string `json:"namespace"`
}
