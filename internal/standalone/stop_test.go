package standalone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/doorstep-dev/doorstep/internal/ingest"
)

// A stop under load: whatever was acknowledged before is delivered by the next process,
// and by neither twice, since attempts under way end within the grace.
func TestAStopUnderLoadLosesNothing(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	rec.answer = func(w http.ResponseWriter, a arrival) {
		if strings.HasSuffix(a.id, "7") {
			time.Sleep(20 * time.Millisecond) // some are under way at any time
		}
		w.WriteHeader(204)
	}
	s.usual(rec.URL)
	acked := map[string]bool{}
	for round := range 3 {
		r := s.start()
		var mu sync.Mutex
		var producers sync.WaitGroup
		for p := range 8 {
			producers.Go(func() {
				for n := 0; ; n++ {
					id := fmt.Sprintf("evt_%d_%d_%04d", round, p, n)
					status, _ := r.call("POST", eventsPath, []byte(`{"id":"`+id+`","type":"a.b","data":1}`))
					if status == 0 {
						return // stopped: not acknowledged
					}
					if status != 202 {
						t.Errorf("%s is answered %d", id, status)
						return
					}
					mu.Lock()
					acked[id] = true
					mu.Unlock()
				}
			})
		}
		rec.await(t, 500*(round+1))
		began := time.Now()
		r.stop()
		if d := time.Since(began); d > 5*time.Second+5*time.Second {
			t.Errorf("the stop took %v", d)
		}
		producers.Wait()
	}
	r := s.start()
	await(t, "everything to be delivered", func() bool { return r.endpoint("orders").Deliveries.Waiting == 0 })
	got := rec.byID()
	for id := range acked {
		if got[id] != 1 {
			t.Errorf("%s was acknowledged and arrived %d times, want once", id, got[id])
		}
	}
	if n := r.endpoint("orders").Deliveries.DeadLettered; n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

// What hangs longer than the grace is given back: the stop ends in time, the attempt is
// not counted, and the next process makes it.
func TestAStopCutsWhatHangs(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	hang := make(chan struct{})
	release := sync.OnceFunc(func() { close(hang) })
	t.Cleanup(release)
	rec.answer = func(w http.ResponseWriter, _ arrival) {
		<-hang
		w.WriteHeader(204)
	}
	s.usual(rec.URL)
	r := s.start(func(o *Options) { o.Grace = 100 * time.Millisecond })
	r.send("evt_1")
	rec.await(t, 1)
	began := time.Now()
	r.stop()
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("the stop took %v with a grace of 100 ms", d)
	}
	release()
	r = s.start()
	await(t, "the delivery", func() bool { return r.delivery("evt_1").State == ingest.StateDelivered })
	if d := r.delivery("evt_1"); d.AttemptCount != 1 {
		t.Errorf("%d attempts, want 1: the one that was cut is not counted", d.AttemptCount)
	}
}

// A producer that is in the middle of a request is given a while to end it, and no more.
func TestAStopDoesNotWaitForASlowProducer(t *testing.T) {
	t.Parallel()
	s, rec := newSite(t), newReceiver(t)
	s.usual(rec.URL)
	r := s.start()
	c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: 100\r\n\r\n{\"id\":", eventsPath, r.key); err != nil {
		t.Fatal(err)
	}
	r.send("evt_1")
	rec.await(t, 1)
	began := time.Now()
	r.stop()
	if d := time.Since(began); d > 5*time.Second+5*time.Second {
		t.Errorf("the stop took %v", d)
	}
	if answer, _ := io.ReadAll(c); bytes.Contains(answer, []byte("202")) {
		t.Errorf("half an event is answered %s", answer)
	}
}

// A stop that comes before anything has begun.
func TestAStopBeforeTheStart(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	s.usual(rec.URL)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		o := s.options()
		o.Out, o.Log = &lockedBuffer{}, logr.Discard()
		if err := Run(ctx, o); err != nil {
			t.Error(err)
		}
	}
}

