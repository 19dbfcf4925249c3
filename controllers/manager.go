package controllers

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

// Options say how the manager runs.
type Options struct {
	Config *rest.Config
	// Namespace is the installation's own, with the pool of endpoints that name none.
	Namespace string
	// WatchNamespaces are the only ones that are looked at; empty: all.
	WatchNamespaces []string
	// DefaultPool has the DeliveryPool default made, once, where there is none.
	DefaultPool bool
	// Image is the workers' image; empty: that of the manager's own Pod, PodName.
	Image, PodName string

	LeaderElect                             bool
	LeaseDuration, RenewDeadline, RetryTime time.Duration
	// MetricsAddress and ProbeAddress are host:port; "0" is none. InsecureMetrics serves them by
	// http to whoever asks.
	MetricsAddress, ProbeAddress string
	InsecureMetrics              bool
	// Concurrency is how many endpoints are reconciled at once.
	Concurrency int
	Log         logr.Logger
}

// LeaderElectionID is the Lease by which the managers of an installation agree on one of them.
const LeaderElectionID = "doorstep-manager"

// longestRetry is the longest time until what failed is tried again: after the API server was away for hours, all is right
// within a minute. (The library's own bound is a quarter of an hour.)
const longestRetry = time.Minute

// reconcileTimeout bounds one reconciliation.
const reconcileTimeout = 2 * time.Minute

// Scheme knows every kind that the manager reads and writes.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // two kinds of one name: a fault of the program
		}
	}
	return s
}

// Run runs the manager until ctx is done.
func Run(ctx context.Context, o Options) error {
	ctrl.SetLogger(o.Log)
	o.Config = rest.CopyConfig(o.Config)
	o.Config.QPS, o.Config.Burst = -1, -1 // the API server's own priority and fairness decides
	mgr, err := ctrl.NewManager(o.Config, o.manager())
	if err != nil {
		return fmt.Errorf("set up the manager: %w", err)
	}
	alone := &installation{client: mgr.GetClient(), live: mgr.GetAPIReader(), namespace: o.Namespace, watched: o.WatchNamespaces, log: o.Log.WithName("installation")}
	if err := alone.claim(ctx); err != nil {
		return err
	}
	if err := mgr.Add(alone); err != nil {
		return err
	}
	if o.Image == "" {
		if o.Image, err = ownImage(ctx, mgr.GetAPIReader(), o.Namespace, o.PodName); err != nil {
			return err
		}
	}
	if err := o.setup(ctx, mgr, alone); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func (o *Options) manager() ctrl.Options {
	metrics := metricsserver.Options{BindAddress: o.MetricsAddress}
	if !o.InsecureMetrics {
		metrics.SecureServing = true
		metrics.FilterProvider = filters.WithAuthenticationAndAuthorization
		metrics.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.MinVersion = tls.VersionTLS12 }}
	}
	yes := true
	return ctrl.Options{
		Scheme:                        Scheme(),
		Logger:                        o.Log,
		Cache:                         o.cache(),
		Client:                        client.Options{FieldOwner: v1alpha1.FieldOwnerManager, FieldValidation: metav1.FieldValidationStrict},
		Metrics:                       metrics,
		HealthProbeBindAddress:        o.ProbeAddress,
		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              LeaderElectionID,
		LeaderElectionNamespace:       o.Namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &o.LeaseDuration,
		RenewDeadline:                 &o.RenewDeadline,
		RetryPeriod:                   &o.RetryTime,
		Controller:                    config.Controller{EnableWarmup: &yes, ReconciliationTimeout: reconcileTimeout},
	}
}

// cache keeps of Secrets and ConfigMaps nothing but metadata, since controllers ask for no
// more, and of workloads only what the manager made. Fields that nobody reads are left
// out.
func (o *Options) cache() cache.Options {
	ours := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy})}
	c := cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&appsv1.StatefulSet{}: ours, &corev1.PersistentVolumeClaim{}: ours, &coordinationv1.Lease{}: ours,
			&corev1.ServiceAccount{}: ours, &rbacv1.Role{}: ours, &rbacv1.RoleBinding{}: ours, &rbacv1.ClusterRoleBinding{}: ours,
			&networkingv1.NetworkPolicy{}: ours,
			&corev1.Secret{}:              {Transform: bareMetadata},
			definition():                  {Transform: bareMetadata},
			&corev1.ConfigMap{}:           {Transform: bareUnlessOurs},
		},
	}
	if len(o.WatchNamespaces) > 0 {
		c.DefaultNamespaces = map[string]cache.Config{o.Namespace: {}}
		for _, ns := range o.WatchNamespaces {
			c.DefaultNamespaces[ns] = cache.Config{}
		}
	}
	return c
}

