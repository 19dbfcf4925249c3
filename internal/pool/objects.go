package pool

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	applyapps "k8s.io/client-go/applyconfigurations/apps/v1"
	applycoordination "k8s.io/client-go/applyconfigurations/coordination/v1"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"
	applynetworking "k8s.io/client-go/applyconfigurations/networking/v1"
	applyrbac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

// The ports of a worker (DESIGN.md §3), and their names.
const (
	PortIngest  = 8080
	PortProbes  = 8082
	PortMetrics = 9090

	portNameIngest  = "ingest"
	portNameProbes  = "probes"
	portNameMetrics = "metrics"
)

// Settings are what a pool's objects depend on beside the DeliveryPool.
type Settings struct {
	// Image is the workers' image.
	Image string
	// Namespaces are those that the manager watches; empty: all.
	Namespaces []string
	// ServiceMonitor is set where that kind exists in the cluster.
	ServiceMonitor bool
	// ClaimSize is the size in the claim template, which can't be changed in place; nil: the
	// pool's.
	ClaimSize *resource.Quantity
	// Restart is the text of the annotation that last restarted the workers; empty: none did.
	Restart string
}

// Objects are the objects of one pool, in the order in which they are applied.
type Objects struct {
	ServiceAccount *applycore.ServiceAccountApplyConfiguration
	Role           *applyrbac.RoleApplyConfiguration
	RoleBindings   []*applyrbac.RoleBindingApplyConfiguration
	// ClusterRoleBinding is nil where the manager watches namespaces of its own.
	ClusterRoleBinding *applyrbac.ClusterRoleBindingApplyConfiguration
	Acks               *applycore.ConfigMapApplyConfiguration
	Lease              *applycoordination.LeaseApplyConfiguration
	Services           []*applycore.ServiceApplyConfiguration
	// NetworkPolicy is nil with networkPolicy None.
	NetworkPolicy *applynetworking.NetworkPolicyApplyConfiguration
	// ServiceMonitor is nil where that kind does not exist.
	ServiceMonitor runtime.ApplyConfiguration
	StatefulSet    *applyapps.StatefulSetApplyConfiguration
}

// Build gives the objects of a pool.
func Build(p *v1alpha1.DeliveryPool, s Settings) Objects {
	b := builder{pool: p, settings: s}
	o := Objects{
		ServiceAccount: b.serviceAccount(),
		Role:           b.role(),
		RoleBindings:   b.roleBindings(),
		Acks:           applycore.ConfigMap(v1alpha1.PlanAcksName(p.Name), p.Namespace).WithLabels(b.labels()).WithOwnerReferences(b.owner()),
		Lease:          applycoordination.Lease(v1alpha1.WorkerPodName(p.Name, 0), p.Namespace).WithLabels(b.labels()).WithOwnerReferences(b.owner()),
		Services:       []*applycore.ServiceApplyConfiguration{b.ingestService(), b.workersService()},
		StatefulSet:    b.statefulSet(),
	}
	if len(s.Namespaces) == 0 {
		o.ClusterRoleBinding = b.clusterRoleBinding()
	}
	if p.Spec.NetworkPolicy != v1alpha1.NetworkPolicyNone {
		o.NetworkPolicy = b.networkPolicy()
	}
	if s.ServiceMonitor {
		o.ServiceMonitor = client.ApplyConfigurationFromUnstructured(b.serviceMonitor())
	}
	return o
}

// All lists the objects in the order in which they are applied: the StatefulSet last.
func (o Objects) All() []runtime.ApplyConfiguration {
	out := []runtime.ApplyConfiguration{o.ServiceAccount, o.Role}
	for _, b := range o.RoleBindings {
		out = append(out, b)
	}
	if o.ClusterRoleBinding != nil {
		out = append(out, o.ClusterRoleBinding)
	}
	out = append(out, o.Acks, o.Lease)
	for _, s := range o.Services {
		out = append(out, s)
	}
	if o.NetworkPolicy != nil {
		out = append(out, o.NetworkPolicy)
	}
	if o.ServiceMonitor != nil {
		out = append(out, o.ServiceMonitor)
	}
	return append(out, o.StatefulSet)
}

type builder struct {
	pool     *v1alpha1.DeliveryPool
	settings Settings
}

