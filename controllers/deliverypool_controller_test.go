package controllers_test

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

// get reads an object; "" for no error.
func get(t *testing.T, namespace, name string, o client.Object) string {
	if err := world.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, o); err != nil {
		return err.Error()
	}
	return ""
}

func TestAPoolsObjectsAreMadeAndRepaired(t *testing.T) {
	var service corev1.Service
	eventually(t, "the Service of ingest is there", func() (bool, string) {
		why := get(t, system, "default-ingest", &service)
		return why == "", why
	})
	uid := service.UID
	service.Spec.Ports[0].TargetPort = intstr.FromInt(1)
	delete(service.Labels, v1alpha1.LabelPool)
	if err := world.Client.Update(t.Context(), &service); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Service is as it was", func() (bool, string) {
		why := get(t, system, "default-ingest", &service)
		ports := service.Spec.Ports
		repaired := service.UID == uid && service.Labels[v1alpha1.LabelPool] == "default" && len(ports) == 1 && ports[0].TargetPort.String() == "ingest"
		return why == "" && repaired, fmt.Sprint(why, service.Labels, ports)
	})
}

// case CR162, CR164: the claim is asked for more, and the StatefulSet is made anew around
// its pods; a claim that is larger is left alone.
func TestAVolumeGrows(t *testing.T) {
	yes, class := true, "growing"
	if err := world.Client.Create(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: "example.com/x", AllowVolumeExpansion: &yes}); err != nil {
		t.Fatal(err)
	}
	manifest := func(size string) string {
		return `
apiVersion: doorstep.dev/v1alpha1
kind: DeliveryPool
metadata: {name: grows, namespace: doorstep-system}
spec: {store: {type: Embedded, embedded: {size: ` + size + `, storageClassName: ` + class + `}}}
`
	}
	apply(t, manifest("1Gi"))
	var set appsv1.StatefulSet
	eventually(t, "the StatefulSet is there", func() (bool, string) { why := get(t, system, "grows-worker", &set); return why == "", why })
	first := set.UID
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "queue-grows-worker-0", Labels: set.Spec.VolumeClaimTemplates[0].Labels},
		Spec:       set.Spec.VolumeClaimTemplates[0].Spec,
	}
	claim.Spec.VolumeName = "pv-grows"
	if err := world.Client.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	claim.Status.Phase = corev1.ClaimBound
	claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	if err := world.Client.Status().Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	apply(t, manifest("3Gi"))
	eventually(t, "the StatefulSet is made anew with the larger claim", func() (bool, string) {
		if why := get(t, system, "grows-worker", &set); why != "" {
			return false, why
		}
		if set.DeletionTimestamp != nil { // what the garbage collector does once the pods are orphaned
			set.Finalizers = nil
			_ = world.Client.Update(t.Context(), &set)
			return false, "being removed"
		}
		size := set.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests[corev1.ResourceStorage]
		return set.UID != first && size.String() == "3Gi", size.String()
	})
	if why := get(t, system, claim.Name, claim); why != "" {
		t.Fatal(why)
	}
	if size := claim.Spec.Resources.Requests[corev1.ResourceStorage]; size.String() != "3Gi" {
		t.Errorf("the claim asks for %s", size.String())
	}
	var p v1alpha1.DeliveryPool
	if why := get(t, system, "grows", &p); why != "" {
		t.Fatal(why)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == v1alpha1.ConditionReady && c.Reason == v1alpha1.ReasonObjectsFailed {
			t.Errorf("the pool says %s: %s", c.Reason, c.Message)
		}
	}
}

func TestARetryPolicySaysWhatItComesTo(t *testing.T) {
	namespace(t, "policies")
	apply(t, `
apiVersion: doorstep.dev/v1alpha1
kind: RetryPolicy
metadata: {name: quick, namespace: policies}
spec: {backoff: {exponential: {initial: 10s, factor: 3, max: 1m, maxAttempts: 4}}}
---
apiVersion: doorstep.dev/v1alpha1
kind: WebhookEndpoint
metadata: {name: orders, namespace: policies}
spec: {url: "https://hooks.example.com/", retryPolicyRef: {name: quick}}
`)
	var p v1alpha1.RetryPolicy
	eventually(t, "the policy's status is complete", func() (bool, string) {
		why := get(t, "policies", "quick", &p)
		s := p.Status
		done := s.Endpoints != nil && *s.Endpoints == 1 && s.Attempts != nil && *s.Attempts == 4 && s.Span == "1m40s" && fmt.Sprint(s.EffectiveSchedule) == "[10s 30s 1m]"
		return why == "" && done, fmt.Sprintf("%s %+v", why, s)
	})
	ready(t, "policies", "orders", metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	if err := world.Client.Delete(t.Context(), &p); err != nil {
		t.Fatal(err)
	}
	ready(t, "policies", "orders", metav1.ConditionFalse, v1alpha1.ReasonRetryPolicyNotFound)
}

// The default pool is made once, and is its owner's from then on.
func TestTheDefaultPoolIsMadeOnce(t *testing.T) {
	var mark corev1.ConfigMap
	eventually(t, "it is noted that the pool was made", func() (bool, string) { why := get(t, system, "doorstep-default-pool", &mark); return why == "", why })
	if why := get(t, system, "default", &v1alpha1.DeliveryPool{}); why != "" {
		t.Error(why)
	}
}
