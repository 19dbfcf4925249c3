package compile

import (
	"slices"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
)

const (
	// AbsenceGrace is how long an object must be missing from complete looks, with
	// no incomplete look between them, before it counts as deleted.
	AbsenceGrace = 10 * time.Second
	// TombstoneLife is how long a deletion is remembered.
	TombstoneLife = 30 * 24 * time.Hour
)

// compileAbsence decides on the endpoints that the former plan knew and that are
// not to be seen now: noted as absent (held) first, and as deleted only once they
// were missing from complete looks for AbsenceGrace, or were found to be gone. Both lists
// come out sorted.
//
// An endpoint whose text was refused is there, even if nothing is left to go on
// with: it stays absent and never counts as deleted.
func (c *compiler) compileAbsence(seen []plan.Endpoint, in Objects) ([]plan.Absence, []plan.Tombstone) {
	present := make(map[plan.EndpointKey]bool, len(seen))
	for i := range seen {
		present[seen[i].EndpointKey] = true
	}
	var missing []plan.Absence
	for i := range c.previous.Endpoints {
		if e := &c.previous.Endpoints[i]; !present[e.EndpointKey] {
			missing = append(missing, plan.Absence{Endpoint: *e})
		}
	}
	for _, a := range c.previous.Absent {
		if !present[a.EndpointKey] {
			missing = append(missing, a)
		}
	}

	gone := make(map[plan.EndpointKey]bool, len(in.Gone))
	for _, k := range in.Gone {
		gone[k] = true
	}
	var absent []plan.Absence
	var dead []plan.Tombstone
	buried := make(map[plan.EndpointKey]bool)
	for _, a := range missing {
		a.Signing = c.running(a.Signing)
		if gone[a.EndpointKey] {
			dead = append(dead, plan.Tombstone{EndpointKey: a.EndpointKey, DeletedAt: c.now})
			buried[a.EndpointKey] = true
			continue
		}
		if slices.Contains(in.Refused, a.EndpointKey) {
			a.Since = time.Time{}
			absent = append(absent, a)
			continue
		}
		a.Since = c.missingSince(a.Since)
		if !a.Since.IsZero() && c.now.Sub(a.Since) >= AbsenceGrace {
			dead = append(dead, plan.Tombstone{EndpointKey: a.EndpointKey, DeletedAt: c.now})
			buried[a.EndpointKey] = true
			continue
		}
		absent = append(absent, a)
	}
	for _, t := range c.previous.Tombstones {
		if !present[t.EndpointKey] && !buried[t.EndpointKey] && c.now.Sub(t.DeletedAt) < TombstoneLife {
			dead = append(dead, t)
		}
	}
	slices.SortFunc(absent, func(a, b plan.Absence) int { return a.EndpointKey.Compare(b.EndpointKey) })
	slices.SortFunc(dead, func(a, b plan.Tombstone) int { return a.EndpointKey.Compare(b.EndpointKey) })
	return absent, dead
}

// missingSince is when the complete looks began that miss an object, given what
// the former plan says of it: zero while a look is incomplete, and now where none
// counted yet or where the former time can't be trusted.
func (c *compiler) missingSince(since time.Time) time.Time {
	switch {
	case !c.complete:
		return time.Time{}
	case since.IsZero(), c.opts.FirstLook, since.After(c.now):
		return c.now
	}
	return since
}

// lookAgain notes a time at which the same objects may give another plan.
func (c *compiler) lookAgain(t time.Time) {
	if c.next.IsZero() || t.Before(c.next) {
		c.next = t
	}
}

// nextAt is the first time at which an absence becomes a deletion, a tombstone is
// dropped, a former value of a key ends, or that was noted by lookAgain; zero if there
// is none.
func (c *compiler) nextAt(p *plan.Plan) time.Time {
	sooner := c.lookAgain
	for e := range p.Known() {
		for i := range e.Signing.Keys {
			if t := e.Signing.Keys[i].FormerUntil; !t.IsZero() {
				sooner(t)
			}
		}
	}
	if !p.Pool.AbsentSince.IsZero() {
		sooner(p.Pool.AbsentSince.Add(AbsenceGrace))
	}
	for _, a := range p.Absent {
		if !a.Since.IsZero() {
			sooner(a.Since.Add(AbsenceGrace))
		}
	}
	for _, t := range p.Tombstones {
		sooner(t.DeletedAt.Add(TombstoneLife))
	}
	return c.next
}
