package receivers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// case DUP-01
func TestHundredAtOnceAreOne(t *testing.T) {
	forEach(t, func(t *testing.T, r *receiver) {
		m := call{id: "evt_1", timestamp: stamp(0), body: `{"a":1}`}
		var together sync.WaitGroup
		for range 100 {
			together.Go(func() {
				if status, text := r.post(m); status != 204 {
					t.Errorf("answered %d %q, want 204", status, text)
				}
			})
		}
		together.Wait()
		r.settle()
		if times, _ := r.done(); times["evt_1"] != 1 {
			t.Errorf("the work was done %d times, want once", times["evt_1"])
		}
	})
}

// Files of others in the inbox are no messages, and stay as they are.
func TestForeignFilesAreLeft(t *testing.T) {
	forEach(t, func(t *testing.T, r *receiver) {
		r.Kill()
		foreign := []string{filepath.Join(r.inbox, "other.db"), filepath.Join(r.inbox, "data")}
		for _, f := range foreign {
			if err := os.WriteFile(f, []byte("theirs"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r.start()
		r.settle()
		for _, f := range foreign {
			if got, err := os.ReadFile(f); err != nil || string(got) != "theirs" {
				t.Errorf("%s holds %q (%v)", filepath.Base(f), got, err)
			}
		}
	})
}

// settle waits until all that was answered before has been worked on: work is done in
// the order of arrival.
func (r *receiver) settle() {
	r.t.Helper()
	id := fmt.Sprintf("settled-%d", time.Now().UnixNano())
	if status, text := r.post(call{id: id, timestamp: stamp(0), body: "{}"}); status != 204 {
		r.t.Fatalf("answered %d %q, want 204", status, text)
	}
	r.awaitDone(id)
}

// case DUP-02
func TestNotStoredIsNotTaken(t *testing.T) {
	forEach(t, func(t *testing.T, r *receiver) {
		m := call{id: "evt_1", timestamp: stamp(0), body: `{"a":1}`}
		away := r.inbox + ".away"
		if err := os.Rename(r.inbox, away); err != nil {
			t.Fatal(err)
		}
		if status, text := r.post(m); status != 503 {
			t.Errorf("without its inbox the receiver answers %d %q, want 503", status, text)
		}
		if err := os.Rename(away, r.inbox); err != nil {
			t.Fatal(err)
		}
		if status, text := r.post(m); status != 204 {
			t.Errorf("the second attempt is answered %d %q, want 204", status, text)
		}
		r.settle()
		if times, _ := r.done(); times["evt_1"] != 1 {
			t.Errorf("the work was done %d times, want once", times["evt_1"])
		}
	})
}

// A forger burns no id, and what came first stays.
func TestDuplicates(t *testing.T) {
	forEach(t, func(t *testing.T, r *receiver) {
		m := call{id: "evt_1", timestamp: stamp(0), body: `{"a":1}`}
		forged := m
		forged.signature = call{id: "evt_1", timestamp: m.timestamp, body: "other"}.sign()
		long := call{id: "evt_1", timestamp: stamp(1), body: `{"a":1,"b":2}`}
		for _, c := range []struct {
			name string
			call
			want int
		}{
			{"forged, case DUP-04", forged, 401},
			{"then the right one, case DUP-04", m, 204},
			{"again, case IV218", m, 204},
			{"forged again", forged, 401},
			{"the same id with another body, case DUP-09", long, 204},
		} {
			if status, text := r.post(c.call); status != c.want {
				t.Errorf("%s: answered %d %q, want %d", c.name, status, text, c.want)
			}
		}
		r.settle()
		if times, length := r.done(); times["evt_1"] != 1 || length["evt_1"] != len(m.body) {
			t.Errorf("the work was done %d times, with %d bytes; want once, with those that came first", times["evt_1"], length["evt_1"])
		}
		r.Kill()
		r.start()
		if status, text := r.post(m); status != 204 {
			t.Errorf("after a restart a duplicate is answered %d %q, want 204", status, text)
		}
		r.settle()
		if times, _ := r.done(); times["evt_1"] != 1 {
			t.Errorf("after a restart the work was done %d times, want once", times["evt_1"])
		}
	})
}

// case DUP-10: what the README's clean-up has removed is new again.
func TestForgottenIsNew(t *testing.T) {
	forEach(t, func(t *testing.T, r *receiver) {
		m := call{id: "evt_1", timestamp: stamp(0), body: `{"a":1}`}
		if status, text := r.post(m); status != 204 {
			t.Fatalf("answered %d %q, want 204", status, text)
		}
		r.settle()
		r.age()
		cleanUp(t, r)
		if status, text := r.post(m); status != 204 {
			t.Fatalf("answered %d %q, want 204", status, text)
		}
		r.settle()
		if times, _ := r.done(); times["evt_1"] != 2 {
			t.Errorf("the work was done %d times, want twice: the first is forgotten", times["evt_1"])
		}
	})
}

// age makes all that is in the inbox 40 days old.
func (r *receiver) age() {
	r.t.Helper()
	then := time.Now().AddDate(0, 0, -40)
	files, err := filepath.Glob(filepath.Join(r.inbox, "*"))
	if err != nil || len(files) == 0 {
		r.t.Fatalf("the inbox holds nothing: %v", err)
	}
	for _, f := range files {
		switch name := filepath.Base(f); {
		case name == "inbox.db":
			r.shell(`python3 -c 'import sqlite3; db = sqlite3.connect("inbox.db"); db.execute("UPDATE inbox SET at = datetime(at, \"-40 days\")"); db.commit()'`)
		case strings.HasPrefix(name, "inbox.db"): // its journal
		default:
			if err := os.Chtimes(f, then, then); err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

// cleanUp runs the README's commands.
func cleanUp(t *testing.T, r *receiver) {
	t.Helper()
	text, err := os.ReadFile(samples + "README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(text), "<!-- clean-up -->\n```sh\n")
	block, _, closed := strings.Cut(block, "```")
	if !ok || !closed {
		t.Fatal("the README has no clean-up block")
	}
	for line := range strings.Lines(block) {
		if _, err := os.Stat(filepath.Join(r.inbox, "inbox.db")); (err == nil) == strings.Contains(line, "inbox.db") {
			r.shell(line)
		}
	}
}

// shell runs a command in the inbox and gives its output.
func (r *receiver) shell(line string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, "sh", "-c", line)
	c.Dir, c.Env = r.inbox, append(os.Environ(), "INBOX="+r.inbox)
	out, err := c.CombinedOutput()
	if err != nil {
		r.t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}
