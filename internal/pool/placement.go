package pool

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/ssa"
)

// place lays the template's wishes about nodes over a pod.
func (b builder) place(spec *applycore.PodSpecApplyConfiguration) {
	t := deref(b.pool.Spec.Template)
	if len(t.NodeSelector) > 0 {
		spec.WithNodeSelector(maps.Clone(t.NodeSelector))
	}
	for i := range t.Tolerations {
		spec.WithTolerations(ssa.Configuration[applycore.TolerationApplyConfiguration](&t.Tolerations[i]))
	}
	for i := range t.TopologySpreadConstraints {
		spec.WithTopologySpreadConstraints(ssa.Configuration[applycore.TopologySpreadConstraintApplyConfiguration](&t.TopologySpreadConstraints[i]))
	}
	if t.Affinity != nil {
		spec.WithAffinity(ssa.Configuration[applycore.AffinityApplyConfiguration](t.Affinity))
	}
	if t.PriorityClassName != "" {
		spec.WithPriorityClassName(t.PriorityClassName)
	}
	for _, s := range t.ImagePullSecrets {
		spec.WithImagePullSecrets(applycore.LocalObjectReference().WithName(s.Name))
	}
}

// serviceMonitor tells a Prometheus operator to scrape the workers. The kind is another
// project's, of which only these fields are needed.
func (b builder) serviceMonitor() *unstructured.Unstructured {
	m := deref(b.pool.Spec.Monitoring)
	endpoint := map[string]any{"port": portNameMetrics}
	if m.Interval != "" {
		endpoint["interval"] = string(m.Interval)
	}
	labels := map[string]any{}
	for k, v := range m.Labels {
		labels[k] = v
	}
	for k, v := range b.labels() {
		labels[k] = v
	}
	selector := map[string]any{}
	for k, v := range b.selector() {
		selector[k] = v
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": ServiceMonitorAPIVersion,
		"kind":       ServiceMonitorKind,
		"metadata": map[string]any{
			"name": b.workerName(), "namespace": b.pool.Namespace, "labels": labels,
			"ownerReferences": []any{map[string]any{
				"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.KindDeliveryPool,
				"name": b.pool.Name, "uid": string(b.pool.UID), "controller": true, "blockOwnerDeletion": true,
			}},
		},
		"spec": map[string]any{
			"selector":  map[string]any{"matchLabels": selector},
			"endpoints": []any{endpoint},
		},
	}}
}

// The kind of Prometheus's operator that finds what to scrape.
const (
	ServiceMonitorAPIVersion = "monitoring.coreos.com/v1"
	ServiceMonitorKind       = "ServiceMonitor"
)
