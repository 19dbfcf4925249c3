package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/pool"
)

// grow makes the volume as large as the pool says. The claim is asked for more, which a
// storage class may refuse, and only once that is accepted the StatefulSet, whose claim
// template can't be changed, is made anew without touching its pods. A claim that is
// larger than the pool says is left as it is. Until then the template keeps its size.
func (r *PoolReconciler) grow(ctx context.Context, in *poolInputs, s *pool.Settings) error {
	want := pool.Size(in.pool)
	if in.statefulSet == nil {
		return nil
	}
	if in.statefulSet.DeletionTimestamp != nil {
		in.remaking = true
		return nil
	}
	have, ok := templateSize(in.statefulSet)
	if !ok || have.Cmp(want) == 0 {
		return r.growClaim(ctx, in, want)
	}
	s.ClaimSize = &have
	if err := r.growClaim(ctx, in, want); err != nil || in.notExpandable != "" {
		return err
	}
	orphan := metav1.DeletePropagationOrphan
	err := r.Client.Delete(ctx, in.statefulSet, &client.DeleteOptions{PropagationPolicy: &orphan, Preconditions: &metav1.Preconditions{UID: &in.statefulSet.UID}})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("make the StatefulSet anew for a larger volume: %w", err)
	}
	s.ClaimSize, in.remaking = nil, true
	return nil
}

// remakeInterval is how soon it is looked again whether a StatefulSet that is made anew is
// gone.
const remakeInterval = time.Second

// growClaim asks for a larger volume.
func (r *PoolReconciler) growClaim(ctx context.Context, in *poolInputs, want resource.Quantity) error {
	if in.claim == nil {
		return nil
	}
	have := in.claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if have.Cmp(want) >= 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"resources": map[string]any{"requests": map[string]string{"storage": want.String()}}}})
	if err != nil {
		return err
	}
	err = r.Client.Patch(ctx, in.claim.DeepCopy(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(v1alpha1.FieldOwnerManager))
	switch {
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		// The API server's words name the class and change with nothing.
		in.notExpandable = err.Error()
		return nil
	case err != nil:
		return fmt.Errorf("make the volume larger: %w", err)
	}
	return nil
}

func templateSize(s *appsv1.StatefulSet) (resource.Quantity, bool) {
	for i := range s.Spec.VolumeClaimTemplates {
		if t := &s.Spec.VolumeClaimTemplates[i]; t.Name == v1alpha1.QueueClaimName {
			q, ok := t.Spec.Resources.Requests[corev1.ResourceStorage]
			return q, ok
		}
	}
	return resource.Quantity{}, false
}
