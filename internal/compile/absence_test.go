package compile

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

var orders = plan.EndpointKey{Namespace: "shop", Name: "orders"}

// look is one look at the objects, some time after the one before.
type look struct {
	after    time.Duration
	in       func() Objects
	restart  bool
	absent   bool // what the plan says of orders afterwards
	deleted  bool
	nextAt   time.Duration // from this look; 0: never
	sameAsIt bool          // the version does not rise
}

func complete() Objects   { return Objects{Complete: true} }
func incomplete() Objects { return Objects{} }
func refused() Objects {
	return Objects{Refused: []plan.EndpointKey{orders}, Complete: true}
}
func whole() Objects { return world() }

func TestAbsenceIsNotDeletion(t *testing.T) {
	const day = 24 * time.Hour
	for _, tc := range []struct {
		name  string
		looks []look
	}{
		{"a deletion is known after ten seconds of complete looks", []look{
			{in: whole},
			{after: time.Second, in: complete, absent: true, nextAt: 10 * time.Second},
			{after: 9 * time.Second, in: complete, absent: true, nextAt: time.Second, sameAsIt: true},
			{after: time.Second, in: complete, deleted: true, nextAt: 30 * day},
			{after: 29 * day, in: complete, deleted: true, nextAt: day, sameAsIt: true},
			{after: day, in: complete},
		}},
		{"incomplete looks never delete", []look{
			{in: whole},
			{after: time.Second, in: incomplete, absent: true},
			{after: 30 * day, in: incomplete, absent: true, sameAsIt: true},
			{after: time.Second, in: whole},
		}},
		{"an incomplete look begins the count anew", []look{
			{in: whole},
			{after: time.Second, in: complete, absent: true, nextAt: 10 * time.Second},
			{after: 9 * time.Second, in: incomplete, absent: true},
			{after: 9 * time.Second, in: complete, absent: true, nextAt: 10 * time.Second},
			{after: 10 * time.Second, in: complete, deleted: true, nextAt: 30 * day},
		}},
		{"so does a restart, for nobody looked meanwhile", []look{
			{in: whole},
			{after: time.Second, in: complete, absent: true, nextAt: 10 * time.Second},
			{after: time.Hour, in: complete, restart: true, absent: true, nextAt: 10 * time.Second},
		}},
		{"an endpoint that is back was only absent", []look{
			{in: whole},
			{after: time.Second, in: complete, absent: true, nextAt: 10 * time.Second},
			{after: 9 * time.Second, in: whole},
			{after: time.Hour, in: complete, absent: true, nextAt: 10 * time.Second},
		}},
		{"a clock that steps back deletes nothing early", []look{
			{in: whole},
			{after: time.Second, in: complete, absent: true, nextAt: 10 * time.Second},
			{after: -time.Hour, in: complete, absent: true, nextAt: 10 * time.Second},
			{after: 9 * time.Second, in: complete, absent: true, nextAt: time.Second, sameAsIt: true},
		}},
		{"a refused edit is neither absence nor deletion", []look{
			{in: whole},
			{after: time.Second, in: refused, sameAsIt: true},
			{after: 30 * day, in: refused, sameAsIt: true},
		}},
		{"nor is one that was away before", []look{
			{in: whole},
			{after: time.Second, in: incomplete, absent: true},
			{after: time.Second, in: refused, absent: true, sameAsIt: true},
			{after: 30 * day, in: refused, absent: true, sameAsIt: true},
		}},
		{"one made again has no tombstone", []look{
			{in: whole},
			{after: time.Second, in: complete, absent: true, nextAt: 10 * time.Second},
			{after: 10 * time.Second, in: complete, deleted: true, nextAt: 30 * day},
			{after: time.Minute, in: whole},
		}},
		{"what was never there is not missed", []look{{in: complete}, {after: time.Hour, in: complete, sameAsIt: true}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var previous *plan.Plan
			now := start
			for i, l := range tc.looks {
				now = now.Add(l.after)
				r := Compile(l.in(), previous, now, Options{FirstLook: l.restart})
				if got := isAbsent(r.Plan, orders); got != l.absent {
					t.Errorf("look %d: absent is %t, want %t", i, got, l.absent)
				}
				if got := isDeleted(r.Plan, orders); got != l.deleted {
					t.Errorf("look %d: deleted is %t, want %t", i, got, l.deleted)
				}
				var next time.Duration
				if !r.NextAt.IsZero() {
					next = r.NextAt.Sub(now)
				}
				if next != l.nextAt {
					t.Errorf("look %d: next in %s, want %s", i, next, l.nextAt)
				}
				if previous != nil && (r.Plan.Version == previous.Version) != l.sameAsIt {
					t.Errorf("look %d: version %d after %d, want the same: %t", i, r.Plan.Version, previous.Version, l.sameAsIt)
				}
				previous = r.Plan
			}
		})
	}
}

func isAbsent(p *plan.Plan, k plan.EndpointKey) bool {
	return slices.ContainsFunc(p.Absent, func(a plan.Absence) bool { return a.EndpointKey == k })
}

