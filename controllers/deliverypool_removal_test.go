package controllers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/pool"
)

func poolManifest(namespace, name, spec string) string {
	return "apiVersion: doorstep.dev/v1alpha1\nkind: DeliveryPool\nmetadata: {name: " + name + ", namespace: " + namespace + "}\nspec: " + spec + "\n"
}

// poolSays waits until a pool's Ready has a reason, and gives its message.
func poolSays(t *testing.T, namespace, name, reason string) string {
	t.Helper()
	message := ""
	eventually(t, "DeliveryPool "+name+" says "+reason, func() (bool, string) {
		var p v1alpha1.DeliveryPool
		why := get(t, namespace, name, &p)
		i := slices.IndexFunc(p.Status.Conditions, func(c metav1.Condition) bool { return c.Type == v1alpha1.ConditionReady })
		if why != "" || i < 0 {
			return false, why
		}
		message = p.Status.Conditions[i].Message
		return p.Status.Conditions[i].Reason == reason, p.Status.Conditions[i].Reason + ": " + message
	})
	return message
}

// claimOf makes the claim that Kubernetes would make of a pool's template, bound.
func claimOf(t *testing.T, namespace, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	var set appsv1.StatefulSet
	eventually(t, "the StatefulSet is there", func() (bool, string) {
		why := get(t, namespace, v1alpha1.WorkerName(name), &set)
		return why == "", why
	})
	template := set.Spec.VolumeClaimTemplates[0]
	if len(template.OwnerReferences) > 0 {
		t.Errorf("the claim's template has owners: %v", template.OwnerReferences)
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.QueuePVCName(name, 0), Labels: template.Labels}, Spec: template.Spec,
	}
	claim.Spec.VolumeName = "pv-" + name
	if err := world.Client.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	claim.Status.Phase, claim.Status.Capacity = corev1.ClaimBound, claim.Spec.Resources.Requests
	if err := world.Client.Status().Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	return claim
}

// case GO188: a pool that is deleted, in cascade too, leaves its claim and says how much is in
// it; made again, it finds it.
func TestAQueueOutlivesItsPool(t *testing.T) {
	ns := world.Namespace(t, "kept")
	apply(t, poolManifest(ns, "p", "{}"))
	claim := claimOf(t, ns, "p")
	var p v1alpha1.DeliveryPool
	if why := get(t, ns, "p", &p); why != "" {
		t.Fatal(why)
	}
	before := p.DeepCopy()
	waiting, dead := int64(1000), int64(3)
	p.Status.Queue = &v1alpha1.QueueStatus{Waiting: &waiting, DeadLettered: &dead}
	if err := world.Client.Status().Patch(t.Context(), &p, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if len(p.Finalizers) > 0 {
		t.Errorf("the pool can't be deleted before %v", p.Finalizers)
	}
	var set appsv1.StatefulSet
	if why := get(t, ns, "p-worker", &set); why != "" {
		t.Fatal(why)
	}
	if r := set.Spec.PersistentVolumeClaimRetentionPolicy; r.WhenDeleted != appsv1.RetainPersistentVolumeClaimRetentionPolicyType || r.WhenScaled != r.WhenDeleted {
		t.Errorf("claims are treated as %v", r)
	}
	owners := []types.UID{p.UID, set.UID}
	eventually(t, "the manager has seen the count", func() (bool, string) {
		return world.Client.Delete(t.Context(), &p) == nil, ""
	})
	// What the garbage collector does: all that the pool, or what it owned, owns goes.
	for name, o := range map[string]client.Object{"p-worker": &set, claim.Name: claim, "p-ingest": &corev1.Service{}} {
		if why := get(t, ns, name, o); why != "" {
			t.Fatal(why)
		}
		owned := slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return slices.Contains(owners, r.UID) })
		if owned == (name == claim.Name) {
			t.Errorf("%s is owned by %v", name, o.GetOwnerReferences())
		}
		if owned {
			if err := world.Client.Delete(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, "an Event says that the queue is kept", func() (bool, string) {
		var list corev1.EventList
		if err := world.Client.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
			return false, err.Error()
		}
		for _, e := range list.Items {
			if e.Reason == "QueueKept" && e.InvolvedObject.Name == claim.Name {
				return strings.Contains(e.Message, "1000 deliveries waiting and 3 dead letters"), e.Message
			}
		}
		return false, "no Event"
	})
	if why := get(t, ns, "p", &p); why == "" {
		t.Fatal("the pool is there")
	}
	apply(t, poolManifest(ns, "p", "{}"))
	eventually(t, "its StatefulSet is there again", func() (bool, string) {
		var again appsv1.StatefulSet
		why := get(t, ns, "p-worker", &again)
		return why == "" && again.UID != set.UID, why
	})
	was := claim.UID
	if why := get(t, ns, v1alpha1.QueuePVCName("p", 0), claim); why != "" || claim.UID != was {
		t.Errorf("the claim isn't the same: %s", why)
	}
}

