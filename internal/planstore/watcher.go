package planstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

const (
	// tornPatience is how long index and shards may disagree before what is intact is used.
	tornPatience = 10 * time.Second
	// tornLook is the time between two looks at shards that disagree with their index.
	tornLook = 500 * time.Millisecond
	// damagedLook is how soon a damaged shard is looked for again: a shard that is mended as
	// its index has it brings no news.
	damagedLook = 5 * time.Second
)

// Watcher follows a pool's plan in the API server: it watches the index by its name and
// reads the shards that changed, by theirs. While the API server is away it goes on trying,
// and the plan in use stays.
type Watcher struct {
	Client client.WithWatch
	Pool   types.NamespacedName
	Log    logr.Logger
	// Use is called with each plan, from one goroutine. Damaged shards keep the entries that
	// were last read of them; what was never read is missing.
	Use func(context.Context, *plan.Plan, Report)
}

// Run follows the plan until ctx is done.
func (w *Watcher) Run(ctx context.Context) error {
	changed := latest{make(chan []byte, 1)}
	reflector := toolscache.NewReflectorWithOptions(w.listWatch(), &corev1.Secret{}, changed, toolscache.ReflectorOptions{Name: "plan", Backoff: &backoff})
	var g errgroup.Group
	// It would log an error at each try; listWatch tells enough of them.
	g.Go(func() error { reflector.RunWithContext(logr.NewContext(ctx, logr.Discard())); return nil })
	g.Go(func() error { w.follow(ctx, changed.bytes); return nil })
	return g.Wait()
}

// backoff is how soon the API server is tried again: once it is back, a plan is followed
// within ten seconds. Steps is no bound where a reflector uses it.
var backoff = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 1, Cap: 5 * time.Second, Steps: 10}

// latest takes what a reflector brings, and passes the index on: only the latest counts.
type latest struct{ bytes chan []byte }

var _ toolscache.ReflectorStore = latest{}

func (l latest) Add(o any) error {
	s, ok := o.(*corev1.Secret)
	if !ok {
		return nil
	}
	b := s.Data[v1alpha1.PlanSecretKey]
	if b == nil {
		b = []byte{} // which is no index: nil would mean that nothing came
	}
	select {
	case <-l.bytes:
	default:
	}
	l.bytes <- b
	return nil
}

func (l latest) Update(o any) error { return l.Add(o) }

// Delete does nothing: an index that is gone deletes nothing, and the plan in use stays.
func (latest) Delete(any) error { return nil }

func (l latest) Replace(all []any, _ string) error {
	for _, o := range all {
		if err := l.Add(o); err != nil {
			return err
		}
	}
	return nil
}

func (latest) Resync() error { return nil }

// listWatch lists and watches the one Secret.
func (w *Watcher) listWatch() toolscache.ListerWatcher {
	one := func(o metav1.ListOptions) []client.ListOption {
		return []client.ListOption{
			client.InNamespace(w.Pool.Namespace),
			client.MatchingFields{metav1.ObjectNameField: v1alpha1.PlanIndexName(w.Pool.Name)},
			&client.ListOptions{Raw: &o},
		}
	}
	often := rate.Sometimes{Interval: time.Minute}
	tell := func(ctx context.Context, err error) error {
		if err != nil && ctx.Err() == nil {
			often.Do(func() {
				w.Log.Info("The plan can't be followed; the one in use stays, and it is tried again", "error", err.Error())
			})
		}
		return err
	}
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := new(corev1.SecretList)
			return list, tell(ctx, w.Client.List(ctx, list, one(o)...))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			i, err := w.Client.Watch(ctx, new(corev1.SecretList), one(o)...)
			return i, tell(ctx, err)
		},
	}
}

// follow reads the plan of each index that comes, and looks again at what is damaged.
func (w *Watcher) follow(ctx context.Context, changed <-chan []byte) {
	f := following{Watcher: w, reader: reader{get: w.shard}, changed: changed}
	var again <-chan time.Time
	for {
		ix := f.reader.index
		select {
		case <-ctx.Done():
			return
		case b := <-changed:
			if ix = w.accepted(b); ix == nil {
				continue // and what is damaged is still looked for
			}
		case <-again:
		}
		report, ok := f.settle(ctx, ix)
		if !ok {
			return
		}
		if again = nil; len(report.Damaged) > 0 {
			again = time.After(damagedLook)
		}
		w.Use(ctx, f.reader.plan(), report)
	}
}

// accepted reads an index; nil if it can't be used, which is told.
func (w *Watcher) accepted(b []byte) *index {
	ix, err := unpackIndex(b)
	if err != nil {
		w.refuse(err)
		return nil
	}
	return ix
}

// refuse tells of an index that can't be used.
func (w *Watcher) refuse(err error) {
	if errors.Is(err, plan.ErrNewerFormat) {
		w.Log.Error(err, "The plan is of a later release; the former one stays in use: update this worker")
		return
	}
	w.Log.Error(err, "The index of the plan can't be read; the former plan stays in use, and the manager writes it anew")
}

// following is a Watcher at work.
type following struct {
	*Watcher
	reader  reader
	changed <-chan []byte
	// damaged gives the hash that each shard should have which was reported last.
	damaged map[int]string
}

// settle reads the shards of an index, and waits while they disagree with it, since they
// may be being written, and as long as they can't be read. For what was damaged already it
// doesn't wait. A newer index takes the place of the one that it began with. It is false
// once ctx is done.
func (f *following) settle(ctx context.Context, ix *index) (Report, bool) {
	begun := time.Now()
	look := time.NewTicker(tornLook)
	defer look.Stop()
	told := false
	for {
		report, err := f.reader.read(ctx, ix)
		if err != nil && !told && ctx.Err() == nil {
			told = true
			f.Log.Error(err, "The plan changed and can't be read; the former one stays in use, and it is tried again")
		}
		if err == nil && (f.known(report, ix) || time.Since(begun) >= tornPatience) {
			f.note(report, ix)
			return report, true
		}
		select {
		case <-ctx.Done():
			return Report{}, false
		case b := <-f.changed:
			if newer := f.accepted(b); newer != nil {
				ix = newer
			}
		case <-look.C:
		}
	}
}

// known reports whether nothing is damaged but what was before.
func (f *following) known(r Report, ix *index) bool {
	for _, n := range r.Damaged {
		if f.damaged[n] != ix.Shards[n] {
			return false
		}
	}
	return true
}

// note keeps what is damaged in mind, and tells of it where that is new.
func (f *following) note(r Report, ix *index) {
	if !f.known(r, ix) {
		f.Log.Error(nil, "Shards of the plan are damaged or missing; endpoints in them go on as they were, or are held; the manager writes them anew", "shards", r.Damaged)
	}
	f.damaged = make(map[int]string, len(r.Damaged))
	for _, n := range r.Damaged {
		f.damaged[n] = ix.Shards[n]
	}
}

// shard reads one shard's bytes.
func (w *Watcher) shard(ctx context.Context, n int) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	name := v1alpha1.PlanShardName(w.Pool.Name, n)
	var s corev1.Secret
	err := w.Client.Get(ctx, types.NamespacedName{Namespace: w.Pool.Namespace, Name: name}, &s)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", name, err)
	}
	return s.Data[v1alpha1.PlanSecretKey], nil
}
