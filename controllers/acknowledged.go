package controllers

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/planstore"
)

// acknowledgements tells by which plan version the workers of pools work. The cache knows
// only when a pool's ConfigMap changes; it is read live then, once for all the endpoints
// that wait for it.
type acknowledgements struct {
	cache, live client.Reader

	mu    sync.Mutex
	pools map[types.NamespacedName]acknowledgement
}

type acknowledgement struct {
	version string // of the ConfigMap
	by      map[string]uint64
}

// of gives the plan version that each worker of a pool works by.
func (a *acknowledgements) of(ctx context.Context, pool types.NamespacedName) (map[string]uint64, error) {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	if err := a.cache.Get(ctx, types.NamespacedName{Namespace: pool.Namespace, Name: v1alpha1.PlanAcksName(pool.Name)}, meta); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if known, ok := a.pools[pool]; ok && known.version == meta.ResourceVersion {
		return known.by, nil
	}
	by, err := acknowledged(ctx, a.live, pool)
	if err != nil {
		return nil, err
	}
	if a.pools == nil {
		a.pools = map[types.NamespacedName]acknowledgement{}
	}
	// What was read may be newer than what the cache has: then it is read again with the next event.
	a.pools[pool] = acknowledgement{meta.ResourceVersion, by}
	return by, nil
}

// acknowledged reads by which plan version each worker of a pool works.
func acknowledged(ctx context.Context, r client.Reader, pool types.NamespacedName) (map[string]uint64, error) {
	var m corev1.ConfigMap
	err := r.Get(ctx, types.NamespacedName{Namespace: pool.Namespace, Name: v1alpha1.PlanAcksName(pool.Name)}, &m)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read the acknowledgements of DeliveryPool %s: %w", pool, err)
	}
	return planstore.Acknowledged(&m), nil
}
