package pool

import (
	"fmt"
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	applyapps "k8s.io/client-go/applyconfigurations/apps/v1"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

// Where a worker's container finds things.
const (
	dataPath = "/var/lib/doorstep"
	planPath = "/etc/doorstep/plan"
	tlsPath  = "/etc/doorstep/tls"

	containerName = "worker"
	volumePlan    = "plan"
	volumeTLS     = "tls"
	volumeTemp    = "tmp"

	// PlanIndexFile is the file of the plan's index in the volume; shards are named by their
	// two digits.
	PlanIndexFile = "index"
)

const (
	// nobody is the user and group of a worker, unless the template says otherwise.
	nobody int64 = 65532
	// stopGrace is above the longest attempt (60 s) and what a stop takes beside it.
	stopGrace int64 = 90
	// attemptGrace is how long attempts in flight may take to end on a stop.
	attemptGrace = "65s"
)

// statefulSet is the worker. Its selector, serviceName, podManagementPolicy and claim
// template can never change.
func (b builder) statefulSet() *applyapps.StatefulSetApplyConfiguration {
	return applyapps.StatefulSet(b.workerName(), b.pool.Namespace).WithLabels(b.labels()).WithOwnerReferences(b.owner()).
		WithAnnotations(map[string]string{v1alpha1.AnnotationImage: b.settings.Image}).
		WithSpec(applyapps.StatefulSetSpec().
			WithReplicas(1).
			WithServiceName(v1alpha1.WorkersServiceName(b.pool.Name)).
			WithPodManagementPolicy(appsv1.ParallelPodManagement).
			WithUpdateStrategy(applyapps.StatefulSetUpdateStrategy().WithType(appsv1.RollingUpdateStatefulSetStrategyType)).
			WithPersistentVolumeClaimRetentionPolicy(applyapps.StatefulSetPersistentVolumeClaimRetentionPolicy().
				WithWhenDeleted(appsv1.RetainPersistentVolumeClaimRetentionPolicyType).
				WithWhenScaled(appsv1.RetainPersistentVolumeClaimRetentionPolicyType)).
			WithRevisionHistoryLimit(3).
			WithSelector(applymeta.LabelSelector().WithMatchLabels(b.selector())).
			WithVolumeClaimTemplates(b.claim()).
			WithTemplate(b.podTemplate()))
}

// Size is the size of a pool's volume.
func Size(p *v1alpha1.DeliveryPool) resource.Quantity {
	if s := embedded(p).Size; s != nil {
		return s.DeepCopy()
	}
	return v1alpha1.DefaultStoreSize()
}

func embedded(p *v1alpha1.DeliveryPool) v1alpha1.EmbeddedStore {
	return deref(deref(p.Spec.Store).Embedded)
}

// claim is the template of the volume. It carries the labels by which it is found once
// its pool is gone, and has no owner.
func (b builder) claim() *applycore.PersistentVolumeClaimApplyConfiguration {
	e := embedded(b.pool)
	size := Size(b.pool)
	if b.settings.ClaimSize != nil {
		size = *b.settings.ClaimSize
	}
	mode := corev1.ReadWriteOnce
	if e.AccessMode != "" {
		mode = corev1.PersistentVolumeAccessMode(e.AccessMode)
	}
	spec := applycore.PersistentVolumeClaimSpec().WithAccessModes(mode).
		WithVolumeMode(corev1.PersistentVolumeFilesystem).
		WithResources(applycore.VolumeResourceRequirements().WithRequests(corev1.ResourceList{corev1.ResourceStorage: size}))
	if e.StorageClassName != nil {
		spec.WithStorageClassName(*e.StorageClassName)
	}
	c := applycore.PersistentVolumeClaim(v1alpha1.QueueClaimName, "").WithLabels(b.labels()).WithSpec(spec)
	c.Namespace = nil // a template has none
	return c
}

func (b builder) podTemplate() *applycore.PodTemplateSpecApplyConfiguration {
	t := deref(b.pool.Spec.Template)
	labels := b.selector()
	labels[v1alpha1.LabelManagedBy] = v1alpha1.ManagedBy
	maps.Copy(labels, t.Labels)
	annotations := maps.Clone(t.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations["kubectl.kubernetes.io/default-container"] = containerName
	if b.settings.Restart != "" {
		annotations[v1alpha1.AnnotationRestartRequestedAt] = b.settings.Restart
	}
	spec := applycore.PodSpec().
		WithServiceAccountName(b.workerName()).
		WithAutomountServiceAccountToken(true).
		WithEnableServiceLinks(false).
		WithTerminationGracePeriodSeconds(stopGrace).
		WithSecurityContext(b.podSecurity()).
		WithContainers(b.container()).
		WithVolumes(b.volumes()...)
	b.place(spec)
	return applycore.PodTemplateSpec().WithLabels(labels).WithAnnotations(annotations).WithSpec(spec)
}

// podSecurity is the restricted Pod Security Standard, with the ids of the template.
func (b builder) podSecurity() *applycore.PodSecurityContextApplyConfiguration {
	c := deref(deref(b.pool.Spec.Template).PodSecurityContext)
	id := func(chosen *int64) int64 {
		if chosen != nil {
			return *chosen
		}
		return nobody
	}
	return applycore.PodSecurityContext().
		WithRunAsNonRoot(true).
		WithRunAsUser(id(c.RunAsUser)).WithRunAsGroup(id(c.RunAsGroup)).WithFSGroup(id(c.FSGroup)).
		// Changing the owner of every file would keep a large store from starting.
		WithFSGroupChangePolicy(corev1.FSGroupChangeOnRootMismatch).
		WithSupplementalGroups(c.SupplementalGroups...).
		WithSeccompProfile(applycore.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))
}

func (b builder) container() *applycore.ContainerApplyConfiguration {
	fromField := func(name, path string) *applycore.EnvVarApplyConfiguration {
		return applycore.EnvVar().WithName(name).WithValueFrom(applycore.EnvVarSource().
			WithFieldRef(applycore.ObjectFieldSelector().WithAPIVersion("v1").WithFieldPath(path)))
	}
	probe := func(path string) *applycore.ProbeApplyConfiguration {
		return applycore.Probe().WithHTTPGet(applycore.HTTPGetAction().WithPath(path).WithPort(intstr.FromString(portNameProbes))).
			WithTimeoutSeconds(5)
	}
	port := func(name string, n int32) *applycore.ContainerPortApplyConfiguration {
		return applycore.ContainerPort().WithName(name).WithContainerPort(n).WithProtocol(corev1.ProtocolTCP)
	}
	return applycore.Container().WithName(containerName).WithImage(b.settings.Image).
		WithArgs(b.args()...).
		WithEnv(fromField("POD_NAME", "metadata.name"), fromField("POD_NAMESPACE", "metadata.namespace")).
		WithPorts(port(portNameIngest, PortIngest), port(portNameProbes, PortProbes), port(portNameMetrics, PortMetrics)).
		WithResources(b.resources()).
		// A large store may take minutes to open after a crash: nothing but that is waited for.
		WithStartupProbe(probe("/healthz").WithPeriodSeconds(5).WithFailureThreshold(120)).
		WithLivenessProbe(probe("/healthz").WithPeriodSeconds(10).WithFailureThreshold(6)).
		WithReadinessProbe(probe("/readyz").WithPeriodSeconds(5).WithFailureThreshold(2)).
		WithSecurityContext(applycore.SecurityContext().
			WithAllowPrivilegeEscalation(false).WithReadOnlyRootFilesystem(true).WithRunAsNonRoot(true).
			WithCapabilities(applycore.Capabilities().WithDrop("ALL")).
			WithSeccompProfile(applycore.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))).
		WithTerminationMessagePolicy(corev1.TerminationMessageFallbackToLogsOnError).
		WithVolumeMounts(b.mounts()...)
}

