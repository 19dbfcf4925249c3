package controllers

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/compile"
)

// references are the objects that an object needs, by name, with the keys that are read
// of them.
type references struct {
	secrets, configMaps map[types.NamespacedName]keySet
}

// keySet are keys of a Secret or a ConfigMap.
type keySet map[string]bool

// everyKey, in a keySet, stands for all keys that there are. It can't be one.
const everyKey = "*"

func newReferences() references {
	return references{secrets: map[types.NamespacedName]keySet{}, configMaps: map[types.NamespacedName]keySet{}}
}

func (r references) secret(namespace, name string, keys ...string) {
	add(r.secrets, types.NamespacedName{Namespace: namespace, Name: name}, keys...)
}

func add(to map[types.NamespacedName]keySet, name types.NamespacedName, keys ...string) {
	set := to[name]
	if set == nil {
		set = make(keySet, len(keys))
		to[name] = set
	}
	for _, k := range keys {
		set[k] = true
	}
}

func (r references) authorities(namespace string, refs []v1alpha1.CACertificateReference) {
	for _, ref := range refs {
		key := ref.Key
		if key == "" {
			key = v1alpha1.DefaultCACertificateKey
		}
		k := types.NamespacedName{Namespace: namespace, Name: ref.Name}
		if ref.Kind == v1alpha1.CACertificateKindSecret {
			add(r.secrets, k, key)
		} else {
			add(r.configMaps, k, key)
		}
	}
}

// endpoint adds what a WebhookEndpoint refers to.
func (r references) endpoint(e *v1alpha1.WebhookEndpoint) {
	ns, spec := e.Namespace, &e.Spec
	keyOf := func(ref v1alpha1.SecretKeyReference) { r.secret(ns, ref.Name, ref.Key) }
	if compile.GeneratesKey(e) {
		r.secret(ns, compile.SigningSecretName(e.Name), compile.SigningSecretKey)
	}
	if spec.Signing != nil {
		for _, k := range spec.Signing.Keys {
			keyOf(k.SecretKeyRef)
		}
	}
	if spec.URLFrom != nil {
		keyOf(spec.URLFrom.SecretKeyRef)
	}
	for _, h := range spec.Headers {
		if h.ValueFrom != nil && h.ValueFrom.SecretKeyRef != nil {
			keyOf(*h.ValueFrom.SecretKeyRef)
		}
	}
	if a := spec.Auth; a != nil {
		if a.Basic != nil {
			r.secret(ns, a.Basic.SecretRef.Name, corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)
		}
		if a.Bearer != nil {
			keyOf(a.Bearer.SecretKeyRef)
		}
		if a.OAuth2 != nil {
			r.secret(ns, a.OAuth2.SecretRef.Name, compile.ClientIDKey, compile.ClientSecretKey)
		}
	}
	if spec.TLS != nil {
		r.authorities(ns, spec.TLS.CACertificateRefs)
		if ref := spec.TLS.ClientCertificateRef; ref != nil {
			r.secret(ns, ref.Name, corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
		}
	}
}

// pool adds what a DeliveryPool refers to. Of the Secret of API keys every entry is read.
func (r references) pool(p *v1alpha1.DeliveryPool) {
	if in := p.Spec.Ingest; in != nil && in.APIKeysSecretRef != nil {
		r.secret(p.Namespace, in.APIKeysSecretRef.Name, everyKey)
	}
	if e := p.Spec.Egress; e != nil {
		r.authorities(p.Namespace, e.CACertificateRefs)
		if e.Proxy != nil && e.Proxy.CredentialsSecretRef != nil {
			r.secret(p.Namespace, e.Proxy.CredentialsSecretRef.Name, corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)
		}
	}
}

// unread names one of those referred to that could not be read, and why; empty for none.
func (r references) unread(unread map[dataKey]metav1.StatusReason) string {
	var found []string
	for k, reason := range unread {
		kind, among := "Secret", r.secrets
		if k.configMap {
			kind, among = "ConfigMap", r.configMaps
		}
		if _, ok := among[k.NamespacedName]; ok {
			found = append(found, fmt.Sprintf("%s %s exists, but the API server can't give it (%s): look at its rights and its encryption at rest, or make it anew", kind, k.NamespacedName, reason))
		}
	}
	if len(found) == 0 {
		return ""
	}
	return slices.Min(found)
}

// names lists what is referred to, for an index.
func names(m map[types.NamespacedName]keySet) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k.String())
	}
	slices.Sort(out)
	return out
}

