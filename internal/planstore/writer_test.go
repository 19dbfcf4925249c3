package planstore

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/pool"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

var (
	ctx      = context.Background()
	thePool  = types.NamespacedName{Namespace: "doorstep-system", Name: "default"}
	deleted  = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	signedBy = plan.Signing{Scheme: plan.SchemeStandardWebhooks, Keys: []plan.SigningKey{{Name: "generated", Ref: "s/key", Key: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}}}
)

// secrets is a fake API server that counts what is written.
type secrets struct {
	client.WithWatch
	mu      sync.Mutex
	applied []string
	fail    func(name string) error
}

func newSecrets(t *testing.T) *secrets {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	s := &secrets{}
	s.WithWatch = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).Build(), interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			name := reflect.ValueOf(o).Elem().FieldByName("Name").Elem().String()
			if s.fail != nil {
				if err := s.fail(name); err != nil {
					return err
				}
			}
			s.mu.Lock()
			s.applied = append(s.applied, name)
			s.mu.Unlock()
			return c.Apply(ctx, o, opts...)
		},
	})
	return s
}

// took gives what was written since it was last asked.
func (s *secrets) took() []string {
	a := s.applied
	s.applied = nil
	return a
}

func (s *secrets) data(t *testing.T, name string) []byte {
	t.Helper()
	var o corev1.Secret
	if err := s.Get(ctx, types.NamespacedName{Namespace: thePool.Namespace, Name: name}, &o); err != nil {
		t.Fatal(err)
	}
	return o.Data[v1alpha1.PlanSecretKey]
}

// change alters the bytes of a Secret behind the writer's back; nil removes it.
func (s *secrets) change(t *testing.T, name string, b []byte) {
	t.Helper()
	o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: thePool.Namespace, Name: name}}
	if b == nil {
		if err := s.Delete(ctx, o); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := s.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	o.Data[v1alpha1.PlanSecretKey] = b
	if err := s.Update(ctx, o); err != nil {
		t.Fatal(err)
	}
}

// planOf has n endpoints, an absence and a deletion.
func planOf(n int) *plan.Plan {
	p := &plan.Plan{Format: plan.Format, Version: 3, Pool: plan.Pool{Source: thePool.String(), MaxInFlight: 512}}
	for i := range n {
		p.Endpoints = append(p.Endpoints, plan.Endpoint{
			EndpointKey: plan.EndpointKey{Namespace: "shop", Name: fmt.Sprintf("e%05d", i)}, UID: fmt.Sprintf("uid-%05d", i),
			Hash: fmt.Sprintf("%032d", i), URL: fmt.Sprintf("https://hooks.example.com/%d", i), EventTypes: []string{"order.*"},
			Signing: signedBy, Timeout: 15 * time.Second, MaxInFlight: 16, Retry: retry.BuiltIn(),
		})
	}
	p.Absent = []plan.Absence{{Endpoint: plan.Endpoint{EndpointKey: plan.EndpointKey{Namespace: "shop", Name: "absent"}, UID: "uid-absent", Signing: signedBy}}}
	p.Tombstones = []plan.Tombstone{{EndpointKey: plan.EndpointKey{Namespace: "shop", Name: "deleted"}, DeletedAt: deleted}}
	return p
}

func write(t *testing.T, w *Writer, p *plan.Plan) {
	t.Helper()
	if err := w.Write(ctx, p); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, s *secrets) (*Writer, *plan.Plan, Report) {
	t.Helper()
	w := NewWriter(s, s, thePool, "uid")
	p, report, err := w.Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return w, p, report
}

func TestAPlanIsReadBackAsItWasWritten(t *testing.T) {
	s := newSecrets(t)
	w, none, report := load(t, s)
	if none != nil || len(report.Damaged) > 0 {
		t.Fatalf("plan %v, report %v before anything was written", none, report)
	}
	p := planOf(200)
	write(t, w, p)
	if _, got, report := load(t, s); !plan.Equal(got, p) || got.Version != p.Version || len(report.Damaged) > 0 {
		t.Errorf("another plan is read back, report %v", report)
	}
	var index corev1.Secret
	if err := s.Get(ctx, types.NamespacedName{Namespace: thePool.Namespace, Name: "default-plan"}, &index); err != nil {
		t.Fatal(err)
	}
	if index.Type != v1alpha1.PlanSecretType || index.Labels[v1alpha1.LabelPool] != "default" || len(index.OwnerReferences) != 1 {
		t.Errorf("the index has type %q, labels %v and owners %v", index.Type, index.Labels, index.OwnerReferences)
	}
}

