package cli

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// history is a world in which each kind of thing has happened.
func history(t *testing.T) *world {
	w := newWorld(t)
	w.send("evt_1", "order.created")
	w.send("evt_2", "order.paid")
	w.send("evt_3", "user.created")
	w.finish(1, audit, queue.Delivered, "")
	w.finish(1, orders, queue.Retrying, "")
	w.finish(1, orders, queue.DeadLettered, queue.ReasonOutOfAttempts)
	w.finish(2, orders, queue.Retrying, "")
	return w
}

func TestTablesAndObjects(t *testing.T) {
	w := history(t)
	for _, c := range []struct {
		golden string
		args   []string
	}{
		{"endpoints.txt", []string{"get", "endpoints"}},
		{"endpoints-wide.txt", []string{"get", "endpoints", "-o", "wide"}},
		{"endpoints.json", []string{"get", "endpoints", "-o", "json"}},
		{"endpoint.yaml", []string{"get", "endpoint", "orders", "-o", "yaml"}},
		{"events.txt", []string{"get", "events"}},
		{"events-wide.txt", []string{"get", "events", "-o", "wide", "--type", "order.*"}},
		{"events.json", []string{"get", "events", "-o", "json", "--limit", "1"}},
		{"event.txt", []string{"get", "event", "evt_1"}},
		{"event.yaml", []string{"get", "event", "evt_1", "-o", "yaml"}},
		{"deliveries.txt", []string{"get", "deliveries"}},
		{"deliveries-wide.txt", []string{"get", "deliveries", "--endpoint", "orders", "--state", "retrying", "-o", "wide"}},
		{"dead-letters.txt", []string{"get", "dead-letters"}},
		{"dead-letters.yaml", []string{"get", "dead-letters", "-o", "yaml", "--endpoint", "orders"}},
		{"explain.txt", []string{"explain", "evt_3"}},
		{"status.txt", []string{"endpoint", "status", "orders"}},
	} {
		t.Run(c.golden, func(t *testing.T) {
			w.t = t
			r := w.want(0, c.args...)
			if r.err != "" {
				t.Errorf("stderr: %s", r.err)
			}
			golden(t, c.golden, r.out)
			if strings.Contains(r.out, "\x1b") || strings.Contains(r.out, "secret") {
				t.Errorf("colour without a terminal, or a URL's query: %q", r.out)
			}
		})
	}
}

func TestNothingFound(t *testing.T) {
	w := newWorld(t)
	r := w.want(0, "get", "events", "-n", "empty")
	if r.out != "" || r.err != "No resources found in empty namespace; name another with -n NAMESPACE.\n" {
		t.Errorf("stdout %q, stderr %q", r.out, r.err)
	}
	if r = w.want(0, "get", "events", "-o", "json"); r.out != "{\n  \"items\": []\n}\n" || r.err != "" {
		t.Errorf("stdout %q, stderr %q", r.out, r.err)
	}
}

func TestEventsSince(t *testing.T) {
	w := newWorld(t)
	w.send("evt_1", "order.created") // 90 s ago by the shell's clock
	if r := w.want(0, "get", "events", "--since", "91s"); !strings.Contains(r.out, "evt_1") {
		t.Errorf("stdout is %q", r.out)
	}
	if r := w.want(0, "get", "events", "--since", "89s"); r.out != "" {
		t.Errorf("stdout is %q", r.out)
	}
}

func TestSend(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		name string
		args []string
		out  string
	}{
		{"for two", []string{"--type", "order.created", "--id", "e1"}, "event/e1 accepted for 2 endpoints\n"},
		{"again", []string{"--type", "order.created", "--id", "e1"}, "event/e1 was accepted before; nothing new is sent\n"},
		{"for one", []string{"--type", "user.created", "--id", "e2"}, "event/e2 accepted for 1 endpoint\n"},
		{"for nobody", []string{"--type", "user.created", "--id", "e2", "-n", "other"},
			"event/e2 accepted; no endpoint in namespace other takes it (another one: -n NAMESPACE)\n"},
		{"as JSON", []string{"--type", "user.created", "--id", "e3", "-o", "json"},
			"{\n  \"id\": \"e3\",\n  \"source\": \"\",\n  \"webhookId\": \"e3\",\n  \"endpoints\": 1\n}\n"},
	} {
		if r := w.want(0, append([]string{"send"}, c.args...)...); r.out != c.out {
			t.Errorf("%s: %q, want %q", c.name, r.out, c.out)
		}
	}
	if r := w.want(0, "send", "--type", "a.b"); !strings.HasPrefix(r.out, "event/evt_") {
		t.Errorf("without an id: %q", r.out)
	}
}