// The indexes of endpoints and pools in the cache.
const (
	indexPool      = "pool"      // endpoints by their pool
	indexSecret    = "secret"    // endpoints and pools by the Secrets they need
	indexConfigMap = "configMap" // and by the ConfigMaps
	indexService   = "service"   // endpoints by the Service they post to
	indexGrants    = "grants"    // endpoints by another namespace whose Service they post to
	indexPolicy    = "policy"    // endpoints by their RetryPolicy
)

// poolOf is the pool of an endpoint: that of poolRef, else the installation's own.
func poolOf(e *v1alpha1.WebhookEndpoint, systemNamespace string) types.NamespacedName {
	if ref := e.Spec.PoolRef; ref != nil {
		return types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	}
	return types.NamespacedName{Namespace: systemNamespace, Name: v1alpha1.DefaultPoolName}
}

// serviceOf is the Service of an endpoint; false if it posts to a URL.
func serviceOf(e *v1alpha1.WebhookEndpoint) (types.NamespacedName, bool) {
	ref := e.Spec.ServiceRef
	if ref == nil {
		return types.NamespacedName{}, false
	}
	k := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	if k.Namespace == "" {
		k.Namespace = e.Namespace
	}
	return k, true
}

// index sets up the indexes.
func index(ctx context.Context, x client.FieldIndexer, systemNamespace string) error {
	endpoints := map[string]func(*v1alpha1.WebhookEndpoint) []string{
		indexPool:      func(e *v1alpha1.WebhookEndpoint) []string { return []string{poolOf(e, systemNamespace).String()} },
		indexSecret:    func(e *v1alpha1.WebhookEndpoint) []string { return names(referencesOf(e).secrets) },
		indexConfigMap: func(e *v1alpha1.WebhookEndpoint) []string { return names(referencesOf(e).configMaps) },
		indexService: func(e *v1alpha1.WebhookEndpoint) []string {
			if s, ok := serviceOf(e); ok {
				return []string{s.String()}
			}
			return nil
		},
		indexGrants: func(e *v1alpha1.WebhookEndpoint) []string {
			if s, ok := serviceOf(e); ok && s.Namespace != e.Namespace {
				return []string{s.Namespace}
			}
			return nil
		},
		indexPolicy: func(e *v1alpha1.WebhookEndpoint) []string {
			if ref := e.Spec.RetryPolicyRef; ref != nil {
				return []string{e.Namespace + "/" + ref.Name}
			}
			return nil
		},
	}
	for field, keys := range endpoints {
		err := x.IndexField(ctx, &v1alpha1.WebhookEndpoint{}, field, func(o client.Object) []string { return keys(o.(*v1alpha1.WebhookEndpoint)) })
		if err != nil {
			return err
		}
	}
	pools := map[string]func(references) map[types.NamespacedName]keySet{
		indexSecret:    func(r references) map[types.NamespacedName]keySet { return r.secrets },
		indexConfigMap: func(r references) map[types.NamespacedName]keySet { return r.configMaps },
	}
	for field, of := range pools {
		err := x.IndexField(ctx, &v1alpha1.DeliveryPool{}, field, func(o client.Object) []string {
			r := newReferences()
			r.pool(o.(*v1alpha1.DeliveryPool))
			return names(of(r))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func referencesOf(e *v1alpha1.WebhookEndpoint) references {
	r := newReferences()
	r.endpoint(e)
	return r
}