func (b builder) args() []string {
	args := []string{
		"worker",
		"--pool=" + b.pool.Name,
		"--data=" + dataPath,
		"--plan=" + planPath,
		"--listen=:" + strconv.Itoa(PortIngest),
		"--probes=:" + strconv.Itoa(PortProbes),
		"--metrics=:" + strconv.Itoa(PortMetrics),
		"--grace=" + attemptGrace,
	}
	if b.tls() {
		args = append(args, "--tls="+tlsPath)
	}
	return args
}

func (b builder) tls() bool { return deref(b.pool.Spec.Ingest).TLS != nil }

// resources are the template's, else a modest request and a bound on memory, which the
// worker keeps to whatever its backlog.
func (b builder) resources() *applycore.ResourceRequirementsApplyConfiguration {
	r := deref(b.pool.Spec.Template).Resources
	if r == nil {
		return applycore.ResourceRequirements().
			WithRequests(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("256Mi")}).
			WithLimits(corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")})
	}
	out := applycore.ResourceRequirements()
	if len(r.Requests) > 0 {
		out.WithRequests(r.Requests.DeepCopy())
	}
	if len(r.Limits) > 0 {
		out.WithLimits(r.Limits.DeepCopy())
	}
	for _, c := range r.Claims {
		out.WithClaims(applycore.ResourceClaim().WithName(c.Name).WithRequest(c.Request))
	}
	return out
}