func TestOneChangeRewritesOneShardAndTheIndexLast(t *testing.T) {
	s := newSecrets(t)
	w, _, _ := load(t, s)
	p := planOf(10_000)
	write(t, w, p)
	if n := len(s.took()); n != v1alpha1.PlanShards+1 {
		t.Errorf("%d Secrets were written at first, want %d", n, v1alpha1.PlanShards+1)
	}
	write(t, w, p)
	if took := s.took(); len(took) != 0 {
		t.Errorf("nothing changed, and %v were written", took)
	}
	p.Endpoints[77].URL = "https://hooks.example.com/other"
	p.Version++
	write(t, w, p)
	want := []string{v1alpha1.PlanShardName("default", shardOf("uid-00077", plan.EndpointKey{})), "default-plan"}
	if took := s.took(); !reflect.DeepEqual(took, want) {
		t.Errorf("%v were written, want %v", took, want)
	}
	// A new process knows what is there, and writes as little.
	again, _, _ := load(t, s)
	write(t, again, p)
	if took := s.took(); len(took) != 0 {
		t.Errorf("after a restart %v were written", took)
	}
	// A shard that is empty goes.
	write(t, again, &plan.Plan{Format: plan.Format, Version: 9})
	var list corev1.SecretList
	if err := s.List(ctx, &list); err != nil || len(list.Items) != 1 {
		t.Errorf("%d Secrets are left (%v), want the index", len(list.Items), err)
	}
}

func TestDamageIsFoundAndMended(t *testing.T) {
	for _, row := range []struct {
		name   string
		damage func([]byte) []byte
	}{
		{"removed", func([]byte) []byte { return nil }},
		{"emptied", func([]byte) []byte { return []byte{} }},
		{"a bit flipped", func(b []byte) []byte { b[len(b)/2] ^= 1; return b }},
		{"cut", func(b []byte) []byte { return b[:len(b)-3] }},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newSecrets(t)
			w, _, _ := load(t, s)
			p := planOf(300)
			write(t, w, p)
			name := v1alpha1.PlanShardName("default", 5)
			s.change(t, name, row.damage(s.data(t, name)))
			s.took()

			restarted, got, report := load(t, s)
			if !reflect.DeepEqual(report.Damaged, []int{5}) {
				t.Fatalf("damaged %v, want shard 5", report.Damaged)
			}
			for i := range got.Endpoints {
				if e := &got.Endpoints[i]; shardOf(e.UID, e.EndpointKey) == 5 {
					t.Fatalf("%s of the damaged shard is in the plan", e.EndpointKey)
				}
			}
			if want := len(p.Endpoints) - len(got.Endpoints); want == 0 {
				t.Fatal("the shard held nothing")
			}
			write(t, restarted, p)
			if took := s.took(); !reflect.DeepEqual(took, []string{name}) {
				t.Errorf("%v were written to mend it, want the shard alone", took)
			}
			if _, mended, report := load(t, s); !plan.Equal(mended, p) || len(report.Damaged) > 0 {
				t.Errorf("it isn't mended: %v", report)
			}
		})
	}
}

func TestAForeignChangeIsWrittenOver(t *testing.T) {
	s := newSecrets(t)
	w, _, _ := load(t, s)
	p := planOf(300)
	write(t, w, p)
	s.took()
	version := func(name string) string {
		var o corev1.Secret
		if err := s.Get(ctx, types.NamespacedName{Namespace: thePool.Namespace, Name: name}, &o); err != nil {
			return ""
		}
		return o.ResourceVersion
	}
	for _, name := range []string{"default-plan", "default-plan-07"} {
		if w.Foreign(name, version(name)) {
			t.Errorf("our own write of %s counts as another's", name)
		}
		s.change(t, name, []byte("x"))
		if !w.Foreign(name, version(name)) {
			t.Errorf("another's write of %s is not seen", name)
		}
		write(t, w, p)
		if took := s.took(); !reflect.DeepEqual(took, []string{name}) {
			t.Errorf("%v were written, want %s", took, name)
		}
		s.change(t, name, nil)
		if !w.Foreign(name, version(name)) {
			t.Errorf("the removal of %s is not seen", name)
		}
		write(t, w, p)
		if took := s.took(); !reflect.DeepEqual(took, []string{name}) {
			t.Errorf("%v were written, want %s", took, name)
		}
	}
}