// labels are on every object of the pool.
func (b builder) labels() map[string]string {
	l := b.selector()
	l[v1alpha1.LabelManagedBy] = v1alpha1.ManagedBy
	return l
}

// selector picks the pool's pods. It can never change: a StatefulSet keeps its own.
func (b builder) selector() map[string]string {
	return map[string]string{
		v1alpha1.LabelName:      v1alpha1.AppName,
		v1alpha1.LabelComponent: v1alpha1.ComponentWorker,
		v1alpha1.LabelPool:      b.pool.Name,
	}
}

// owner makes an object go with its pool.
func (b builder) owner() *applymeta.OwnerReferenceApplyConfiguration {
	return applymeta.OwnerReference().
		WithAPIVersion(v1alpha1.GroupVersion.String()).WithKind(v1alpha1.KindDeliveryPool).
		WithName(b.pool.Name).WithUID(b.pool.UID).WithController(true).WithBlockOwnerDeletion(true)
}

func (b builder) workerName() string { return v1alpha1.WorkerName(b.pool.Name) }

func (b builder) serviceAccount() *applycore.ServiceAccountApplyConfiguration {
	return applycore.ServiceAccount(b.workerName(), b.pool.Namespace).WithLabels(b.labels()).WithOwnerReferences(b.owner())
}

// role is all that a worker may do in its pool's namespace: each object by its name.
func (b builder) role() *applyrbac.RoleApplyConfiguration {
	plan := []string{v1alpha1.PlanIndexName(b.pool.Name)}
	for shard := range v1alpha1.PlanShards {
		plan = append(plan, v1alpha1.PlanShardName(b.pool.Name, shard))
	}
	return applyrbac.Role(b.workerName(), b.pool.Namespace).WithLabels(b.labels()).WithOwnerReferences(b.owner()).WithRules(
		rule("", "secrets", plan, "get", "list", "watch"),
		rule("", "configmaps", []string{v1alpha1.PlanAcksName(b.pool.Name)}, "get", "patch"),
		rule("coordination.k8s.io", "leases", []string{v1alpha1.WorkerPodName(b.pool.Name, 0)}, "get", "update"),
		rule(v1alpha1.GroupName, "deliverypools", []string{b.pool.Name}, "get"),
		rule(v1alpha1.GroupName, "deliverypools/status", []string{b.pool.Name}, "get", "patch"),
	)
}

func rule(group, resource string, names []string, verbs ...string) *applyrbac.PolicyRuleApplyConfiguration {
	return applyrbac.PolicyRule().WithAPIGroups(group).WithResources(resource).WithResourceNames(names...).WithVerbs(verbs...)
}

// roleBindings give the worker its Role and, where the manager watches namespaces of its
// own, what it may do with the endpoints there.
func (b builder) roleBindings() []*applyrbac.RoleBindingApplyConfiguration {
	out := []*applyrbac.RoleBindingApplyConfiguration{
		applyrbac.RoleBinding(b.workerName(), b.pool.Namespace).WithLabels(b.labels()).WithOwnerReferences(b.owner()).
			WithSubjects(b.subject()).
			WithRoleRef(applyrbac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("Role").WithName(b.workerName())),
	}
	for _, ns := range b.settings.Namespaces {
		out = append(out, applyrbac.RoleBinding(BindingName(b.pool.Namespace, b.pool.Name), ns).WithLabels(b.labels()).
			WithSubjects(b.subject()).WithRoleRef(workerClusterRole()))
	}
	return out
}

// clusterRoleBinding gives the worker what it may do with endpoints of all namespaces. It
// can't be owned by an object of a namespace: the manager removes it with its pool.
func (b builder) clusterRoleBinding() *applyrbac.ClusterRoleBindingApplyConfiguration {
	return applyrbac.ClusterRoleBinding(BindingName(b.pool.Namespace, b.pool.Name)).
		WithLabels(b.labels()).WithSubjects(b.subject()).WithRoleRef(workerClusterRole())
}

// BindingName is the ClusterRoleBinding of a pool's workers, and their RoleBinding in a
// watched namespace.
func BindingName(namespace, pool string) string {
	return fmt.Sprintf("%s:%s:%s", v1alpha1.WorkerClusterRole, namespace, pool)
}