// What is not wanted any more is removed if it is the pool's, and only then.
func TestAnUnwantedNetworkPolicy(t *testing.T) {
	ns := world.Namespace(t, "none")
	apply(t, poolManifest(ns, "p", "{}"))
	var n networkingv1.NetworkPolicy
	eventually(t, "the NetworkPolicy is there", func() (bool, string) { why := get(t, ns, "p-worker", &n); return why == "", why })
	apply(t, poolManifest(ns, "p", "{networkPolicy: None}"))
	eventually(t, "it is gone", func() (bool, string) { return get(t, ns, "p-worker", &n) != "", "" })
	theirs := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p-worker", Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelPool: "p"}}}
	if err := world.Client.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	apply(t, poolManifest(ns, "p", "{networkPolicy: None, suspend: true}"))
	eventually(t, "the change is seen", func() (bool, string) {
		var p v1alpha1.DeliveryPool
		why := get(t, ns, "p", &p)
		return p.Status.ObservedGeneration == p.Generation, why
	})
	if why := get(t, ns, "p-worker", &n); why != "" {
		t.Errorf("somebody else's NetworkPolicy: %s", why)
	}
}

// An object that is there and isn't Doorstep's is left alone, and the pool says so until it
// is gone.
func TestANameThatIsTaken(t *testing.T) {
	ns := world.Namespace(t, "taken")
	theirs := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p-ingest"}}
	theirs.Spec.Ports = []corev1.ServicePort{{Name: "mine", Port: 1234}}
	if err := world.Client.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	apply(t, poolManifest(ns, "p", "{}"))
	if m := poolSays(t, ns, "p", v1alpha1.ReasonNameTaken); !strings.Contains(m, "Service "+ns+"/p-ingest exists and is not Doorstep's") {
		t.Errorf("it says %s", m)
	}
	if why := get(t, ns, "p-ingest", theirs); why != "" || len(theirs.Spec.Ports) != 1 || theirs.Spec.Ports[0].Port != 1234 || len(theirs.Labels) > 0 {
		t.Errorf("the Service was changed: %s %v %v", why, theirs.Labels, theirs.Spec.Ports)
	}
	if err := world.Client.Delete(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	poolSays(t, ns, "p", v1alpha1.ReasonProgressing)
}

// case CR162, CR164: a class that does not expand is told of, and a claim that somebody made
// larger is left as it is.
func TestAVolumeThatCantGrow(t *testing.T) {
	ns := world.Namespace(t, "fixed")
	if err := world.Client.Create(t.Context(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fixed"}, Provisioner: "example.com/x"}); err != nil {
		t.Fatal(err)
	}
	size := func(s string) string {
		return "{store: {type: Embedded, embedded: {size: " + s + ", storageClassName: fixed}}}"
	}
	apply(t, poolManifest(ns, "p", size("1Gi")))
	claim := claimOf(t, ns, "p")
	apply(t, poolManifest(ns, "p", size("2Gi")))
	if m := poolSays(t, ns, "p", v1alpha1.ReasonVolumeNotExpandable); !strings.Contains(m, "StorageClass fixed does not have allowVolumeExpansion") {
		t.Errorf("it says %s", m)
	}
	yes := true
	var class storagev1.StorageClass
	if why := get(t, "", "fixed", &class); why != "" {
		t.Fatal(why)
	}
	class.AllowVolumeExpansion = &yes
	if err := world.Client.Update(t.Context(), &class); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the claim is larger than the pool says", func() (bool, string) {
		if why := get(t, ns, claim.Name, claim); why != "" {
			return false, why
		}
		claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("5Gi")
		why := text(world.Client.Update(t.Context(), claim))
		return why == "", why
	})
	poolSays(t, ns, "p", v1alpha1.ReasonProgressing)
	if why := get(t, ns, claim.Name, claim); why != "" {
		t.Fatal(why)
	}
	if q := claim.Spec.Resources.Requests[corev1.ResourceStorage]; q.String() != "5Gi" {
		t.Errorf("the claim asks for %s", q.String())
	}
}