// bareMetadata drops what nobody asks of foreign objects: there may be thousands of them, and
// an annotation of kubectl's may hold a whole Secret once more.
func bareMetadata(o any) (any, error) {
	m, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return o, nil
	}
	m.ManagedFields, m.Annotations, m.Finalizers, m.OwnerReferences = nil, nil, nil, nil
	if m.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy {
		m.Labels = nil
	}
	return m, nil
}

// bareUnlessOurs is bareMetadata, but for what may have to be repaired.
func bareUnlessOurs(o any) (any, error) {
	if m, ok := o.(*metav1.PartialObjectMetadata); ok && m.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy {
		m.ManagedFields = nil
		return m, nil
	}
	return bareMetadata(o)
}

// setup makes the controllers.
func (o *Options) setup(ctx context.Context, mgr manager.Manager, alone *installation) error {
	if err := index(ctx, mgr.GetFieldIndexer(), o.Namespace); err != nil {
		return fmt.Errorf("index the cache: %w", err)
	}
	optional, err := newOptionalKinds(mgr)
	if err != nil {
		return err
	}
	cached := newWithin(mgr.GetClient(), alone.all())
	planner := &Planner{
		Client: cached, Live: mgr.GetAPIReader(), SystemNamespace: o.Namespace, Now: time.Now, Optional: optional,
		Changed: Changed{Endpoints: make(chan event.GenericEvent), Pools: make(chan event.GenericEvent)},
	}
	sees := newContact(mgr.GetAPIReader(), o.Namespace)
	for _, r := range []manager.Runnable{sees, newColdStart(mgr.GetCache())} {
		if err := mgr.Add(r); err != nil {
			return err
		}
	}
	available := &Availability{Now: sees.Now}
	recorder := mgr.GetEventRecorder(v1alpha1.FieldOwnerManager)
	many := controller.Options{MaxConcurrentReconciles: max(o.Concurrency, 1)}
	for _, c := range []interface {
		SetupWithManager(ctrl.Manager, controller.Options) error
	}{
		planner,
		&EndpointReconciler{Client: cached, Live: mgr.GetAPIReader(), Planner: planner, Availability: available, Events: recorder, SystemNamespace: o.Namespace},
		&RetryPolicyReconciler{Client: cached, Events: recorder},
		&PoolReconciler{Client: cached, Live: mgr.GetAPIReader(), Planner: planner, Availability: available, Events: recorder, Image: o.Image, Namespaces: alone.all(), Optional: optional},
		optional,
	} {
		many.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, longestRetry)
		if err := c.SetupWithManager(mgr, many); err != nil {
			return fmt.Errorf("set up %T: %w", c, err)
		}
	}
	if o.DefaultPool {
		if err := mgr.Add(&defaultPool{client: mgr.GetClient(), live: mgr.GetAPIReader(), namespace: o.Namespace, log: o.Log.WithName("default-pool")}); err != nil {
			return err
		}
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	return mgr.AddReadyzCheck("ping", healthz.Ping)
}

// ownImage is the image of the manager's Pod: workers run the same build.
func ownImage(ctx context.Context, r client.Reader, namespace, pod string) (string, error) {
	if pod == "" {
		return "", fmt.Errorf("the workers' image is not known: set DOORSTEP_IMAGE, or POD_NAME to the manager's own Pod")
	}
	var p corev1.Pod
	if err := r.Get(ctx, types.NamespacedName{Namespace: namespace, Name: pod}, &p); err != nil {
		return "", fmt.Errorf("read the manager's own Pod for the workers' image: %w; or set DOORSTEP_IMAGE", err)
	}
	for i := range p.Spec.Containers {
		if c := &p.Spec.Containers[i]; c.Name == v1alpha1.ComponentManager || len(p.Spec.Containers) == 1 {
			return c.Image, nil
		}
	}
	return "", fmt.Errorf("the manager's Pod %s has no container named %s to take the workers' image from; set DOORSTEP_IMAGE", pod, v1alpha1.ComponentManager)
}
