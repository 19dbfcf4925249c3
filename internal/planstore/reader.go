package planstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/pool"
)

// FromDir reads the plan from the volume of a worker's pod: the file index and one for
// each shard. It is nil where there is no index yet. Shards that are damaged or missing are
// named in the Report, and the plan is what remains. An index that can't be read is an
// error, plan.ErrNewerFormat if a later release wrote it.
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

// kept is a shard as it was last read.
type kept struct {
	hash string
	*shard
}

// read makes the shards agree with an index. Those that are not as it says keep what was
// read of them before, and are reported. An error means that a shard can't be read now,
// which says nothing of what it holds.
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
	var report Report
	var failed error
	for _, n := range sortedShards(ix) {
		hash := ix.Shards[n]
		if k := r.shards[n]; k != nil && k.hash == hash {
			continue
		}
		b, err := r.get(ctx, n)
		if err != nil {
			failed = err
			continue
		}
		s, err := unpackShard(b, hash)
		if err != nil {
			report.Damaged = append(report.Damaged, n)
			continue
		}
		r.shards[n] = &kept{hash, s}
	}
	return report, failed
}

// plan is what index and shards say.
func (r *reader) plan() *plan.Plan {
	var shards []*shard
	for _, n := range sortedShards(r.index) {
		if k := r.shards[n]; k != nil {
			shards = append(shards, k.shard)
		}
	}
	return join(r.index, shards)
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
	var shards []*shard
	for _, s := range split(p) {
		shards = append(shards, s)
	}
	for n, s := range split(now) {
		if lost[n] {
			shards[n] = s
		}
	}
	return join(ix, shards)
}