// What is posted is the data as it was given, whichever way it comes.
func TestSendKeepsTheData(t *testing.T) {
	file := filepath.Join(t.TempDir(), "data")
	const data = `{ "id": 123456789012345678, "s":"<&>" }`
	if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	envelope := `{"id":"e","type":"a.b","source":"/s\"","data":` + data + `}`
	for _, c := range []struct {
		name         string
		args         []string
		body, header string
	}{
		{"text", []string{"--type", "a.b", "--id", "e", "--source", `/s"`, "--data", data}, envelope, "application/json"},
		{"a file", []string{"--type", "a.b", "--id", "e", "--source", `/s"`, "--data", "@" + file}, envelope, "application/json"},
		{"stdin", []string{"--type", "a.b", "--id", "e", "--source", `/s"`, "--data", "-"}, envelope, "application/json"},
		{"binary", []string{"--type", "a b", "--id", "é", "--data", "<x/>", "--content-type", "text/xml"}, "<x/>", "text/xml"},
		{"attributes", []string{"--type", "a.b", "--id", "e", "--attribute", "customer=a=b,c", "--attribute", "empty=", "--data", "1"},
			`{"id":"e","type":"a.b","attributes":{"customer":"a=b,c","empty":""},"data":1}`, "application/json"},
		{"a whole CloudEvent", []string{"--data", `{"specversion":"1.0","id":"e","source":"/s","type":"a b"}`, "--content-type", "application/cloudevents+json"},
			`{"specversion":"1.0","id":"e","source":"/s","type":"a b"}`, "application/cloudevents+json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.in = data
			w.want(0, append([]string{"send"}, c.args...)...)
			events, _ := w.queue.Stored()
			if got := string(events[0].Body); got != c.body {
				t.Errorf("body is %s, want %s", got, c.body)
			}
			if e := events[0]; e.ContentType != c.header || e.Type != "a.b" && e.Type != "a b" || e.ID != "e" && e.ID != "é" {
				t.Errorf("event is %+v", e.Event)
			}
		})
	}
}

func TestSendAttributes(t *testing.T) {
	w := newWorld(t)
	w.want(0, "send", "--type", "a.b", "--attribute", "customer=é 1", "--data", "<x/>", "--content-type", "text/xml")
	events, _ := w.queue.Stored()
	if got := events[0].Attributes; len(got) != 1 || got[0].Name != "customer" || got[0].Value != "é 1" {
		t.Errorf("the attributes of a binary event are %v", got)
	}
	for _, c := range [][]string{{"customer"}, {"Customer=1"}, {"=1"}, {"a=1", "a=2"}, {"id=1"}} {
		args := []string{"send", "--type", "a.b"}
		for _, a := range c {
			args = append(args, "--attribute", a)
		}
		if r := w.want(1, args...); !strings.Contains(r.err, "--attribute") {
			t.Errorf("%q: stderr is %q", c, r.err)
		}
	}
	r := w.want(1, "send", "--attribute", "a=1", "--content-type", "application/cloudevents+json")
	if !strings.Contains(r.err, "attributes are in --data") {
		t.Errorf("stderr is %q", r.err)
	}
}

type sendOnly struct{}

func (sendOnly) Authorize(_ *http.Request, q ingest.Request) (ingest.Caller, error) {
	if q.Verb == ingest.VerbSend {
		return ingest.Caller{Name: "key:shop"}, nil
	}
	return ingest.Caller{}, &ingest.Problem{Status: http.StatusForbidden, Title: "Forbidden", Type: "https://doorstep.dev/problems/forbidden", Detail: "The verb read is needed."}
}

