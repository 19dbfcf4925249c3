package ingest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/queue/pebble"
)

// newStoreAPI is the API before the embedded store, whose disk is memory.
func newStoreAPI(t *testing.T) (*api, *pebble.Store) {
	t.Helper()
	store, err := pebble.Open(pebble.Options{Dir: "queue", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return newAPI(t, func(o *ingest.Options) { o.Queue = store }), store
}

// A consumer that reads while producers write gets each event once and none not: what becomes durable later is never
// in front of what it has read.
func TestAConsumerReadsWhileProducersWrite(t *testing.T) {
	a, _ := newStoreAPI(t)
	const producers, each = 4, 250
	var work sync.WaitGroup
	for p := range producers {
		work.Go(func() {
			for i := range each {
				if w := a.sendTo("shop", fmt.Sprintf("evt_%d_%d", p, i), "order.created"); w.Code != http.StatusAccepted {
					t.Errorf("answered %d: %s", w.Code, w.Body)
				}
			}
		})
	}
	seen, cursor, polls := map[string]bool{}, "", 0
	for done := false; !done; polls++ {
		page := a.oldest(cursor, "&limit=50")
		for _, id := range ids(page.Items) {
			if seen[id] {
				t.Fatalf("%s came twice", id)
			}
			seen[id] = true
		}
		if cursor = page.Cursor; page.AtEnd {
			done = len(seen) == producers*each
		}
		if t.Failed() || polls > 100_000 {
			t.Fatalf("after %d polls %d events were seen", polls, len(seen))
		}
	}
	work.Wait()
	if page := a.oldest(cursor, ""); len(page.Items) != 0 {
		t.Errorf("after the last there are %v", ids(page.Items))
	}
}

// What the embedded store says of replays, erasures and records is what people are told.
func TestActionsOnTheEmbeddedStore(t *testing.T) {
	a, store := newStoreAPI(t)
	for i := range 20 {
		a.post(http.StatusAccepted, plainEvent(fmt.Sprint("evt_", i), "order.created"), nil)
	}
	var seqs []queue.Seq
	for i := range 20 {
		seqs = append(seqs, queue.Seq(i+1))
	}
	if n, err := store.Settle(t.Context(), orders, seqs, queue.DeadLettered, queue.ReasonExpired); n != 20 || err != nil {
		t.Fatal(n, err)
	}
	a.want(http.StatusOK, a.call(http.MethodDelete, "/v1/namespaces/shop/events/evt_3", "", nil))
	if r := a.replayMany(`{"select":{"reasons":["Expired"],"eventTypes":["order.*"]},"dryRun":true}`); r.Matched != 20 {
		t.Errorf("counted are %+v", r)
	}
	first := a.replayMany(`{"select":{"states":["deadLettered"]},"limit":5}`)
	if first.Replayed != 4 || first.Skipped != 1 || first.Cursor == "" {
		t.Errorf("the first five, of which one is erased: %+v", first)
	}
	if rest := a.replayMany(`{"select":{"states":["deadLettered"]},"cursor":"` + first.Cursor + `"}`); rest.Replayed != 15 || rest.Cursor != "" {
		t.Errorf("the rest: %+v", rest)
	}
	if records := get[ingest.AuditList](a, "audit").Items; len(records) != 3 || records[2].Action != ingest.AuditErase || records[0].Count != 15 {
		t.Errorf("the records are %+v", records)
	}
	if list := get[ingest.DeliveryList](a, "endpoints/orders/deliveries?state=pending"); len(list.Items) != 19 {
		t.Errorf("%d deliveries wait, want 19", len(list.Items))
	}
}

// HEAD is GET without a body.
func TestHead(t *testing.T) {
	a := newAPI(t)
	a.accepted(1, "order.created")
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	for _, path := range []string{"/v1/namespaces/shop/events", "/v1/namespaces/shop/events/evt_1/payload", "/openapi.json", "/healthz"} {
		var lengths []int64
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := server.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != http.StatusOK {
				t.Errorf("%s %s: %s", method, path, res.Status)
			}
			lengths = append(lengths, res.ContentLength)
		}
		if lengths[0] != lengths[1] || lengths[0] <= 0 {
			t.Errorf("%s: GET says %d bytes, HEAD %d", path, lengths[0], lengths[1])
		}
	}
}
