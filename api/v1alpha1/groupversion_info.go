package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of every Doorstep kind.
const GroupName = "doorstep.dev"

// The kinds of this version, as written in manifests.
const (
	KindWebhookEndpoint = "WebhookEndpoint"
	KindRetryPolicy     = "RetryPolicy"
	KindDeliveryPool    = "DeliveryPool"
)

var (
	// GroupVersion is doorstep.dev/v1alpha1.
	GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

	// SchemeGroupVersion is GroupVersion under the name that generated code looks for.
	SchemeGroupVersion = GroupVersion

	// SchemeBuilder collects the functions that add this version to a scheme.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme adds every kind of this version to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

// Resource returns the group-qualified name of a resource of this group.
func Resource(resource string) schema.GroupResource {
	return GroupVersion.WithResource(resource).GroupResource()
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&WebhookEndpoint{}, &WebhookEndpointList{},
		&RetryPolicy{}, &RetryPolicyList{},
		&DeliveryPool{}, &DeliveryPoolList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