// A key that may only send is told that the event was accepted all the same.
func TestSendWaitsWithoutRead(t *testing.T) {
	w := newWorld(t)
	w.auth = sendOnly{}
	r := w.want(1, "send", "--type", "user.created", "--wait")
	if !strings.Contains(r.out, "accepted for 1 endpoint") || !strings.Contains(r.err, "the event was accepted, but --wait") {
		t.Errorf("stdout is %q, stderr %q", r.out, r.err)
	}
}

func TestSendWaits(t *testing.T) {
	for _, c := range []struct {
		name    string
		code    int
		timeout string
		do      func(w *world)
		out     []string
		err     string
	}{
		{"delivered", 0, "1m", func(w *world) {
			w.finish(1, orders, queue.Delivered, "")
			w.finish(1, audit, queue.Delivered, "")
		}, []string{"  orders delivered after 1 attempt, last answer 204\n", "  audit delivered after 1 attempt"}, ""},
		{"dead-lettered", 2, "1m", func(w *world) {
			w.finish(1, audit, queue.Delivered, "")
			w.finish(1, orders, queue.DeadLettered, "Rejected")
		}, []string{"  orders dead-lettered (Rejected) after 1 attempt, last answer 503\n", "  audit delivered"}, ""},
		{"timed out", 3, "500ms", func(w *world) { w.finish(1, audit, queue.Delivered, "") },
			[]string{"  audit delivered"}, "orders still pending"},
		{"timed out without an answer", 3, "500ms", func(w *world) { w.fail(1, orders, queue.Retrying, "") },
			nil, "  orders still retrying after 1 attempt, the last failed with timeout: no answer within 15s\n"},
		{"timed out while held", 3, "500ms", func(w *world) {
			w.lanes.Set(orders, ingest.LaneView{State: ingest.LaneSuspended})
		}, nil, "  orders still held: Suspended\n"},
		{"dead-lettered without an answer", 2, "1m", func(w *world) {
			w.finish(1, audit, queue.Delivered, "")
			w.fail(1, orders, queue.DeadLettered, queue.ReasonOutOfAttempts)
		}, []string{"  orders dead-lettered (OutOfAttempts) after 1 attempt, the last failed with timeout: no answer within 15s\n"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			// The first look sees what happened at once; where there is time, nothing happens before the second one.
			happens := http.MethodGet
			if c.code == exitTimeout {
				happens = http.MethodPost
			}
			done := false
			w.after = func(r *http.Request) {
				if r.Method == happens && !done {
					done = true
					c.do(w)
				}
			}
			r := w.want(c.code, "send", "--type", "order.created", "--id", "e1", "--wait", "--timeout", c.timeout)
			for _, want := range append(c.out, "event/e1 accepted for 2 endpoints\n") {
				if strings.Count(r.out, want) != 1 {
					t.Errorf("stdout does not hold %q once:\n%s", want, r.out)
				}
			}
			if !strings.Contains(r.err, c.err) || c.err == "" && r.err != "" {
				t.Errorf("stderr is %q", r.err)
			}
		})
	}
}

type undecided struct{}

func (undecided) Authorize(*http.Request, ingest.Request) (ingest.Caller, error) {
	return ingest.Caller{}, errors.New("away")
}

// A Doorstep that is away for a while ends no wait.
func TestSendWaitsThroughARestart(t *testing.T) {
	w := newWorld(t)
	gets := 0
	w.after = func(r *http.Request) {
		if r.Method != http.MethodGet {
			w.auth = undecided{}
			return
		}
		if gets++; gets == 3 {
			w.auth = ingest.Loopback()
			w.finish(1, audit, queue.Delivered, "")
		}
	}
	if r := w.want(0, "send", "--type", "user.created", "--wait"); !strings.Contains(r.out, "audit delivered") {
		t.Errorf("stdout is %q", r.out)
	}
	w.after = func(*http.Request) { w.auth = undecided{} }
	if r := w.want(3, "send", "--type", "user.created", "--wait", "--timeout", "50ms"); !strings.Contains(r.err, "timed out") {
		t.Errorf("stderr is %q", r.err)
	}
}

