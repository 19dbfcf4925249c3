package planstore

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"sync"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

const (
	// maxSecretBytes is the most that one Secret may hold: the API server takes 1 MiB, and
	// etcd 1.5 MiB for the whole object.
	maxSecretBytes = 900 << 10
	// maxInflated bounds what is read of one Secret.
	maxInflated = 64 << 20
)

// Errors that callers decide by.
var (
	// ErrTooLarge means that a shard, or the index, does not fit into a Secret.
	ErrTooLarge = errors.New("it does not fit into a Secret")
	// errDamaged means that bytes are not what was written.
	errDamaged = errors.New("it is not as it was written")
)

// index is what the Secret <pool>-plan holds.
type index struct {
	Format  int       `json:"format"`
	Version uint64    `json:"version"`
	Pool    plan.Pool `json:"pool"`
	// Shards gives the hash of each shard that there is, Namespaces those of its endpoints: a
	// reader that lacks a shard knows by them whose events it can't assign.
	Shards     map[int]string   `json:"shards,omitempty"`
	Namespaces map[int][]string `json:"namespaces,omitempty"`
}

// shard is what a Secret <pool>-plan-NN holds.
type shard struct {
	Endpoints  []plan.Endpoint  `json:"endpoints,omitempty"`
	Absent     []plan.Absence   `json:"absent,omitempty"`
	Tombstones []plan.Tombstone `json:"tombstones,omitempty"`
}

// shardOf is the shard of an endpoint: by its uid, which is spread evenly, or its key.
func shardOf(uid string, k plan.EndpointKey) int {
	if uid == "" {
		uid = k.String()
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(uid))
	return int(h.Sum32() % v1alpha1.PlanShards)
}

// split gives the shards of a plan; those with nothing in them are nil.
func split(p *plan.Plan) [v1alpha1.PlanShards]*shard {
	var out [v1alpha1.PlanShards]*shard
	at := func(n int) *shard {
		if out[n] == nil {
			out[n] = new(shard)
		}
		return out[n]
	}
	for i := range p.Endpoints {
		e := &p.Endpoints[i]
		s := at(shardOf(e.UID, e.EndpointKey))
		s.Endpoints = append(s.Endpoints, *e)
	}
	for i := range p.Absent {
		a := &p.Absent[i]
		s := at(shardOf(a.UID, a.EndpointKey))
		s.Absent = append(s.Absent, *a)
	}
	for _, t := range p.Tombstones {
		s := at(shardOf("", t.EndpointKey))
		s.Tombstones = append(s.Tombstones, t)
	}
	return out
}

// namespaces are those of a shard's endpoints, absent or not, sorted.
func (s *shard) namespaces() []string {
	var out []string
	for i := range s.Endpoints {
		out = append(out, s.Endpoints[i].Namespace)
	}
	for i := range s.Absent {
		out = append(out, s.Absent[i].Namespace)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// join makes a plan of an index and shards; nil shards are left out. Shards that are not of
// one version may speak of the same endpoint: the first one that does counts.
func join(ix *index, shards []*shard) *plan.Plan {
	p := &plan.Plan{Format: ix.Format, Version: ix.Version, Pool: ix.Pool}
	known := map[plan.EndpointKey]bool{}
	first := func(k plan.EndpointKey) bool {
		was := known[k]
		known[k] = true
		return !was
	}
	for _, s := range shards {
		if s == nil {
			continue
		}
		for i := range s.Endpoints {
			if first(s.Endpoints[i].EndpointKey) {
				p.Endpoints = append(p.Endpoints, s.Endpoints[i])
			}
		}
		for i := range s.Absent {
			if first(s.Absent[i].EndpointKey) {
				p.Absent = append(p.Absent, s.Absent[i])
			}
		}
		for _, t := range s.Tombstones {
			if first(t.EndpointKey) {
				p.Tombstones = append(p.Tombstones, t)
			}
		}
	}
	slices.SortFunc(p.Endpoints, func(a, b plan.Endpoint) int { return a.EndpointKey.Compare(b.EndpointKey) })
	slices.SortFunc(p.Absent, func(a, b plan.Absence) int { return a.EndpointKey.Compare(b.EndpointKey) })
	slices.SortFunc(p.Tombstones, func(a, b plan.Tombstone) int { return a.EndpointKey.Compare(b.EndpointKey) })
	return p
}

// pack gives the bytes of an index or a shard, the same for equal content.
func pack(v any) ([]byte, error) {
	_, b, err := compress(v)
	if err != nil {
		return nil, err
	}
	if len(b) > maxSecretBytes {
		return nil, fmt.Errorf("%d KiB are more than %d KiB: %w", len(b)>>10, maxSecretBytes>>10, ErrTooLarge)
	}
	return b, nil
}

// compressors are used again: one takes more than a MiB, and each pass over a plan needs one
// for each shard.
var compressors = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // there is no such level: a fault of these lines
	}
	return w
}}

// compress gives the length of the text and its packed bytes.
func compress(v any) (raw int, packed []byte, err error) {
	text, err := json.Marshal(v)
	if err != nil {
		return 0, nil, errors.New("encode the plan: it holds what JSON can't")
	}
	var b bytes.Buffer
	w, _ := compressors.Get().(*gzip.Writer)
	defer compressors.Put(w)
	w.Reset(&b)
	if _, err := w.Write(text); err != nil {
		return 0, nil, err
	}
	if err := w.Close(); err != nil {
		return 0, nil, err
	}
	return len(text), b.Bytes(), nil
}

// unpack reads what pack wrote. Members that this build doesn't know are passed over.
func unpack(b []byte, into any) error {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return errDamaged
	}
	text, err := io.ReadAll(io.LimitReader(r, maxInflated+1))
	if err != nil || len(text) > maxInflated || json.Unmarshal(text, into) != nil {
		return errDamaged
	}
	return nil
}

// unpackIndex reads an index; plan.ErrNewerFormat if a later release wrote it.
func unpackIndex(b []byte) (*index, error) {
	ix := new(index)
	if err := unpack(b, ix); err != nil {
		return nil, err
	}
	switch {
	case ix.Format > plan.Format:
		return nil, plan.ErrNewerFormat
	case ix.Format < 1 || ix.Version == 0:
		return nil, errDamaged
	}
	for n := range ix.Shards {
		if n < 0 || n >= v1alpha1.PlanShards {
			return nil, errDamaged
		}
	}
	return ix, nil
}

// IndexVersion is the plan's version that the bytes of an index speak of.
func IndexVersion(b []byte) (uint64, error) {
	ix, err := unpackIndex(b)
	if err != nil {
		return 0, err
	}
	return ix.Version, nil
}

// unpackShard reads a shard. It is current where it has the hash that the index tells;
// another one that can be read (gzip has a checksum of its own) is of another version of
// the plan, which is better than nothing.
func unpackShard(b []byte, hash string) (s *shard, current bool, err error) {
	s = new(shard)
	if err := unpack(b, s); err != nil {
		return nil, false, err
	}
	return s, sum(b) == hash, nil
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}
