package planstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"golang.org/x/sync/errgroup"
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
	// Damaged are the shards that the index speaks of and that are missing or not as it says,
	// in ascending order.
	Damaged []int
	// NoIndex: the index is missing, or not as it was written.
	NoIndex bool
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
	// orphans are shards that were there though no index spoke of them: a writer ended between
	// two steps of a Write.
	orphans map[int]bool
	// versions are the Secrets' resource versions as of our last write or look.
	versions map[string]string
}

// NewWriter makes a Writer for a DeliveryPool, which owns the Secrets. reader reads live,
// not from a cache: what is in Secrets is not to stay in memory.
func NewWriter(c client.Client, reader client.Reader, pool types.NamespacedName, uid types.UID) *Writer {
	w := &Writer{client: c, reader: reader, pool: pool, uid: uid}
	w.reset()
	return w
}

func (w *Writer) reset() {
	w.hashes, w.index, w.orphans, w.versions = map[int]string{}, "", map[int]bool{}, map[string]string{}
}

// Load reads the plan that the Secrets hold: nil if there is none. Shards that are damaged
// are named in the Report and written anew by the next Write; the plan is what can be read.
// Without an index that is the shards alone, and the plan has no pool. Its version is not
// below that of any entry. plan.ErrNewerFormat means that a later release wrote it.
func (w *Writer) Load(ctx context.Context) (*plan.Plan, Report, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reset()
	b, err := w.get(ctx, v1alpha1.PlanIndexName(w.pool.Name))
	if err != nil {
		return nil, Report{}, err
	}
	ix, err := unpackIndex(b)
	if err == plan.ErrNewerFormat { //nolint:errorlint // it is not wrapped
		return nil, Report{}, fmt.Errorf("the index in Secret %s: %w", v1alpha1.PlanIndexName(w.pool.Name), err)
	}
	report := Report{NoIndex: err != nil}
	if report.NoIndex {
		ix = &index{Format: plan.Format}
	} else {
		w.index = sum(b)
	}
	there, err := w.there(ctx)
	if err != nil {
		return nil, Report{}, err
	}
	var current, others []*shard
	for n := range v1alpha1.PlanShards {
		hash := ix.Shards[n]
		if hash == "" && there[n] {
			w.orphans[n] = true
		}
		if hash == "" && (!there[n] || !report.NoIndex) {
			continue
		}
		s, isCurrent, err := w.shard(ctx, n, hash)
		switch {
		case err != nil:
			return nil, Report{}, err
		case isCurrent:
			w.hashes[n] = hash
			current = append(current, s)
		default:
			report.Damaged = append(report.Damaged, n)
			others = append(others, s)
		}
	}
	if report.NoIndex && len(others) == 0 {
		return nil, report, nil
	}
	p := join(ix, append(current, others...))
	for e := range p.Known() {
		p.Version = max(p.Version, e.Version)
	}
	return p, report, nil
}

// there looks for the shards that there are, whether an index speaks of them or not.
func (w *Writer) there(ctx context.Context) (map[int]bool, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	labels := client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelPool: w.pool.Name}
	if err := w.reader.List(ctx, list, client.InNamespace(w.pool.Namespace), labels); err != nil {
		return nil, fmt.Errorf("list the Secrets of the plan of DeliveryPool %s: %w", w.pool, err)
	}
	names := make(map[string]bool, len(list.Items))
	for i := range list.Items {
		names[list.Items[i].Name] = true
	}
	there := map[int]bool{}
	for _, n := range allShards() {
		there[n] = names[v1alpha1.PlanShardName(w.pool.Name, n)]
	}
	return there, nil
}