func TestSendInterrupted(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	w.after = func(r *http.Request) {
		if r.Method == http.MethodGet {
			cancel()
		}
	}
	r := w.runContext(ctx, "send", "--type", "user.created", "--wait")
	if r.code != 1 || !strings.Contains(r.err, "interrupted; the event was accepted") {
		t.Errorf("exit code %d, stderr %q", r.code, r.err)
	}
}

func TestSendWaitsForNobody(t *testing.T) {
	w := newWorld(t)
	w.want(0, "send", "--type", "a.b", "-n", "other", "--wait")
	r := w.want(0, "send", "--type", "a.b", "-n", "other", "--wait", "-o", "json")
	var e ingest.Event
	if err := json.Unmarshal([]byte(r.out), &e); err != nil || e.Type != "a.b" {
		t.Errorf("stdout is %s (%v)", r.out, err)
	}
}

func TestFailuresAreSentences(t *testing.T) {
	w := newWorld(t)
	w.send("evt_1", "order.created")
	for _, c := range []struct {
		args []string
		err  string
	}{
		{[]string{"explain", "nope"}, "error: There is no event with this webhook-id"},
		{[]string{"get", "endpoints", "nope"}, "error: There is no such endpoint"},
		{[]string{"get", "events", "-o", "xml"}, "error: the output must be one of table, wide, json, yaml\n"},
		{[]string{"get"}, "error: say what to get"},
		{[]string{"get", "pods"}, `error: unknown command "pods"`},
		{[]string{"get", "deliveries", "--state", "dead"}, "error: state: The state is one of"},
		{[]string{"get", "events", "-n", "No"}, "error: namespace: A namespace is"},
		{[]string{"send", "--data", "{}"}, "error: give the event's type"},
		{[]string{"send", "--type", "a", "--data", "{"}, "error: --data is not JSON"},
		{[]string{"send", "--type", "a", "--data", "@/does/not/exist"}, "error: read --data"},
		{[]string{"send", "--type", "doorstep.x"}, "error: type: "},
		{[]string{"send", "--type", "a", "--content-type", "?"}, "error: --content-type is not"},
		{[]string{"send", "--type", "a", "--content-type", "application/cloudevents+json"}, "error: with a CloudEvents content type"},
		{[]string{"send", "--type", "order.updated", "--id", "evt_1"}, "error: id: An event with the same source and id"},
		{[]string{"replay", "evt_1"}, "error: The delivery is already waiting"},
		{[]string{"replay"}, "error: give the event's WEBHOOK-ID, as `doorstep get events` lists them"},
		{[]string{"replay", "--dead-letters"}, "error: a replay by selection needs --endpoint NAME"},
		{[]string{"endpoint"}, "error: say what to do"},
		{[]string{"endpoint", "enable"}, "error: doorstep endpoint enable takes an endpoint's NAME"},
		{[]string{"explain"}, "error: doorstep explain takes a WEBHOOK-ID, as `doorstep get events` lists them\n"},
		{[]string{"explain", "a", "b"}, "error: doorstep explain takes a WEBHOOK-ID"},
		{[]string{"get", "events", "--data", "x"}, "error: unknown flag: --data; did you mean --data-dir?\n"},
		{[]string{"explain", "x", "--data=x"}, "error: unknown flag: --data; did you mean --data-dir?\n"},
		{[]string{"replay", "x", "--data", "x"}, "error: unknown flag: --data; did you mean --data-dir?\n"},
		{[]string{"endpoint", "status", "--data", "x"}, "error: unknown flag: --data; did you mean --data-dir?\n"},
		{[]string{"standalone", "--data-dir", "x"}, "error: unknown flag: --data-dir; did you mean --data?\n"},
		{[]string{"version", "--data", "x"}, "error: unknown flag: --data\n"},
		{[]string{"get", "events", "--data-dir"}, "error: flag needs an argument: --data-dir\n"},
		{[]string{"standalone", "my manifests"}, "error: standalone takes flags only; did you mean -f 'my manifests'?\n"},
		{[]string{"get", "events", "--server", "nonsense"}, "error: the server must be a URL"},
		{[]string{"receive"}, "error: give the signing key"},
		{[]string{"receive", "--data", "x"}, "error: a generated key is found by both"},
		{[]string{"receive", "--endpoint", "default/orders"}, "error: a generated key is found by both"},
		{[]string{"receive", "--data", "x", "--endpoint", "orders"}, "error: --endpoint orders: give NAMESPACE/NAME, such as default/orders\n"},
		{[]string{"receive", "--data", "x", "--endpoint", "../etc"}, "error: --endpoint ../etc: give NAMESPACE/NAME"},
		{[]string{"receive", "--fail-rate", "2"}, "error: --fail-rate is from 0 to 1"},
		{[]string{"nonsense"}, `error: unknown command "nonsense"`},
	} {
		r := w.want(1, c.args...)
		if !strings.HasPrefix(r.err, c.err) || r.out != "" {
			t.Errorf("%v: stderr %q, want %q…; stdout %q", c.args, r.err, c.err, r.out)
		}
	}
}