// Without an index the shards tell what they hold, so that former keys and deletions
// outlive it.
func TestWithoutAnIndexTheShardsCount(t *testing.T) {
	for _, row := range []struct {
		name  string
		index []byte
	}{
		{"removed", nil}, {"damaged", []byte("no index")}, {"empty", []byte{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newSecrets(t)
			w, _, _ := load(t, s)
			p := planOf(300)
			p.Endpoints[7].Version = 3
			write(t, w, p)
			s.change(t, "default-plan", row.index)
			restarted, got, report := load(t, s)
			if !report.NoIndex || len(report.Damaged) != v1alpha1.PlanShards {
				t.Errorf("%v is reported", report)
			}
			if got == nil || len(got.Endpoints) != 300 || len(got.Absent) != 1 || len(got.Tombstones) != 1 || got.Version != 3 {
				t.Fatal("another plan is left")
			}
			s.took()
			write(t, restarted, p)
			if took := s.took(); len(took) != v1alpha1.PlanShards+1 || took[len(took)-1] != "default-plan" {
				t.Errorf("%d Secrets were written to mend it", len(took))
			}
			if _, mended, report := load(t, s); !plan.Equal(mended, p) || len(report.Damaged) > 0 || report.NoIndex {
				t.Error("it isn't mended")
			}
		})
	}
}

// A writer that ended between shards and index has written what the index doesn't speak of
// yet. The next one goes on from there: former keys in it are not lost.
func TestShardsOfALaterVersionThanTheIndex(t *testing.T) {
	s := newSecrets(t)
	w, _, _ := load(t, s)
	p := planOf(300)
	write(t, w, p)
	later := planOf(300)
	later.Version = 4
	later.Endpoints[7].Version = 4
	later.Endpoints[7].Signing.Keys = append(slices.Clone(signedBy.Keys), plan.SigningKey{Name: "former", Key: "whsec_AAAA", FormerUntil: deleted})
	s.fail = func(name string) error {
		if name == "default-plan" {
			return errors.New("the manager is killed")
		}
		return nil
	}
	if w.Write(ctx, later) == nil {
		t.Fatal("the index was written")
	}
	s.fail = nil
	restarted, got, report := load(t, s)
	if len(report.Damaged) != 1 || !plan.Equal(got, later) || got.Version != 4 {
		t.Fatalf("%v is reported, and version %d is another plan", report, got.Version)
	}
	write(t, restarted, got)
	if _, got, report := load(t, s); got.Version != 4 || len(report.Damaged) > 0 {
		t.Errorf("version %d is there, %v is reported", got.Version, report)
	}
}

// A writer that ended between the index and the removal of a shard leaves an orphan, which
// holds keys: the next one removes it.
func TestOrphanedShardsAreRemoved(t *testing.T) {
	s := newSecrets(t)
	w, _, _ := load(t, s)
	write(t, w, planOf(300))
	shard := v1alpha1.PlanShardName("default", 5)
	kept := s.data(t, shard)
	write(t, w, &plan.Plan{Format: plan.Format, Version: 9})
	orphan := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: thePool.Namespace, Name: shard, Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelPool: "default"}},
		Data:       map[string][]byte{v1alpha1.PlanSecretKey: kept},
	}
	other := orphan.DeepCopy()
	other.Name, other.Labels[v1alpha1.LabelPool] = "other-plan-05", "other"
	for _, o := range []*corev1.Secret{orphan, other} {
		if err := s.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	restarted, got, report := load(t, s)
	if len(got.Endpoints) > 0 || len(report.Damaged) > 0 {
		t.Errorf("the orphan counts: %d endpoints, %v", len(got.Endpoints), report)
	}
	s.took()
	write(t, restarted, got)
	var list corev1.SecretList
	if err := s.List(ctx, &list); err != nil || len(list.Items) != 2 || len(s.took()) > 0 {
		t.Errorf("%d Secrets are left (%v), want the index and another pool's shard", len(list.Items), err)
	}
	write(t, restarted, got)
	p := planOf(300)
	p.Version = 10
	write(t, restarted, p)
	if _, got, report := load(t, s); !plan.Equal(got, p) || len(report.Damaged) > 0 {
		t.Errorf("a shard that is needed again isn't there: %v", report)
	}
}

func TestAWriteThatFailsIsTakenUpAgain(t *testing.T) {
	s := newSecrets(t)
	w, _, _ := load(t, s)
	p := planOf(300)
	write(t, w, p)
	p.Endpoints[0].URL, p.Endpoints[1].URL = "https://a.example.com", "https://b.example.com"
	p.Version++
	broken := errors.New("the API server is away")
	s.fail = func(name string) error {
		if name == "default-plan" {
			return broken
		}
		return nil
	}
	if err := w.Write(ctx, p); !errors.Is(err, broken) {
		t.Fatalf("error %v", err)
	}
	s.fail = nil
	s.took()
	write(t, w, p)
	if took := s.took(); !reflect.DeepEqual(took, []string{"default-plan"}) {
		t.Errorf("%v were written, want the index, since the shards are there", took)
	}
}

