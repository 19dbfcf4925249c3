package pebble_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/queue/pebble"
)

// case QD92: a byte is flipped somewhere in the largest file. Either the store says at once
// that it can't open, or what is outside of the damage is served and delivered, what is
// within is counted, and nothing is given out that was not accepted.
func TestOneDamagedByte(t *testing.T) {
	t.Parallel()
	const n = 400
	whole := vfs.NewMem()
	s := open(t, pebble.Options{FS: whole})
	var batch []queue.NewEvent
	for i := range n {
		e := newEvent(fmt.Sprintf("%d", i), endpoints[0])
		e.Event.Body = []byte(strings.Repeat(fmt.Sprintf("body of %d;", i), 100))
		batch = append(batch, e)
	}
	if _, err := s.Accept(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open(t, pebble.Options{FS: whole}).Close(); err != nil { // the log becomes a table
		t.Fatal(err)
	}
	table, size := largest(t, whole, "q/db", ".sst")
	opened, lost := 0, 0
	for at := int64(50); at < size; at += size/40 + 1 {
		fs := vfs.NewMem()
		if ok, err := vfs.Clone(whole, fs, "q", "q"); err != nil || !ok {
			t.Fatal(ok, err)
		}
		flip(t, fs, table, at)
		s, err := pebble.Open(pebble.Options{Dir: "q", FS: fs})
		if err != nil {
			continue
		}
		opened++
		missing := deliverAll(t, s, n)
		lost += missing
		damaged := s.Usage().Damaged
		if missing > 0 && damaged == 0 {
			t.Errorf("byte %d: %d events are missing, and no damage is counted", at, missing)
		}
		if _, err := s.Prune(t.Context(), queue.Retention{Delivered: time.Now().Add(time.Hour)}); err != nil {
			t.Errorf("byte %d: prune: %v", at, err)
		}
		_ = s.Close() // it may fail to compact what is damaged
		if t.Failed() {
			return
		}
	}
	if opened < 30 || lost == 0 {
		t.Errorf("%d of 40 damaged stores opened, %d deliveries were lost", opened, lost)
	}
}

// deliverAll delivers what can be read of n events and gives the number of the others.
func deliverAll(t *testing.T, s *pebble.Store, n int) (missing int) {
	t.Helper()
	missing = n
	for after := queue.Seq(0); ; {
		ds, err := s.Fresh(t.Context(), endpoints[0], after, 100)
		if err != nil {
			t.Fatalf("fresh: %v", err)
		}
		if len(ds) == 0 {
			return missing
		}
		for _, d := range ds {
			after = d.Seq
			ev, err := s.Event(t.Context(), d.Seq)
			switch {
			case errors.Is(err, queue.ErrPayloadMissing), errors.Is(err, queue.ErrNotFound):
				if n, err := s.Settle(t.Context(), endpoints[0], []queue.Seq{d.Seq}, queue.DeadLettered, queue.ReasonPayloadMissing); n != 1 || err != nil {
					t.Errorf("settle %d: %d, %v", d.Seq, n, err)
				}
				continue
			case err != nil:
				t.Fatalf("event %d: %v", d.Seq, err)
			}
			if want := strings.Repeat("body of "+ev.ID+";", 100); string(ev.Body) != want || ev.ID != fmt.Sprint(d.Seq-1) {
				t.Errorf("event %d is given out as %s with %d bytes", d.Seq, ev.ID, len(ev.Body))
			}
			if err := record(s, outcome(endpoints[0], d.Seq, queue.Delivered)); err != nil {
				t.Errorf("record %d: %v", d.Seq, err)
			}
			missing--
		}
	}
}

// largest is the largest file with a suffix.
func largest(t *testing.T, fs vfs.FS, dir, suffix string) (path string, size int64) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		info, err := fs.Stat(fs.PathJoin(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, suffix) && info.Size() > size {
			path, size = fs.PathJoin(dir, name), info.Size()
		}
	}
	if size == 0 {
		t.Fatalf("no file *%s among %v", suffix, names)
	}
	return path, size
}

func flip(t *testing.T, fs vfs.FS, path string, at int64) {
	t.Helper()
	f, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x40
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// case QD92: a log that is damaged in the middle is not cut there without a word: the store
// doesn't open, and is left as it is.
func TestADamagedLog(t *testing.T) {
	whole := vfs.NewMem()
	s := open(t, pebble.Options{FS: whole})
	for i := range 50 {
		e := newEvent(fmt.Sprint(i), endpoints[0])
		e.Event.Body = []byte(strings.Repeat("x", 8<<10))
		if _, err := s.Accept(t.Context(), []queue.NewEvent{e}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	log, size := largest(t, whole, "q/db", ".log")
	flip(t, whole, log, size/2)
	for range 2 {
		if s, err := pebble.Open(pebble.Options{Dir: "q", FS: whole}); err == nil {
			t.Fatalf("it opened with %+v of 50 events", s.Counts(endpoints[0]))
		} else if !strings.Contains(err.Error(), "open the store in q") {
			t.Errorf("refused as %v", err)
		}
	}
	flip(t, whole, log, size/2)
	s = open(t, pebble.Options{FS: whole})
	if c := s.Counts(endpoints[0]); c.Pending != 50 {
		t.Errorf("with the byte put right: %+v", c)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
