package dispatch

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/deliver"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// A receiver that is down for 40 minutes at steady traffic gets at most one attempt a
// minute once backed off; what waits burns no attempts; afterwards everything arrives
// oldest first within minutes, ramped.
func TestAnOutageSparesTheReceiverAndIsCaughtUpWith(t *testing.T) {
	var down atomic.Bool
	inWorld(t, func(hit) deliver.Result {
		time.Sleep(10 * time.Millisecond)
		if down.Load() {
			return status(503)
		}
		return status(200)
	}, func(w *world) {
		down.Store(true)
		const perMinute = 120
		for range 40 * perMinute {
			w.send(1)
			w.after(time.Minute / perMinute)
		}
		if w.state() != BackingOff {
			t.Fatalf("during the outage: %v, want BackingOff", w.state())
		}
		attempts := w.seen()
		start := attempts[0].at
		var backedOff int
		for _, h := range attempts {
			if h.at.Sub(start) > 2*time.Minute {
				backedOff++
			}
		}
		if backedOff > 38 {
			t.Errorf("%d attempts in the last 38 minutes of the outage, want at most one a minute", backedOff)
		}
		tried := w.count(queue.Retrying)
		if tried > len(attempts) {
			t.Errorf("%d deliveries burnt an attempt in %d attempts", tried, len(attempts))
		}
		w.forget()
		down.Store(false)
		w.after(3 * time.Minute)
		w.want(0, 40*perMinute, 0)
		if w.state() != Active {
			t.Errorf("afterwards: %v, want Active", w.state())
		}
		checkOldestFirst(t, w.seen())
		if most := w.most["orders.example.com"]; most > 16 {
			t.Errorf("%d attempts in flight, want at most 16", most)
		}
	})
}

// checkOldestFirst allows for what is in flight together, which begins in any order.
func checkOldestFirst(t *testing.T, hits []hit) {
	t.Helper()
	newest := 0
	for _, h := range hits[1:] { // the first is the attempt that found the receiver up
		var n int
		if _, err := fmt.Sscanf(h.id, "evt_%d", &n); err != nil {
			t.Fatal(err)
		}
		if newest-n > 16 {
			t.Errorf("%s was attempted after evt_%06d, want oldest first", h.id, newest)
		}
		newest = max(newest, n)
	}
}

func TestTwoMinutesOf404ForAllDeadLetterAtMostFive(t *testing.T) {
	var broken atomic.Bool
	inWorld(t, func(hit) deliver.Result {
		time.Sleep(20 * time.Millisecond)
		if broken.Load() {
			return status(404)
		}
		return status(200)
	}, func(w *world) {
		w.send(50)
		w.after(5 * time.Second)
		broken.Store(true)
		for range 120 * 20 {
			w.send(1)
			w.after(time.Second / 20)
		}
		if v, _ := w.d.View(w.key()); v.State != BackingOff || v.Reason != ReasonRejecting {
			t.Errorf("%v %s, want BackingOff Rejecting", v.State, v.Reason)
		}
		dead := w.count(queue.DeadLettered)
		if dead > 5 {
			t.Errorf("%d dead letters, want at most 5", dead)
		}
		broken.Store(false)
		w.after(5 * time.Minute)
		w.want(0, 50+120*20-dead, dead)
	})
}

// After recovery a receiver is not run over: the ramp begins with one in flight.
func TestDrainingBeginsWithOneInFlight(t *testing.T) {
	var down atomic.Bool
	down.Store(true)
	inWorld(t, func(hit) deliver.Result {
		time.Sleep(100 * time.Millisecond)
		if down.Load() {
			return timeout()
		}
		return status(200)
	}, func(w *world) {
		w.send(500)
		w.after(10 * time.Minute)
		down.Store(false)
		w.mu.Lock()
		w.most, w.hits = map[string]int{}, nil
		w.mu.Unlock()
		w.after(time.Minute + 350*time.Millisecond)
		w.after(10 * time.Minute)
		w.want(0, 500, 0)
		hits := w.seen()
		// Of the attempts after the first success, count how many began in each 100 ms.
		first := hits[0].at
		var perStep [6]int
		for _, h := range hits {
			if i := int(h.at.Sub(first) / (100 * time.Millisecond)); i < len(perStep) {
				perStep[i]++
			}
		}
		for i := 1; i < len(perStep); i++ {
			if limit := 1 << (i - 1); perStep[i] > min(limit, 16) {
				t.Errorf("step %d of the ramp began %d attempts, want at most %d (all: %v)", i, perStep[i], min(limit, 16), perStep)
			}
		}
	})
}

