package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/compile"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

const (
	// missingInterval is how soon an endpoint that the former plan has and the cache doesn't is
	// looked for again.
	missingInterval = 10 * time.Second
	// missingAtOnce bounds how many are looked for in one pass.
	missingAtOnce = 200
	// unreadInterval is how soon a Secret or ConfigMap that could not be read is read again.
	unreadInterval = 10 * time.Second
)

// look is what one pass sees.
type look struct {
	objects compile.Objects
	// unread says, of endpoints that need something that exists and can't be read, what that is.
	// They go on as the former plan has them.
	unread map[plan.EndpointKey]string
	aside  []*v1alpha1.WebhookEndpoint
	// again is how soon to look again although nothing changed; 0: not.
	again time.Duration
}

func (l *look) soon(d time.Duration) {
	if l.again == 0 || d < l.again {
		l.again = d
	}
}

// gather collects everything that the plan of a pool depends on.
func (p *Planner) gather(ctx context.Context, pool *v1alpha1.DeliveryPool, s *poolPlan) (look, error) {
	ctx, span := tracer().Start(ctx, "gather the objects of the pool")
	defer span.End()
	l := look{objects: compile.Objects{Pools: []v1alpha1.DeliveryPool{*pool}}}
	in := &l.objects
	var endpoints v1alpha1.WebhookEndpointList
	if err := p.Client.List(ctx, &endpoints, client.MatchingFields{indexPool: client.ObjectKeyFromObject(pool).String()}, client.UnsafeDisableDeepCopy); err != nil {
		return l, fmt.Errorf("list WebhookEndpoints: %w", err)
	}
	in.Endpoints = endpoints.Items
	var policies v1alpha1.RetryPolicyList
	if err := p.Client.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return l, fmt.Errorf("list RetryPolicies: %w", err)
	}
	in.RetryPolicies = policies.Items
	var namespaces corev1.NamespaceList
	if err := p.Client.List(ctx, &namespaces, client.UnsafeDisableDeepCopy); err != nil {
		return l, fmt.Errorf("list Namespaces: %w", err)
	}
	for i := range namespaces.Items {
		n := &namespaces.Items[i]
		in.Namespaces = append(in.Namespaces, compile.Namespace{Name: n.Name, UID: string(n.UID), Labels: n.Labels})
	}
	r := newReferences()
	r.pool(pool)
	for i := range in.Endpoints {
		r.endpoint(&in.Endpoints[i])
	}
	var err error
	var unread map[dataKey]metav1.StatusReason
	if in.Secrets, in.ConfigMaps, unread, err = s.data.read(ctx, r); err != nil {
		return l, err
	}
	if len(unread) > 0 {
		if err := l.setAside(pool, unread); err != nil {
			return l, err
		}
	}
	if err := p.services(ctx, &l); err != nil {
		return l, err
	}
	p.missing(ctx, pool, s, &l)
	return l, nil
}

// unreadError says what a pool needs that exists and can't be read.
type unreadError string

func (e unreadError) Error() string { return string(e) }

// setAside takes out the endpoints that need something that can't be read, so that all others
// get what is new. What the pool itself needs is needed by all.
func (l *look) setAside(pool *v1alpha1.DeliveryPool, unread map[dataKey]metav1.StatusReason) error {
	l.soon(unreadInterval)
	r := newReferences()
	r.pool(pool)
	if what := r.unread(unread); what != "" {
		return unreadError(what)
	}
	l.unread = map[plan.EndpointKey]string{}
	var rest []v1alpha1.WebhookEndpoint
	for i := range l.objects.Endpoints {
		e := &l.objects.Endpoints[i]
		what := referencesOf(e).unread(unread)
		if what == "" {
			rest = append(rest, *e)
			continue
		}
		k := plan.EndpointKey{Namespace: e.Namespace, Name: e.Name}
		l.unread[k] = what
		l.aside = append(l.aside, e)
		l.objects.Refused = append(l.objects.Refused, k)
	}
	l.objects.Endpoints = rest
	return nil
}

