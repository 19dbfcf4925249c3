package planstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/pool"
)

// FromDir reads the plan from the volume of a worker's pod: the file index and one for
// each shard. It is nil where there is no index yet. Shards that are damaged, missing or of
// another version are named in the Report, and the plan is what can be read. An index that
// can't be read is an error, plan.ErrNewerFormat if a later release wrote it.
func FromDir(dir string) (*plan.Plan, Report, error) {
	b, err := os.ReadFile(filepath.Join(dir, pool.PlanIndexFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, Report{}, nil
	}
	if err != nil {
		return nil, Report{}, fmt.Errorf("read the plan: %w", err)
	}
	ix, err := unpackIndex(b)
	if err != nil {
		return nil, Report{}, fmt.Errorf("the index of the plan in %s: %w", dir, err)
	}
	r := reader{get: func(_ context.Context, n int) ([]byte, error) {
		b, err := os.ReadFile(filepath.Join(dir, pool.PlanShardFile(n)))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return b, err
	}}
	report, err := r.read(context.Background(), ix)
	if err != nil {
		return nil, Report{}, fmt.Errorf("read the plan: %w", err)
	}
	return r.plan(), report, nil
}

// reader puts a plan together from an index and the shards that get gives. It keeps the
// shards that it has read, so that only changed ones are read again.
type reader struct {
	// get gives the bytes of a shard; nil if there is none.
	get    func(ctx context.Context, n int) ([]byte, error)
	index  *index
	shards map[int]*kept
}

// parallelReads is how many shards are read at once: the sooner they are, the less often one is
// written anew meanwhile.
const parallelReads = 4

// kept is a shard as it was last read; hash is empty where no index spoke of it.
type kept struct {
	hash string
	*shard
}

// read makes the shards agree with an index. Those that are not as it says keep what was
// read of them before, or else what can be read of them now, and are reported. An error
// means that a shard can't be read now, which says nothing of what it holds.
func (r *reader) read(ctx context.Context, ix *index) (Report, error) {
	if r.shards == nil {
		r.shards = map[int]*kept{}
	}
	r.index = ix
	for n := range r.shards {
		if ix.Shards[n] == "" {
			delete(r.shards, n)
		}
	}
	var changed []int
	for _, n := range sortedShards(ix) {
		if k := r.shards[n]; k == nil || k.hash != ix.Shards[n] {
			changed = append(changed, n)
		}
	}
	var g errgroup.Group
	g.SetLimit(parallelReads)
	var mu sync.Mutex
	var report Report
	for _, n := range changed {
		g.Go(func() error {
			b, err := r.get(ctx, n)
			if err != nil {
				return err
			}
			s, current, err := unpackShard(b, ix.Shards[n])
			mu.Lock()
			defer mu.Unlock()
			if err == nil && current {
				r.shards[n] = &kept{ix.Shards[n], s}
				return nil
			}
			report.Damaged = append(report.Damaged, n)
			if err == nil && r.shards[n] == nil {
				r.shards[n] = &kept{shard: s}
			}
			return nil //nolint:nilerr // it is in the Report
		})
	}
	err := g.Wait()
	slices.Sort(report.Damaged)
	return report, err
}

// plan is what index and shards say, first the current ones. Of what was never read it
// tells the namespaces.
func (r *reader) plan() *plan.Plan {
	var current, others []*shard
	var lost []string
	for _, n := range sortedShards(r.index) {
		switch k := r.shards[n]; {
		case k == nil:
			lost = append(lost, r.index.Namespaces[n]...)
		case k.hash == r.index.Shards[n]:
			current = append(current, k.shard)
		default:
			others = append(others, k.shard)
		}
	}
	p := join(r.index, append(current, others...))
	slices.Sort(lost)
	p.Incomplete = slices.Compact(lost)
	return p
}

func sortedShards(ix *index) []int {
	out := make([]int, 0, len(ix.Shards))
	for _, n := range allShards() {
		if ix.Shards[n] != "" {
			out = append(out, n)
		}
	}
	return out
}

// KeepDamaged gives p with what now, the plan in use, holds of the shards that the Report
// names: a lost shard changes nothing for its endpoints.
func KeepDamaged(p, now *plan.Plan, r Report) *plan.Plan {
	lost := map[int]bool{}
	for _, n := range r.Damaged {
		lost[n] = true
	}
	ix := &index{Format: p.Format, Version: p.Version, Pool: p.Pool}
	shards := []*shard{{Endpoints: p.Endpoints, Absent: p.Absent, Tombstones: p.Tombstones}}
	for n, s := range split(now) {
		if lost[n] {
			shards = append(shards, s)
		}
	}
	kept := join(ix, shards)
	for _, namespace := range p.Incomplete {
		if now.Lacks(namespace) {
			kept.Incomplete = append(kept.Incomplete, namespace)
		}
	}
	return kept
}
