package standalone

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// keyOf is a signing key of its own for each number.
func keyOf(n int) string {
	sum := sha256.Sum256([]byte("key " + strconv.Itoa(n)))
	return "whsec_" + base64.StdEncoding.EncodeToString(sum[:])
}

// own is the body of the event n, type i of types: its bytes depend on nothing else.
func own(n, types int) []byte {
	i := n % types
	text := make([]byte, 40+i*i*40)
	random := rand.New(rand.NewPCG(uint64(n), 31)) //nolint:gosec // a test
	for k := range text {
		text[k] = "0123456789abcdefghijklmnopqrstuv"[random.IntN(32)]
	}
	return fmt.Appendf(nil, `{"id":"evt_%d","type":"kind.%d","data":"%s"}`, n, i, text)
}

// case PF31: among events of 20 types and sizes on their way to 20 endpoints at once,
// id, type, endpoint, key and body always belong together.
func TestNothingIsMixedUp(t *testing.T) {
	const events, types, producers = 10_000, 20, 32
	s := newSite(t)
	rec := newReceiver(t)
	rec.answer = func(w http.ResponseWriter, _ arrival) { w.WriteHeader(204) }
	s.write("pool.yaml", poolYAML)
	for i := range types {
		name := fmt.Sprintf("e-%d", i)
		s.write(name+".yaml", secretYAML(name+"-key", keyOf(i))+"---\n"+
			endpointYAML(name, fmt.Sprintf("%s/e-%d", rec.URL, i), fmt.Sprintf("eventTypes: [kind.%d]", i)))
	}
	r := s.start()
	var next atomic.Int64
	var all sync.WaitGroup
	for range producers {
		all.Go(func() {
			for n := int(next.Add(1)) - 1; n < events; n = int(next.Add(1)) - 1 {
				if !r.offer(own(n, types)) {
					return
				}
			}
		})
	}
	all.Wait()
	seen := map[string]bool{}
	for _, a := range rec.await(t, events) {
		n, err := strconv.Atoi(strings.TrimPrefix(a.id, "evt_"))
		switch {
		case err != nil || n < 0 || n >= events || seen[a.id]:
			t.Fatalf("%q arrived at %s, unknown or a second time", a.id, a.path)
		case a.path != fmt.Sprintf("/e-%d", n%types):
			t.Fatalf("%s arrived at %s", a.id, a.path)
		case !bytes.Equal(a.body, own(n, types)):
			t.Fatalf("%s arrived with a body of another", a.id)
		}
		if err := verified(keyOf(n%types), a); err != nil {
			t.Fatalf("%s by the key of its endpoint: %v", a.id, err)
		}
		seen[a.id] = true
	}
}

// case DD85: 1 % of the events are 1 MiB and their receiver keeps each of those until
// all the small ones have arrived. None is delayed by them, and none comes twice.
func TestLargeEventsDelayNoSmallOnes(t *testing.T) {
	const events, every, rate = 600, 100, 200
	s, rec := newSite(t), newReceiver(t)
	small := make(chan struct{})
	release := sync.OnceFunc(func() { close(small) })
	t.Cleanup(release)
	var smalls atomic.Int32
	rec.answer = func(w http.ResponseWriter, a arrival) {
		if len(a.body) > 100_000 {
			<-small
		} else if smalls.Add(1) == events-events/every {
			release()
		}
		w.WriteHeader(204)
	}
	s.usual(rec.URL, "timeout: 60s")
	s.write("pool.yaml", poolYAML+"  ingest: {maxPayloadBytes: 1048576}\n")
	r := s.start()
	large := strings.Repeat("0123456789abcdef", 1<<20/16-8)
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	var all sync.WaitGroup
	for n := range events {
		<-tick.C
		data := "small"
		if n%every == 0 {
			data = large
		}
		all.Go(func() { r.offer(fmt.Appendf(nil, `{"id":"evt_%d","type":"a.b","data":"%s"}`, n, data)) })
	}
	all.Wait()
	rec.await(t, events)
	await(t, "all to be recorded", func() bool { return r.endpoint("orders").Deliveries.Waiting == 0 })
	for id, n := range rec.byID() {
		if n != 1 {
			t.Errorf("%s arrived %d times", id, n)
		}
	}
	if n := len(rec.byID()); n != events {
		t.Errorf("%d events arrived, want %d", n, events)
	}
}

// case DD86: an endpoint is edited 20 times a second under load. Each request is made
// by one version of it: its address, its key and its events belong together.
func TestEachRequestIsOfOneConfiguration(t *testing.T) {
	const edits, perSecond, producers = 60, 20, 4
	s, rec := newSite(t), newReceiver(t)
	s.write("pool.yaml", poolYAML)
	edit := func(n int) {
		s.write("orders.yaml", fmt.Sprintf("apiVersion: doorstep.dev/v1alpha1\nkind: RetryPolicy\nmetadata: {name: p, namespace: shop}\nspec: {backoff: {schedule: [%dms]}}\n---\n", 1000+n)+
			secretYAML("orders-key", keyOf(n))+"---\n"+
			strings.Replace(endpointYAML("orders", fmt.Sprintf("%s/%d", rec.URL, n), "retryPolicyRef: {name: p}", fmt.Sprintf("maxInFlight: %d", 1+n)),
				"signing: {", "signing: {rotationOverlap: 0s, ", 1))
	}
	edit(0)
	r := s.start()
	var done atomic.Bool
	var acked atomic.Int64
	var all sync.WaitGroup
	for p := range producers {
		all.Go(func() {
			tick := time.NewTicker(time.Second * producers / 200)
			defer tick.Stop()
			for n := 0; !done.Load(); n++ {
				<-tick.C
				if r.offer(fmt.Appendf(nil, `{"id":"evt_%d_%d","type":"a.b","data":1}`, p, n)) {
					acked.Add(1)
				}
			}
		})
	}
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	for n := range edits {
		<-tick.C
		edit(n + 1)
	}
	await(t, "the last version", func() bool {
		for _, a := range rec.seen() {
			if a.path == fmt.Sprintf("/%d", edits) {
				return true
			}
		}
		return false
	})
	done.Store(true)
	all.Wait()
	rec.await(t, int(acked.Load()))
	versions := map[string]bool{}
	for _, a := range rec.seen() {
		n, err := strconv.Atoi(strings.TrimPrefix(a.path, "/"))
		if err != nil {
			t.Fatalf("arrived at %s", a.path)
		}
		if err := verified(keyOf(n), a); err != nil {
			t.Errorf("%s arrived at the address of version %d, by the key of another: %v", a.id, n, err)
		}
		versions[a.path] = true
	}
	if len(versions) < 5 {
		t.Errorf("only %d versions were in force during %d edits", len(versions), edits)
	}
	if n := len(rec.byID()); n != int(acked.Load()) || rec.count() != n {
		t.Errorf("%d events arrived in %d requests, want each of %d once", n, rec.count(), acked.Load())
	}
	if p := r.problems(); len(p) != 0 {
		t.Errorf("problems: %q", p)
	}
}

func TestPlannedIsToldHowManyEndpointsThereAre(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	s.usual(rec.URL)
	var endpoints atomic.Int64
	s.start(func(o *Options) { o.Planned = func(n int) { endpoints.Store(int64(n)) } })
	if got := endpoints.Load(); got != 1 {
		t.Errorf("at the start it is told of %d endpoints, want 1", got)
	}
	s.write("audit.yaml", secretYAML("audit-key", keyB)+"---\n"+endpointYAML("audit", rec.URL))
	await(t, "two endpoints", func() bool { return endpoints.Load() == 2 })
}
