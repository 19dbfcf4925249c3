package dispatch

import (
	"testing"
	"time"
)

// at is a time in the tests' own count.
func at(seconds float64) time.Time {
	return time.Unix(0, 0).UTC().Add(time.Duration(seconds * float64(time.Second)))
}

func TestFiveFaultsInARowOpenBackingOff(t *testing.T) {
	var f flow
	for i := range 4 {
		f.result(faulted, 0, f.epoch, true, at(float64(i)))
	}
	if f.state != Active {
		t.Fatalf("after four faults: %v, want Active", f.state)
	}
	f.result(faulted, 0, f.epoch, true, at(4))
	if f.state != BackingOff || f.reason != ReasonFailing {
		t.Fatalf("after five faults: %v %s, want BackingOff Failing", f.state, f.reason)
	}
	if n, wake := f.allowed(16, at(4.5)); n != 0 || !wake.Equal(at(5)) {
		t.Errorf("half a second later %d attempts are allowed, next at %v; want none until 1 s later", n, wake)
	}
	if n, _ := f.allowed(16, at(5)); n != 1 {
		t.Errorf("a second later %d attempts are allowed, want 1", n)
	}
}

func TestASuccessBetweenFaultsBeginsTheCountAnew(t *testing.T) {
	var f flow
	for i := range 20 {
		f.result(faulted, 0, f.epoch, true, at(float64(i)))
		if i%4 == 3 {
			f.result(succeeded, 0, f.epoch, true, at(float64(i)))
		}
	}
	if f.state != Active {
		t.Errorf("never five faults in a row, but the lane is %v", f.state)
	}
}

func TestBackOffDoublesToAMinute(t *testing.T) {
	var f flow
	f.backOff(ReasonFailing, 0, at(0))
	now := at(0)
	for i, want := range []float64{1, 2, 4, 8, 16, 32, 60, 60, 60} {
		if got := f.until.Sub(now).Seconds(); got != want {
			t.Errorf("wait %d is %v s, want %v s", i+1, got, want)
		}
		now = f.until
		f.result(faulted, 0, f.epoch, true, now)
	}
}

func TestRetryAfterPausesTheLane(t *testing.T) {
	var f flow
	f.result(faulted, 120*time.Second, f.epoch, true, at(0))
	if f.state != BackingOff || f.reason != ReasonRateLimited || !f.until.Equal(at(120)) {
		t.Errorf("after 429 with Retry-After: 120: %v %s until %v, want BackingOff RateLimited until 120 s", f.state, f.reason, f.until)
	}
}

func TestAnswersToEarlierAttemptsDoNotEscalate(t *testing.T) {
	var f flow
	before := f.epoch
	for range 16 {
		f.result(faulted, 0, before, true, at(0))
	}
	if !f.until.Equal(at(1)) {
		t.Errorf("sixteen attempts that failed together wait until %v, want 1 s", f.until)
	}
}

func TestRejectionsInARowOpenRejecting(t *testing.T) {
	var f flow
	for i := range 5 {
		if f.rejecting() {
			t.Fatalf("rejecting after %d answers, want 5", i)
		}
		f.result(rejected, 0, f.epoch, true, at(0))
	}
	if !f.rejecting() {
		t.Fatalf("after five 404s: %v %s, want BackingOff Rejecting", f.state, f.reason)
	}
	f.result(succeeded, 0, f.epoch, true, at(1))
	if f.state != Draining || f.rejecting() {
		t.Errorf("after a success: %v, want Draining", f.state)
	}
}

func TestDrainingRampsUpAndFallsBack(t *testing.T) {
	var f flow
	f.backOff(ReasonFailing, 0, at(0))
	f.result(succeeded, 0, f.epoch, true, at(1))
	if n, _ := f.allowed(16, at(1)); f.state != Draining || n != 1 {
		t.Fatalf("after a success: %v with %d in flight, want Draining with 1", f.state, n)
	}
	for range 7 {
		f.result(succeeded, 0, f.epoch, true, at(1))
	}
	if n, _ := f.allowed(16, at(1)); n != 8 {
		t.Fatalf("after seven more: %d in flight, want 8", n)
	}
	f.result(faulted, 0, f.epoch, true, at(1))
	if n, _ := f.allowed(16, at(1)); f.state != Draining || n != 4 {
		t.Fatalf("after one fault: %v with %d in flight, want Draining with 4", f.state, n)
	}
	for range 3 {
		f.result(faulted, 0, f.epoch, true, at(1))
	}
	if f.state != BackingOff {
		t.Errorf("after more: %v, want BackingOff", f.state)
	}
}

func TestAReceiverThatFallsOverAgainIsWaitedForLonger(t *testing.T) {
	var f flow
	f.backOff(ReasonFailing, 0, at(0))
	f.result(faulted, 0, f.epoch, true, at(1))   // waits 2 s
	f.result(succeeded, 0, f.epoch, true, at(3)) // up …
	f.result(faulted, 0, f.epoch, true, at(3))   // … and down
	if f.state != BackingOff || !f.until.Equal(at(7)) {
		t.Errorf("%v until %v, want BackingOff for the next step of 4 s", f.state, f.until)
	}
}

