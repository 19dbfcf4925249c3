package planstore

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// TestMain takes out of client-go's handling of errors the pause since the last one: it is
// the process's, whose time is not a bubble's.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	os.Exit(m.Run())
}

// secretServer is as much of an API server as a Watcher needs, for a synctest: it has
// Secrets, watches of one of them, and times at which it answers nothing.
type secretServer struct {
	client.WithWatch // nil: nothing else is called

	mu       sync.Mutex
	secrets  map[string][]byte
	version  int
	changed  map[string]int // the version in which each was changed last
	watchers map[*watch.FakeWatcher]string
	broken   error
	calls    map[string]int // by verb
}

func newSecretServer() *secretServer {
	return &secretServer{secrets: map[string][]byte{}, changed: map[string]int{}, watchers: map[*watch.FakeWatcher]string{}, calls: map[string]int{}}
}

// called counts a call, and is what it is answered.
func (s *secretServer) called(verb string) error {
	s.calls[verb]++
	return s.broken
}

func (s *secretServer) object(name string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: thePool.Namespace, Name: name, ResourceVersion: strconv.Itoa(s.version)},
		Data:       map[string][]byte{v1alpha1.PlanSecretKey: s.secrets[name]},
	}
}

func (s *secretServer) Get(_ context.Context, k types.NamespacedName, o client.Object, _ ...client.GetOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.called("get"); err != nil {
		return err
	}
	if _, ok := s.secrets[k.Name]; !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, k.Name)
	}
	*o.(*corev1.Secret) = *s.object(k.Name)
	return nil
}

func nameOf(opts []client.ListOption) string {
	var o client.ListOptions
	o.ApplyOptions(opts)
	name, _ := o.FieldSelector.RequiresExactMatch(metav1.ObjectNameField)
	return name
}

func (s *secretServer) List(_ context.Context, l client.ObjectList, opts ...client.ListOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.called("list"); err != nil {
		return err
	}
	list := l.(*corev1.SecretList)
	list.ResourceVersion = strconv.Itoa(s.version)
	if name := nameOf(opts); s.secrets[name] != nil {
		list.Items = append(list.Items, *s.object(name))
	}
	return nil
}

func (s *secretServer) Watch(_ context.Context, _ client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.called("watch"); err != nil {
		return nil, err
	}
	var o client.ListOptions
	o.ApplyOptions(opts)
	if o.Raw != nil && o.Raw.SendInitialEvents != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil) // list first
	}
	w := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 100})
	name := nameOf(opts)
	s.watchers[w] = name
	if since, err := strconv.Atoi(o.Raw.ResourceVersion); err == nil && s.changed[name] > since && s.secrets[name] != nil {
		w.Modify(s.object(name))
	}
	return w, nil
}

// set puts the bytes of a Secret, nil to remove it, and tells of it unless silently.
func (s *secretServer) set(name string, b []byte, silently bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.changed[name] = s.version
	was := s.object(name)
	s.secrets[name] = b
	if b == nil {
		delete(s.secrets, name)
	}
	for w, watched := range s.watchers {
		switch {
		case silently || watched != name || w.IsStopped():
		case b == nil:
			w.Delete(was)
		default:
			w.Modify(s.object(name))
		}
	}
}

// breaks makes every call fail from now on, and ends the watches; nil mends it.
func (s *secretServer) breaks(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
	s.end()
}

func (s *secretServer) end() {
	for w := range s.watchers {
		w.Stop()
	}
	clear(s.watchers)
}

func (s *secretServer) took() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := maps.Clone(s.calls)
	clear(s.calls)
	return was
}

// publish writes a plan as a Writer does, but for the shards that are left out.
func (s *secretServer) publish(t *testing.T, p *plan.Plan, without ...int) {
	t.Helper()
	shards, ix, err := NewWriter(nil, nil, thePool, "").pack(p)
	if err != nil {
		t.Fatal(err)
	}
	for n, b := range shards {
		if !slices.Contains(without, n) {
			s.set(v1alpha1.PlanShardName(thePool.Name, n), b, false)
		}
	}
	s.set(v1alpha1.PlanIndexName(thePool.Name), packed(t, ix), false)
}

