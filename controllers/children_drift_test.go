package controllers_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/test/cluster"
)

// drift is a change by someone else of an object of pool drifts.
type drift struct {
	object client.Object
	name   string
	change func(client.Object) // nil: it is deleted
}

func drifts() map[string]drift {
	set := func(change func(*appsv1.StatefulSet)) drift {
		return drift{&appsv1.StatefulSet{}, "drifts-worker", func(o client.Object) { change(o.(*appsv1.StatefulSet)) }}
	}
	service := func(name string, change func(*corev1.Service)) drift {
		return drift{&corev1.Service{}, name, func(o client.Object) { change(o.(*corev1.Service)) }}
	}
	ingest := func(change func(*corev1.Service)) drift { return service("drifts-ingest", change) }
	rows := map[string]drift{
		"StatefulSet replicas": set(func(s *appsv1.StatefulSet) { *s.Spec.Replicas = 0 }),
		"StatefulSet image":    set(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "evil" }),
		"StatefulSet args":     set(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Args = nil }),
		"StatefulSet port number": set(func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.Containers[0].Ports[0].ContainerPort = 1234
		}),
		"StatefulSet account": set(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.ServiceAccountName = "other" }),
		"StatefulSet claims are to be deleted": set(func(s *appsv1.StatefulSet) {
			s.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
		}),
		"Service port number":        ingest(func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 }),
		"Service port name":          ingest(func(s *corev1.Service) { s.Spec.Ports[0].Name = "other" }),
		"Service port protocol":      ingest(func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP }),
		"Service target port":        ingest(func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt(1) }),
		"Service selector":           ingest(func(s *corev1.Service) { s.Spec.Selector[v1alpha1.LabelPool] = "other" }),
		"Service type":               ingest(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }),
		"headless Service's number":  service("drifts-workers", func(s *corev1.Service) { s.Spec.Ports[0].Port = 1 }),
		"headless Service's unready": service("drifts-workers", func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = false }),
		"NetworkPolicy rules": {&networkingv1.NetworkPolicy{}, "drifts-worker", func(o client.Object) {
			o.(*networkingv1.NetworkPolicy).Spec.Egress = nil
		}},
		"NetworkPolicy selector": {&networkingv1.NetworkPolicy{}, "drifts-worker", func(o client.Object) {
			o.(*networkingv1.NetworkPolicy).Spec.PodSelector.MatchLabels[v1alpha1.LabelPool] = "other"
		}},
		"Role rules": {&rbacv1.Role{}, "drifts-worker", func(o client.Object) {
			r := o.(*rbacv1.Role)
			r.Rules = append(r.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}})
		}},
		"RoleBinding subjects": {&rbacv1.RoleBinding{}, "drifts-worker", func(o client.Object) {
			o.(*rbacv1.RoleBinding).Subjects[0].Name = "other"
		}},
	}
	// Of each kind: it is deleted, its labels are taken off or changed, and it loses its owner.
	for kind, d := range map[string]drift{
		"StatefulSet":      {object: &appsv1.StatefulSet{}, name: "drifts-worker"},
		"Service":          {object: &corev1.Service{}, name: "drifts-ingest"},
		"headless Service": {object: &corev1.Service{}, name: "drifts-workers"},
		"ServiceAccount":   {object: &corev1.ServiceAccount{}, name: "drifts-worker"},
		"Role":             {object: &rbacv1.Role{}, name: "drifts-worker"},
		"RoleBinding":      {object: &rbacv1.RoleBinding{}, name: "drifts-worker"},
		"NetworkPolicy":    {object: &networkingv1.NetworkPolicy{}, name: "drifts-worker"},
		"ConfigMap":        {object: &corev1.ConfigMap{}, name: "drifts-plan-acks"},
		"Lease":            {object: &coordinationv1.Lease{}, name: "drifts-worker-0"},
	} {
		rows[kind+" deleted"] = d
		d.change = func(o client.Object) { o.SetLabels(nil) }
		rows[kind+" without labels"] = d
		d.change = relabel
		rows[kind+" with another label"] = d
		switch kind {
		case "StatefulSet", "RoleBinding", "NetworkPolicy": // see TestAnOwnerThatCantBeSetAgain
			d.change = func(o client.Object) { o.SetOwnerReferences(nil) }
			rows[kind+" without owner"] = d
		}
	}
	return rows
}