// services adds the Services that endpoints post to, and the grants that let them.
func (p *Planner) services(ctx context.Context, l *look) error {
	seen := map[types.NamespacedName]bool{}
	granting := map[string]bool{}
	for i := range l.objects.Endpoints {
		e := &l.objects.Endpoints[i]
		k, ok := serviceOf(e)
		if !ok {
			continue
		}
		if k.Namespace != e.Namespace {
			granting[k.Namespace] = true
		}
		if seen[k] {
			continue
		}
		seen[k] = true
		var svc corev1.Service
		err := p.Client.Get(ctx, k, &svc)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read Service %s: %w", k, err)
		}
		l.objects.Services = append(l.objects.Services, svc)
	}
	for ns := range granting {
		grants, err := p.grants(ctx, ns)
		if err != nil {
			return err
		}
		l.objects.Grants = append(l.objects.Grants, grants...)
	}
	return nil
}

var referenceGrants = schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1beta1", Kind: "ReferenceGrant"}

// grants reads what the ReferenceGrants of a namespace say of WebhookEndpoints and
// Services. A cluster without that kind grants nothing, and so does a namespace that the
// manager has no rights in.
func (p *Planner) grants(ctx context.Context, namespace string) ([]compile.Grant, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(referenceGrants.GroupVersion().WithKind(referenceGrants.Kind + "List"))
	err := p.Live.List(ctx, list, client.InNamespace(namespace))
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list ReferenceGrants of namespace %s: %w", namespace, err)
	}
	var out []compile.Grant
	for i := range list.Items {
		out = append(out, grantsOf(&list.Items[i])...)
	}
	return out, nil
}

// grantsOf reads one ReferenceGrant.
func grantsOf(o *unstructured.Unstructured) []compile.Grant {
	entries := func(field string) (out []map[string]any) {
		list, _, _ := unstructured.NestedSlice(o.Object, "spec", field)
		for _, e := range list {
			if m, ok := e.(map[string]any); ok {
				out = append(out, m)
			}
		}
		return out
	}
	text := func(m map[string]any, key string) string { s, _ := m[key].(string); return s }
	var out []compile.Grant
	for _, from := range entries("from") {
		if text(from, "group") != v1alpha1.GroupName || text(from, "kind") != v1alpha1.KindWebhookEndpoint {
			continue
		}
		for _, to := range entries("to") {
			if text(to, "group") == "" && text(to, "kind") == "Service" {
				out = append(out, compile.Grant{Namespace: o.GetNamespace(), From: text(from, "namespace"), Service: text(to, "name")})
			}
		}
	}
	return out
}

// missing looks, one by one and past the cache, for the endpoints that the former plan has
// and the cache doesn't. Only an answer that one does not exist, or belongs to another
// pool now, deletes it; an answer that doesn't come leaves it absent.
func (p *Planner) missing(ctx context.Context, pool *v1alpha1.DeliveryPool, s *poolPlan, l *look) {
	if s.previous == nil {
		return
	}
	present := make(map[plan.EndpointKey]bool, len(l.objects.Endpoints))
	for i := range l.objects.Endpoints {
		e := &l.objects.Endpoints[i]
		present[plan.EndpointKey{Namespace: e.Namespace, Name: e.Name}] = true
	}
	for k := range l.unread {
		present[k] = true
	}
	asked := 0
	for e := range s.previous.Known() {
		k := e.EndpointKey
		if present[k] {
			delete(s.looked, k)
			continue
		}
		if p.Now().Sub(s.looked[k]) < missingInterval || asked == missingAtOnce {
			l.soon(missingInterval)
			continue
		}
		asked++
		s.looked[k] = p.Now()
		gone, err := p.gone(ctx, pool, k)
		if err != nil {
			log.FromContext(ctx).Info("An endpoint is not to be seen, and whether it exists can't be told; its events are held", "endpoint", k.String(), "error", err.Error())
		}
		if gone {
			l.objects.Gone = append(l.objects.Gone, k)
			delete(s.looked, k)
		} else {
			l.soon(missingInterval)
		}
	}
}

// gone asks the API server whether an endpoint does not exist.
func (p *Planner) gone(ctx context.Context, pool *v1alpha1.DeliveryPool, k plan.EndpointKey) (bool, error) {
	var e v1alpha1.WebhookEndpoint
	err := p.Live.Get(ctx, types.NamespacedName{Namespace: k.Namespace, Name: k.Name}, &e)
	switch {
	case apierrors.IsNotFound(err):
		// A kind that is not installed is answered the same way, and so is every endpoint then.
		if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name == k.Name {
			return true, nil
		}
		return false, err
	case err != nil:
		return false, err
	}
	return poolOf(&e, p.SystemNamespace) != client.ObjectKeyFromObject(pool), nil
}
