package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/planstore"
	"github.com/doorstep-dev/doorstep/test/cluster"
	"github.com/doorstep-dev/doorstep/test/harness"
)

var defaultPool = types.NamespacedName{Namespace: cluster.System, Name: v1alpha1.DefaultPoolName}

// site is a control plane with Doorstep installed and at work, and what is seen of it.
type site struct {
	*cluster.Cluster
	client  client.WithWatch
	manager *cluster.Manager
	pool    *cluster.Pool

	stopPool, stopWatches func()
	watches               *errgroup.Group
	// began is the moment from which requests are counted.
	began cluster.Mark

	mu sync.Mutex
	// versions are the plan's versions with the moments at which their index was seen, both ascending.
	versions []seenVersion
	// ready is when each endpoint was first seen Ready.
	ready map[plan.EndpointKey]time.Time
}

type seenVersion struct {
	version uint64
	at      time.Time
}

// openSite starts everything, and waits until the default pool is at work.
func openSite(ctx context.Context, binary string) (*site, error) {
	c, err := cluster.New()
	if err != nil {
		return nil, err
	}
	s := &site{Cluster: c, ready: map[plan.EndpointKey]time.Time{}}
	if err := s.start(ctx, binary); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *site) start(ctx context.Context, binary string) error {
	config := s.Config()
	config.QPS = -1
	var err error
	if s.client, err = client.NewWithWatch(config, client.Options{Scheme: cluster.Scheme()}); err != nil {
		return err
	}
	if err := s.InstallDoorstep(ctx); err != nil {
		return err
	}
	if s.pool, s.stopPool, err = s.PlayPool(binary, defaultPool); err != nil {
		return err
	}
	if s.manager, err = s.PrepareManager(ctx, binary, cluster.System); err != nil {
		return err
	}
	if err = s.manager.Relaunch(ctx); err != nil {
		return err
	}
	await, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = harness.Await(await, 200*time.Millisecond, "the default DeliveryPool to be Ready", func() (bool, error) {
		var p v1alpha1.DeliveryPool
		err := s.client.Get(ctx, defaultPool, &p)
		return err == nil && isReady(p.Status.Conditions, p.Generation), client.IgnoreNotFound(err)
	})
	if err != nil {
		return err
	}
	return s.watch(ctx)
}

// close ends everything.
func (s *site) close() {
	if s.stopWatches != nil {
		s.stopWatches()
		_ = s.watches.Wait()
	}
	if s.stopPool != nil {
		s.stopPool()
	}
	if s.manager != nil {
		s.manager.Kill()
	}
	_ = s.Stop()
}

func isReady(conditions []metav1.Condition, generation int64) bool {
	for _, c := range conditions {
		if c.Type == v1alpha1.ConditionReady {
			return c.Status == metav1.ConditionTrue && c.ObservedGeneration == generation
		}
	}
	return false
}

// watch notes from now on which versions of the plan are written, and who is Ready.
func (s *site) watch(ctx context.Context) error {
	ctx, s.stopWatches = context.WithCancel(ctx)
	s.watches = &errgroup.Group{}
	s.watches.Go(func() error {
		index := client.MatchingFields{metav1.ObjectNameField: v1alpha1.PlanIndexName(defaultPool.Name)}
		s.follow(ctx, func() client.ObjectList { return &corev1.SecretList{} }, s.seeIndex, client.InNamespace(defaultPool.Namespace), index)
		return nil
	})
	s.watches.Go(func() error {
		s.follow(ctx, func() client.ObjectList { return &v1alpha1.WebhookEndpointList{} }, s.seeEndpoint)
		return nil
	})
	var err error
	s.began, err = s.Mark()
	return err
}

// follow shows objects as they are and as they become, until ctx ends. A busy API server ends watches; then it begins
// again, as every client does.
func (s *site) follow(ctx context.Context, kind func() client.ObjectList, see func(runtime.Object), which ...client.ListOption) {
	_ = harness.Await(ctx, 100*time.Millisecond, "the end", func() (bool, error) {
		list := kind()
		if err := s.client.List(ctx, list, which...); err != nil {
			return false, nil //nolint:nilerr // the next turn asks again
		}
		if meta.EachListItem(list, func(o runtime.Object) error { see(o); return nil }) != nil {
			return false, nil
		}
		from := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}}
		w, err := s.client.Watch(ctx, kind(), append(which, from)...)
		if err != nil {
			return false, nil //nolint:nilerr // the next turn asks again
		}
		defer w.Stop()
		for e := range w.ResultChan() {
			see(e.Object)
		}
		return false, nil
	})
}

// managersRequests counts what the manager asked since all was at work, by verb and kind.
func (s *site) managersRequests() (map[string]int, error) {
	all, err := s.Requests(s.began)
	mine := slices.DeleteFunc(all, func(r cluster.Request) bool {
		return r.User != "system:serviceaccount:"+cluster.System+":doorstep-manager"
	})
	return cluster.Tally(mine, func(r cluster.Request) string {
		kind := r.Resource
		if r.Subresource != "" {
			kind += "/" + r.Subresource
		}
		return r.Verb + " " + kind
	}), err
}

func (s *site) seeIndex(seen runtime.Object) {
	secret, ok := seen.(*corev1.Secret)
	if !ok {
		return
	}
	at := time.Now()
	version, err := planstore.IndexVersion(secret.Data[v1alpha1.PlanSecretKey])
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions = append(s.versions, seenVersion{version, at})
}

func (s *site) seeEndpoint(seen runtime.Object) {
	o, ok := seen.(*v1alpha1.WebhookEndpoint)
	if !ok || !isReady(o.Status.Conditions, o.Generation) {
		return
	}
	at := time.Now()
	k := plan.EndpointKey{Namespace: o.Namespace, Name: o.Name}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready[k].IsZero() {
		s.ready[k] = at
	}
}

// written is when a version of the plan was written, or the one after it; false if none was.
func (s *site) written(version uint64) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.versions {
		if v.version >= version {
			return v.at, true
		}
	}
	return time.Time{}, false
}

// plan reads the plan from its Secrets.
func (s *site) plan(ctx context.Context) (*plan.Plan, error) {
	p, report, err := planstore.NewWriter(s.client, s.client, defaultPool, "").Load(ctx)
	if err != nil {
		return nil, err
	}
	if p == nil || len(report.Damaged) > 0 {
		return &plan.Plan{}, nil // it is being written
	}
	return p, nil
}
