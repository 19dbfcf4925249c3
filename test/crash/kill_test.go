package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/test/harness"
)

// attemptTimeout is the endpoint's timeout. Only an event that first arrived at most
// this long before a kill may arrive again.
const attemptTimeout = 2 * time.Second

// repeatLead is how long before a kill a repeated event may have arrived at most. It is
// far less than the timeout that would be allowed, and less than the time between two
// kills, so that a repeat without a kill shows: receivers answer in milliseconds, and an
// outcome is on disk 50 ms later.
const repeatLead = 700 * time.Millisecond

// site is a worker's home: what outlives its processes.
type site struct {
	t        *testing.T
	dir      string
	addr     string
	receiver *receiver
}

func newSite(t *testing.T) *site {
	addr, err := harness.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, dir: t.TempDir(), addr: addr, receiver: startReceiver(t)}
	if err := harness.WriteManifests(s.manifests(), signingKey, s.receiver.endpoint()); err != nil {
		t.Fatal(err)
	}
	policy := harness.RetryManifest("quick", slices.Repeat([]string{"200ms"}, 50)...)
	if err := harness.WriteManifest(s.manifests(), "quick.yaml", policy); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *site) manifests() string { return filepath.Join(s.dir, "manifests") }

func (s *site) config() harness.WorkerConfig {
	return harness.WorkerConfig{Binary: binary, Manifests: s.manifests(), Data: filepath.Join(s.dir, "data"), Addr: s.addr}
}

// start starts a worker; it is killed at the test's end at the latest.
func (s *site) start() *harness.Worker {
	s.t.Helper()
	w, err := harness.StartWorker(s.t.Context(), s.config())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(w.Kill)
	return w
}

// killStarting starts a worker and kills it after d, wherever it is by then: opening
// its store, replaying its log, or ready.
func (s *site) killStarting(d time.Duration) time.Time {
	s.t.Helper()
	c := s.config()
	p, err := harness.Start(harness.Command{Name: "doorstep standalone", Path: c.Binary,
		Args: []string{"standalone", "-f", c.Manifests, "--data", c.Data, "--listen", c.Addr}})
	if err != nil {
		s.t.Fatal(err)
	}
	select {
	case <-p.Exited():
		s.t.Fatalf("the worker ended by itself after a crash: %s", p.Tail())
	case <-time.After(d):
	}
	p.Kill()
	return time.Now()
}

// awaitUntil waits up to d for check.
func awaitUntil(t *testing.T, d time.Duration, what string, check func() (bool, error)) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return harness.Await(ctx, 5*time.Millisecond, what, check)
}

// Every acknowledged event is delivered or dead-lettered, wherever the process is
// killed; and only what arrived just before a kill arrives again.
//
// case RTY-18: killed between the answer and its record, an event is sent again with the
// same id. case QD102: killed between taken and sent it is sent by the next process; an
// event comes again only where a kill may have fallen between sent and recorded.
func TestKill(t *testing.T) {
	kills, events := setting(t, "DOORSTEP_CRASH_KILLS", 50), setting(t, "DOORSTEP_CRASH_EVENTS", 100_000)
	seed := uint64(setting(t, "DOORSTEP_CRASH_SEED", int(rand.Uint32())+1))
	t.Logf("DOORSTEP_CRASH_SEED=%d, %d kills, %d events", seed, kills, events)
	rng := rand.New(rand.NewPCG(seed, 50))

	s := newSite(t)
	l := openLedger(t, filepath.Join(s.dir, "acknowledged"))
	w := s.start()
	p := startProducer(t, s.addr, w.Key, l, events)
	killed := s.killAgainAndAgain(w, p, rng, kills, events)

	w = s.start()
	if err := awaitUntil(t, 2*time.Minute, "all events to be acknowledged", func() (bool, error) {
		return l.count() >= events, nil
	}); err != nil {
		t.Fatalf("%v: %d of %d are; worker: %s", err, l.count(), events, w.Tail())
	}
	p.end()
	acked := l.close(t)
	err := awaitUntil(t, 2*time.Minute, "all acknowledged events to arrive", func() (bool, error) {
		return s.receiver.settledCount() >= len(acked), nil
	})
	if lost := s.receiver.missing(acked); len(lost) > 0 {
		slices.Sort(lost)
		t.Errorf("%d of %d acknowledged events did not arrive (%v), the first %v; the worker says of it: %s",
			len(lost), len(acked), err, lost[:min(10, len(lost))], describe(w, lost[0]))
	}
	checkSettled(t, w, acked)
	checkRepeats(t, s.receiver.repeated(), killed)
	t.Logf("%d kills, %d events acknowledged after %d sends that had to be repeated, %d arrived twice",
		len(killed), len(acked), p.repeats.Load(), len(s.receiver.repeated()))
	if err := w.Stop(30 * time.Second); err != nil {
		t.Error(err)
	}
}