// followed is a Watcher at work, and what it has used.
type followed struct {
	t      *testing.T
	server *secretServer
	mu     sync.Mutex
	plans  []*plan.Plan
	report Report
	log    []string
	begun  time.Time
}

func follow(t *testing.T, s *secretServer) *followed {
	f := &followed{t: t, server: s, begun: time.Now()}
	w := Watcher{
		Client: s, Pool: thePool,
		Log: funcr.New(func(_, line string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.log = append(f.log, line)
		}, funcr.Options{}),
		Use: func(_ context.Context, p *plan.Plan, r Report) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.plans, f.report = append(f.plans, p), r
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { _ = w.Run(ctx) })
	t.Cleanup(func() {
		s.mu.Lock()
		s.end()
		s.mu.Unlock()
		cancel()
		work.Wait()
	})
	return f
}

// uses fails the test unless a plan of that version and number of endpoints came in so long, the latest, and gives
// it.
func (f *followed) uses(within time.Duration, version uint64, endpoints int) *plan.Plan {
	f.t.Helper()
	time.Sleep(within)
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.plans) == 0 {
		f.t.Fatalf("no plan came; the log says:\n%s", strings.Join(f.log, "\n"))
	}
	p := f.plans[len(f.plans)-1]
	if p.Version != version || len(p.Endpoints) != endpoints {
		f.t.Fatalf("version %d with %d endpoints is in use, want %d with %d; the log says:\n%s", p.Version, len(p.Endpoints), version, endpoints, strings.Join(f.log, "\n"))
	}
	return p
}

func (f *followed) damaged() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.report.Damaged
}

func (f *followed) lines(text string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, line := range f.log {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// versioned is a plan of a version.
func versioned(version uint64, endpoints int) *plan.Plan {
	p := planOf(endpoints)
	p.Version = version
	return p
}

const live = 2 * time.Second

func TestAWatcherFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecretServer()
		s.publish(t, versioned(3, 100))
		f := follow(t, s)
		f.uses(live, 3, 100)
		s.took()
		next := versioned(4, 100)
		next.Endpoints[7].URL = "https://hooks.example.com/other"
		s.publish(t, next)
		if p := f.uses(live, 4, 100); p.Endpoints[7].URL != next.Endpoints[7].URL {
			t.Error("it is the former one")
		}
		if took := s.took(); took["get"] != 1 || took["list"] > 0 {
			t.Errorf("one endpoint's change was read by %v, want one get", took)
		}
		time.Sleep(time.Hour)
		if took := s.took(); took["get"] > 0 || took["list"]+took["watch"] > 0 {
			t.Errorf("in an hour without a change it called %v", took)
		}
	})
}

// An index that is gone or can't be read deletes nothing; neither does a plan of a later
// release. The next one is used.
func TestAWatcherAndABadIndex(t *testing.T) {
	later, err := pack(index{Format: plan.Format + 1, Version: 9})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name  string
		index []byte
		says  string
	}{
		{"removed", nil, ""},
		{"empty", []byte{}, "index of the plan can't be read"},
		{"damaged", []byte("damaged"), "index of the plan can't be read"},
		{"of a later release", later, "update this worker"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSecretServer()
				s.publish(t, versioned(3, 100))
				f := follow(t, s)
				f.uses(live, 3, 100)
				s.set(v1alpha1.PlanIndexName(thePool.Name), row.index, false)
				f.uses(time.Minute, 3, 100)
				if row.says != "" && f.lines(row.says) != 1 {
					t.Errorf("the log says:\n%s", strings.Join(f.log, "\n"))
				}
				s.publish(t, versioned(4, 50))
				f.uses(live, 4, 50)
			})
		})
	}
}

