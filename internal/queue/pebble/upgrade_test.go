package pebble_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/queue/pebble"
)

// oldStore is a copy of a store of format 1, written by the last Doorstep that knew no other:
// events old-1 to old-5 for the first two endpoints, of which the first retries old-1, has
// delivered old-2, has a dead letter of old-3 and a replayed one of old-4; the second, which
// is disabled, has delivered old-2 and old-3.
func oldStore(t *testing.T) (fs *vfs.MemFS, dir string) {
	t.Helper()
	fs = vfs.NewCrashableMem()
	if ok, err := vfs.Clone(vfs.Default, fs, filepath.Join("testdata", "format-1"), "q", vfs.CloneSync); err != nil || !ok {
		t.Fatal(ok, err)
	}
	for _, d := range []string{"q/db", "q", "/"} { // what the copy leaves to chance
		f, err := fs.OpenDir(d)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return fs, "q"
}

// case UP233: a store of a former format is opened with everything that it holds.
func TestAStoreOfFormat1(t *testing.T) {
	wall := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	fs, dir := oldStore(t)
	for range 2 { // once upgraded, and once as it is then
		s := open(t, pebble.Options{FS: fs, Dir: dir, Wall: func() time.Time { return wall }})
		verifyOld(t, s, wall)
		newLedger().verify(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := readAll(fs, fs.PathJoin(dir, "FORMAT")); err != nil || strings.Fields(text)[1] != "2" {
		t.Errorf("the format is %q, %v", text, err)
	}
	s := open(t, pebble.Options{FS: fs, Dir: dir, Wall: func() time.Time { return wall.Add(time.Hour) }})
	defer s.Close() //nolint:errcheck // a test's end
	known := newLedger()
	if err := known.load(t.Context(), s, "new", 5); err != nil {
		t.Fatal(err)
	}
	known.verify(t, s)
	for seq := queue.Seq(4); seq <= 5; seq++ { // fresh and replayed ones of before
		for _, ep := range endpoints[:2] {
			if err := record(s, outcome(ep, seq, queue.Delivered)); err != nil {
				t.Errorf("%d to %s: %v", seq, ep, err)
			}
		}
	}
	if _, err := s.Replay(t.Context(), endpoints[0], 2, true); err != nil {
		t.Error(err)
	}
	if n, err := s.Prune(t.Context(), queue.Retention{Delivered: wall.Add(2 * time.Hour)}); err != nil || n.Events < 2 {
		t.Errorf("%+v, %v", n, err)
	}
	if _, err := s.Event(t.Context(), 4); !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("event 4 is not forgotten: %v", err)
	}
	known.events = nil
	known.verify(t, s)
}

func verifyOld(t *testing.T, s *pebble.Store, wall time.Time) {
	t.Helper()
	events, next, err := s.Events(t.Context(), "shop", queue.EventQuery{Ascending: true}, 10)
	if err != nil || len(events) != 5 || next != 0 {
		t.Fatalf("%d events, %d, %v", len(events), next, err)
	}
	for i, e := range events {
		ev, err := s.Event(t.Context(), e.Seq)
		if err != nil || e.ID != fmt.Sprintf("old-%d", i+1) || string(ev.Body) != "body of "+e.ID {
			t.Errorf("%+v, %v", ev, err)
		}
	}
	for i, want := range [][]queue.State{
		{queue.Retrying, queue.Pending}, {queue.Delivered, queue.Delivered}, {queue.DeadLettered, queue.Delivered},
		{queue.Pending, queue.Pending}, {queue.Pending, queue.Pending},
	} {
		ds, err := s.Deliveries(t.Context(), queue.Seq(i+1))
		if err != nil || len(ds) != 2 || !slices.Equal([]queue.State{ds[0].State, ds[1].State}, want) {
			t.Errorf("event %d: %+v, %v; want %v", i+1, ds, err, want)
		}
	}
	if d, _, err := s.Due(t.Context(), endpoints[0], wall.Add(time.Hour), 10); err != nil || len(d) != 2 || d[0].Replays != 1 || !d[1].DueAt.Equal(wall.Add(time.Hour)) {
		t.Errorf("due %+v, %v", d, err)
	}
	if l := s.Lane(endpoints[1]); !l.Disabled || l.Reason != "Gone" || l.Hash != "h" {
		t.Errorf("%+v", l)
	}
	if c := s.Counts(endpoints[0]); c != (queue.Counts{Pending: 2, Retrying: 1, DeadLettered: 1}) {
		t.Errorf("%+v", c)
	}
}

// A crash at any moment of the upgrade is made up for by the next open.
func TestACrashInTheUpgrade(t *testing.T) {
	wall := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, unsynced := range []int{0, 50, 100} {
		crashes := 0
		for step := 1; ; step++ {
			fs, dir := oldStore(t)
			steps := 0
			var crashed *vfs.MemFS
			watched := onWrite(fs, func() {
				if steps++; steps == step {
					crashed = clone(fs, uint64(step), unsynced)
				}
			})
			s := open(t, pebble.Options{FS: watched, Dir: dir, Wall: func() time.Time { return wall }})
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if crashed == nil {
				break
			}
			crashes++
			s = open(t, pebble.Options{FS: crashed, Dir: dir, Wall: func() time.Time { return wall }})
			verifyOld(t, s, wall)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if t.Failed() {
				t.Fatalf("after a crash before step %d", step)
			}
		}
		if crashes < 10 {
			t.Errorf("only %d crashes", crashes)
		}
	}
}

// The files of the old store are what that Doorstep wrote, and are never written anew.
func TestTheOldStoreIsTheOldOne(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "format-1", "FORMAT"))
	if err != nil || string(text) != "doorstep-queue 1 ready\n" {
		t.Errorf("%q, %v", text, err)
	}
}
