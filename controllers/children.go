package controllers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

// children applies the objects of pools, each only where what is wanted of it has changed
// or somebody else has changed it: a quiet cluster sees no writes.
type children struct {
	client client.Client
	// applied notes of each object what was last wanted of it, and what it then looked like.
	applied map[childKey]childState
}

type childKey struct {
	kind string
	types.NamespacedName
}

type childState struct{ wanted, looks string }

// apply makes an object be as it is wanted.
func (c *children) apply(ctx context.Context, o runtime.ApplyConfiguration) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	var meta metav1.PartialObjectMetadata
	if err := json.Unmarshal(text, &meta); err != nil {
		return err
	}
	key := childKey{meta.Kind, client.ObjectKeyFromObject(&meta)}
	sum := sha256.Sum256(text)
	wanted := hex.EncodeToString(sum[:])
	live := &metav1.PartialObjectMetadata{TypeMeta: meta.TypeMeta}
	err = c.client.Get(ctx, key.NamespacedName, live)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err == nil && c.applied[key] == (childState{wanted, appearance(meta.Kind, live)}) {
		return nil
	}
	if err := c.client.Apply(ctx, o, client.FieldOwner(v1alpha1.FieldOwnerManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply %s %s: %w", meta.Kind, key.Name, err)
	}
	if text, err = json.Marshal(o); err != nil {
		return err
	}
	var after metav1.PartialObjectMetadata
	if err := json.Unmarshal(text, &after); err != nil {
		return err
	}
	c.applied[key] = childState{wanted, appearance(meta.Kind, &after)}
	return nil
}

// remove removes an object that is not wanted, if it is there and is ours.
func (c *children) remove(ctx context.Context, apiVersion, kind, namespace, name string) error {
	live := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}}
	err := c.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, live)
	if apierrors.IsNotFound(err) || err == nil && live.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy {
		return nil
	}
	if err != nil {
		return err
	}
	delete(c.applied, childKey{kind, types.NamespacedName{Namespace: namespace, Name: name}})
	return client.IgnoreNotFound(c.client.Delete(ctx, live))
}

// all applies every object, and joins what went wrong.
func (c *children) all(ctx context.Context, objects []runtime.ApplyConfiguration) error {
	var failed []error
	for _, o := range objects {
		failed = append(failed, c.apply(ctx, o))
	}
	return errors.Join(failed...)
}

// appearance is what an object looks like as far as others could have changed what we wrote.
// Status and the fields that workers write are none of it: of a Lease and of a
// ConfigMap, which have no generation, only the metadata counts.
func appearance(kind string, o *metav1.PartialObjectMetadata) string {
	version := fmt.Sprint(o.Generation)
	if o.Generation == 0 && kind != "Lease" && kind != "ConfigMap" {
		version = o.ResourceVersion
	}
	annotations, owners := o.Annotations, o.OwnerReferences
	if kind == "ConfigMap" {
		annotations, owners = nil, nil // the cache drops them of ConfigMaps
	}
	b, err := json.Marshal([]any{o.UID, version, o.Labels, annotations, owners})
	if err != nil {
		return ""
	}
	return string(b)
}
