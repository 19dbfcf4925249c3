package controllers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/pool"
)

// children applies the objects of pools, each only where what is wanted of it has changed
// or somebody else has changed it: a quiet cluster sees no writes.
type children struct {
	client client.Client
	// live reads past the cache, which holds of most kinds only what carries our label.
	live client.Reader
	// applied notes of each object what was last wanted of it, and what it then looked like.
	applied map[childKey]childState
}

type childKey struct {
	kind string
	types.NamespacedName
}

type childState struct {
	uid           types.UID
	wanted, looks string
}

// wish is an object as it is wanted.
type wish struct {
	object runtime.ApplyConfiguration
	meta   metav1.PartialObjectMetadata
	key    childKey
	// text is its JSON, sum a hash of that.
	text []byte
	sum  string
}

func newWish(o runtime.ApplyConfiguration) (*wish, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	w := &wish{object: o, text: text}
	if err := json.Unmarshal(text, &w.meta); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	w.key, w.sum = childKey{w.meta.Kind, client.ObjectKeyFromObject(&w.meta)}, hex.EncodeToString(sum[:])
	return w, nil
}

// apply makes an object be as it is wanted.
func (c *children) apply(ctx context.Context, o runtime.ApplyConfiguration) error {
	w, err := newWish(o)
	if err != nil {
		return err
	}
	if same, err := c.unchanged(ctx, w); same || err != nil {
		return err
	}
	// Something is to be done: what there is counts, not what the cache has of it.
	live := &metav1.PartialObjectMetadata{TypeMeta: w.meta.TypeMeta}
	err = c.live.Get(ctx, w.key.NamespacedName, live)
	switch {
	case apierrors.IsNotFound(err):
		live = nil
	case err != nil:
		return err
	case c.applied[w.key] == childState{live.UID, w.sum, appearance(w.key.kind, live)}:
		return nil // the cache was late
	case !c.isOf(w, live):
		return &nameTaken{kind: w.key.kind, name: w.key.NamespacedName}
	}
	err = c.client.Apply(ctx, o, client.FieldOwner(v1alpha1.FieldOwnerManager), client.ForceOwnership)
	if apierrors.IsInvalid(err) && live != nil {
		err = c.overwrite(ctx, w, live, err)
	}
	if apierrors.IsForbidden(err) && live != nil && len(w.meta.OwnerReferences) > 0 && metav1.GetControllerOf(live) == nil {
		err = c.withoutOwner(ctx, w, err)
	}
	switch {
	case err == nil:
		return c.note(w)
	case w.key.kind == pool.ServiceMonitorKind && (apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)):
		return nil // the kind has just gone, or is going
	}
	return fmt.Errorf("apply %s %s: %w", w.meta.Kind, w.key.Name, err)
}

// unchanged reports whether an object looks as it did when the same was applied to it.
func (c *children) unchanged(ctx context.Context, w *wish) (bool, error) {
	was, known := c.applied[w.key]
	if !known || was.wanted != w.sum {
		return false, nil
	}
	seen, reader := client.Object(&metav1.PartialObjectMetadata{TypeMeta: w.meta.TypeMeta}), client.Reader(c.client)
	switch w.key.kind {
	// What is watched whole is looked up there: a second cache of it might be behind the
	// event that brought us here.
	case "StatefulSet":
		seen = &appsv1.StatefulSet{}
	case "Service":
		seen = &corev1.Service{}
	case "Lease":
		seen = &coordinationv1.Lease{}
	case pool.ServiceMonitorKind:
		reader = c.live // a kind that may go away is not cached
	}
	err := reader.Get(ctx, w.key.NamespacedName, seen)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return was == childState{seen.GetUID(), w.sum, appearance(w.key.kind, seen)}, nil
}

// note keeps what an object looks like now that it was applied: its JSON is the API
// server's answer.
func (c *children) note(w *wish) error {
	text, err := json.Marshal(w.object)
	if err != nil {
		return err
	}
	var after metav1.PartialObjectMetadata
	if err := json.Unmarshal(text, &after); err != nil {
		return err
	}
	c.applied[w.key] = childState{after.UID, w.sum, appearance(w.key.kind, &after)}
	return nil
}

// isOf reports whether an object that is there is the pool's: it is owned by the pool, or
// it carries our labels and is owned by nobody else, or it is what was applied before.
// A pool of that name that existed before counts as the same.
func (c *children) isOf(w *wish, live *metav1.PartialObjectMetadata) bool {
	if c.applied[w.key].uid == live.UID {
		return true
	}
	owner, wanted := metav1.GetControllerOf(live), metav1.GetControllerOf(&w.meta)
	if wanted == nil {
		return true // a binding outside the pool's namespace, whose name is nobody else's
	}
	if owner != nil && (owner.UID == wanted.UID || owner.APIVersion == wanted.APIVersion && owner.Kind == wanted.Kind && owner.Name == wanted.Name) {
		return true
	}
	return owner == nil && labelled(live, w.meta.Labels[v1alpha1.LabelPool])
}

func labelled(o metav1.Object, pool string) bool {
	return o.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy && o.GetLabels()[v1alpha1.LabelPool] == pool
}

// nameTaken means that an object of the name that a pool needs is somebody else's. It is
// never touched.
type nameTaken struct {
	kind string
	name types.NamespacedName
}

func (e *nameTaken) Error() string {
	return fmt.Sprintf("%s %s exists and is not Doorstep's: remove it, or make a DeliveryPool of another name instead", e.kind, e.name)
}

// remove removes an object that is not wanted, if it is there and is the pool's: it
// carries our labels, and is owned by the pool unless it lies where no pool can own it
// (owner is empty).
func (c *children) remove(ctx context.Context, apiVersion, kind string, name types.NamespacedName, pool string, owner types.UID) error {
	live := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}}
	if err := c.client.Get(ctx, name, live); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !labelled(live, pool) || owner != "" && !metav1.IsControlledBy(live, &metav1.ObjectMeta{UID: owner}) {
		return nil
	}
	delete(c.applied, childKey{kind, name})
	err := c.client.Delete(ctx, live, client.Preconditions{UID: &live.UID, ResourceVersion: &live.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove %s %s: %w", kind, name.Name, err)
	}
	return nil
}

// all applies every object, and joins what went wrong.
func (c *children) all(ctx context.Context, objects []runtime.ApplyConfiguration) error {
	var failed []error
	for _, o := range objects {
		failed = append(failed, c.apply(ctx, o))
	}
	return errors.Join(failed...)
}

// forget drops what is noted of a pool's objects.
func (c *children) forget(objects []runtime.ApplyConfiguration) {
	for _, o := range objects {
		if w, err := newWish(o); err == nil {
			delete(c.applied, w.key)
		}
	}
}

// appearance is what an object looks like as far as others could have changed what we wrote.
// Status and the fields that workers write are none of it: of a Lease and of a
// ConfigMap, which have no generation, only the metadata counts.
func appearance(kind string, o metav1.Object) string {
	version := fmt.Sprint(o.GetGeneration())
	if o.GetGeneration() == 0 && kind != "Lease" && kind != "ConfigMap" {
		version = o.GetResourceVersion()
	}
	b, err := json.Marshal([]any{o.GetUID(), version, o.GetLabels(), o.GetAnnotations(), o.GetOwnerReferences()})
	if err != nil {
		return ""
	}
	return string(b)
}

// appearanceChanged passes what may have to be repaired: an acknowledgement, a renewal and
// a status are no news of a pool's object.
func appearanceChanged(kind string) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return appearance(kind, e.ObjectOld) != appearance(kind, e.ObjectNew)
	}}
}