func TestALaterFormatIsRefused(t *testing.T) {
	s := newSecrets(t)
	w, _, _ := load(t, s)
	write(t, w, planOf(3))
	b, err := pack(index{Format: plan.Format + 1, Version: 4})
	if err != nil {
		t.Fatal(err)
	}
	s.change(t, "default-plan", b)
	if _, _, err := NewWriter(s, s, thePool, "uid").Load(ctx); !errors.Is(err, plan.ErrNewerFormat) {
		t.Errorf("error %v", err)
	}
}

func packed(t *testing.T, v any) []byte {
	t.Helper()
	b, err := pack(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestFromDir(t *testing.T) {
	dir := t.TempDir()
	if p, _, err := FromDir(dir); p != nil || err != nil {
		t.Fatalf("plan %v, error %v of an empty folder", p, err)
	}
	s := newSecrets(t)
	w, _, _ := load(t, s)
	p := planOf(300)
	write(t, w, p)
	put := func(file string, b []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(pool.PlanIndexFile, s.data(t, "default-plan"))
	for n := range v1alpha1.PlanShards {
		put(pool.PlanShardFile(n), s.data(t, v1alpha1.PlanShardName("default", n)))
	}
	if got, report, err := FromDir(dir); err != nil || !plan.Equal(got, p) || len(report.Damaged) > 0 {
		t.Errorf("report %v, error %v", report, err)
	}
	put(pool.PlanShardFile(9), []byte("x"))
	if got, report, err := FromDir(dir); err != nil || len(got.Endpoints) >= len(p.Endpoints) || !reflect.DeepEqual(report.Damaged, []int{9}) {
		t.Errorf("report %v, error %v with a damaged shard", report, err)
	}
	if got, _, _ := FromDir(dir); !got.Lacks("shop") || got.Lacks("lab") {
		t.Error("it doesn't tell whose endpoints may be missing")
	}
	// A volume may hold an index and a shard of two versions: the shard is better than none.
	other := planOf(300)
	other.Version = 2
	for i := range other.Endpoints {
		other.Endpoints[i].URL = "https://other.example.com"
	}
	put(pool.PlanShardFile(9), packed(t, split(other)[9]))
	if got, report, err := FromDir(dir); err != nil || len(got.Endpoints) != len(p.Endpoints) || !reflect.DeepEqual(report.Damaged, []int{9}) || got.Lacks("shop") {
		t.Errorf("report %v, error %v with a shard of another version", report, err)
	}
	put(pool.PlanIndexFile, []byte("x"))
	if _, _, err := FromDir(dir); err == nil || strings.Contains(err.Error(), "whsec") {
		t.Errorf("error %v of a damaged index", err)
	}
}

// Ten thousand plain endpoints take a few MiB, and as many with client certificates fit.
func TestSizes(t *testing.T) {
	size := func(p *plan.Plan) int {
		t.Helper()
		s := newSecrets(t)
		w, _, _ := load(t, s)
		write(t, w, p)
		total := 0
		for _, name := range s.took() {
			total += len(s.data(t, name))
		}
		return total
	}
	random := rand.New(rand.NewPCG(1, 2))
	text := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return base64.StdEncoding.EncodeToString(b)
	}
	p := planOf(10_000)
	for i := range p.Endpoints {
		p.Endpoints[i].Signing.Keys = []plan.SigningKey{{Name: "generated", Ref: "s/key", Key: "whsec_" + text(32)}}
	}
	plain := size(p)
	for i := range p.Endpoints {
		p.Endpoints[i].TLS = plan.TLS{ClientCertificate: text(1200), ClientKey: text(1200)}
	}
	mutual := size(p)
	t.Logf("10,000 endpoints: plain %.1f MiB, with client certificates %.1f MiB", float64(plain)/(1<<20), float64(mutual)/(1<<20))
	if plain > 4<<20 {
		t.Errorf("10,000 plain endpoints take %d bytes", plain)
	}
	if mutual > v1alpha1.PlanShards*maxSecretBytes {
		t.Errorf("10,000 endpoints with client certificates take %d bytes", mutual)
	}
}

// Of a shard that is too large it is told who has to be made small: what is absent, then what came last.
func TestAFullShard(t *testing.T) {
	s := newSecrets(t)
	w, _, _ := load(t, s)
	random := rand.New(rand.NewPCG(1, 2))
	certificates := func(n int) string {
		b := make([]byte, n*3/4)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return base64.StdEncoding.EncodeToString(b)
	}
	// All of these fall into one shard.
	p := planOf(0)
	p.Absent, p.Tombstones = nil, nil
	for i := 0; len(p.Endpoints) < 60; i++ {
		uid := fmt.Sprintf("uid-%05d", i)
		if shardOf(uid, plan.EndpointKey{}) == 5 {
			p.Endpoints = append(p.Endpoints, plan.Endpoint{
				EndpointKey: plan.EndpointKey{Namespace: "shop", Name: fmt.Sprintf("e%05d", i)}, UID: uid,
				Version: uint64(len(p.Endpoints)/10 + 1), TLS: plan.TLS{CACertificates: certificates(28 << 10)},
			})
		}
	}
	absent := plan.Absence{Endpoint: p.Endpoints[0]}
	p.Endpoints, p.Absent = p.Endpoints[1:], append(p.Absent, absent)

	var full *FullError
	err := w.Write(ctx, p)
	if !errors.As(err, &full) || !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), thePool.String()) {
		t.Fatalf("error %v", err)
	}
	if took := s.took(); len(took) != 0 {
		t.Errorf("%v were written all the same", took)
	}
	if !slices.Equal(full.Shards, []int{5}) || len(full.Endpoints) == 0 || full.Endpoints[0] != absent.EndpointKey {
		t.Fatalf("shards %v, endpoints %v", full.Shards, full.Endpoints)
	}
	byKey := p.Index()
	for _, k := range full.Endpoints[1:] {
		if byKey[k].Version < 5 {
			t.Errorf("%s of version %d has to be made small, before what came later", k, byKey[k].Version)
		}
	}
	// Without them the rest fits, and it is not much more than has to go.
	small := map[plan.EndpointKey]bool{}
	for _, k := range full.Endpoints {
		small[k] = true
	}
	for i := range p.Endpoints {
		if small[p.Endpoints[i].EndpointKey] {
			p.Endpoints[i].TLS = plan.TLS{}
		}
	}
	p.Absent[0].TLS = plan.TLS{}
	write(t, w, p)
	if n := len(s.data(t, v1alpha1.PlanShardName("default", 5))); n > maxSecretBytes || n < maxSecretBytes*85/100 {
		t.Errorf("the shard has %d bytes then", n)
	}

	for i := range p.Endpoints {
		p.Endpoints[i].TLS, p.Endpoints[i].EventTypes = plan.TLS{}, nil
	}
	p.Tombstones = []plan.Tombstone{{EndpointKey: plan.EndpointKey{Namespace: certificates(2 << 20), Name: "e"}}}
	if err := w.Write(ctx, p); !errors.As(err, &full) || len(full.Endpoints) > 0 {
		t.Errorf("error %v with %d endpoints, where none is large", err, len(full.Endpoints))
	}
}

