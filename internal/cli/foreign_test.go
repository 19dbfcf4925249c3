package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A CI script must not take any server's 200 for an event that was stored.
func TestAnswersThatAreNotDoorsteps(t *testing.T) {
	for _, body := range []string{`{}`, `null`, `{"ok":true}`, `[]`, `<html>`, ``} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, body)
		}))
		w := newWorld(t)
		w.env["DOORSTEP_SERVER"] = server.URL
		for _, args := range [][]string{
			{"send", "--id", "a", "--type", "t", "--data", "1"},
			{"explain", "evt_1"},
			{"get", "events"},
			{"get", "endpoints"},
			{"get", "deliveries", "--endpoint", "orders"},
			{"endpoint", "status", "orders"},
			{"endpoint", "enable", "orders"},
			{"replay", "evt_1"},
		} {
			if r := w.run(args...); r.code != 1 || !strings.Contains(r.err, "is it a Doorstep API?") {
				t.Errorf("%s answered %q: exit %d, %s", strings.Join(args, " "), body, r.code, r.err)
			}
		}
		server.Close()
	}
}

func TestAServerThatRepeatsAPageIsLeft(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"items":[],"cursor":"again"}`)
	}))
	t.Cleanup(server.Close)
	w := newWorld(t)
	w.env["DOORSTEP_SERVER"] = server.URL
	if r := w.run("get", "events", "--limit", "0"); r.code != 1 || !strings.Contains(r.err, "same page") {
		t.Errorf("exit %d, %s", r.code, r.err)
	}
}

func TestWhatIsNoNameIsRefusedHere(t *testing.T) {
	w := newWorld(t)
	for _, args := range [][]string{{"explain", "."}, {"endpoint", "status", ".."}, {"get", "events", "."}} {
		if r := w.run(args...); r.code != 1 || !strings.Contains(r.err, "is not a name") {
			t.Errorf("%s: exit %d, %s", strings.Join(args, " "), r.code, r.err)
		}
	}
}

func TestDataIsBounded(t *testing.T) {
	big := filepath.Join(t.TempDir(), "big.json")
	if err := os.WriteFile(big, []byte(strings.Repeat("1", maxDataBytes+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := newWorld(t).run("send", "--type", "t", "--data", "@"+big); r.code != 1 || !strings.Contains(r.err, "over 8 MiB") {
		t.Errorf("exit %d, %s", r.code, r.err)
	}
}

func TestControlCharactersOfEventsReachNoTerminal(t *testing.T) {
	w := newWorld(t)
	if r := w.run("send", "--id", "a\u009bz\uffff\u007f", "--type", "order.created", "--data", "1"); r.code != 0 {
		t.Fatalf("exit %d, %s", r.code, r.err)
	}
	if r := w.run("get", "events", "-o", "yaml"); r.code != 0 || !strings.Contains(r.out, `a\x9Bz`) {
		t.Errorf("exit %d, %s%s", r.code, r.out, r.err)
	}
	if r := w.run("get", "events", "-o", "json"); r.code != 0 || !strings.Contains(r.out, `"a\u009bz\uffff\u007f"`) {
		t.Errorf("exit %d, %s%s", r.code, r.out, r.err)
	}
}
