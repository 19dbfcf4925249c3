package controllers

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/compile"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/planstore"
)

var (
	writingPool = v1alpha1.DeliveryPool{ObjectMeta: metav1.ObjectMeta{Namespace: "doorstep-system", Name: "default", UID: "uid"}}
	writingTime = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
)

// writing is a pool's plan over a fake API server that counts, and refuses if it should.
type writing struct {
	client.WithWatch
	mu      sync.Mutex
	applied int
	refuse  error
}

func newWriting(t *testing.T) (*writing, *poolPlan) {
	t.Helper()
	w := &writing{}
	w.WithWatch = interceptor.NewClient(fake.NewClientBuilder().WithScheme(Scheme()).Build(), interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if w.refuse != nil {
				return w.refuse
			}
			w.mu.Lock()
			w.applied++
			w.mu.Unlock()
			return c.Apply(ctx, o, opts...)
		},
	})
	s := w.restarted()
	return w, s
}

// restarted is what a new process knows.
func (w *writing) restarted() *poolPlan {
	return &poolPlan{writer: planstore.NewWriter(w, w, client.ObjectKeyFromObject(&writingPool), writingPool.UID), first: true}
}

// crowd is endpoints of 28 KiB each that don't pack, whose uids all fall into one shard.
func crowd(n int) compile.Objects {
	random := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		b := make([]byte, 2000)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return hex.EncodeToString(b)
	}
	in := compile.Objects{Pools: []v1alpha1.DeliveryPool{writingPool}, Namespaces: []compile.Namespace{{Name: "shop"}}}
	for i := 0; len(in.Endpoints) < n; i++ {
		uid := fmt.Sprintf("uid-%d", i)
		h := fnv.New32a()
		_, _ = h.Write([]byte(uid))
		if h.Sum32()%v1alpha1.PlanShards != 5 {
			continue
		}
		e := v1alpha1.WebhookEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("e%03d", len(in.Endpoints)), UID: types.UID(uid), Generation: 1}}
		e.Spec.URL = "https://hooks.example.com/"
		e.Spec.Signing = &v1alpha1.Signing{Scheme: v1alpha1.SignatureSchemeNone}
		for header := range 7 {
			e.Spec.Headers = append(e.Spec.Headers, v1alpha1.Header{Name: fmt.Sprintf("X-%d", header), Value: text()})
		}
		in.Endpoints = append(in.Endpoints, e)
	}
	return in
}

// Where a shard has no room for all that falls into it, those that came last are held and say
// so, the pool says how many they are, and all else is written, also by the next process.
func TestAFullPlanHoldsWhatCameLast(t *testing.T) {
	w, s := newWriting(t)
	ctx := t.Context()
	in := crowd(100)
	early, late := in, in
	early.Endpoints = in.Endpoints[:40]
	write := func(s *poolPlan, in compile.Objects) compile.Result {
		t.Helper()
		r, err := s.write(ctx, &writingPool, in, writingTime)
		if err != nil {
			t.Fatal(err)
		}
		s.previous, s.first = r.Plan, false
		return r
	}
	held := func(r compile.Result) (held []string) {
		for i := range r.Plan.Endpoints {
			if e := &r.Plan.Endpoints[i]; e.Problem != nil {
				if e.Problem.Reason != v1alpha1.ReasonPlanFull {
					t.Errorf("%s is held for %s: %s", e.Name, e.Problem.Reason, e.Problem.Message)
				}
				held = append(held, e.Name)
			}
		}
		return held
	}
	if n := held(write(s, early)); len(n) > 0 {
		t.Fatalf("%v of 40 are held", n)
	}
	r := write(s, late)
	first := held(r)
	if len(first) == 0 || first[0] < "e040" {
		t.Fatalf("held are %v, want some of those that came last", first)
	}
	said := ""
	for _, p := range r.Problems {
		if p.Kind == compile.KindPool {
			said += p.Reason + ": " + p.Message
		}
	}
	if !strings.HasPrefix(said, v1alpha1.ReasonPlanFull+": ") || !strings.Contains(said, fmt.Sprintf("no room for %d of", len(first))) {
		t.Errorf("of the pool is said %q", said)
	}
	on, _, err := s.writer.Load(ctx)
	if err != nil || !plan.Equal(on, r.Plan) || len(on.Endpoints) != 100 {
		t.Errorf("another plan is written (%v)", err)
	}
	w.applied = 0
	for range 3 {
		if again := write(s, late); again.Plan.Version != r.Plan.Version || w.applied > 0 {
			t.Fatalf("nothing changed, and version %d is written in place of %d, by %d requests", again.Plan.Version, r.Plan.Version, w.applied)
		}
	}
	s = w.restarted()
	if s.previous, _, err = s.writer.Load(ctx); err != nil {
		t.Fatal(err)
	}
	if again := write(s, late); again.Plan.Version != r.Plan.Version || w.applied > 0 {
		t.Errorf("another process writes version %d in place of %d, by %d requests", again.Plan.Version, r.Plan.Version, w.applied)
	}
	// An endpoint that runs is edited: it is not held in place of one that found no room.
	late.Endpoints = append([]v1alpha1.WebhookEndpoint(nil), in.Endpoints...)
	late.Endpoints[0].Generation = 2
	late.Endpoints[0].Spec.Headers = late.Endpoints[0].Spec.Headers[:3]
	if again := write(s, late); again.Plan.Endpoints[0].Problem != nil || len(held(again)) > len(first) {
		t.Errorf("after an edit held are %v", held(again))
	}
	late.Endpoints = in.Endpoints[:42]
	if n := held(write(s, late)); len(n) > 0 && len(n) >= len(first) {
		t.Errorf("once most are gone, %v are held", n)
	}
	if n := held(write(s, early)); len(n) > 0 {
		t.Errorf("of 40 are held %v", n)
	}
}