// shard reads a shard; nil if there is none, or nothing can be read of it.
func (w *Writer) shard(ctx context.Context, n int, hash string) (s *shard, current bool, err error) {
	b, err := w.get(ctx, v1alpha1.PlanShardName(w.pool.Name, n))
	if err != nil {
		return nil, false, err
	}
	s, current, err = unpackShard(b, hash)
	if err != nil {
		return nil, false, nil //nolint:nilerr // it is in the Report
	}
	return s, current, nil
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
// readers wait for: Write again. A *FullError comes before anything is written.
func (w *Writer) Write(ctx context.Context, p *plan.Plan) error {
	packed, ix, err := w.pack(p)
	if err != nil {
		return err
	}
	b, err := pack(ix)
	if err != nil {
		return fmt.Errorf("the index of the plan of DeliveryPool %s: %w; it holds the pool's API keys, networks and certificates: have fewer of them", w.pool, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.writeShards(ctx, packed, ix); err != nil {
		return err
	}
	if w.index != sum(b) {
		w.index = ""
		name := v1alpha1.PlanIndexName(w.pool.Name)
		version, err := w.apply(ctx, name, b)
		if err != nil {
			return err
		}
		w.index, w.versions[name] = sum(b), version
	}
	return w.removeEmpty(ctx, ix)
}

// pack gives the bytes of each shard, and the index that speaks of them.
func (w *Writer) pack(p *plan.Plan) (map[int][]byte, *index, error) {
	ix := &index{Format: plan.Format, Version: p.Version, Pool: p.Pool, Shards: map[int]string{}, Namespaces: map[int][]string{}}
	packed := map[int][]byte{}
	full := &FullError{Pool: w.pool}
	for n, s := range split(p) {
		if s == nil {
			continue
		}
		b, err := pack(s)
		if errors.Is(err, ErrTooLarge) {
			full.Shards = append(full.Shards, n)
			full.Endpoints = append(full.Endpoints, excess(s)...)
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("shard %02d of the plan of DeliveryPool %s: %w", n, w.pool, err)
		}
		packed[n], ix.Shards[n] = b, sum(b)
		if namespaces := s.namespaces(); len(namespaces) > 0 {
			ix.Namespaces[n] = namespaces
		}
	}
	if len(full.Shards) > 0 {
		return nil, nil, full
	}
	return packed, ix, nil
}

// parallelWrites is how many shards are written at once: between the first of them and the
// index, readers find shards that the index does not speak of yet.
const parallelWrites = 4

// writeShards writes those that differ.
func (w *Writer) writeShards(ctx context.Context, packed map[int][]byte, ix *index) error {
	var g errgroup.Group
	g.SetLimit(parallelWrites)
	var mu sync.Mutex
	maps.DeleteFunc(packed, func(n int, _ []byte) bool { return w.hashes[n] == ix.Shards[n] })
	for n := range packed {
		delete(w.hashes, n) // until it is known to be written
	}
	for n, b := range packed {
		g.Go(func() error {
			name := v1alpha1.PlanShardName(w.pool.Name, n)
			version, err := w.apply(ctx, name, b)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			w.hashes[n], w.versions[name] = ix.Shards[n], version
			return nil
		})
	}
	return g.Wait()
}

// removeEmpty removes shards that the index doesn't speak of any more.
func (w *Writer) removeEmpty(ctx context.Context, ix *index) error {
	for _, n := range allShards() {
		if ix.Shards[n] != "" {
			delete(w.orphans, n)
			continue
		}
		if _, known := w.hashes[n]; !known && !w.orphans[n] {
			continue
		}
		name := v1alpha1.PlanShardName(w.pool.Name, n)
		err := w.client.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.pool.Namespace, Name: name}})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("remove Secret %s: %w", name, err)
		}
		delete(w.hashes, n)
		delete(w.orphans, n)
		delete(w.versions, name)
	}
	return nil
}

// apply writes a Secret and gives its resource version.
func (w *Writer) apply(ctx context.Context, name string, b []byte) (string, error) {
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
		return "", fmt.Errorf("write Secret %s: %w", name, err)
	}
	if s.ResourceVersion == nil {
		return "", fmt.Errorf("write Secret %s: the answer has no resource version", name)
	}
	return *s.ResourceVersion, nil
}
