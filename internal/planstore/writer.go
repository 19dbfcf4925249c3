package planstore

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// Report says what of a plan could not be read.
type Report struct {
	// Damaged are the shards that the index speaks of and that are missing or not as they
	// were written, in ascending order.
	Damaged []int
}

// Writer keeps one pool's plan in Secrets. It is safe for concurrent use; its methods wait
// for each other, so that Foreign never sees half a Write.
type Writer struct {
	mu     sync.Mutex
	client client.Client
	reader client.Reader
	pool   types.NamespacedName
	uid    types.UID
	// hashes are those of what the Secrets are known to hold; index is the hash of the index.
	hashes map[int]string
	index  string
	// versions are the Secrets' resource versions as of our last write or look.
	versions map[string]string
}

// NewWriter makes a Writer for a DeliveryPool, which owns the Secrets. reader reads live,
// not from a cache: what is in Secrets is not to stay in memory.
func NewWriter(c client.Client, reader client.Reader, pool types.NamespacedName, uid types.UID) *Writer {
	return &Writer{client: c, reader: reader, pool: pool, uid: uid, hashes: map[int]string{}, versions: map[string]string{}}
}

// Load reads the plan that the Secrets hold: nil if there is none. Shards that are damaged
// are named in the Report and written anew by the next Write; the plan is what remains. An
// index that can't be read leaves nothing: the plan is nil, and Damaged names every shard
// that there may have been. plan.ErrNewerFormat means that a later release wrote it.
func (w *Writer) Load(ctx context.Context) (*plan.Plan, Report, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hashes, w.index, w.versions = map[int]string{}, "", map[string]string{}
	b, err := w.get(ctx, v1alpha1.PlanIndexName(w.pool.Name))
	if err != nil {
		return nil, Report{}, err
	}
	if b == nil {
		return nil, Report{}, nil
	}
	ix, err := unpackIndex(b)
	if err == plan.ErrNewerFormat { //nolint:errorlint // it is not wrapped
		return nil, Report{}, fmt.Errorf("the index in Secret %s: %w", v1alpha1.PlanIndexName(w.pool.Name), err)
	}
	if err != nil {
		return nil, Report{Damaged: allShards()}, nil //nolint:nilerr // it is in the Report
	}
	w.index = sum(b)
	var report Report
	var shards []*shard
	for n := range v1alpha1.PlanShards {
		hash, ok := ix.Shards[n]
		if !ok {
			continue
		}
		b, err := w.get(ctx, v1alpha1.PlanShardName(w.pool.Name, n))
		if err != nil {
			return nil, Report{}, err
		}
		s, err := unpackShard(b, hash)
		if err != nil {
			report.Damaged = append(report.Damaged, n)
			continue
		}
		w.hashes[n] = hash
		shards = append(shards, s)
	}
	return join(ix, shards), report, nil
}

func allShards() []int {
	all := make([]int, v1alpha1.PlanShards)
	for n := range all {
		all[n] = n
	}
	return all
}

// get reads the bytes of one Secret; nil if there is none.
func (w *Writer) get(ctx context.Context, name string) ([]byte, error) {
	var s corev1.Secret
	err := w.reader.Get(ctx, types.NamespacedName{Namespace: w.pool.Namespace, Name: name}, &s)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", name, err)
	}
	w.versions[name] = s.ResourceVersion
	return s.Data[v1alpha1.PlanSecretKey], nil
}

// Foreign reports whether a Secret of the plan is another than what this Writer last wrote
// or saw: someone changed or, with an empty resource version, removed it. The next Write
// then writes it anew.
func (w *Writer) Foreign(name, resourceVersion string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.versions[name] == resourceVersion {
		return false
	}
	if name == v1alpha1.PlanIndexName(w.pool.Name) {
		w.index = ""
		return true
	}
	for n := range w.hashes {
		if name == v1alpha1.PlanShardName(w.pool.Name, n) {
			delete(w.hashes, n)
			return true
		}
	}
	return false
}

// Write makes the Secrets hold a plan: shards that differ first, then the index, then it
// removes shards that are empty now. It writes nothing when nothing differs. After an
// error the Secrets hold the former plan, the new one, or an index whose newer shards
// readers wait for: Write again.
func (w *Writer) Write(ctx context.Context, p *plan.Plan) error {
	ix := index{Format: plan.Format, Version: p.Version, Pool: p.Pool, Shards: map[int]string{}}
	packed := map[int][]byte{}
	for n, s := range split(p) {
		if s == nil {
			continue
		}
		b, err := pack(s)
		if err != nil {
			return fmt.Errorf("shard %02d of the plan of DeliveryPool %s: %w; move some endpoints to another pool", n, w.pool, err)
		}
		packed[n], ix.Shards[n] = b, sum(b)
	}
	b, err := pack(&ix)
	if err != nil {
		return fmt.Errorf("the index of the plan of DeliveryPool %s: %w", w.pool, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for n, b := range packed {
		if w.hashes[n] == ix.Shards[n] {
			continue
		}
		delete(w.hashes, n)
		if err := w.apply(ctx, v1alpha1.PlanShardName(w.pool.Name, n), b); err != nil {
			return err
		}
		w.hashes[n] = ix.Shards[n]
	}
	if w.index != sum(b) {
		w.index = ""
		if err := w.apply(ctx, v1alpha1.PlanIndexName(w.pool.Name), b); err != nil {
			return err
		}
		w.index = sum(b)
	}
	return w.removeEmpty(ctx, &ix)
}

// removeEmpty removes shards that the index doesn't speak of any more.
func (w *Writer) removeEmpty(ctx context.Context, ix *index) error {
	for n := range w.hashes {
		if ix.Shards[n] != "" {
			continue
		}
		name := v1alpha1.PlanShardName(w.pool.Name, n)
		err := w.client.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.pool.Namespace, Name: name}})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("remove Secret %s: %w", name, err)
		}
		delete(w.hashes, n)
		delete(w.versions, name)
	}
	return nil
}

func (w *Writer) apply(ctx context.Context, name string, b []byte) error {
	s := applycore.Secret(name, w.pool.Namespace).
		WithLabels(map[string]string{
			v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelName: v1alpha1.AppName, v1alpha1.LabelPool: w.pool.Name,
		}).
		WithOwnerReferences(applymeta.OwnerReference().
			WithAPIVersion(v1alpha1.GroupVersion.String()).WithKind(v1alpha1.KindDeliveryPool).
			WithName(w.pool.Name).WithUID(w.uid).WithController(true).WithBlockOwnerDeletion(true)).
		WithType(v1alpha1.PlanSecretType).
		WithData(map[string][]byte{v1alpha1.PlanSecretKey: b})
	if err := w.client.Apply(ctx, s, client.FieldOwner(v1alpha1.FieldOwnerManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("write Secret %s: %w", name, err)
	}
	if s.ResourceVersion != nil {
		w.versions[name] = *s.ResourceVersion
	}
	return nil
}
