package planstore

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/doorstep-dev/doorstep/internal/plan"
)

// FullError means that some shards have no room for all that falls into them.
type FullError struct {
	Pool   types.NamespacedName
	Shards []int
	// Endpoints are those that have to be made small for the rest to fit: what is absent
	// first, which uses none of it, then what took its form last, the larger first. There may
	// be more of them after that. None means that nothing is left to be made small.
	Endpoints []plan.EndpointKey
}

// Error names the pool and the way out.
func (e *FullError) Error() string {
	return fmt.Sprintf("the plan of DeliveryPool %s is full: of its %d shards, %d would be larger than %d KiB; move some endpoints to another pool",
		e.Pool, len(allShards()), len(e.Shards), maxSecretBytes>>10)
}

// Unwrap is ErrTooLarge.
func (e *FullError) Unwrap() error { return ErrTooLarge }

const (
	// smallEntry is about what an endpoint takes that is made small. One that is no larger is
	// left as it is.
	smallEntry = 2 << 10
	// fullBytes is how much of a shard is filled where it would be too large: some room is
	// left to what packs worse than the rest.
	fullBytes = maxSecretBytes * 31 / 32
)

// excess chooses the endpoints of a shard that have to be made small.
func excess(s *shard) []plan.EndpointKey {
	var absent, present []entry
	for i := range s.Absent {
		absent = append(absent, newEntry(&s.Absent[i].Endpoint))
	}
	for i := range s.Endpoints {
		present = append(present, newEntry(&s.Endpoints[i]))
	}
	slices.SortFunc(absent, entry.compare)
	slices.SortFunc(present, entry.compare)
	raw, packed, err := compress(s)
	if err != nil {
		return nil
	}
	// How far all of it packs tells how far a part of it does, about.
	over := float64(raw) * (1 - fullBytes/float64(len(packed)))
	var out []plan.EndpointKey
	for _, e := range append(absent, present...) {
		if over > 0 && e.bytes > smallEntry {
			out = append(out, e.key)
			over -= float64(e.bytes - smallEntry)
		}
	}
	return out
}

// entry is an endpoint of a shard that is full.
type entry struct {
	key     plan.EndpointKey
	version uint64
	bytes   int
}

func newEntry(e *plan.Endpoint) entry {
	b, err := json.Marshal(e)
	if err != nil {
		return entry{key: e.EndpointKey}
	}
	return entry{e.EndpointKey, e.Version, len(b)}
}

func (e entry) compare(o entry) int {
	return cmp.Or(cmp.Compare(o.version, e.version), cmp.Compare(o.bytes, e.bytes), e.key.Compare(o.key))
}