func (b builder) mounts() []*applycore.VolumeMountApplyConfiguration {
	mount := func(name, path string, readOnly bool) *applycore.VolumeMountApplyConfiguration {
		m := applycore.VolumeMount().WithName(name).WithMountPath(path)
		if readOnly {
			m.WithReadOnly(true)
		}
		return m
	}
	out := []*applycore.VolumeMountApplyConfiguration{
		mount(v1alpha1.QueueClaimName, dataPath, false),
		mount(volumePlan, planPath, true),
		mount(volumeTemp, "/tmp", false),
	}
	if b.tls() {
		out = append(out, mount(volumeTLS, tlsPath, true))
	}
	return out
}

// volumes hold the plan, so that a worker starts with neither manager nor API server; all
// of it is optional, since a pool begins without a plan.
func (b builder) volumes() []*applycore.VolumeApplyConfiguration {
	source := func(secret, file string) *applycore.VolumeProjectionApplyConfiguration {
		return applycore.VolumeProjection().WithSecret(applycore.SecretProjection().WithName(secret).WithOptional(true).
			WithItems(applycore.KeyToPath().WithKey(v1alpha1.PlanSecretKey).WithPath(file)))
	}
	plan := applycore.ProjectedVolumeSource().WithSources(source(v1alpha1.PlanIndexName(b.pool.Name), PlanIndexFile))
	for shard := range v1alpha1.PlanShards {
		plan.WithSources(source(v1alpha1.PlanShardName(b.pool.Name, shard), PlanShardFile(shard)))
	}
	out := []*applycore.VolumeApplyConfiguration{
		applycore.Volume().WithName(volumePlan).WithProjected(plan),
		applycore.Volume().WithName(volumeTemp).WithEmptyDir(applycore.EmptyDirVolumeSource().WithSizeLimit(resource.MustParse("64Mi"))),
	}
	if b.tls() {
		// Optional: without its certificate the worker delivers all the same, and says so.
		out = append(out, applycore.Volume().WithName(volumeTLS).WithSecret(applycore.SecretVolumeSource().
			WithSecretName(b.pool.Spec.Ingest.TLS.SecretRef.Name).WithOptional(true)))
	}
	return out
}

// PlanShardFile is the file of a shard of the plan in the volume.
func PlanShardFile(shard int) string { return fmt.Sprintf("%02d", shard) }
