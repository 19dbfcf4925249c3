// Package v1alpha1 is Doorstep's Kubernetes API, group doorstep.dev: the kinds a platform or application team writes as
// YAML, the condition types and reasons Doorstep answers with, and the values that hold where a field is unset.
//
// It promises that what the CRDs refuse is refused with the field and the way out in words, and that no value is ever
// written into a user's spec: every default is a constant of this package, applied by the code that reads the field.
// Fields are only ever added. The package holds no behaviour beyond parsing its own string types and depends on
// apimachinery alone.
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +kubebuilder:ac:output:package=applyconfiguration
// +groupName=doorstep.dev
package v1alpha1