func isDeleted(p *plan.Plan, k plan.EndpointKey) bool {
	return slices.ContainsFunc(p.Tombstones, func(d plan.Tombstone) bool { return d.EndpointKey == k })
}

func TestFirstSeenGoesOnThroughAbsenceButNotDeletion(t *testing.T) {
	first := Compile(world(), nil, start, Options{}).Plan
	away := Compile(complete(), first, start.Add(time.Second), Options{}).Plan
	back := Compile(world(), away, start.Add(2*time.Second), Options{})
	if e := one(t, back); !e.FirstSeen.Equal(start) {
		t.Errorf("after absence first seen %s, want %s", e.FirstSeen, start)
	}
	dead := Compile(complete(), away, start.Add(11*time.Second), Options{}).Plan
	again := Compile(world(), dead, start.Add(time.Minute), Options{})
	if e := one(t, again); !e.FirstSeen.Equal(start.Add(time.Minute)) {
		t.Errorf("after deletion first seen %s, want %s", e.FirstSeen, start.Add(time.Minute))
	}
}

func TestAPoolThatIsAwayKeepsItsSettings(t *testing.T) {
	withPool := world()
	withPool.Pools = []v1alpha1.DeliveryPool{{ObjectMeta: meta("infra", "default"), Spec: v1alpha1.DeliveryPoolSpec{
		Suspend:            ptr(true),
		DefaultRetryPolicy: &v1alpha1.RetryPolicySpec{MaxAge: "1h"},
		Egress:             &v1alpha1.Egress{Allow: []v1alpha1.EgressNetwork{{CIDR: "10.0.0.0/8"}}},
	}}}
	there := Compile(withPool, nil, start, Options{}).Plan
	hold := func(name string, p *plan.Plan, want bool) {
		t.Helper()
		kept := p.Pool.Suspend && len(p.Pool.Egress.Allow) == 1 && p.Endpoints[0].Retry.MaxAge == time.Hour
		if kept != want {
			t.Errorf("%s: settings kept is %t (%+v), want %t", name, kept, p.Pool, want)
		}
	}
	in := world()
	in.Complete = false
	unseen := Compile(in, there, start.Add(time.Hour), Options{}).Plan
	hold("an incomplete look", unseen, true)
	r := Compile(world(), unseen, start.Add(2*time.Hour), Options{})
	hold("a complete look", r.Plan, true)
	if want := start.Add(2*time.Hour + AbsenceGrace); !r.NextAt.Equal(want) {
		t.Errorf("next at %s, want %s", r.NextAt, want)
	}
	hold("after the grace time", Compile(world(), r.Plan, r.NextAt, Options{}).Plan, false)

	dev := Compile(withPool, nil, start, Options{Dev: true}).Plan
	after := Compile(in, dev, start, Options{}).Plan.Pool.Egress
	if after.Local || after.AllowHTTP || len(after.Allow) != 1 {
		t.Errorf("egress %+v, want the pool's alone: --dev is over", after)
	}
}

// randomObjects makes up to n endpoints with what they refer to, some in trouble.
func randomObjects(rnd *rand.Rand, n int) Objects {
	in := Objects{Complete: rnd.IntN(3) > 0}
	for i := range n {
		name := fmt.Sprintf("e%d", i)
		if rnd.IntN(4) == 0 {
			continue
		}
		e := endpoint(name)
		e.Namespace = []string{"shop", "warehouse"}[rnd.IntN(2)]
		if rnd.IntN(5) == 0 {
			e.Spec.URL = "ftp://example.com"
		}
		if rnd.IntN(3) == 0 {
			e.Spec.RetryPolicyRef = &v1alpha1.RetryPolicyReference{Name: fmt.Sprintf("p%d", rnd.IntN(4))}
		}
		e.Spec.EventTypes = []v1alpha1.EventTypePattern{"a.b", "c.*", "*"}[:rnd.IntN(4)]
		if rnd.IntN(6) == 0 {
			in.Refused = append(in.Refused, plan.EndpointKey{Namespace: e.Namespace, Name: name})
			continue
		}
		in.Endpoints = append(in.Endpoints, e)
		if rnd.IntN(5) > 0 {
			in.Secrets = append(in.Secrets, secret(e.Namespace, name+"-signing", map[string]string{"key": keyA}))
		}
	}
	for i := range 3 {
		if rnd.IntN(2) == 0 {
			in.RetryPolicies = append(in.RetryPolicies, v1alpha1.RetryPolicy{ObjectMeta: meta("shop", fmt.Sprintf("p%d", i)),
				Spec: v1alpha1.RetryPolicySpec{MaxAge: v1alpha1.Duration([]string{"1h", "0s", ""}[i])}})
		}
	}
	for _, ns := range []string{"alpha", "doorstep-system", "zeta"} {
		if rnd.IntN(3) == 0 {
			in.Pools = append(in.Pools, v1alpha1.DeliveryPool{ObjectMeta: meta(ns, "default"), Spec: v1alpha1.DeliveryPoolSpec{Suspend: ptr(true)}})
		}
	}
	return in
}

