package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

// overwrite repairs what server-side apply can't, because what was changed is the key by
// which it knows an entry: of a port whose number was changed it makes a second one of
// the same name beside it, which is refused. A role that was bound can't be changed at
// all. refused is that refusal, and stays the error where this does not help either.
func (c *children) overwrite(ctx context.Context, w *wish, live *metav1.PartialObjectMetadata, refused error) error {
	var err error
	switch w.key.kind {
	case "RoleBinding", "ClusterRoleBinding":
		err = c.client.Delete(ctx, live, client.Preconditions{UID: &live.UID, ResourceVersion: &live.ResourceVersion})
	case "Service", "StatefulSet":
		err = c.replaceSpec(ctx, w)
	default:
		return refused
	}
	if err == nil {
		err = c.client.Apply(ctx, w.object, client.FieldOwner(v1alpha1.FieldOwnerManager), client.ForceOwnership)
	}
	if err != nil {
		return errors.Join(refused, err)
	}
	return nil
}

// replaceSpec writes our fields, and whole lists of them. The API server notes that as
// an update of ours, beside what we applied; that note is folded into the applied one, or
// else a field that we leave out later would stay.
func (c *children) replaceSpec(ctx context.Context, w *wish) error {
	var whole struct {
		Spec json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(w.text, &whole); err != nil {
		return err
	}
	patch, err := json.Marshal(whole)
	if err != nil {
		return err
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(w.meta.GroupVersionKind())
	live.SetNamespace(w.key.Namespace)
	live.SetName(w.key.Name)
	owner := v1alpha1.FieldOwnerManager
	if err := c.client.Patch(ctx, live, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(owner)); err != nil {
		return fmt.Errorf("replace its lists: %w", err)
	}
	fold, err := csaupgrade.UpgradeManagedFieldsPatch(live, sets.New(owner), owner)
	if err != nil || len(fold) == 0 {
		return err
	}
	return c.client.Patch(ctx, live, client.RawPatch(types.JSONPatchType, fold))
}

// withoutOwner repairs an object that has lost its owner where the API server lets only
// those set one who may delete the object (OwnerReferencesPermissionEnforcement), which the
// manager mostly may not. All the rest is repaired; the object will outlive its pool.
func (c *children) withoutOwner(ctx context.Context, w *wish, refused error) error {
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal(w.text, &o.Object); err != nil {
		return err
	}
	o.SetOwnerReferences(nil)
	w.object = client.ApplyConfigurationFromUnstructured(o)
	if err := c.client.Apply(ctx, w.object, client.FieldOwner(v1alpha1.FieldOwnerManager), client.ForceOwnership); err != nil {
		return errors.Join(refused, err)
	}
	log.FromContext(ctx).Info("An object of the pool has lost its owner, which can't be set again; it is to be removed by hand once the pool is gone", "kind", w.key.kind, "name", w.key.Name)
	return nil
}
