package receivers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/test/harness"
)

// startWorker starts a worker that delivers every event to each of the URLs, by the
// endpoint's name.
func startWorker(t *testing.T, timeout string, urls map[string]string) *harness.Worker {
	t.Helper()
	dir := t.TempDir()
	var endpoints []harness.Endpoint
	for name, u := range urls {
		endpoints = append(endpoints, harness.Endpoint{Name: name, URL: u, Timeout: timeout, RetryPolicy: "quick"})
	}
	manifests := filepath.Join(dir, "manifests")
	if err := harness.WriteManifests(manifests, signingKey, endpoints...); err != nil {
		t.Fatal(err)
	}
	policy := harness.RetryManifest("quick", slices.Repeat([]string{"200ms"}, 50)...)
	if err := harness.WriteManifest(manifests, "quick.yaml", policy); err != nil {
		t.Fatal(err)
	}
	w, err := harness.StartWorker(t.Context(), harness.WorkerConfig{Binary: binary, Manifests: manifests, Data: filepath.Join(dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Kill)
	return w
}

// awaitNoneWaiting waits until no endpoint has a delivery still to be made, and checks
// that none has given one up.
func awaitNoneWaiting(t *testing.T, w *harness.Worker, endpoints int) {
	t.Helper()
	var list struct {
		Items []struct {
			Name       string
			Deliveries struct{ Waiting, DeadLettered int }
			Lane       struct{ InFlight int }
		}
	}
	await(t, "all deliveries", func() (bool, error) {
		list.Items = nil
		if _, err := w.Call("GET", harness.Path("endpoints"), nil, nil, &list); err != nil {
			return false, err
		}
		for _, e := range list.Items {
			if e.Deliveries.Waiting > 0 || e.Lane.InFlight > 0 {
				return false, nil
			}
		}
		return len(list.Items) == endpoints, nil
	})
	for _, e := range list.Items {
		if e.Deliveries.DeadLettered > 0 {
			t.Errorf("%s has %d dead letters", e.Name, e.Deliveries.DeadLettered)
		}
	}
}

// Real deliveries through kills of the receivers, and replays: each event is stored
// once, and its work done once but for the one that a kill may have cut off.
func TestEachEventOnceThroughKills(t *testing.T) {
	const events, kills = 300, 2
	all, urls := map[string]*receiver{}, map[string]string{}
	for _, l := range languages {
		all[l.name] = newReceiver(t, l)
		urls[l.name] = "http://" + all[l.name].addr + "/hooks"
	}
	w := startWorker(t, "5s", urls)
	var loading sync.WaitGroup
	loading.Go(func() {
		load := harness.Load{
			Addr: w.Addr, Path: harness.EventsPath, Key: w.Key, Run: "r", Types: []string{"order.paid"},
			Size: 500, Conns: 4, Count: events, Duration: time.Minute, Rate: 300,
		}
		if got, err := load.Do(context.WithoutCancel(t.Context())); err != nil || got.Accepted != events {
			t.Errorf("the load: %+v, %v", got, err)
		}
	})
	for kill := range kills {
		for name, r := range all {
			await(t, name+" to do some of the work", func() (bool, error) {
				times, _ := r.done()
				return len(times) > events*(kill+1)/(kills+2), nil
			})
			r.Kill()
		}
		for _, r := range all {
			r.start()
		}
	}
	loading.Wait()
	awaitNoneWaiting(t, w, len(all))
	for _, n := range []int{0, events / 2, events - 1} {
		if _, err := w.Call("POST", harness.Path(fmt.Sprintf("events/r-%d/replay", n)), nil, []byte(`{"endpoint":"go","force":true}`), nil); err != nil {
			t.Fatal(err)
		}
	}
	awaitNoneWaiting(t, w, len(all))
	for name, r := range all {
		r.settle()
		times, _ := r.done()
		repeated := 0
		for n := range events {
			id := fmt.Sprintf("r-%d", n)
			if times[id] == 0 {
				t.Errorf("%s: the work of %s was not done", name, id)
			}
			repeated += max(times[id]-1, 0)
		}
		if repeated > kills {
			t.Errorf("%s: work was repeated %d times by %d kills", name, repeated, kills)
		}
		if stored := r.stored(); stored != events+1 { // and the one that settled
			t.Errorf("%s stored %d messages, want %d", name, stored, events+1)
		}
	}
	if err := w.Stop(30 * time.Second); err != nil {
		t.Error(err)
	}
}

// stored counts the messages in the inbox.
func (r *receiver) stored() int {
	r.t.Helper()
	if _, err := os.Stat(filepath.Join(r.inbox, "inbox.db")); err == nil {
		out := r.shell(`python3 -c 'import sqlite3; print(sqlite3.connect("inbox.db").execute("SELECT count(*) FROM inbox").fetchone()[0])'`)
		var n int
		if _, err := fmt.Sscan(out, &n); err != nil {
			r.t.Fatal(err)
		}
		return n
	}
	files, err := os.ReadDir(r.inbox)
	if err != nil {
		r.t.Fatal(err)
	}
	n := 0
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), ".") { // what a kill left half written
			n++
		}
	}
	return n
}

// case DD79, DD84: the receiver has stored the event, but its answer comes too late. The
// attempt is a timeout, the retry has the same id, and nothing is done twice.
func TestTimedOutButStored(t *testing.T) {
	all, urls := map[string]*receiver{}, map[string]string{}
	for _, l := range languages {
		r := newReceiver(t, l)
		all[l.name], urls[l.name] = r, lateOnce(t, r.addr)
	}
	w := startWorker(t, "1s", urls)
	if _, err := w.Call("POST", harness.EventsPath, nil, []byte(`{"id":"evt_1","type":"order.paid","data":{"amount":1000.00}}`), nil); err != nil {
		t.Fatal(err)
	}
	awaitNoneWaiting(t, w, len(all))
	var e struct {
		Deliveries []struct {
			Endpoint, State string
			Attempts        []struct{ Outcome, Reason, Sent string }
		}
	}
	if _, err := w.Call("GET", harness.Path("events/evt_1"), nil, nil, &e); err != nil {
		t.Fatal(err)
	}
	if len(e.Deliveries) != len(all) {
		t.Fatalf("%d deliveries, want %d", len(e.Deliveries), len(all))
	}
	for _, d := range e.Deliveries {
		if d.State != "delivered" || len(d.Attempts) != 2 || d.Attempts[0].Reason != "timeout" || d.Attempts[0].Sent != "unknown" {
			t.Errorf("%s: %+v, want a timeout with sent unknown, then delivered", d.Endpoint, d)
		}
		r := all[d.Endpoint]
		r.settle()
		if times, _ := r.done(); times["evt_1"] != 1 {
			t.Errorf("%s: the work was done %d times, want once", d.Endpoint, times["evt_1"])
		}
	}
}

// lateOnce is a proxy to addr that holds back the first answer until nobody waits for it.
func lateOnce(t *testing.T, addr string) string {
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: addr})
	var first sync.Once
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		late := false
		first.Do(func() { late = true })
		if !late {
			proxy.ServeHTTP(w, req)
			return
		}
		answer := httptest.NewRecorder()
		proxy.ServeHTTP(answer, req)
		if answer.Code != 204 {
			t.Errorf("the first attempt is answered %d, want 204", answer.Code)
		}
		_, _ = io.Copy(io.Discard, req.Body)
		<-req.Context().Done()
	}))
	t.Cleanup(s.Close)
	return s.URL
}