func workerClusterRole() *applyrbac.RoleRefApplyConfiguration {
	return applyrbac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(v1alpha1.WorkerClusterRole)
}

func (b builder) subject() *applyrbac.SubjectApplyConfiguration {
	return applyrbac.Subject().WithKind(rbacv1.ServiceAccountKind).WithNamespace(b.pool.Namespace).WithName(b.workerName())
}

// ingestService is where events are posted.
func (b builder) ingestService() *applycore.ServiceApplyConfiguration {
	in := deref(b.pool.Spec.Ingest)
	service := deref(in.Service)
	kind := corev1.ServiceTypeClusterIP
	if service.Type != "" {
		kind = corev1.ServiceType(service.Type)
	}
	name, port := "http", int32(80)
	if in.TLS != nil {
		name, port = "https", 443
	}
	spec := applycore.ServiceSpec().WithType(kind).WithSelector(b.selector()).WithPorts(
		applycore.ServicePort().WithName(name).WithPort(port).WithProtocol(corev1.ProtocolTCP).WithTargetPort(intstr.FromString(portNameIngest)))
	if service.IPFamilyPolicy != "" {
		spec.WithIPFamilyPolicy(corev1.IPFamilyPolicy(service.IPFamilyPolicy))
	}
	s := applycore.Service(v1alpha1.IngestServiceName(b.pool.Name), b.pool.Namespace).
		WithLabels(b.labels()).WithOwnerReferences(b.owner()).WithSpec(spec)
	if len(service.Annotations) > 0 {
		s.WithAnnotations(maps.Clone(service.Annotations))
	}
	return s
}

// workersService is headless: it gives the pods their names, and Prometheus the metrics.
func (b builder) workersService() *applycore.ServiceApplyConfiguration {
	return applycore.Service(v1alpha1.WorkersServiceName(b.pool.Name), b.pool.Namespace).
		WithLabels(b.labels()).WithOwnerReferences(b.owner()).
		WithSpec(applycore.ServiceSpec().WithClusterIP(corev1.ClusterIPNone).WithSelector(b.selector()).
			WithPublishNotReadyAddresses(true).WithPorts(
			applycore.ServicePort().WithName(portNameMetrics).WithPort(PortMetrics).WithProtocol(corev1.ProtocolTCP).WithTargetPort(intstr.FromString(portNameMetrics))))
}

// networkPolicy lets producers, kubelet and Prometheus in; where they come from is not
// known here. Out, a worker resolves names, calls the API server and delivers: the egress
// guard judges each address, which no NetworkPolicy can, and metadata addresses are closed
// here as well.
func (b builder) networkPolicy() *applynetworking.NetworkPolicyApplyConfiguration {
	in := applynetworking.NetworkPolicyIngressRule()
	for _, port := range []int{PortIngest, PortProbes, PortMetrics} {
		in.WithPorts(applynetworking.NetworkPolicyPort().WithProtocol(corev1.ProtocolTCP).WithPort(intstr.FromInt(port)))
	}
	out := applynetworking.NetworkPolicyEgressRule().WithTo(
		applynetworking.NetworkPolicyPeer().WithIPBlock(applynetworking.IPBlock().WithCIDR("0.0.0.0/0").WithExcept("169.254.0.0/16")),
		applynetworking.NetworkPolicyPeer().WithIPBlock(applynetworking.IPBlock().WithCIDR("::/0").WithExcept("fe80::/10", "fd00:ec2::254/128")),
	)
	// Names may be resolved by a node's own cache, which listens on a link-local address.
	dns := applynetworking.NetworkPolicyEgressRule().WithPorts(
		applynetworking.NetworkPolicyPort().WithProtocol(corev1.ProtocolUDP).WithPort(intstr.FromInt(53)),
		applynetworking.NetworkPolicyPort().WithProtocol(corev1.ProtocolTCP).WithPort(intstr.FromInt(53)))
	return applynetworking.NetworkPolicy(b.workerName(), b.pool.Namespace).WithLabels(b.labels()).WithOwnerReferences(b.owner()).
		WithSpec(applynetworking.NetworkPolicySpec().
			WithPodSelector(applymeta.LabelSelector().WithMatchLabels(b.selector())).
			WithPolicyTypes(networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress).
			WithIngress(in).WithEgress(out, dns))
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