// A damaged or missing shard keeps what was read of it before. All else goes on at once, and
// once the shard is mended, as the index has it all along, it is read within seconds.
func TestAWatcherKeepsWhatADamagedShardHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecretServer()
		s.publish(t, versioned(3, 300))
		f := follow(t, s)
		f.uses(live, 3, 300)

		changed := versioned(4, 300)
		for i := range changed.Endpoints {
			changed.Endpoints[i].URL = "https://changed.example.com"
		}
		s.set(v1alpha1.PlanShardName(thePool.Name, 5), []byte("damaged"), true)
		s.set(v1alpha1.PlanShardName(thePool.Name, 6), nil, true)
		s.publish(t, changed, 5, 6)
		p := f.uses(tornPatience+live, 4, 300)
		if !slices.Equal(f.damaged(), []int{5, 6}) || len(p.Incomplete) > 0 {
			t.Errorf("%v are damaged, %v incomplete", f.damaged(), p.Incomplete)
		}
		for i := range p.Endpoints {
			e := &p.Endpoints[i]
			n := shardOf(e.UID, e.EndpointKey)
			if kept := e.URL != "https://changed.example.com"; kept != (n == 5 || n == 6) {
				t.Errorf("%s of shard %d has %s", e.EndpointKey, n, e.URL)
			}
		}
		// What is known to be damaged holds up no other change.
		changed.Version = 5
		changed.Endpoints[0].URL = "https://again.example.com"
		if n := shardOf(changed.Endpoints[0].UID, plan.EndpointKey{}); n == 5 || n == 6 {
			t.Fatal("another endpoint has to be changed")
		}
		s.publish(t, changed, 5, 6)
		f.uses(live, 5, 300)
		s.took()
		time.Sleep(10 * time.Minute)
		if took := s.took(); took["get"] > 2*int(10*time.Minute/damagedLook)+2 || took["get"] < 10 {
			t.Errorf("two damaged shards were looked for %d times in ten minutes", took["get"])
		}
		if f.lines("damaged or missing") != 1 {
			t.Errorf("the log says:\n%s", strings.Join(f.log, "\n"))
		}
		// A damaged index meanwhile keeps nobody from looking.
		s.set(v1alpha1.PlanIndexName(thePool.Name), []byte("damaged"), false)
		time.Sleep(time.Minute)
		shards, _, err := NewWriter(nil, nil, thePool, "").pack(changed)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{5, 6} {
			s.set(v1alpha1.PlanShardName(thePool.Name, n), shards[n], false)
		}
		if p := f.uses(damagedLook+live, 5, 300); !plan.Equal(p, changed) || len(f.damaged()) > 0 {
			t.Error("the mended shards are not used")
		}
		s.took()
		time.Sleep(10 * time.Minute)
		if took := s.took(); took["get"] > 0 {
			t.Errorf("with nothing damaged %d shards were read", took["get"])
		}
	})
}

// Of a shard that was never read it is told whose endpoints may be missing.
func TestAWatcherThatNeverReadAShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecretServer()
		p := versioned(3, 100)
		other := p.Endpoints[0]
		other.Namespace = "lab"
		for i := 0; shardOf(other.UID, plan.EndpointKey{}) == 5; i++ {
			other.UID = time.Duration(i).String()
		}
		p.Endpoints = append([]plan.Endpoint{other}, p.Endpoints...)
		s.publish(t, p, 5)
		f := follow(t, s)
		time.Sleep(tornPatience + live)
		synctest.Wait()
		if len(f.plans) != 1 || !slices.Equal(f.plans[0].Incomplete, []string{"shop"}) || !slices.Equal(f.damaged(), []int{5}) {
			t.Fatalf("%d plans came, %v are damaged", len(f.plans), f.damaged())
		}
		running := versioned(2, 100)
		if kept := KeepDamaged(f.plans[0], running, f.report); len(kept.Incomplete) > 0 || len(kept.Endpoints) != 101 {
			t.Errorf("beside a plan that has them, %v are incomplete, and there are %d endpoints", kept.Incomplete, len(kept.Endpoints))
		}
	})
}

