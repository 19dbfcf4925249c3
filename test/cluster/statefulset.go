package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

// The parts of a StatefulSet controller and of a kubelet that a Pool plays with objects.

// revisionOf names the template of a StatefulSet.
func revisionOf(set *appsv1.StatefulSet) string {
	b, err := json.Marshal(set.Spec.Template)
	if err != nil {
		panic(err) // it came as JSON
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:5])
}

func (p *Pool) podName() string { return v1alpha1.WorkerPodName(p.Name.Name, 0) }

// ensureClaims makes the claims of the template and binds them, and gives a claim that asks for more what it asks for.
func (p *Pool) ensureClaims(ctx context.Context) error {
	for _, template := range p.set.Spec.VolumeClaimTemplates {
		claim := &corev1.PersistentVolumeClaim{}
		key := types.NamespacedName{Namespace: p.Name.Namespace, Name: template.Name + "-" + p.podName()}
		err := p.c.Client.Get(ctx, key, claim)
		if apierrors.IsNotFound(err) {
			claim.ObjectMeta = metav1.ObjectMeta{Name: key.Name, Namespace: key.Namespace, Labels: maps.Clone(template.Labels), Annotations: template.Annotations}
			if claim.Labels == nil {
				claim.Labels = map[string]string{}
			}
			maps.Copy(claim.Labels, p.set.Spec.Selector.MatchLabels)
			claim.Spec = template.Spec
			err = p.c.Client.Create(ctx, claim)
		}
		if err != nil {
			return err
		}
		before := claim.DeepCopy()
		claim.Status.Phase = corev1.ClaimBound
		claim.Status.AccessModes = claim.Spec.AccessModes
		claim.Status.Capacity = claim.Spec.Resources.Requests
		if equality.Semantic.DeepEqual(before.Status, claim.Status) {
			continue
		}
		if err := p.c.Client.Status().Patch(ctx, claim, client.MergeFrom(before)); err != nil {
			return err
		}
	}
	return nil
}

// ensurePod makes the Pod of the template. A Pod of another template, or one that was deleted, takes its worker along.
func (p *Pool) ensurePod(ctx context.Context) error {
	revision := revisionOf(p.set)
	wanted := p.set.Spec.Replicas == nil || *p.set.Spec.Replicas > 0
	pod := &corev1.Pod{}
	err := p.c.Client.Get(ctx, types.NamespacedName{Namespace: p.Name.Namespace, Name: p.podName()}, pod)
	switch {
	case err == nil && wanted && pod.DeletionTimestamp == nil && pod.Labels[appsv1.ControllerRevisionHashLabelKey] == revision:
		p.revision = revision
		return nil
	case err == nil:
		p.end()
		return client.IgnoreNotFound(p.c.Client.Delete(ctx, pod, client.GracePeriodSeconds(0)))
	case !apierrors.IsNotFound(err):
		return err
	}
	p.end()
	if !wanted {
		return nil
	}
	if err := p.volume.prepare(ctx, p.c, p.set); err != nil {
		return err
	}
	if err := p.c.Client.Create(ctx, p.newPod(revision)); err != nil {
		return err
	}
	p.revision = revision
	return nil
}

func (p *Pool) newPod(revision string) *corev1.Pod {
	template := p.set.Spec.Template.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Name, pod.Namespace = p.podName(), p.Name.Namespace
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[appsv1.ControllerRevisionHashLabelKey] = revision
	pod.Labels[appsv1.StatefulSetPodNameLabel] = pod.Name
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(p.set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	pod.Spec.Hostname, pod.Spec.Subdomain = pod.Name, p.set.Spec.ServiceName
	pod.Spec.NodeName = "test"
	for _, claim := range p.set.Spec.VolumeClaimTemplates {
		source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name + "-" + pod.Name}}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: source})
	}
	return pod
}

// report writes the Pod's readiness and the StatefulSet's status, where they differ from what is so.
func (p *Pool) report(ctx context.Context) error {
	ready := p.revision != "" && p.worker != nil && p.worker.Running() && probe("http://"+p.Probes()+"/readyz") == nil
	if err := p.reportPod(ctx, ready); err != nil {
		return err
	}
	before := p.set.DeepCopy()
	status := &p.set.Status
	status.ObservedGeneration = p.set.Generation
	status.UpdateRevision = p.set.Name + "-" + revisionOf(p.set)
	status.Replicas, status.ReadyReplicas = 0, 0
	if p.revision != "" {
		status.Replicas = 1
		status.CurrentRevision = p.set.Name + "-" + p.revision
	}
	if ready {
		status.ReadyReplicas = 1
	}
	status.AvailableReplicas = status.ReadyReplicas
	status.CurrentReplicas, status.UpdatedReplicas = status.Replicas, status.Replicas
	if equality.Semantic.DeepEqual(before.Status, p.set.Status) {
		return nil
	}
	return client.IgnoreNotFound(p.c.Client.Status().Patch(ctx, p.set, client.MergeFrom(before)))
}

func (p *Pool) reportPod(ctx context.Context, ready bool) error {
	if p.revision == "" {
		return nil
	}
	pod := &corev1.Pod{}
	if err := p.c.Client.Get(ctx, types.NamespacedName{Namespace: p.Name.Namespace, Name: p.podName()}, pod); err != nil {
		return client.IgnoreNotFound(err)
	}
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == status {
			return nil
		}
	}
	before := pod.DeepCopy()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now()},
		{Type: corev1.ContainersReady, Status: status, LastTransitionTime: metav1.Now()},
	}
	return client.IgnoreNotFound(p.c.Client.Status().Patch(ctx, pod, client.MergeFrom(before)))
}
