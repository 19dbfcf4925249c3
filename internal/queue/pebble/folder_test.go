package pebble_test

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/queue/pebble"
)

// A folder that isn't a store of ours, or is one we don't know, is refused in words and
// left as it is, to the byte. Case UP233.
func TestForeignFolders(t *testing.T) {
	used := func(t *testing.T, dir string) {
		s := open(t, pebble.Options{Dir: dir})
		if err := newLedger().load(t.Context(), s, "x", 5); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write := func(t *testing.T, text string, path ...string) {
		if err := os.WriteFile(filepath.Join(path...), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(t *testing.T, path ...string) {
		if err := os.RemoveAll(filepath.Join(path...)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		make func(t *testing.T, dir string)
		want string
	}{
		{"stray files", func(t *testing.T, dir string) { write(t, "x", dir, "notes.txt") }, "holds files (notes.txt)"},
		{"a store whose format file is gone", func(t *testing.T, dir string) { used(t, dir); remove(t, dir, "FORMAT") }, "holds files (db)"},
		{"another program's format file", func(t *testing.T, dir string) { used(t, dir); write(t, "ext4 1 ready\n", dir, "FORMAT") }, "isn't the format file"},
		{"an empty format file", func(t *testing.T, dir string) { used(t, dir); write(t, "", dir, "FORMAT") }, "isn't the format file"},
		{"no number", func(t *testing.T, dir string) { used(t, dir); write(t, "doorstep-queue x ready\n", dir, "FORMAT") }, "unknown format version"},
		{"version zero", func(t *testing.T, dir string) { used(t, dir); write(t, "doorstep-queue 0 ready\n", dir, "FORMAT") }, "unknown format version"},
		{"a newer format", func(t *testing.T, dir string) { used(t, dir); write(t, "doorstep-queue 3 ready\n", dir, "FORMAT") }, "run the newer version"},
		{"a newer format's beginning", func(t *testing.T, dir string) { write(t, "doorstep-queue 3 new\n", dir, "FORMAT") }, "run the newer version"},
		{"a used store without its db", func(t *testing.T, dir string) { used(t, dir); remove(t, dir, "db") }, "missing or incomplete"},
		{"a used store with an empty db", func(t *testing.T, dir string) {
			used(t, dir)
			remove(t, dir, "db")
			if err := os.Mkdir(filepath.Join(dir, "db"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, "missing or incomplete"},
		{"a used store without pebble's marker", func(t *testing.T, dir string) {
			used(t, dir)
			m, err := filepath.Glob(filepath.Join(dir, "db", "marker.manifest.*"))
			if err != nil || len(m) == 0 {
				t.Fatalf("%v, %v", m, err)
			}
			for _, f := range m {
				remove(t, f)
			}
		}, "missing or incomplete"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			c.make(t, dir)
			before := tree(t, osFS, dir)
			s, err := pebble.Open(pebble.Options{Dir: dir})
			if err == nil {
				_ = s.Close()
				t.Fatal("it was opened")
			}
			if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "left untouched") {
				t.Errorf("refused as: %v", err)
			}
			if after := tree(t, osFS, dir); !maps.Equal(before, after) {
				t.Errorf("the folder changed:\nbefore %q\nafter  %q", before, after)
			}
		})
	}
}

// What a crash can leave of a first open, and what file systems put there, is no
// stranger.
func TestFoldersOfOurOwn(t *testing.T) {
	for _, names := range [][]string{{}, {"lost+found"}, {"LOCK"}, {"LOCK", "OWNER.tmp"}, {"LOCK", "OWNER", "FORMAT.tmp"}} {
		t.Run(strings.Join(names, ","), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a", "b")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			for _, n := range names {
				if err := os.WriteFile(filepath.Join(dir, n), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s := open(t, pebble.Options{Dir: dir})
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A folder is one process's. Case QD96: the second is told who holds it, and gets it
// when the first is gone, even by SIGKILL.
func TestSecondProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "HOLD_STORE="+dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close() // ends the child
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "held\n" {
		t.Fatalf("the child says %q, %v", line, err)
	}
	if s, err := pebble.Open(pebble.Options{Dir: dir}); err == nil {
		_ = s.Close()
		t.Error("two processes hold the store")
	} else if want := fmt.Sprintf("in use by process %d on ", cmd.Process.Pid); !strings.Contains(err.Error(), want) {
		t.Errorf("refused as %q, want %q", err, want)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	s := open(t, pebble.Options{Dir: dir})
	if c := s.Counts(endpoints[0]); c.Pending != 1 {
		t.Errorf("%+v, want the event the first process had acknowledged", c)
	}
	if _, err := pebble.Open(pebble.Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "in use by") {
		t.Errorf("a second open in this process: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestMain is also the other process of TestSecondProcess.
func TestMain(m *testing.M) {
	if dir := os.Getenv("HOLD_STORE"); dir != "" {
		holdStore(dir)
		return
	}
	os.Exit(m.Run())
}

// holdStore holds a store with one event until its standard input ends.
func holdStore(dir string) {
	s, err := pebble.Open(pebble.Options{Dir: dir})
	if err == nil {
		_, err = s.Accept(context.Background(), []queue.NewEvent{newEvent("1", endpoints[0])})
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("held")
	_, _ = os.Stdin.Read(make([]byte, 1))
}