func TestNobodyListens(t *testing.T) {
	w := newWorld(t)
	w.env["DOORSTEP_SERVER"] = "http://127.0.0.1:1"
	r := w.want(1, "get", "events")
	for _, want := range []string{"nothing listens at 127.0.0.1:1;", "--server", "DOORSTEP_SERVER", "doorstep standalone -f DIR"} {
		if !strings.Contains(r.err, want) || strings.Contains(r.err, "--dev") {
			t.Errorf("stderr is %q, want %q in it and no --dev", r.err, want)
		}
	}
}

func TestAnotherServer(t *testing.T) {
	w := newWorld(t)
	w.env["DOORSTEP_SERVER"] = w.url + "/elsewhere"
	if r := w.want(1, "get", "events"); !strings.Contains(r.err, "There is no such path") {
		t.Errorf("stderr is %q", r.err)
	}
}

func TestReplay(t *testing.T) {
	w := history(t)
	if r := w.want(0, "replay", "evt_1"); r.out != "event/evt_1 replayed to orders\n" {
		t.Errorf("stdout is %q", r.out)
	}
	if r := w.want(1, "replay", "evt_1", "--endpoint", "audit"); r.err != "error: The event was already delivered; give --force to send it again. (409)\n" {
		t.Errorf("stderr is %q", r.err)
	}
	if r := w.want(0, "replay", "evt_1", "--endpoint", "audit", "--force"); r.out != "event/evt_1 replayed to audit\n" {
		t.Errorf("stdout is %q", r.out)
	}
}

func TestEndpointEnable(t *testing.T) {
	w := newWorld(t)
	w.lanes.Set(orders, ingest.LaneView{State: ingest.LaneDisabled})
	if r := w.want(0, "endpoint", "enable", "orders"); r.out != "endpoint/orders enabled\n" {
		t.Errorf("stdout is %q", r.out)
	}
	if r := w.want(0, "endpoint", "enable", "orders"); !strings.Contains(r.out, "unchanged: it was not disabled (Active)") {
		t.Errorf("stdout is %q", r.out)
	}
	w.lanes.Set(orders, ingest.LaneView{State: ingest.LaneBackingOff})
	if r := w.want(0, "endpoint", "enable", "orders"); r.out != "endpoint/orders: It was not disabled; it backs off, and its next attempt is made now.\n" {
		t.Errorf("stdout is %q", r.out)
	}
}

