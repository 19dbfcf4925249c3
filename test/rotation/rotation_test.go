package rotation

import (
	"slices"
	"testing"
	"time"
)

const perSecond = 200

// A key that changes every two seconds for a minute, with an overlap of five, at 200
// events a second, and a receiver that learns each key a second late: none is refused,
// and after the overlap there is one signature. cases SG43, ROT-01, ROT-02
func TestNoDeliveryIsRefusedThroughRotations(t *testing.T) {
	t.Parallel()
	const every, overlap, rotations, lag = 2 * time.Second, 5 * time.Second, 30, time.Second
	r := newReceiver(t, lag)
	s := newSite(t, r, "rotationOverlap: "+overlap.String()+", ")
	stop := s.load("rot", perSecond)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for n := 1; n <= rotations; n++ {
		<-ticker.C
		s.rotate(n)
	}
	s.await(10*time.Second, "the last key", func() (ok bool) {
		r.look(func() { ok = r.newest == rotations })
		return ok
	})
	// The overlap ends by the worker's clock, of a moment before the receiver's.
	s.await(2*overlap, "three seconds after the overlap", func() (ok bool) {
		r.look(func() { ok = time.Since(r.since) > overlap+3*time.Second })
		return ok
	})
	accepted := stop()
	s.await(30*time.Second, "all events to arrive", func() bool { return r.count() >= accepted })

	r.look(func() {
		if len(r.refused) > 0 {
			t.Errorf("%d of %d deliveries were refused, first %s", len(r.refused), len(r.requests), r.refused[0])
		}
		if len(r.requests) < rotations*2*perSecond/4 {
			t.Errorf("only %d deliveries came: no load to speak of", len(r.requests))
		}
		// A file that is written twice before it is read counts once.
		if len(r.learns) < rotations/2 {
			t.Errorf("the receiver has seen %d of %d keys", len(r.learns), rotations)
		}
		most, after := 0, 0
		for _, q := range r.requests {
			most = max(most, q.signatures)
			if len(q.by) != q.signatures {
				t.Fatalf("%s has %d signatures, %d of them by its keys", q.id, q.signatures, len(q.by))
			}
			if q.at.Sub(r.since) < overlap+time.Second {
				continue
			}
			after++
			if !slices.Equal(q.by, []int{rotations}) {
				t.Errorf("%s is signed by keys %v after the overlap, want number %d alone", q.id, q.by, rotations)
			}
		}
		if most < 3 || most > 6 || after < perSecond/10 {
			t.Errorf("at most %d signatures at once, want 3 or more and 6 at most; %d deliveries after the overlap", most, after)
		}
		t.Logf("%d deliveries, %d keys seen, at most %d signatures, none refused; %d after the overlap with one", len(r.requests), len(r.learns), most, after)
	})
}

// One rotation under load with the default overlap, while the receiver knows the old key
// until it restarts, 30 s later: none is refused, none is lost. case SG43
func TestARestartThirtySecondsLaterRefusesNothing(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, time.Hour) // it learns at its restart
	s := newSite(t, r, "")
	stop := s.load("restart", perSecond)
	s.await(10*time.Second, "load", func() bool { return r.count() > perSecond })
	s.rotate(1)
	s.await(10*time.Second, "the new key", func() (ok bool) {
		r.look(func() { ok = r.newest == 1 })
		return ok
	})
	s.await(40*time.Second, "30 s", func() (ok bool) {
		r.look(func() { ok = time.Since(r.since) > 30*time.Second })
		return ok
	})
	r.restart(t, 1)
	before := r.count()
	s.await(30*time.Second, "deliveries to the restarted receiver", func() bool { return r.count() > before+3*perSecond })
	accepted := stop()
	s.await(30*time.Second, "all events to arrive", func() bool { return r.count() >= accepted })
	r.look(func() {
		if len(r.refused) > 0 {
			t.Errorf("%d of %d deliveries were refused, first %s", len(r.refused), len(r.requests), r.refused[0])
		}
	})
}
