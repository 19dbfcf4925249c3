package pebble_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/queue/pebble"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

// Tests of dispatch run for days of virtual time on a real store: pebble's own
// goroutines must neither keep the bubble's clock from advancing nor outlive it.
func TestStoreRunsInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := pebble.Open(pebble.Options{Dir: "q", FS: vfs.NewMem()})
		if err != nil {
			t.Fatal(err)
		}
		ep := plan.EndpointKey{Namespace: "shop", Name: "orders"}
		ev := &event.Event{Namespace: "shop", ID: "1", WebhookID: "1", Type: "a", Body: []byte("{}"), Hash: [32]byte{1}}
		acc, err := s.Accept(t.Context(), []queue.NewEvent{{Event: ev, Endpoints: []plan.EndpointKey{ep}}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
		done := make(chan error, 1)
		s.Record(queue.Outcome{
			Seq: acc[0].Seq, Endpoint: ep, To: queue.Delivered,
			Attempt: queue.Attempt{Number: 1, Class: retry.Delivered, StartedAt: time.Now()},
		}, func(err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
		if err := s.Health(); err != nil {
			t.Fatal(err)
		}
		ds, _, err := s.List(t.Context(), ep, queue.Delivered, 0, 10)
		if err != nil || len(ds) != 1 {
			t.Fatalf("delivered: %v, %v", ds, err)
		}
		if age := ds[0].EndedAt.Sub(ds[0].QueuedAt); age != 24*time.Hour {
			t.Errorf("delivered after %s of virtual time, want 24h", age)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