// A receiver that says when to come back is not asked earlier, by anything.
func TestNothingIsAttemptedBeforeRetryAfter(t *testing.T) {
	var free atomic.Bool
	inWorld(t, func(hit) deliver.Result {
		if !free.Load() {
			r := status(503)
			r.RetryAfter = []string{"120"}
			return r
		}
		return status(200)
	}, func(w *world) {
		w.send(1)
		w.after(time.Second)
		w.send(10)
		w.after(118 * time.Second)
		if n := len(w.seen()); n != 1 {
			t.Fatalf("%d attempts within two minutes of Retry-After: 120, want 1", n)
		}
		free.Store(true)
		w.after(2 * time.Minute)
		w.want(0, 11, 0)
	})
}

func TestOnRecoveryWaitLeavesDueTimesAlone(t *testing.T) {
	var down atomic.Bool
	down.Store(true)
	inWorld(t, func(hit) deliver.Result {
		if down.Load() {
			return timeout()
		}
		return status(200)
	}, func(w *world) {
		w.endpoint().Retry.OnRecovery = "Wait"
		w.endpoint().Retry.Backoff.Schedule = []time.Duration{time.Hour}
		w.apply()
		w.send(3)
		w.after(10 * time.Second)
		down.Store(false)
		w.send(1)
		w.after(10 * time.Minute)
		w.want(3, 1, 0)
		w.after(time.Hour)
		w.want(0, 4, 0)
	})
}

// A restart in the middle of an outage neither hammers the receiver nor forgets to
// bring forward what waits once it is back.
func TestARestartDuringAnOutageRemembersIt(t *testing.T) {
	var down atomic.Bool
	down.Store(true)
	inWorld(t, func(hit) deliver.Result {
		time.Sleep(time.Millisecond)
		if down.Load() {
			return timeout()
		}
		return status(200)
	}, func(w *world) {
		w.endpoint().Retry.Backoff.Schedule = []time.Duration{24 * time.Hour}
		w.apply()
		w.send(100)
		w.after(10 * time.Minute)
		w.forget()
		w.restart()
		w.after(10 * time.Second)
		if n := len(w.seen()); n > 5 {
			t.Errorf("%d attempts in ten seconds after a restart, want one and then a back-off", n)
		}
		down.Store(false)
		w.restart()
		w.after(time.Minute)
		w.want(0, 100, 0)
		w.forget()
		w.restart()
		w.send(5)
		w.after(time.Second)
		w.want(0, 105, 0)
		if w.state() != Active {
			t.Errorf("%v, want Active", w.state())
		}
	})
}

// While Rejecting lasts, such an answer dead-letters nothing: neither at once, nor by
// the budget of attempts, nor after a restart.
func TestRejectingDeadLettersNothingElse(t *testing.T) {
	var fixed atomic.Bool
	inWorld(t, func(hit) deliver.Result {
		if fixed.Load() {
			return status(200)
		}
		return status(401)
	}, func(w *world) {
		w.endpoint().Retry.Backoff.Schedule = []time.Duration{time.Second}
		w.apply()
		w.send(20)
		w.after(time.Hour)
		w.want(16, 0, 4)
		for range 5 {
			w.restart()
			w.after(time.Hour)
		}
		w.want(16, 0, 4)
		fixed.Store(true)
		w.after(5 * time.Minute)
		w.want(0, 16, 4)
	})
}

// A rollout: the old pods go with 502s, the new ones answer 404.
func TestFaultsFollowedByRejectionsDeadLetterAtMostFive(t *testing.T) {
	var n atomic.Int32
	inWorld(t, func(hit) deliver.Result {
		i := n.Add(1)
		time.Sleep(time.Duration(i) * time.Millisecond)
		if i <= 5 {
			return status(502)
		}
		return status(404)
	}, func(w *world) {
		w.endpoint().MaxInFlight = 200
		w.apply()
		w.send(100)
		w.after(time.Hour)
		if dead := w.count(queue.DeadLettered); dead > 5 {
			t.Errorf("%d dead letters, want at most 5", dead)
		}
	})
}

// case RT44: bringing forward after an outage keeps to what a receiver asked for.
func TestExpediteKeepsToRetryAfter(t *testing.T) {
	var up atomic.Bool
	inWorld(t, func(h hit) deliver.Result {
		switch {
		case h.id == "evt_000001" && h.attempt == 1:
			r := status(500)
			r.RetryAfter = []string{"3600"}
			return r
		case up.Load():
			return status(200)
		}
		return timeout()
	}, func(w *world) {
		w.endpoint().MaxInFlight = 1
		w.apply()
		w.send(20)
		w.after(10 * time.Minute)
		up.Store(true)
		w.after(10 * time.Minute)
		w.want(1, 19, 0)
		w.after(time.Hour)
		w.want(0, 20, 0)
	})
}
