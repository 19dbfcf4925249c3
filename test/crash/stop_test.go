package crash

import (
	"path/filepath"
	"testing"
	"time"
)

// grace is how long a stop may take: the default of standalone and some for the store.
const grace = 30 * time.Second

// A worker that is asked to stop under load ends with exit code 0 in time, and its
// next process goes on where it was: nothing is lost, and nothing comes twice.
func TestStopUnderLoad(t *testing.T) {
	const rounds, events = 5, 10_000
	s := newSite(t)
	l := openLedger(t, filepath.Join(s.dir, "acknowledged"))
	w := s.start()
	p := startProducer(t, s.addr, w.Key, l, events)
	for round := range rounds {
		want := (round + 1) * events / (rounds + 1)
		if err := awaitUntil(t, 30*time.Second, "load", func() (bool, error) { return l.count() >= want, nil }); err != nil {
			t.Fatalf("%v in round %d: %d acknowledged; worker: %s", err, round, l.count(), w.Tail())
		}
		at := time.Now()
		if err := w.Stop(grace); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		t.Logf("round %d: stopped in %v with %d events acknowledged", round, time.Since(at).Round(time.Millisecond), l.count())
		w = s.start()
	}
	if err := awaitUntil(t, time.Minute, "all events to be acknowledged", func() (bool, error) { return l.count() >= events, nil }); err != nil {
		t.Fatal(err)
	}
	p.end()
	acked := l.close(t)
	err := awaitUntil(t, time.Minute, "all acknowledged events to arrive", func() (bool, error) {
		return s.receiver.settledCount() >= len(acked), nil
	})
	if lost := s.receiver.missing(acked); len(lost) > 0 {
		t.Errorf("%d of %d acknowledged events did not arrive (%v); the worker says of the first: %s", len(lost), len(acked), err, describe(w, lost[0]))
	}
	for n, first := range s.receiver.repeated() {
		t.Errorf("%s arrived twice, first at %s", id(n), first.Format("15:04:05.000"))
	}
	checkSettled(t, w, acked)
	if err := w.Stop(grace); err != nil {
		t.Error(err)
	}
}