func TestASecondProcessIsToldWhoHoldsTheData(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	s.usual(rec.URL)
	r := s.start()
	o := s.options()
	o.Out, o.Log = &lockedBuffer{}, logr.Discard()
	err := Run(t.Context(), o)
	if want := fmt.Sprintf("in use by process %d", os.Getpid()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a second process on the same data: %v, want %q", err, want)
	}
	o.Listen, o.Data = strings.TrimPrefix(r.url, "http://"), t.TempDir()
	if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("a second process at the same address: %v, want --listen named", err)
	}
	r.send("evt_1") // the first is none the worse
	rec.await(t, 1)
}

// When one part fails, the others stop in order and the failure is what Run returns.
func TestAPartThatFailsStopsEverything(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	s.usual(rec.URL)
	o := s.options()
	o.Out, o.Log = &lockedBuffer{}, logr.Discard()
	p := &process{Options: o}
	if err := p.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() { failed <- p.engine.Run(context.Background(), p.api, p.listener, p.planner.run) }()
	await(t, "it to serve", func() bool {
		c, err := net.Dial("tcp", p.listener.Addr().String())
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	_ = p.listener.Close()
	select {
	case err := <-failed:
		if err == nil || !errors.Is(err, net.ErrClosed) || !strings.Contains(err.Error(), "serve the API") {
			t.Errorf("ended with %v, want the API's failure", err)
		}
	case <-time.After(patience):
		t.Fatal("the other parts go on")
	}
	if err := p.engine.Stop(); err != nil {
		t.Error(err)
	}
	s.start() // everything was let go
}

// A start that fails has sent nothing, though events wait and receivers are up, and has
// let everything go.
func TestAStartThatFailsSendsNothing(t *testing.T) {
	s, rec := newSite(t), newReceiver(t)
	rec.status.Store(500)
	s.usual(rec.URL, "retryPolicyRef: {name: quick}", "maxInFlight: 1")
	s.write("pool.yaml", poolYAML+"  suspend: true\n")
	r := s.start()
	for n := range 50 {
		r.send(fmt.Sprintf("evt_%d", n))
	}
	r.stop()
	s.write("pool.yaml", poolYAML)
	key, err := os.ReadFile(APIKeyFile(s.data))
	if err != nil {
		t.Fatal(err)
	}
	// What a crash could leave where a file is written in place.
	if err := os.WriteFile(APIKeyFile(s.data), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		o := s.options()
		o.Out, o.Log = &lockedBuffer{}, logr.Discard()
		if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "api-key") || !strings.Contains(err.Error(), "remove the file") {
			t.Fatalf("with an empty key file: %v, want the file named and the way out", err)
		}
	}
	if n := rec.count(); n != 0 {
		t.Errorf("%d arrivals from starts that failed", n)
	}
	if err := os.WriteFile(APIKeyFile(s.data), key, 0o600); err != nil {
		t.Fatal(err)
	}
	rec.status.Store(204)
	r = s.start()
	if r.key != string(bytes.TrimSpace(key)) {
		t.Error("the key is another one")
	}
	await(t, "everything to be delivered", func() bool { return r.endpoint("orders").Deliveries.Waiting == 0 })
}

// A key is made whole or not at all, and never over one that is there.
func TestAKeyThatIsThereIsNeverReplaced(t *testing.T) {
	s := newSite(t)
	if err := os.MkdirAll(s.data, 0o700); err != nil {
		t.Fatal(err)
	}
	text, _, err := ingest.NewAPIKey("standalone")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(APIKeyFile(s.data), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.write("pool.yaml", poolYAML)
	if r := s.start(); r.key != text {
		t.Error("the key was replaced")
	}
	// No part of a file is left beside it.
	entries, err := os.ReadDir(s.data)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			t.Errorf("%s is left in the data folder", e.Name())
		}
	}
}