// killAgainAndAgain kills the worker at moments that rng draws: every other time
// within 50 ms of the beginning of a burst of events, else at any moment. One time in
// ten it kills once more while the next process starts. It returns the kills' times.
func (s *site) killAgainAndAgain(w *harness.Worker, p *producer, rng *rand.Rand, kills, events int) []time.Time {
	s.t.Helper()
	var killed []time.Time
	share := events / kills
	for k := range kills {
		from := p.ledger.count()
		want := from + share/4 + rng.IntN(max(share, 1))
		delay := time.Duration(rng.Int64N(int64(300 * time.Millisecond)))
		startDelay := time.Duration(rng.Int64N(int64(200 * time.Millisecond)))
		if err := awaitUntil(s.t, 30*time.Second, "load", func() (bool, error) {
			got := p.ledger.count()
			return got >= want || got >= events, nil
		}); err != nil {
			s.t.Fatalf("%v before kill %d: %d acknowledged, %d wanted; worker: %s", err, k, p.ledger.count(), want, w.Tail())
		}
		if k%2 == 0 {
			delay %= 50 * time.Millisecond
			select {
			case <-p.bursts:
			case <-time.After(10 * time.Second):
				s.t.Fatalf("no burst came before kill %d", k)
			}
		}
		time.Sleep(delay)
		w.Kill()
		killed = append(killed, time.Now())
		if k%10 == 9 {
			killed = append(killed, s.killStarting(startDelay))
		}
		if k < kills-1 {
			w = s.start()
		}
	}
	return killed
}

// checkSettled asks the worker itself: nothing waits, and the dead letters are exactly
// the acknowledged events that the receiver refuses.
func checkSettled(t *testing.T, w *harness.Worker, acked map[int]bool) {
	t.Helper()
	var e struct {
		Deliveries struct{ Waiting, DeadLettered int }
	}
	err := awaitUntil(t, 30*time.Second, "the worker to have nothing waiting", func() (bool, error) {
		_, err := w.Call("GET", harness.Path("endpoints/orders"), nil, nil, &e)
		return e.Deliveries.Waiting == 0, err
	})
	if err != nil {
		t.Errorf("%v: %d deliveries wait", err, e.Deliveries.Waiting)
	}
	want := map[string]bool{}
	for n := range acked {
		if refused(n) {
			want[id(n)] = true
		}
	}
	got := deadLetters(t, w)
	for id := range want {
		if !got[id] {
			t.Errorf("%s was refused by the receiver and is no dead letter", id)
		}
	}
	for id := range got {
		if !want[id] {
			t.Errorf("%s is a dead letter, and the receiver did not refuse it", id)
		}
	}
	t.Logf("%d dead letters", len(got))
}

// deadLetters is the webhook ids of the endpoint's dead letters.
func deadLetters(t *testing.T, w *harness.Worker) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	cursor := ""
	for range 10_000 {
		var page struct {
			Items  []struct{ WebhookID string }
			Cursor string
		}
		path := harness.Path("endpoints/orders/deliveries?state=deadLettered&limit=500")
		if cursor != "" {
			path += "&cursor=" + cursor
		}
		if _, err := w.Call("GET", path, nil, nil, &page); err != nil {
			t.Fatal(err)
		}
		for _, d := range page.Items {
			out[d.WebhookID] = true
		}
		if cursor = page.Cursor; cursor == "" {
			return out
		}
	}
	t.Fatal("the list of dead letters has no end")
	return nil
}

// checkRepeats holds every repeat against the kills.
func checkRepeats(t *testing.T, repeated map[int]time.Time, killed []time.Time) {
	t.Helper()
	var longest time.Duration
	for n, first := range repeated {
		lead, ok := leadTo(first, killed)
		longest = max(longest, lead)
		if !ok || lead > repeatLead {
			t.Errorf("%s arrived twice, first at %s, and no kill came within %v after that", id(n), first.Format("15:04:05.000"), repeatLead)
		}
	}
	t.Logf("the earliest of the events that arrived twice had arrived %v before its kill", longest.Round(time.Millisecond))
}

// leadTo is the time from at to the next kill; false if there was none.
func leadTo(at time.Time, killed []time.Time) (time.Duration, bool) {
	for _, k := range killed {
		if !k.Before(at) {
			return k.Sub(at), true
		}
	}
	return 0, false
}

// describe is what the worker knows of an event.
func describe(w *harness.Worker, n int) string {
	var e any
	if _, err := w.Call("GET", harness.Path("events/"+id(n)), nil, nil, &e); err != nil {
		return err.Error()
	}
	return fmt.Sprint(e)
}
