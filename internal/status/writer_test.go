package status

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	apply "github.com/doorstep-dev/doorstep/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/clock"
	"github.com/doorstep-dev/doorstep/internal/dispatch"
	"github.com/doorstep-dev/doorstep/internal/health"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// scene is a pool of n endpoints with a fake API server that counts writes.
type scene struct {
	t      *testing.T
	w      *Writer
	plan   *plan.Plan
	counts map[plan.EndpointKey]queue.Counts
	views  map[plan.EndpointKey]dispatch.View
	// fresh is since when an endpoint's first delivery waits that was not attempted yet.
	fresh  map[plan.EndpointKey]time.Time
	writes int
	away   bool
	// refused is the endpoint whose status is refused, and tried how often that was.
	refused string
	tried   int
	mu      sync.Mutex // of counts, views, writes, away, refused and tried
	cancel  context.CancelFunc
	ended   chan error
}

func (s *scene) Counts(k plan.EndpointKey) queue.Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[k]
}
func (s *scene) Usage() queue.Usage { return queue.Usage{UsedBytes: 1 << 20, CapacityBytes: 1 << 30} }
func (s *scene) Head(context.Context, plan.EndpointKey, uint64) (queue.Delivery, error) {
	return queue.Delivery{}, queue.ErrNotFound
}
func (s *scene) Due(context.Context, plan.EndpointKey, time.Time, int) ([]queue.Delivery, time.Time, error) {
	return nil, time.Time{}, nil
}
func (s *scene) Fresh(_ context.Context, k plan.EndpointKey, _ queue.Seq, _ int) ([]queue.Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.fresh[k]; ok {
		return []queue.Delivery{{QueuedAt: at}}, nil
	}
	return nil, nil
}
func (s *scene) View(k plan.EndpointKey) (dispatch.View, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.views[k], true
}

// change alters what is to be seen.
func (s *scene) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// refuses says, and counts, whether a write to that endpoint is refused.
func (s *scene) refuses(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away || s.refused == "" || name != s.refused {
		return false
	}
	s.tried++
	return true
}

// reached counts a call, unless the API server is away.
func (s *scene) reached(write bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return errors.New("the API server is away")
	}
	if write {
		s.writes++
	}
	return nil
}

func key(i int) plan.EndpointKey {
	return plan.EndpointKey{Namespace: "shop", Name: fmt.Sprintf("e%04d", i)}
}

// in runs f in virtual time beside a Writer of n endpoints.
func in(t *testing.T, n int, f func(*scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		scheme := runtime.NewScheme()
		if err := v1alpha1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		s := &scene{t: t, plan: &plan.Plan{}, counts: map[plan.EndpointKey]queue.Counts{}, views: map[plan.EndpointKey]dispatch.View{}, fresh: map[plan.EndpointKey]time.Time{}, ended: make(chan error, 1)}
		b := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.WebhookEndpoint{}, &v1alpha1.DeliveryPool{})
		for i := range n {
			o := &v1alpha1.WebhookEndpoint{}
			o.Namespace, o.Name, o.UID, o.Generation = "shop", key(i).Name, types.UID(key(i).Name), 1
			b = b.WithObjects(o)
			s.plan.Endpoints = append(s.plan.Endpoints, plan.Endpoint{EndpointKey: key(i), UID: key(i).Name, Generation: 1})
		}
		pool := &v1alpha1.DeliveryPool{}
		pool.Namespace, pool.Name = "doorstep-system", "default"
		c := interceptor.NewClient(b.WithObjects(pool).Build(), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if err := s.reached(false); err != nil {
					return err
				}
				return c.Get(ctx, k, o, opts...)
			},
			SubResourceApply: func(ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
				if a, ok := o.(*apply.WebhookEndpointApplyConfiguration); ok && s.refuses(*a.Name) {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "webhookendpoints"}, *a.Name, errors.New("no RoleBinding"))
				}
				if err := s.reached(true); err != nil {
					return err
				}
				return c.SubResource(sub).Apply(ctx, o, opts...)
			},
		})
		s.w = &Writer{
			Client: c, Pool: types.NamespacedName{Namespace: "doorstep-system", Name: "default"}, Queue: s, Lanes: s,
			Plan: func() *plan.Plan { return s.plan }, Health: health.NewBook(), Clock: clock.New(nil, time.Time{}), Log: logr.Discard(),
		}
		s.start()
		f(s)
		s.stop()
	})
}

func (s *scene) start() {
	ctx, cancel := context.WithCancel(s.t.Context())
	s.cancel = cancel
	go func() { s.ended <- s.w.Run(ctx) }()
}

func (s *scene) stop() {
	s.cancel()
	<-s.ended
}

// during gives how many writes were made in a time.
func (s *scene) during(d time.Duration) int {
	count := func() (n int) { s.change(func() { n = s.writes }); return n }
	before := count()
	time.Sleep(d) // virtual
	synctest.Wait()
	return count() - before
}

func (s *scene) shown(i int) *v1alpha1.WebhookEndpointStatus {
	var o v1alpha1.WebhookEndpoint
	if err := s.w.Client.Get(s.t.Context(), types.NamespacedName{Namespace: "shop", Name: key(i).Name}, &o); err != nil {
		s.t.Fatal(err)
	}
	return &o.Status
}

