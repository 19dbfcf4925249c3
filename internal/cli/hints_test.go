package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/client"
	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// A command that is shown to be copied leads to the same API and namespace.
func TestHintsCarryTheirFlags(t *testing.T) {
	w := newWorld(t)
	c := plan.EndpointKey{Namespace: "shop", Name: "orders"}
	w.plan.Store(&plan.Plan{Version: 2, Endpoints: []plan.Endpoint{{EndpointKey: c, FirstSeen: start, MaxInFlight: 1}}})
	w.lanes.Set(c, ingest.LaneView{State: ingest.LaneActive})
	dir := t.TempDir() + "/a b"
	r := w.want(3, "send", "--type", "order.created", "--id", "o1", "--wait", "--timeout", "10ms", "-n", "shop",
		"--server", w.url, "--data-dir", dir)
	if want := "See: doorstep explain o1 -n shop --server " + w.url + " --data-dir '" + dir + "'\n"; !strings.HasSuffix(r.err, want) {
		t.Errorf("stderr is %q, want %q at its end", r.err, want)
	}
	w.finish(1, c, queue.DeadLettered, queue.ReasonOutOfAttempts)
	r = w.want(0, "explain", "o1", "-n", "shop")
	if want := "\n  doorstep replay o1 --endpoint orders -n shop\n"; !strings.Contains(r.out, want) {
		t.Errorf("stdout is %q, want %q in it", r.out, want)
	}
	w.want(0, "replay", "o1", "--endpoint", "orders", "-n", "shop")
	w.lanes.Set(c, ingest.LaneView{State: ingest.LaneDisabled})
	r = w.want(0, "endpoint", "status", "orders", "-n", "shop")
	if want := "\nBring it back with:\n  doorstep endpoint enable orders -n shop\n"; !strings.HasSuffix(r.out, want) {
		t.Errorf("stdout is %q, want %q at its end", r.out, want)
	}
	w.want(0, "endpoint", "enable", "orders", "-n", "shop")
	if r = w.want(0, "endpoint", "status", "orders", "-n", "shop"); strings.Contains(r.out, "enable") {
		t.Errorf("stdout is %q, and there is nothing to enable", r.out)
	}
}

func TestShellWord(t *testing.T) {
	for word, want := range map[string]string{
		"evt_1": "evt_1", "/var/lib/doorstep": "/var/lib/doorstep", "http://[::1]:8080": "'http://[::1]:8080'",
		"": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$HOME": "'$HOME'", "a;b": "'a;b'", "a\nb": "'a\nb'",
	} {
		if got := shellWord(word); got != want {
			t.Errorf("shellWord(%q) = %s, want %s", word, got, want)
		}
	}
}

func TestFirstLine(t *testing.T) {
	long := strings.Repeat("é", 200)
	for _, c := range []struct{ name, response, want string }{
		{"nothing", "", ""},
		{"blank", " \r\n\t\n", ""},
		{"one line", "no such customer", "no such customer"},
		{"several", "\r\n  first\r\nsecond", "first"},
		{"quotes stay as they are", `{"a":"b"}`, `{"a":"b"}`},
		{"control characters", "a\x1b[2Jb\tc\"\u202e", `a\x1b[2Jb\tc"\u202e`},
		{"not UTF-8", "\xff\xfe", `\xff\xfe`},
		{"long", long, long[:2*119] + "…"},
		{"just short enough", long[:2*120], long[:2*120]},
	} {
		if got := firstLine([]byte(c.response)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Of an endpoint that is gone nothing is told but what is known.
func TestStatusOfAnEndpointThatIsGone(t *testing.T) {
	w := history(t)
	w.plan.Store(&plan.Plan{Version: 2})
	for _, state := range []ingest.LaneState{ingest.LaneMissing, ingest.LaneNotInPlan} {
		w.lanes.Set(orders, ingest.LaneView{State: state, Message: "gone"})
		r := w.want(0, "endpoint", "status", "orders")
		for _, not := range []string{"Event types", "Retry policy", "In flight", "Host"} {
			if strings.Contains(r.out, not) {
				t.Errorf("%s: %s is made up:\n%s", state, not, r.out)
			}
		}
		if !strings.Contains(r.out, "Delivering:   "+string(state)+"\n") || !strings.Contains(r.out, "Dead letters: 1\n") {
			t.Errorf("%s: stdout is\n%s", state, r.out)
		}
	}
}

// get and status call a state by the same word.
func TestStateHasOneName(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		lane ingest.LaneView
		want string
	}{
		{ingest.LaneView{State: ingest.LaneActive}, "Active"},
		{ingest.LaneView{State: ingest.LaneBackingOff, Reason: "Failing"}, "BackingOff"},
		{ingest.LaneView{State: ingest.LaneBackingOff, Reason: "Rejecting"}, "Rejecting"},
		{ingest.LaneView{State: ingest.LaneDisabled, Reason: "DisabledByReceiver"}, "Disabled"},
		{ingest.LaneView{State: ingest.LaneSuspended, Reason: "Suspended"}, "Suspended"},
	} {
		w.lanes.Set(orders, c.lane)
		if r := w.want(0, "endpoint", "status", "orders"); !strings.Contains(r.out, "Delivering:   "+c.want+"\n") {
			t.Errorf("status does not say %s:\n%s", c.want, r.out)
		}
		if r := w.want(0, "get", "endpoint", "orders"); !strings.Contains(r.out, "   "+c.want+"   ") {
			t.Errorf("get does not say %s:\n%s", c.want, r.out)
		}
	}
}

func TestLastFailure(t *testing.T) {
	for _, c := range []struct {
		name string
		f    *client.Failure
		want string
	}{
		{"none", nil, ""},
		{"an answer", &client.Failure{Status: 401, Reason: "auth_rejected", Message: "the receiver answered 401"},
			"3s ago, auth_rejected: the receiver answered 401"},
		{"no answer", &client.Failure{Reason: "connect", Message: "connection refused"}, "3s ago, connect: connection refused"},
		{"no message", &client.Failure{Status: 503, Reason: "server_error"}, "3s ago, server_error: 503"},
		{"no more than a code", &client.Failure{Status: 503}, "3s ago, 503"},
	} {
		if c.f != nil {
			c.f.Time = start.Add(-3 * time.Second)
		}
		if got := lastFailure(start, client.Lane{LastFailure: c.f}); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Every command that does something shows how it is called.
func TestHelpHasExamples(t *testing.T) {
	w := newWorld(t)
	for _, args := range []string{
		"send", "get", "get endpoints", "get events", "get deliveries", "get dead-letters", "explain", "replay",
		"get audit", "erase", "endpoint", "endpoint enable", "endpoint status", "endpoint test", "endpoint retry", "apikey", "apikey new", "receive", "standalone",
	} {
		r := w.want(0, append(strings.Fields(args), "--help")...)
		if !strings.Contains(r.out, "Examples:\n  doorstep "+strings.Fields(args)[0]) {
			t.Errorf("the help of %s has no example:\n%s", args, r.out)
		}
	}
	r := w.want(0, "standalone", "--help")
	if !strings.Contains(r.out, "doorstep standalone -f manifests/ --data") || !strings.Contains(r.out, "failed attempts") {
		t.Errorf("the help of standalone shows only --dev, or not what -v logs:\n%s", r.out)
	}
}