// definition is a kind of another project, with any content.
func definition(group, version, kind, plural string) string {
	return fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[4]s.%[1]s, annotations: {api-approved.kubernetes.io: "unapproved, of a test"}}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: %[3]s, plural: %[4]s}
  versions: [{name: %[2]s, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`, group, version, kind, plural)
}

// A ServiceMonitor is there while its kind is, and a grant is in force at once while its kind
// is.
func TestKindsThatComeAndGo(t *testing.T) {
	ns := world.Namespace(t, "kinds")
	apply(t, poolManifest(ns, "p", "{monitoring: {interval: 7s}}"))
	monitors := definition("monitoring.coreos.com", "v1", pool.ServiceMonitorKind, "servicemonitors")
	for range 2 {
		apply(t, monitors)
		m := &unstructured.Unstructured{}
		m.SetGroupVersionKind(schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: pool.ServiceMonitorKind})
		eventually(t, "a ServiceMonitor is there", func() (bool, string) { why := get(t, ns, "p-worker", m); return why == "", why })
		if err := world.Client.Delete(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is there again", func() (bool, string) { why := get(t, ns, "p-worker", m); return why == "", why })
		d := &metav1.PartialObjectMetadata{}
		d.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		d.SetName("servicemonitors.monitoring.coreos.com")
		if err := world.Client.Delete(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the kind is gone", func() (bool, string) { return get(t, "", d.Name, d) != "", "" })
		// Without it the pool is made all the same.
		apply(t, poolManifest(ns, "p", "{monitoring: {interval: 8s}}"))
		poolSays(t, ns, "p", v1alpha1.ReasonProgressing)
		apply(t, poolManifest(ns, "p", "{monitoring: {interval: 7s}}"))
	}

	from, to := world.Namespace(t, "kinds"), world.Namespace(t, "kinds")
	apply(t, "apiVersion: v1\nkind: Service\nmetadata: {name: receiver, namespace: "+to+"}\nspec: {selector: {app: x}, ports: [{port: 80}]}\n---\n"+
		"apiVersion: doorstep.dev/v1alpha1\nkind: WebhookEndpoint\nmetadata: {name: e, namespace: "+from+"}\nspec: {serviceRef: {name: receiver, namespace: "+to+", port: 80, scheme: HTTP}}\n")
	ready(t, from, "e", metav1.ConditionFalse, v1alpha1.ReasonRefNotPermitted)
	apply(t, definition("gateway.networking.k8s.io", "v1beta1", "ReferenceGrant", "referencegrants"))
	grant := "apiVersion: gateway.networking.k8s.io/v1beta1\nkind: ReferenceGrant\nmetadata: {name: g, namespace: " + to + "}\nspec: {from: [{group: doorstep.dev, kind: WebhookEndpoint, namespace: " + from + "}], to: [{group: \"\", kind: Service}]}\n"
	eventually(t, "the grant is there", func() (bool, string) { why := text(world.Apply(t.Context(), grant)); return why == "", why })
	eventually(t, "the grant is in force", func() (bool, string) {
		e := endpoint(t, from, "e")
		for _, c := range e.Status.Conditions {
			if c.Reason == v1alpha1.ReasonRefNotPermitted {
				return false, c.Message
			}
		}
		return true, ""
	})
	g := &unstructured.Unstructured{}
	g.SetGroupVersionKind(schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1beta1", Kind: "ReferenceGrant"})
	g.SetNamespace(to)
	g.SetName("g")
	if err := world.Client.Delete(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	ready(t, from, "e", metav1.ConditionFalse, v1alpha1.ReasonRefNotPermitted)
}
