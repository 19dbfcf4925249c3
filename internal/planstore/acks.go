package planstore

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

// Acknowledge notes that a pod works by a version of its pool's plan. It touches its own
// entry only.
func Acknowledge(ctx context.Context, c client.Client, pool types.NamespacedName, pod string, version uint64) error {
	patch, err := json.Marshal(map[string]any{"data": map[string]string{pod: strconv.FormatUint(version, 10)}})
	if err != nil {
		return err
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: pool.Namespace, Name: v1alpha1.PlanAcksName(pool.Name)}}
	if err := c.Patch(ctx, m, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(v1alpha1.FieldOwnerWorker)); err != nil {
		return fmt.Errorf("acknowledge version %d of the plan: %w", version, err)
	}
	return nil
}

// Acknowledged gives the version that each pod works by. Entries that are no number are
// left out.
func Acknowledged(m *corev1.ConfigMap) map[string]uint64 {
	out := make(map[string]uint64, len(m.Data))
	for pod, text := range m.Data {
		if v, err := strconv.ParseUint(text, 10, 64); err == nil {
			out[pod] = v
		}
	}
	return out
}