func TestGoneDisablesFromEveryStateUntilEnabled(t *testing.T) {
	for _, s := range []State{Active, BackingOff, Draining} {
		f := flow{state: s}
		f.result(gone, 0, 0, true, at(0))
		if f.state != Disabled {
			t.Errorf("410 in %v leaves %v, want Disabled", s, f.state)
		}
		f.result(succeeded, 0, 0, true, at(1))
		f.result(faulted, time.Minute, 0, true, at(1))
		if f.state != Disabled {
			t.Errorf("answers to attempts under way make it %v, want Disabled", f.state)
		}
		if n, _ := f.allowed(16, at(100)); n != 0 {
			t.Errorf("%d attempts allowed while disabled", n)
		}
		f.enable(true, at(2))
		if n, _ := f.allowed(16, at(2)); f.state != Draining || n != 1 {
			t.Errorf("enabled: %v with %d in flight, want Draining with 1", f.state, n)
		}
	}
}

func TestARefusalSaysThatTheReceiverIsUp(t *testing.T) {
	var f flow
	for range 4 {
		f.result(faulted, 0, f.epoch, true, at(0))
	}
	f.result(refused, 0, f.epoch, true, at(0)) // 400
	f.result(faulted, 0, f.epoch, true, at(0))
	if f.state != Active {
		t.Errorf("%v, want Active: the faults were not in a row", f.state)
	}
}

func TestAnAddressThatIsNotAllowedSaysNothingOfTheReceiver(t *testing.T) {
	var f flow
	for range 20 {
		f.result(nothing, 0, f.epoch, true, at(0))
	}
	if f.state != Active {
		t.Errorf("%v, want Active", f.state)
	}
}

func TestAnAnswerToTheFormerEndpointSaysNothing(t *testing.T) {
	for name, again := range map[string]func(*flow){
		"changed": func(f *flow) { f.changed(at(1)) },
		"enabled": func(f *flow) { f.result(gone, 0, f.epoch, true, at(0)); f.enable(true, at(1)) },
	} {
		var f flow
		before := f.epoch
		again(&f)
		state := f.state
		for range 10 {
			f.result(gone, 0, before, true, at(2))
			f.result(faulted, time.Hour, before, true, at(2))
			f.result(rejected, 0, before, true, at(2))
		}
		if f.state != state {
			t.Errorf("%s: late answers make it %v, want %v", name, f.state, state)
		}
	}
}

func TestAReceiverThatRefusesIsUp(t *testing.T) {
	var f flow
	f.backOff(ReasonFailing, 0, at(0))
	f.result(refused, 0, f.epoch, true, at(1)) // 422
	if f.state != Draining {
		t.Fatalf("after a refusal: %v, want Draining", f.state)
	}
	for range 20 {
		f.result(refused, 0, f.epoch, true, at(1))
	}
	if n, _ := f.allowed(16, at(1)); n != 16 {
		t.Errorf("%d in flight after twenty refusals, want 16", n)
	}
}

func TestARefusalDoesNotEndRejecting(t *testing.T) {
	var f flow
	for range 5 {
		f.result(rejected, 0, f.epoch, true, at(0))
	}
	f.result(refused, 0, f.epoch, true, at(1))
	f.result(rejected, 0, f.epoch, true, at(1))
	if !f.rejecting() {
		t.Errorf("%v %s, want Rejecting: there was no success between", f.state, f.reason)
	}
}

// No token can be had: the lane waits further and further apart, up to 15 minutes, and a
// token ends that.
func TestAuthFailed(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	var f flow
	for i, minutes := range []int{1, 2, 4, 8, 15, 15, 15} {
		want := time.Duration(minutes) * time.Minute
		old := f.epoch
		if !f.authFailed(f.epoch, now) {
			t.Fatalf("failure %d is no news", i)
		}
		if f.state != BackingOff || f.reason != ReasonAuthFailed || f.until.Sub(now) != want {
			t.Errorf("after %d failures %s (%s) until %s, want %s", i+1, f.state, f.reason, f.until.Sub(now), want)
		}
		if f.authFailed(old, now.Add(time.Second)) {
			t.Errorf("an attempt from before failure %d counts again", i)
		}
		now = f.until
	}
	other := f
	other.result(faulted, 0, other.epoch, true, now)
	if other.state != BackingOff || other.reason != ReasonFailing || other.authStep != 0 {
		t.Errorf("after another fault %s (%s), want BackingOff (Failing)", other.state, other.reason)
	}
	f.result(succeeded, 0, f.epoch, true, now)
	if f.state != Draining || f.authStep != 0 {
		t.Errorf("after a success %s, want Draining", f.state)
	}
}
