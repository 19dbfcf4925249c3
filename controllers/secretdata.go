package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// parallelReads is how many Secrets and ConfigMaps are read at once.
const parallelReads = 16

// secretData reads the Secrets and ConfigMaps that a pool's objects refer to. The cache
// holds only the metadata of all that there are; the data of those that are needed is read
// live, once for each of their resource versions, and of it only the needed keys are kept.
type secretData struct {
	cache client.Reader // metadata
	live  client.Reader
	known map[dataKey]kept
	// made are those that the manager has made itself just now; nil for none.
	made *madeKeys
}

type dataKey struct {
	types.NamespacedName
	configMap bool
}

type kept struct {
	version string
	keys    keySet
	data    map[string][]byte
}

func newSecretData(cache, live client.Reader) *secretData {
	return &secretData{cache: cache, live: live, known: map[dataKey]kept{}}
}

// read gives what exists of the objects referred to, and forgets everything else. unread are
// those that exist and that the API server can't give, with its reason: a key of its
// encryption at rest that is gone, or a right that is missing. An error means that it can't be
// asked now.
func (s *secretData) read(ctx context.Context, r references) (_ []corev1.Secret, _ []corev1.ConfigMap, unread map[dataKey]metav1.StatusReason, _ error) {
	next := make(map[dataKey]kept, len(r.secrets)+len(r.configMaps))
	unread = map[dataKey]metav1.StatusReason{}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelReads)
	take := func(k dataKey, keys keySet) {
		g.Go(func() error {
			got, ok, err := s.one(ctx, k, keys)
			mu.Lock()
			defer mu.Unlock()
			var answer apierrors.APIStatus
			switch {
			case err == nil && ok:
				next[k] = got
			case err != nil && !transient(err) && errors.As(err, &answer):
				unread[k] = answer.Status().Reason
			default:
				return err
			}
			return nil
		})
	}
	for k, keys := range r.secrets {
		take(dataKey{k, false}, keys)
	}
	for k, keys := range r.configMaps {
		take(dataKey{k, true}, keys)
	}
	if err := g.Wait(); err != nil {
		return nil, nil, nil, err
	}
	s.known = next
	var secrets []corev1.Secret
	var configMaps []corev1.ConfigMap
	for k, v := range next {
		meta := metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name}
		if k.configMap {
			configMaps = append(configMaps, corev1.ConfigMap{ObjectMeta: meta, BinaryData: v.data})
		} else {
			secrets = append(secrets, corev1.Secret{ObjectMeta: meta, Data: v.data})
		}
	}
	return secrets, configMaps, unread, nil
}

// one gives the data of one object; false if it does not exist.
func (s *secretData) one(ctx context.Context, k dataKey, keys keySet) (kept, bool, error) {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	if k.configMap {
		meta.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	}
	if err := s.cache.Get(ctx, k.NamespacedName, meta); err != nil {
		return kept{}, false, client.IgnoreNotFound(err)
	}
	if was, ok := s.known[k]; ok && was.version == meta.ResourceVersion && maps.Equal(was.keys, keys) {
		return was, true, nil
	}
	if s.made != nil && !k.configMap {
		if data, ok := s.made.take(k.NamespacedName, meta.ResourceVersion); ok {
			return kept{version: meta.ResourceVersion, keys: keys, data: only(data, keys)}, true, nil
		}
	}
	data, version, err := s.fetch(ctx, k)
	if apierrors.IsNotFound(err) {
		return kept{}, false, nil
	}
	if err != nil {
		return kept{}, false, fmt.Errorf("read %s %s: %w", meta.Kind, k.NamespacedName, err)
	}
	return kept{version: version, keys: keys, data: only(data, keys)}, true, nil
}

// fetch reads an object live.
func (s *secretData) fetch(ctx context.Context, k dataKey) (map[string][]byte, string, error) {
	if k.configMap {
		var m corev1.ConfigMap
		err := s.live.Get(ctx, k.NamespacedName, &m)
		data := m.BinaryData
		if data == nil {
			data = map[string][]byte{}
		}
		for key, text := range m.Data {
			data[key] = []byte(text)
		}
		return data, m.ResourceVersion, err
	}
	var o corev1.Secret
	err := s.live.Get(ctx, k.NamespacedName, &o)
	return o.Data, o.ResourceVersion, err
}

// only keeps the keys that are read.
func only(data map[string][]byte, keys keySet) map[string][]byte {
	if keys[everyKey] {
		return data
	}
	out := make(map[string][]byte, len(keys))
	for k := range keys {
		if v, ok := data[k]; ok {
			out[k] = v
		}
	}
	return out
}
