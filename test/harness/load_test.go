package harness

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// forward is a stand-in for the worker: it signs each event and posts it to a sink
// before it answers.
func forward(t *testing.T, key Key, to string, twice func(n int) bool) *httptest.Server {
	t.Helper()
	var mu sync.Mutex
	seen := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var e struct{ ID string }
		if err := json.Unmarshal(body, &e); err != nil {
			w.WriteHeader(400)
			return
		}
		mu.Lock()
		seen++
		n := seen
		mu.Unlock()
		times := 1
		if twice != nil && twice(n) {
			times = 2
		}
		for range times {
			req, _ := http.NewRequest(http.MethodPost, to+SinkPath+"a", strings.NewReader(string(body)))
			ts := strconv.FormatInt(time.Now().Unix(), 10)
			req.Header.Set("webhook-id", e.ID)
			req.Header.Set("webhook-timestamp", ts)
			req.Header.Set("webhook-signature", key.Sign(e.ID, ts, body))
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				w.WriteHeader(500)
				return
			}
			_ = resp.Body.Close()
		}
		w.WriteHeader(202)
	}))
	t.Cleanup(s.Close)
	return s
}

var testKey = Key("0123456789abcdef0123456789abcdef")

func TestLoadReachesSinkOnce(t *testing.T) {
	sink := &Sink{Key: testKey, VerifyEvery: 10}
	sink.Reset("r1")
	to := httptest.NewServer(sink)
	defer to.Close()
	srv := forward(t, testKey, to.URL, nil)

	load := Load{Addr: srv.Listener.Addr().String(), Path: "/", Run: "r1", Types: []string{"a", "b"}, Size: 1024, Conns: 4, Count: 200, Duration: 30 * time.Second}
	got, err := load.Do(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	stats := sink.Stats()
	if got.Accepted != 200 || got.Failed != 0 || stats.Unique != 200 || stats.Repeats != 0 || stats.Foreign != 0 {
		t.Errorf("load says %+v, sink says %+v; want 200 events accepted and 200 arrived once", got, stats)
	}
	if stats.Verified != 20 || stats.BadSignatures != 0 {
		t.Errorf("%d signatures checked and %d bad (%s), want 20 and 0", stats.Verified, stats.BadSignatures, stats.BadWhy)
	}
	if stats.P99 <= 0 || stats.P99 > 10*time.Second {
		t.Errorf("p99 is %v", stats.P99)
	}
}

func TestSinkSeesRepeatsAndBadSignatures(t *testing.T) {
	sink := &Sink{Key: Key("another key of thirty-two bytes!"), VerifyEvery: 1}
	sink.Reset("r2")
	to := httptest.NewServer(sink)
	defer to.Close()
	srv := forward(t, testKey, to.URL, func(n int) bool { return n%10 == 0 })

	load := Load{Addr: srv.Listener.Addr().String(), Path: "/", Run: "r2", Types: []string{"a"}, Size: 256, Conns: 2, Count: 100, Duration: 30 * time.Second}
	if _, err := load.Do(context.Background()); err != nil {
		t.Fatal(err)
	}
	if s := sink.Stats(); s.Unique != 100 || s.Repeats != 10 || s.BadSignatures != 110 {
		t.Errorf("sink says %+v; want 100 events, 10 repeats and 110 bad signatures", s)
	}
}

func TestLoadSendsARefusedEventAgain(t *testing.T) {
	var mu sync.Mutex
	n := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if n++; n%3 == 0 {
			w.WriteHeader(503)
			return
		}
		w.WriteHeader(202)
	}))
	defer srv.Close()
	load := Load{Addr: srv.Listener.Addr().String(), Path: "/", Run: "r", Types: []string{"a"}, Size: 100, Conns: 3, Count: 50, Duration: 30 * time.Second}
	got, err := load.Do(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if got.Accepted != 50 || got.Refused < 20 || got.Failed != 0 {
		t.Errorf("%+v; want all 50 accepted after some 24 refusals", got)
	}
}

func TestOpenLoopKeepsItsRate(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(202) }))
	defer srv.Close()
	load := Load{Addr: srv.Listener.Addr().String(), Path: "/", Run: "r", Types: []string{"a"}, Size: 100, Conns: 8, Count: 100, Duration: 30 * time.Second, Rate: 200}
	got, err := load.Do(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	// The last of 100 events at 200 a second is due after 495 ms. A slow machine may
	// take longer, none can be faster.
	if got.Accepted != 100 || got.Elapsed < 495*time.Millisecond {
		t.Errorf("%d accepted in %v, want 100 in 495ms or more", got.Accepted, got.Elapsed)
	}
}

func TestEventsHaveTheirSizeAndAreJSON(t *testing.T) {
	p := NewPadding()
	for _, n := range []int64{0, 1, 99999, 1 << 20} {
		b := p.Event(nil, "run", n, "bench.e00", time.Now(), 1024)
		if len(b) != 1024 || !json.Valid(b) {
			t.Errorf("event %d has %d bytes, valid JSON %v; want 1024, true", n, len(b), json.Valid(b))
		}
		var e struct{ Attributes map[string]string }
		b = p.EventFor(nil, "run", n, "bench.e00", Customer(n), time.Now(), 1024)
		if err := json.Unmarshal(b, &e); err != nil || len(b) != 1024 || e.Attributes["customer"] != Customer(n) {
			t.Errorf("event %d has %d bytes and the attributes %v: %v", n, len(b), e.Attributes, err)
		}
		if sent, ok := stamp(b); !ok || time.Since(sent) > time.Minute {
			t.Errorf("event %d: its stamp can't be read", n)
		}
	}
}

func TestSinkCountsWhatFansOut(t *testing.T) {
	sink := &Sink{Key: testKey}
	sink.Reset("r")
	to := httptest.NewServer(sink)
	defer to.Close()
	for n := range 3 {
		resp, err := http.Post(to.URL+FanPath+strconv.Itoa(n), "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	if s := sink.Stats(); s.Fanned != 3 || s.LastFanned.IsZero() || s.Unique != 0 {
		t.Errorf("sink says %+v, want 3 arrivals of what fans out, and no others", s)
	}
}
