package controllers

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// within reads from a cache that holds some namespaces only. What an object refers to in
// another one is not there, as far as this manager goes: the cache itself would fail, and
// one endpoint would hold up its pool's plan.
type within struct {
	client.Client
	namespaces map[string]bool
}

// newWithin takes the namespaces that are looked at; none: all.
func newWithin(c client.Client, namespaces []string) client.Client {
	if len(namespaces) == 0 {
		return c
	}
	w := within{Client: c, namespaces: map[string]bool{}}
	for _, n := range namespaces {
		w.namespaces[n] = true
	}
	return w
}

// Get answers that what lies elsewhere is not found.
func (w within) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if key.Namespace == "" || w.namespaces[key.Namespace] {
		return w.Client.Get(ctx, key, o, opts...)
	}
	gvk, err := apiutil.GVKForObject(o, w.Scheme())
	if err != nil {
		return err
	}
	return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name)
}
