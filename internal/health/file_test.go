package health

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An attempt that ended before the hour did, and comes after one of the next hour, costs
// the others nothing.
func TestOvertakenAtTheHour(t *testing.T) {
	b := NewBook()
	hour := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	do := func(at time.Time, took time.Duration) {
		b.Attempted(orders, &Attempt{At: at, Wall: at, OK: true, Duration: took})
	}
	for range 100 {
		do(hour.Add(-time.Second), 400*time.Millisecond)
	}
	do(hour, 400*time.Millisecond)
	do(hour.Add(-time.Millisecond), 10*time.Second)
	v := b.View(orders, hour.Add(time.Second))
	if v.P50 > time.Second {
		t.Errorf("p50 is %s of 101 attempts of 400 ms and one of 10 s", v.P50)
	}
	if v.Hour != (Window{102, 102}) {
		t.Errorf("the hour has %+v", v.Hour)
	}
}

// Nothing is written when nothing has changed; what was forgotten stays so.
func TestSaveWritesChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "health")
	b := NewBook()
	save := func() {
		t.Helper()
		if err := b.Save(path); err != nil {
			t.Fatal(err)
		}
	}
	b.Accepted(orders, time.Now())
	if !b.Fresh() {
		t.Error("an endpoint that no file has is not told of")
	}
	save()
	b.Accepted(orders, time.Now())
	if b.Fresh() {
		t.Error("an endpoint that a file has is told of as new")
	}
	save()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	save()
	if _, err := os.Stat(path); err == nil {
		t.Error("it was written again though nothing had changed")
	}
	b.Forget(orders)
	save()
	b.Forget(orders) // a deleted one, each minute
	if b.changed {
		t.Error("forgetting what is not there is a change")
	}
	again := NewBook()
	if err := again.Load(path); err != nil {
		t.Fatal(err)
	}
	if v := again.View(orders, time.Now()); !v.LastEvent.IsZero() {
		t.Errorf("what was forgotten came back: %+v", v)
	}
}

// Half a file is an error, and nothing of it is used.
func TestDamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "health")
	b := NewBook()
	b.Accepted(orders, time.Now())
	if err := b.Save(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text[:len(text)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	again := NewBook()
	if err := again.Load(path); err == nil {
		t.Error("half a file was read")
	}
	if v := again.View(orders, time.Now()); !v.LastEvent.IsZero() {
		t.Errorf("%+v of half a file", v)
	}
}