func relabel(o client.Object) {
	l := maps.Clone(o.GetLabels())
	if l == nil {
		l = map[string]string{}
	}
	l[v1alpha1.LabelComponent] = "other"
	o.SetLabels(l)
}

// ours is what an object is like apart from what the API server decides.
func ours(t *testing.T, o client.Object) string {
	t.Helper()
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
		unstructured.RemoveNestedField(m, "metadata", field)
	}
	for _, field := range []string{"clusterIP", "clusterIPs"} {
		unstructured.RemoveNestedField(m, "spec", field)
	}
	delete(m, "status")
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// quiet waits a moment and names what the manager wrote in a namespace meanwhile.
func quiet(t *testing.T, namespace string, of time.Duration) map[string]int {
	t.Helper()
	since, err := world.Mark()
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(of)
	writes, err := world.Writes(since)
	if err != nil {
		t.Fatal(err)
	}
	var in []cluster.Request
	for _, w := range writes {
		if w.Namespace == namespace && strings.HasSuffix(w.User, ":doorstep-manager") {
			in = append(in, w)
		}
	}
	return cluster.Tally(in, cluster.Request.String)
}

// Whatever someone else changes of what the manager wrote is as it was a moment later, and
// then nothing more is written.
func TestDriftIsRepaired(t *testing.T) {
	ns := world.Namespace(t, "drift")
	apply(t, "apiVersion: doorstep.dev/v1alpha1\nkind: DeliveryPool\nmetadata: {name: drifts, namespace: "+ns+"}\nspec: {}\n")
	was := map[string]string{}
	rows := drifts()
	read := func(d drift) (client.Object, string) {
		o := d.object.DeepCopyObject().(client.Object)
		why := get(t, ns, d.name, o)
		return o, why
	}
	eventually(t, "all objects are there", func() (bool, string) {
		for name, d := range rows {
			o, why := read(d)
			if why != "" {
				return false, why
			}
			was[name] = ours(t, o)
		}
		return true, ""
	})
	for name, d := range rows {
		t.Run(name, func(t *testing.T) {
			eventually(t, "the change is made", func() (bool, string) {
				o, why := read(d)
				switch {
				case why != "":
				case d.change == nil:
					why = text(world.Client.Delete(t.Context(), o))
				default:
					d.change(o)
					if ours(t, o) == was[name] {
						t.Fatal("the row changes nothing")
					}
					why = text(world.Client.Update(t.Context(), o))
				}
				return why == "", why
			})
			eventually(t, "it is as it was", func() (bool, string) {
				o, why := read(d)
				if why != "" {
					return false, why
				}
				is := ours(t, o)
				return is == was[name], "different at " + difference(is, was[name])
			})
		})
	}
	if writes := quiet(t, ns, 3*time.Second); len(writes) > 0 {
		t.Errorf("after all is repaired, the manager writes %v", writes)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Of kinds that the manager may not delete it can't set the owner again where the API server
// is strict. All else is repaired all the same.
func TestAnOwnerThatCantBeSetAgain(t *testing.T) {
	ns := world.Namespace(t, "drift")
	apply(t, "apiVersion: doorstep.dev/v1alpha1\nkind: DeliveryPool\nmetadata: {name: orphans, namespace: "+ns+"}\nspec: {}\n")
	for name, o := range map[string]client.Object{
		"orphans-ingest": &corev1.Service{}, "orphans-plan-acks": &corev1.ConfigMap{}, "orphans-worker-0": &coordinationv1.Lease{},
		"orphans-worker": &rbacv1.Role{},
	} {
		eventually(t, name+" is there", func() (bool, string) { why := get(t, ns, name, o); return why == "", why })
		relabel(o)
		o.SetOwnerReferences(nil)
		if err := world.Client.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		eventually(t, name+" is labelled as before", func() (bool, string) {
			why := get(t, ns, name, o)
			return why == "" && o.GetLabels()[v1alpha1.LabelComponent] == v1alpha1.ComponentWorker, why + fmt.Sprint(o.GetLabels())
		})
	}
	var p v1alpha1.DeliveryPool
	if why := get(t, ns, "orphans", &p); why != "" {
		t.Fatal(why)
	}
	for _, c := range p.Status.Conditions {
		if c.Reason == v1alpha1.ReasonObjectsFailed {
			t.Errorf("the pool says %s", c.Message)
		}
	}
	if writes := quiet(t, ns, 2*time.Second); len(writes) > 0 {
		t.Errorf("after all is repaired, the manager writes %v", writes)
	}
}

// What a pool is bound to beside its namespace is repaired as well.
func TestDriftOfBindings(t *testing.T) {
	ns := world.Namespace(t, "drift")
	apply(t, "apiVersion: doorstep.dev/v1alpha1\nkind: DeliveryPool\nmetadata: {name: bound, namespace: "+ns+"}\nspec: {}\n")
	name := "doorstep-worker:" + ns + ":bound"
	bound := func() (*rbacv1.ClusterRoleBinding, string) {
		var b rbacv1.ClusterRoleBinding
		why := get(t, "", name, &b)
		if why == "" && (b.RoleRef.Name != v1alpha1.WorkerClusterRole || len(b.Subjects) != 1 || b.Subjects[0].Namespace != ns || b.Labels[v1alpha1.LabelPool] != "bound") {
			why = fmt.Sprint(b.RoleRef, b.Subjects, b.Labels)
		}
		return &b, why
	}
	there := func() (bool, string) { _, why := bound(); return why == "", why }
	eventually(t, "the binding is there", there)
	for what, change := range map[string]func(*rbacv1.ClusterRoleBinding) error{
		"subjects": func(b *rbacv1.ClusterRoleBinding) error {
			b.Subjects = append(b.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "evil"})
			return world.Client.Update(t.Context(), b)
		},
		"labels": func(b *rbacv1.ClusterRoleBinding) error {
			b.Labels = nil
			return world.Client.Update(t.Context(), b)
		},
		"deleted": func(b *rbacv1.ClusterRoleBinding) error { return world.Client.Delete(t.Context(), b) },
		"another role": func(b *rbacv1.ClusterRoleBinding) error {
			if err := world.Client.Delete(t.Context(), b); err != nil {
				return err
			}
			b.ResourceVersion, b.UID, b.RoleRef.Name = "", "", "view"
			return client.IgnoreAlreadyExists(world.Client.Create(t.Context(), b))
		},
	} {
		b, why := bound()
		if why != "" {
			t.Fatal(what, why)
		}
		if err := change(b); err != nil {
			t.Fatal(what, err)
		}
		eventually(t, "the binding is repaired after "+what, there)
	}
}

// A port that was repaired is still ours to take away: a pool that changes to https has no
// http port left.
func TestARepairedPortIsOurs(t *testing.T) {
	ns := world.Namespace(t, "drift")
	pool := func(spec string) {
		apply(t, "apiVersion: doorstep.dev/v1alpha1\nkind: DeliveryPool\nmetadata: {name: ports, namespace: "+ns+"}\nspec: "+spec+"\n")
	}
	ports := func(want string) func() (bool, string) {
		return func() (bool, string) {
			var s corev1.Service
			why := get(t, ns, "ports-ingest", &s)
			var is []string
			for _, p := range s.Spec.Ports {
				is = append(is, fmt.Sprint(p.Name, p.Port))
			}
			return why == "" && strings.Join(is, " ") == want, why + strings.Join(is, " ")
		}
	}
	pool("{}")
	eventually(t, "the Service is there", ports("http80"))
	var s corev1.Service
	if why := get(t, ns, "ports-ingest", &s); why != "" {
		t.Fatal(why)
	}
	address := s.Spec.ClusterIP
	s.Spec.Ports[0].Port = 81
	if err := world.Client.Update(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the port is as it was", ports("http80"))
	pool("{ingest: {tls: {secretRef: {name: none}}}}")
	eventually(t, "only https is left", ports("https443"))
	if get(t, ns, "ports-ingest", &s); s.Spec.ClusterIP != address {
		t.Errorf("the Service was made anew: its address changed from %s to %s", address, s.Spec.ClusterIP)
	}
}

// difference shows two texts where they begin to differ.
func difference(a, b string) string {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	part := func(s string) string { return s[max(0, i-60):min(len(s), i+120)] }
	return fmt.Sprintf("%q, not %q", part(a), part(b))
}