// Index and shards that change while they are read: nothing is used until they agree, and
// an index that can't be read makes no difference to the one before it.
func TestAWatcherWaitsWhileIndexAndShardsDisagree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecretServer()
		s.publish(t, versioned(3, 100))
		f := follow(t, s)
		f.uses(live, 3, 100)
		next := versioned(4, 100)
		next.Endpoints[7].URL = "https://hooks.example.com/other"
		n := shardOf(next.Endpoints[7].UID, plan.EndpointKey{})
		shards, _, err := NewWriter(nil, nil, thePool, "").pack(next)
		if err != nil {
			t.Fatal(err)
		}
		s.publish(t, next, n)
		f.uses(tornPatience/4, 3, 100)
		s.set(v1alpha1.PlanIndexName(thePool.Name), []byte("damaged"), false)
		f.uses(tornPatience/4, 3, 100)
		s.set(v1alpha1.PlanShardName(thePool.Name, n), shards[n], false)
		if p := f.uses(live, 4, 100); !plan.Equal(p, next) || len(f.damaged()) > 0 {
			t.Error("another plan is in use")
		}
	})
}

// An API server that is away, or refuses, is asked again at growing times, told of once in a
// while, and the plan in use stays; what changed meanwhile is seen once it is back.
func TestAWatcherBacksOff(t *testing.T) {
	for _, row := range []struct {
		name string
		err  error
	}{
		{"away", errors.New("connect: connection refused")},
		{"forbidden", apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "default-plan", nil)},
		{"overloaded", apierrors.NewTooManyRequests("come again", 1)},
		{"unsound", apierrors.NewInternalError(errors.New("etcd"))},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSecretServer()
				s.publish(t, versioned(3, 100))
				f := follow(t, s)
				f.uses(live, 3, 100)
				s.breaks(row.err)
				s.took()
				time.Sleep(10 * time.Minute)
				total := 0
				for _, n := range s.took() {
					total += n
				}
				if total > 600 || total < 10 {
					t.Errorf("in ten minutes away it was called %d times", total)
				}
				if lines := f.lines("can't be followed"); lines < 1 || lines > 12 {
					t.Errorf("it was told %d times", lines)
				}
				f.uses(0, 3, 100)
				s.breaks(nil)
				s.publish(t, versioned(4, 50))
				// After so long, the client library looks once a minute.
				f.uses(time.Minute+live, 4, 50)
			})
		})
	}
}

// A shard that can't be read now is not a damaged one: it is tried until it can.
func TestAWatcherWhoseShardsCantBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecretServer()
		s.publish(t, versioned(3, 100))
		f := follow(t, s)
		f.uses(live, 3, 100)
		// The watch has brought the index when the API server goes.
		next := versioned(4, 100)
		next.Endpoints[7].URL = "https://hooks.example.com/other"
		s.publish(t, next, allShards()...)
		s.breaks(errors.New("connect: connection refused"))
		f.uses(time.Minute, 3, 100)
		s.breaks(nil)
		s.publish(t, next)
		if p := f.uses(time.Minute, 4, 100); !plan.Equal(p, next) {
			t.Error("another plan is in use")
		}
		if f.lines("damaged or missing") > 0 {
			t.Errorf("the log says:\n%s", strings.Join(f.log, "\n"))
		}
	})
}

// A change that no watch has told of is seen with the next list.
func TestAWatcherThatMissedAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSecretServer()
		s.publish(t, versioned(3, 100))
		f := follow(t, s)
		f.uses(live, 3, 100)
		shards, ix, err := NewWriter(nil, nil, thePool, "").pack(versioned(4, 50))
		if err != nil {
			t.Fatal(err)
		}
		for n, b := range shards {
			s.set(v1alpha1.PlanShardName(thePool.Name, n), b, true)
		}
		s.set(v1alpha1.PlanIndexName(thePool.Name), packed(t, ix), true)
		s.mu.Lock()
		for w := range s.watchers {
			gone := apierrors.NewResourceExpired("too old").Status()
			w.Error(&gone)
		}
		s.mu.Unlock()
		f.uses(time.Minute, 4, 50)
	})
}