func shuffle(rnd *rand.Rand, in Objects) Objects {
	swap := func(n int, f func(i, j int)) { rnd.Shuffle(n, f) }
	out := Objects{
		Endpoints: slices.Clone(in.Endpoints), RetryPolicies: slices.Clone(in.RetryPolicies), Pools: slices.Clone(in.Pools),
		Secrets: slices.Clone(in.Secrets), Refused: slices.Clone(in.Refused), Complete: in.Complete,
	}
	swap(len(out.Endpoints), func(i, j int) { out.Endpoints[i], out.Endpoints[j] = out.Endpoints[j], out.Endpoints[i] })
	swap(len(out.RetryPolicies), func(i, j int) {
		out.RetryPolicies[i], out.RetryPolicies[j] = out.RetryPolicies[j], out.RetryPolicies[i]
	})
	swap(len(out.Pools), func(i, j int) { out.Pools[i], out.Pools[j] = out.Pools[j], out.Pools[i] })
	swap(len(out.Secrets), func(i, j int) { out.Secrets[i], out.Secrets[j] = out.Secrets[j], out.Secrets[i] })
	swap(len(out.Refused), func(i, j int) { out.Refused[i], out.Refused[j] = out.Refused[j], out.Refused[i] })
	for i := range out.Endpoints {
		types := slices.Clone(out.Endpoints[i].Spec.EventTypes)
		swap(len(types), func(i, j int) { types[i], types[j] = types[j], types[i] })
		out.Endpoints[i].Spec.EventTypes = types
	}
	return out
}

// TestPropertiesOverRandomHistories runs random looks at random times and holds
// every step to what is promised of Compile.
func TestPropertiesOverRandomHistories(t *testing.T) {
	for seed := range uint64(100) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var previous *plan.Plan
		now := start
		completeSince := time.Time{}
		for step := range 12 {
			now = now.Add(time.Duration(rnd.Int64N(int64(8 * time.Second))))
			in := randomObjects(rnd, 6)
			r := Compile(in, previous, now, Options{})
			fail := func(format string, args ...any) {
				t.Helper()
				t.Fatalf("seed %d step %d: "+format, append([]any{seed, step}, args...)...)
			}

			other := Compile(shuffle(rnd, in), previous, now, Options{})
			if !plan.Equal(r.Plan, other.Plan) || r.Plan.Version != other.Plan.Version || !slices.Equal(r.Problems, other.Problems) {
				fail("another order of the objects gives another plan")
			}
			again := Compile(in, r.Plan, now, Options{})
			if !plan.Equal(again.Plan, r.Plan) || again.Plan.Version != r.Plan.Version || !again.NextAt.Equal(r.NextAt) {
				fail("compiling again gives another plan:\n%+v\n%+v", r.Plan, again.Plan)
			}
			if !r.NextAt.IsZero() && !r.NextAt.After(now) {
				fail("next at %s, which is not after %s", r.NextAt, now)
			}
			if !in.Complete {
				completeSince = time.Time{}
			} else if completeSince.IsZero() {
				completeSince = now
			}
			for _, d := range r.Plan.Tombstones {
				fresh := previous == nil || !isDeleted(previous, d.EndpointKey)
				if fresh && (completeSince.IsZero() || now.Sub(completeSince) < AbsenceGrace) {
					fail("%s counts as deleted after %s of complete looks", d.EndpointKey, now.Sub(completeSince))
				}
				if isAbsent(r.Plan, d.EndpointKey) || r.Plan.Index()[d.EndpointKey] != nil {
					fail("%s is deleted and something else", d.EndpointKey)
				}
			}
			if previous != nil {
				// Nothing that was known is lost: it is there, absent or deleted.
				for _, e := range previous.Endpoints {
					if r.Plan.Index()[e.EndpointKey] == nil && !isAbsent(r.Plan, e.EndpointKey) && !isDeleted(r.Plan, e.EndpointKey) {
						fail("%s is forgotten", e.EndpointKey)
					}
				}
			}
			if !slices.IsSortedFunc(r.Plan.Endpoints, func(a, b plan.Endpoint) int { return a.EndpointKey.Compare(b.EndpointKey) }) {
				fail("the endpoints are not sorted")
			}
			for _, e := range r.Plan.Endpoints {
				if e.Problem == nil && len(e.Signing.Keys) == 0 {
					fail("%s would be sent unsigned", e.EndpointKey)
				}
			}
			previous = r.Plan
		}
	}
}

func TestNoSequenceOfIncompleteLooksMakesATombstone(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		first := randomObjects(rnd, 8)
		previous := Compile(first, nil, start, Options{}).Plan
		now := start
		for range 20 {
			now = now.Add(time.Duration(rnd.Int64N(int64(48 * time.Hour))))
			in := randomObjects(rnd, 8)
			in.Complete = false
			previous = Compile(in, previous, now, Options{FirstLook: rnd.IntN(5) == 0}).Plan
			if len(previous.Tombstones) > 0 {
				t.Fatalf("seed %d: tombstones %v", seed, previous.Tombstones)
			}
		}
	}
}
