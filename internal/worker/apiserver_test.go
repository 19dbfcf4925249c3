package worker

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/planstore"
)

// token is what callers show.
const token = "a-token"

// apiServer stands in for the API server. It goes away, and is slow.
type apiServer struct {
	client.WithWatch
	t *testing.T

	mu      sync.Mutex
	away    bool
	slow    time.Duration
	watches []watch.Interface
	writes  map[string]int
}

var errAway = errors.New("connect: connection refused")

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	a := &apiServer{t: t, writes: map[string]int{}}
	behind := fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&corev1.Secret{}, metav1.ObjectNameField, func(o client.Object) []string { return []string{o.GetName()} }).
		Build()
	a.WithWatch = interceptor.NewClient(behind, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return errors.Join(a.reach(ctx), c.Get(ctx, k, o, opts...))
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			return errors.Join(a.reach(ctx), c.List(ctx, l, opts...))
		},
		Watch: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			if err := a.reach(ctx); err != nil {
				return nil, err
			}
			var o client.ListOptions
			o.ApplyOptions(opts)
			if o.Raw != nil && o.Raw.SendInitialEvents != nil {
				return nil, errors.New("the fake client sends no initial events: list first")
			}
			behind, err := c.Watch(ctx, l, opts...)
			if err != nil {
				return nil, err
			}
			name, _ := o.FieldSelector.RequiresExactMatch(metav1.ObjectNameField)
			return a.pass(behind, name), nil
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return a.write(ctx, o, func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return a.write(ctx, o, func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return a.write(ctx, o, func() error {
				switch o := o.(type) {
				case *authenticationv1.TokenReview:
					o.Status.Authenticated = o.Spec.Token == token
					o.Status.User.Username = "system:serviceaccount:shop:producer"
					o.Status.Audiences = o.Spec.Audiences
				case *authorizationv1.SubjectAccessReview:
					o.Status.Allowed = true
				default:
					return c.Create(ctx, o, opts...)
				}
				return nil
			})
		},
	})
	return a
}

// reach is how a call comes through.
func (a *apiServer) reach(ctx context.Context) error {
	a.mu.Lock()
	away, slow := a.away, a.slow
	a.mu.Unlock()
	if away {
		return errAway
	}
	select {
	case <-time.After(slow):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *apiServer) write(ctx context.Context, o client.Object, do func() error) error {
	if err := a.reach(ctx); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writes[o.GetName()]++
	return nil
}

// pass gives a watch of the one object, since the fake client's is of all, which ends when
// the API server leaves.
func (a *apiServer) pass(behind watch.Interface, name string) watch.Interface {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := watch.NewProxyWatcher(make(chan watch.Event))
	a.watches = append(a.watches, w)
	events := make(chan watch.Event)
	go func() {
		defer behind.Stop()
		defer close(events)
		for {
			select {
			case e := <-behind.ResultChan():
				if o, ok := e.Object.(client.Object); !ok || o.GetName() != name {
					continue
				}
				select {
				case events <- e:
				case <-w.StopChan():
					return
				}
			case <-w.StopChan():
				return
			}
		}
	}()
	return &passed{w, events}
}

type passed struct {
	*watch.ProxyWatcher
	events <-chan watch.Event
}

func (p *passed) ResultChan() <-chan watch.Event { return p.events }

// leave makes the API server unreachable, watches under way included.
func (a *apiServer) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.away = true
	for _, w := range a.watches {
		w.Stop()
	}
	a.watches = nil
}

func (a *apiServer) comeBack() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.away = false
}

func (a *apiServer) slowBy(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slow = d
}

// written is how often an object was written.
func (a *apiServer) written(name string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.writes[name]
}

func (a *apiServer) make(objects ...client.Object) {
	a.t.Helper()
	for _, o := range objects {
		if err := a.Create(a.t.Context(), o); err != nil {
			a.t.Fatal(err)
		}
	}
}

// acknowledged is the version that the worker says it works by; 0 for none.
func (a *apiServer) acknowledged() uint64 {
	a.t.Helper()
	var m corev1.ConfigMap
	if err := a.Get(a.t.Context(), types.NamespacedName{Namespace: thePool.Namespace, Name: v1alpha1.PlanAcksName(thePool.Name)}, &m); err != nil {
		a.t.Fatal(err)
	}
	return planstore.Acknowledged(&m)[thePod]
}

// lease is the worker's.
func (a *apiServer) lease() coordinationv1.LeaseSpec {
	a.t.Helper()
	var l coordinationv1.Lease
	if err := a.Get(a.t.Context(), types.NamespacedName{Namespace: thePool.Namespace, Name: thePod}, &l); err != nil {
		a.t.Fatal(err)
	}
	return l.Spec
}