func (s *scene) reason(i int, kind string) string {
	for _, c := range s.shown(i).Conditions {
		if c.Type == kind {
			return c.Reason
		}
	}
	return ""
}

// case CS172
func TestNothingIsWrittenWhenNothingChanges(t *testing.T) {
	in(t, 100, func(s *scene) {
		if n := s.during(2 * time.Minute); n < 100 {
			t.Errorf("%d writes at first, want one for each endpoint", n)
		}
		if n := s.during(time.Hour); n != 0 {
			t.Errorf("%d writes in a quiet hour", n)
		}
		// A worker that restarts looks, and finds everything as it is.
		s.stop()
		s.start()
		if n := s.during(10 * time.Minute); n != 0 {
			t.Errorf("%d writes after a restart", n)
		}
	})
}

func TestATransitionIsWrittenBeforeAllElse(t *testing.T) {
	in(t, 500, func(s *scene) {
		s.during(5 * time.Minute)
		s.change(func() {
			for i := range 500 {
				s.counts[key(i)] = queue.Counts{Pending: 7} // everybody has something to say
			}
		})
		s.during(time.Second)
		s.change(func() {
			s.views[key(321)] = dispatch.View{State: dispatch.BackingOff, Reason: dispatch.ReasonFailing, Message: "the receiver fails"}
		})
		s.during(3 * time.Second)
		if got := s.reason(321, v1alpha1.ConditionDelivering); got != v1alpha1.ReasonBackingOff {
			t.Errorf("Delivering is %s three seconds after the lane changed", got)
		}
	})
}

// First successes are written at once, and of thousands of them none keeps an outage from being told.
func TestATransitionIsWrittenBeforeFirstSuccesses(t *testing.T) {
	in(t, 500, func(s *scene) {
		s.during(5 * time.Minute)
		for i := range 500 {
			s.attempt(i)
		}
		s.during(2 * time.Second)
		s.change(func() { s.views[key(321)] = backingOff })
		s.during(2 * time.Second)
		if got := s.reason(321, v1alpha1.ConditionDelivering); got != v1alpha1.ReasonBackingOff {
			t.Errorf("Delivering is %s two seconds after the lane changed", got)
		}
		s.during(2 * time.Minute)
		for i := range 500 {
			if got := s.reason(i, v1alpha1.ConditionHealthy); got != v1alpha1.ReasonSucceeding {
				t.Fatalf("Healthy of endpoint %d is %s after two minutes", i, got)
			}
		}
	})
}

func TestWritesStayWithinTheirBudget(t *testing.T) {
	in(t, 800, func(s *scene) {
		s.during(5 * time.Minute)
		n := 0
		for minute := range 5 {
			s.change(func() {
				for i := range 800 {
					s.counts[key(i)] = queue.Counts{Pending: minute + 1}
					state := dispatch.Active
					if (minute+i)%2 == 0 {
						state = dispatch.Suspended
					}
					s.views[key(i)] = dispatch.View{State: state}
				}
			})
			n += s.during(time.Minute)
		}
		if most := 5 * 60 * 5; n > most || n < most/2 {
			t.Errorf("%d writes in 5 minutes, want at most %d and no fewer than half of that", n, most)
		}
	})
}

func TestAnAPIServerThatIsAwayIsCaughtUpWith(t *testing.T) {
	in(t, 20, func(s *scene) {
		s.during(time.Minute)
		s.change(func() {
			s.away = true
			s.views[key(3)] = dispatch.View{State: dispatch.Disabled, Message: "the receiver answered 410 Gone"}
		})
		s.during(20 * time.Minute)
		s.change(func() {
			s.views[key(4)] = dispatch.View{State: dispatch.Suspended, Message: "suspended"}
			s.away = false
		})
		s.during(2 * time.Minute)
		if a, b := s.reason(3, v1alpha1.ConditionDelivering), s.reason(4, v1alpha1.ConditionDelivering); a != v1alpha1.ReasonDisabled || b != v1alpha1.ReasonSuspended {
			t.Errorf("Delivering is %s and %s afterwards", a, b)
		}
	})
}

// Without a token nothing can be sent, so nothing is known of the receiver but that.
func TestNoTokenIsNotHealthy(t *testing.T) {
	s := sight{healthy: health.Good, lane: dispatch.View{State: dispatch.BackingOff, Reason: dispatch.ReasonAuthFailed, Message: "no OAuth2 token can be had"}}
	if v := s.healthiness(); v.status != metav1.ConditionFalse || v.reason != v1alpha1.ReasonAuthFailed {
		t.Errorf("Healthy says %+v", v)
	}
	s.lane = dispatch.View{State: dispatch.Active}
	if v := s.healthiness(); v.status != metav1.ConditionTrue {
		t.Errorf("with a token Healthy says %+v", v)
	}
}

func TestNumbersAreRounded(t *testing.T) {
	for n, want := range map[int]int64{0: 0, 7: 7, 99: 99, 100: 100, 101: 100, 129: 120, 1234: 1200, 56789: 56000} {
		if got := *rounded(n); got != want {
			t.Errorf("%d is shown as %d, want %d", n, got, want)
		}
	}
}
