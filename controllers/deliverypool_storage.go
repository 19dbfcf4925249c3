package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
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
	if err := r.growClaim(ctx, in, want); err != nil || in.notGrowing != nil {
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

// growInterval is how soon it is tried again to make a volume larger that couldn't be: what
// hinders it lies in objects that are not watched.
const growInterval = time.Minute

// growClaim asks for a larger volume.
func (r *PoolReconciler) growClaim(ctx context.Context, in *poolInputs, want resource.Quantity) error {
	if in.claim == nil {
		return nil
	}
	have := in.claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if have.Cmp(want) >= 0 {
		in.notGrowing = infeasible(in.claim)
		return nil
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"resources": map[string]any{"requests": map[string]string{"storage": want.String()}}}})
	if err != nil {
		return err
	}
	err = r.Client.Patch(ctx, in.claim.DeepCopy(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(v1alpha1.FieldOwnerManager))
	switch {
	case err == nil:
		return nil
	case !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err):
		return fmt.Errorf("make the volume larger: %w", err)
	}
	in.notGrowing, err = whyRefused(ctx, r.class, in.claim, err)
	return err
}

// formerSize is the way back: a size in a spec never gets smaller.
const formerSize = "delete the DeliveryPool and make it again with the former store.embedded.size, which keeps the volume and its queue"

// goesOn is what comes of a volume that stays as it is.
const goesOn = ". The worker goes on with the volume as it is"

// whyRefused tells apart why the API server refuses a larger claim: the storage class, a
// quota, the manager's rights, or anything else, in its own words.
func whyRefused(ctx context.Context, find findClass, claim *corev1.PersistentVolumeClaim, refusal error) (*verdict, error) {
	words := refusal.Error() // it names claim and class, and changes with nothing
	switch {
	case strings.Contains(words, "exceeded quota"):
		return pointer(notReady(v1alpha1.ReasonQuotaExceeded, "The volume can't be made larger: "+words+"; raise the ResourceQuota, or "+formerSize+goesOn)), nil
	case strings.Contains(words, "cannot patch resource"):
		return nil, fmt.Errorf("make the volume larger: the manager may not, see its ClusterRole: %w", refusal)
	}
	class, err := classOf(ctx, find, claim)
	switch {
	case err != nil:
		return nil, err
	case class != nil && class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion:
		return pointer(notReady(v1alpha1.ReasonVolumeNotExpandable, "The volume can't be made larger: "+words+"; mend what this names, or "+formerSize+goesOn)), nil
	case class != nil:
		return pointer(notReady(v1alpha1.ReasonVolumeNotExpandable, "The volume can't be made larger: StorageClass "+class.Name+" does not have allowVolumeExpansion; set that, if its provisioner can, or "+formerSize+goesOn)), nil
	}
	return pointer(notReady(v1alpha1.ReasonVolumeNotExpandable, "The volume can't be made larger, since it has no storage class that could: "+words+"; "+formerSize+goesOn)), nil
}

// infeasible says of a claim that asks for more that its volume can't have it.
func infeasible(claim *corev1.PersistentVolumeClaim) *verdict {
	switch claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] {
	case corev1.PersistentVolumeClaimControllerResizeInfeasible, corev1.PersistentVolumeClaimNodeResizeInfeasible:
		return pointer(notReady(v1alpha1.ReasonVolumeNotExpandable, "The volume can't be made as large as the claim "+claim.Name+" asks: see kubectl describe pvc "+claim.Name+" for what its driver says; the claim may be set to a size between that of the volume and the present one"+goesOn))
	}
	return nil
}

// resizeNote tells of a volume that is being made larger. The worker goes on meanwhile.
func (in *poolInputs) resizeNote() string {
	if in.claim == nil {
		return ""
	}
	for _, c := range in.claim.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case corev1.PersistentVolumeClaimFileSystemResizePending:
			return "; the volume is larger and its file system not yet (FileSystemResizePending): the node sees to that while the worker runs, or else once it is started again, by the annotation " + v1alpha1.AnnotationRestartRequestedAt
		case corev1.PersistentVolumeClaimResizing:
			return "; the volume is being made larger"
		case corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError:
			return "; making the volume larger fails and is tried again: see kubectl describe pvc " + in.claim.Name
		}
	}
	return ""
}

// findClass reads a storage class; nil where there is none of that name.
type findClass func(ctx context.Context, name string) (*storagev1.StorageClass, error)

// class reads a storage class from the API server.
func (r *PoolReconciler) class(ctx context.Context, name string) (*storagev1.StorageClass, error) {
	var class storagev1.StorageClass
	err := r.Live.Get(ctx, types.NamespacedName{Name: name}, &class)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read StorageClass %s: %w", name, err)
	}
	return &class, nil
}

// classOf is a claim's storage class; nil where it has none.
func classOf(ctx context.Context, find findClass, claim *corev1.PersistentVolumeClaim) (*storagev1.StorageClass, error) {
	if name := claim.Spec.StorageClassName; name != nil && *name != "" {
		return find(ctx, *name)
	}
	return nil, nil
}

// lookAtClass looks for the storage class of a claim that is pending.
func (r *PoolReconciler) lookAtClass(ctx context.Context, in *poolInputs) (err error) {
	if in.claimPending() {
		in.class, err = classOf(ctx, r.class, in.claim)
	}
	return err
}

func (in *poolInputs) claimPending() bool {
	return in.claim != nil && in.claim.Status.Phase == corev1.ClaimPending
}

// aboutClaim says what a worker waits for whose volume is not there.
func (in *poolInputs) aboutClaim() (verdict, time.Duration, bool) {
	if len(in.state.Live) > 0 || !in.claimPending() {
		return verdict{}, 0, false
	}
	if left := startDeadline/2 - in.now.Sub(in.pool.CreationTimestamp.Time); left > 0 {
		return verdict{}, left, false
	}
	return notReady(v1alpha1.ReasonVolumePending, "The volume of the store is not there: "+in.claimHint()), causeInterval, true
}

// claimHint is what is to be done about a claim that is pending.
func (in *poolInputs) claimHint() string {
	name := in.claim.Spec.StorageClassName
	switch {
	case name == nil:
		return "the cluster has no default StorageClass; make one the default, or make this DeliveryPool anew with store.embedded.storageClassName (and delete its claim " + in.claim.Name + ")"
	case *name == "":
		return "the claim " + in.claim.Name + " is for a PersistentVolume without class, and none fits; make one"
	case in.class == nil:
		return "StorageClass " + *name + " does not exist; create it, or make this DeliveryPool anew with another store.embedded.storageClassName (and delete its claim " + in.claim.Name + ")"
	case in.cause.what == corev1.PodReasonUnschedulable:
		return "it is made once the worker has a node, and it has none (Unschedulable): " + in.cause.wayOut
	}
	return "StorageClass " + *name + " is there and its provisioner made no volume; see kubectl describe pvc " + in.claim.Name
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