func TestAnIndexThatIsTooLargeSaysWhatItHolds(t *testing.T) {
	s := newSecrets(t)
	w, _, _ := load(t, s)
	p := planOf(1)
	random := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 2<<20)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	p.Pool.Egress.CACertificates = base64.StdEncoding.EncodeToString(b)
	if err := w.Write(ctx, p); !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), thePool.String()) || !strings.Contains(err.Error(), "API keys") {
		t.Errorf("error %v", err)
	}
	if took := s.took(); len(took) != 0 {
		t.Errorf("%v were written all the same", took)
	}
}

// The namespaces of ten thousand endpoints, each in its own, leave the index small.
func TestTheIndexOfManyNamespaces(t *testing.T) {
	p := planOf(10_000)
	for i := range p.Endpoints {
		p.Endpoints[i].Namespace = fmt.Sprintf("tenant-%d-team", i*7919)
	}
	_, ix, err := NewWriter(nil, nil, thePool, "").pack(p)
	if err != nil {
		t.Fatal(err)
	}
	b := packed(t, ix)
	t.Logf("%d KiB", len(b)>>10)
	if len(b) > 150<<10 {
		t.Errorf("the index takes %d bytes", len(b))
	}
}

// Compressors are used again, and a quiet cluster sees no writes: what was packed before must not show.
func TestPackingGivesTheSameBytesEachTime(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var first [][]byte
	for round := range 3 {
		for n := range 40 {
			b, err := pack(planOf(n * 20))
			if err != nil {
				t.Fatal(err)
			}
			if round == 0 {
				first = append(first, b)
			} else if !bytes.Equal(b, first[n]) {
				t.Fatalf("a plan of %d endpoints is packed otherwise in round %d", n*20, round)
			}
			if _, err := pack(random.Perm(1 + random.IntN(20000))); err != nil {
				t.Fatal(err)
			}
		}
	}
}