func TestAPIKey(t *testing.T) {
	w := newWorld(t)
	text, key, err := ingest.NewAPIKey("me")
	if err != nil {
		t.Fatal(err)
	}
	w.auth = ingest.Keys(key)
	dir := t.TempDir()
	file := filepath.Join(dir, "api-key")
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := t.TempDir()
	other := filepath.Join(empty, "other-key")
	strange, _, err := ingest.NewAPIKey("me")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, []byte(strange), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, cause string }{
		{"", " wants its key; give "},
		{"--data-dir=" + empty, " wants its key, and the data folder " + empty + " holds no api-key; give "},
		{"--api-key-file=" + other, " does not know the key in " + other + "; give "},
	} {
		r := w.want(1, strings.Fields("get endpoints "+c.name)...)
		for _, want := range []string{c.cause, "--data-dir DIR", "DOORSTEP_DATA", "--api-key-file FILE", "DOORSTEP_API_KEY", "(401)\n"} {
			if !strings.Contains(r.err, want) || strings.Contains(r.err, strange) {
				t.Errorf("%q: stderr is %q, want %q in it", c.name, r.err, want)
			}
		}
	}
	w.want(0, "get", "endpoints", "--api-key-file", file)
	w.want(0, "get", "endpoints", "--data-dir", dir)
	w.env["DOORSTEP_DATA"] = dir
	w.want(0, "get", "endpoints")
	w.env["DOORSTEP_API_KEY"] = text + "x"
	if r := w.want(1, "get", "endpoints"); strings.Contains(r.err, text) {
		t.Errorf("the key is printed: %q", r.err)
	}
	if err := os.WriteFile(file, []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := w.want(1, "get", "endpoints", "--api-key-file", file); strings.Contains(r.err, "s3cret") {
		t.Errorf("the key is printed: %q", r.err)
	}
}

// Ids and sources are strangers' bytes: a terminal must not obey them.
func TestControlCharactersAreShown(t *testing.T) {
	w := newWorld(t)
	w.want(0, "send", "--type", "order.created", "--id", "a\x1b[2J", "--source", "/s\nevil   row")
	for _, args := range [][]string{{"get", "events", "-o", "wide"}, {"explain", "x"}} {
		if args[0] == "explain" {
			events, _ := w.queue.Stored()
			args[1] = events[0].WebhookID
		}
		r := w.want(0, args...)
		if strings.Contains(r.out, "\x1b") || strings.Contains(r.out, "\nevil") || !strings.Contains(r.out, `a\x1b[2J`) {
			t.Errorf("%v prints %q", args, r.out)
		}
	}
}

func TestListsAreFollowedToTheirEnd(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		w.want(0, "send", "--type", "user.created")
	}
	if r := w.want(0, "get", "events", "--limit", "2"); strings.Count(r.out, "\n") != 3 {
		t.Errorf("stdout is %q, want a header and 2 rows", r.out)
	}
	if r := w.want(0, "get", "events", "--limit", "0"); strings.Count(r.out, "\n") != 4 {
		t.Errorf("stdout is %q, want a header and 3 rows", r.out)
	}
}

func TestColourIsWholeRows(t *testing.T) {
	var out strings.Builder
	tb := &table{header: []string{"A", "B"}}
	tb.add(bad, "x", "")
	tb.add(plain, "longer", "y")
	if err := tb.print(&out, false, true); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "A        B\n\x1b[31mx        <none>\x1b[0m\nlonger   y\n"; got != want {
		t.Errorf("table is %q, want %q", got, want)
	}
}

func TestVersionAndCompletion(t *testing.T) {
	w := newWorld(t)
	for _, arg := range []string{"version", "--version"} {
		if r := w.want(0, arg); r.out != "doorstep "+Version()+"\n" {
			t.Errorf("%s is %q", arg, r.out)
		}
	}
	if r := w.want(0, "completion", "bash"); !strings.Contains(r.out, "__start_doorstep") {
		t.Error("there is no bash completion")
	}
	for _, name := range []string{"doorstep", "kubectl doorstep"} {
		var out strings.Builder
		code := Run(t.Context(), name, []string{"get", "--help"}, Streams{Out: &out, Err: &out, Getenv: func(string) string { return "" }})
		if code != 0 || !strings.Contains(out.String(), "\n  "+name+" get [command]") {
			t.Errorf("help of %s is %s", name, out.String())
		}
	}
}
