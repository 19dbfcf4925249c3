package rotation

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/test/harness"
)

// binary is the doorstep binary under test.
var binary string

func TestMain(m *testing.M) { os.Exit(harness.RunWithBinary(m.Run, &binary)) }

// keyNumber is the nth key of a test.
func keyNumber(n int) harness.Key { return harness.Key(fmt.Sprintf("key %028d", n)) }

// site is a worker with one endpoint, orders, and its receiver.
type site struct {
	t         *testing.T
	manifests string
	worker    *harness.Worker
	log       *lockedBuffer
}

// newSite starts a worker that sends to r and signs with key number 0.
func newSite(t *testing.T, r *receiver, signing string) *site {
	t.Helper()
	s := &site{t: t, manifests: filepath.Join(t.TempDir(), "manifests"), log: new(lockedBuffer)}
	e := harness.Endpoint{Name: "orders", URL: "http://" + r.addr + "/orders", MaxInFlight: 32, RetryPolicy: "quick"}
	text := strings.Replace(e.Manifest(), "signing: {", "signing: {"+signing, 1)
	if err := harness.WriteManifests(s.manifests, keyNumber(0)); err != nil {
		t.Fatal(err)
	}
	if err := harness.WriteManifest(s.manifests, "orders.yaml", harness.RetryManifest("quick", "1s", "1s", "1s", "1s", "1s"), text); err != nil {
		t.Fatal(err)
	}
	w, err := harness.StartWorker(context.Background(), harness.WorkerConfig{
		Binary: binary, Manifests: s.manifests, Data: filepath.Join(t.TempDir(), "data"), Log: s.log, Args: []string{"-vv"},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.worker = w
	t.Cleanup(w.Kill)
	return s
}

// rotate changes the value of the Secret to key number n.
func (s *site) rotate(n int) {
	s.t.Helper()
	if err := harness.WriteManifest(s.manifests, "pool.yaml", harness.PoolManifest, harness.SecretManifest(keyNumber(n))); err != nil {
		s.t.Fatal(err)
	}
}

// load posts events at a rate until stop is called, which gives how many were accepted.
func (s *site) load(run string, perSecond float64) (stop func() int64) {
	ctx, cancel := context.WithCancel(context.Background())
	var result harness.LoadResult
	var err error
	var done sync.WaitGroup
	done.Go(func() {
		result, err = harness.Load{
			Addr: s.worker.Addr, Path: harness.EventsPath, Key: s.worker.Key, Run: run, Types: []string{"order.created"}, Size: 512,
			Conns: 4, Count: 1 << 20, Duration: 10 * time.Minute, Rate: perSecond,
		}.Do(ctx)
	})
	return func() int64 {
		s.t.Helper()
		cancel()
		done.Wait()
		if err != nil || result.Failed > 0 {
			s.t.Errorf("the load failed: %v, %d of its events: %s", err, result.Failed, result.FirstError)
		}
		return result.Accepted
	}
}

// await waits until check says true.
func (s *site) await(within time.Duration, what string, check func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := harness.Await(ctx, 10*time.Millisecond, what, func() (bool, error) { return check(), nil }); err != nil {
		s.t.Fatalf("%v; the worker's last lines:\n%s", err, s.worker.Tail())
	}
}

// lockedBuffer is written by a process and read by a test.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends b.
func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// String is what was written so far.
func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