// What keeps a plan from being written is said in the pool's status, if it is an answer.
func TestAPlanThatCantBeWrittenIsSaid(t *testing.T) {
	resource := schema.GroupResource{Resource: "secrets"}
	for _, row := range []struct {
		name   string
		refuse error
		reason string
	}{
		{"a quota", apierrors.NewForbidden(resource, "default-plan-05", errors.New("exceeded quota: secrets")), v1alpha1.ReasonObjectsFailed},
		{"no namespace", apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "doorstep-system"), v1alpha1.ReasonObjectsFailed},
		{"too large", fmt.Errorf("the index: %w", planstore.ErrTooLarge), v1alpha1.ReasonPlanFull},
		{"away", errors.New("connect: connection refused"), ""},
		{"overloaded", apierrors.NewTooManyRequests("come again", 1), ""},
		{"a conflict", apierrors.NewConflict(resource, "default-plan", errors.New("changed")), ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, s := newWriting(t)
			w.refuse = row.refuse
			p := &Planner{Changed: Changed{Pools: make(chan event.GenericEvent, 10)}}
			for range 2 {
				_, err := s.write(t.Context(), &writingPool, crowd(1), writingTime)
				if err == nil {
					t.Fatal("it was written")
				}
				p.notWritten(&writingPool, s, err)
			}
			if row.reason == "" {
				if s.outcome != nil || len(p.Changed.Pools) > 0 {
					t.Errorf("it says %+v", s.outcome)
				}
				return
			}
			if s.outcome == nil || len(s.outcome.Pool) != 1 || len(p.Changed.Pools) != 1 {
				t.Fatalf("it says %+v, %d times", s.outcome, len(p.Changed.Pools))
			}
			if got := s.outcome.Pool[0]; got.Reason != row.reason || !strings.Contains(got.Message, "tried again") {
				t.Errorf("it says %+v", got)
			}
		})
	}
}

// A Secret of the plan that another changed or removed brings its pool, also where that was
// missed; our own writes don't, and other Secrets bring those that need them.
func TestSecretsOfAPlanBringTheirPool(t *testing.T) {
	w, s := newWriting(t)
	in := crowd(2)
	pass := func() {
		t.Helper()
		r, err := s.write(t.Context(), &writingPool, in, writingTime)
		if err != nil {
			t.Fatal(err)
		}
		s.previous = r.Plan
	}
	pass()
	key := client.ObjectKeyFromObject(&writingPool)
	p := &Planner{Client: w, pools: map[types.NamespacedName]*poolPlan{key: s}}
	shard := func() *corev1.Secret {
		var o corev1.Secret
		if err := w.Get(t.Context(), types.NamespacedName{Namespace: key.Namespace, Name: "default-plan-05"}, &o); err != nil {
			t.Fatal(err)
		}
		return &o
	}
	brings := func(what string, want bool, do func(q *bringing)) {
		t.Helper()
		q := &bringing{}
		do(q)
		if got := len(q.added) > 0; got != want || want && q.added[0].NamespacedName != key {
			t.Errorf("%s brings %v, want our pool: %v", what, q.added, want)
		}
		pass()
	}
	h := p.secretChanged()
	old := shard()
	in.Endpoints[0].Generation = 2
	pass()
	own := shard()
	if reflect.DeepEqual(own.Data, old.Data) || own.ResourceVersion == old.ResourceVersion {
		t.Fatal("it was not written")
	}
	brings("our own write", false, func(q *bringing) {
		h.Update(t.Context(), event.UpdateEvent{ObjectOld: old, ObjectNew: own}, q)
	})
	brings("a later look at it", false, func(q *bringing) { h.Create(t.Context(), event.CreateEvent{Object: own}, q) })
	brings("another's write, who took the labels off", true, func(q *bringing) {
		foreign := shard()
		foreign.Labels, foreign.Data = nil, nil
		if err := w.Update(t.Context(), foreign); err != nil {
			t.Fatal(err)
		}
		h.Update(t.Context(), event.UpdateEvent{ObjectOld: own, ObjectNew: foreign}, q)
	})
	brings("a removal that was missed", true, func(q *bringing) {
		o := shard()
		if err := w.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		h.Delete(t.Context(), event.DeleteEvent{Object: o, DeleteStateUnknown: true}, q)
	})
	if b := shard().Data[v1alpha1.PlanSecretKey]; len(b) == 0 {
		t.Error("it is not there again")
	}
}

// bringing notes what is added to a queue.
type bringing struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	added []reconcile.Request
}

func (b *bringing) Add(r reconcile.Request) { b.added = append(b.added, r) }
