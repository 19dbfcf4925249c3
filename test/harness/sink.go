package harness

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// SinkPath is the prefix of a sink's well-behaved receivers; below FanPath are those
// that all get the same event, below HangPath a receiver never answers, below FailPath
// it answers 500.
const (
	SinkPath = "/ok/"
	FanPath  = "/fan/"
	HangPath = "/hang/"
	FailPath = "/fail/"
)

// maxEvents bounds the numbers a sink remembers: 16 million, in 2 MiB of bits.
const maxEvents = 16 << 20

// hangFor is the longest that a hanging receiver holds a request: longer than the
// longest timeout of an endpoint.
const hangFor = 90 * time.Second

// Sink receives what a Load has posted. It knows an event by the number at the end
// of its webhook-id, finds repeats, measures the time from the event's stamp to its
// arrival (both of this machine's clock), and verifies the signature of one event in
// VerifyEvery.
type Sink struct {
	Key         Key
	VerifyEvery int64

	run atomic.Pointer[sinkRun]
}

// sinkRun is what has arrived since the last reset.
type sinkRun struct {
	name     string
	requests atomic.Int64
	verified atomic.Int64
	bad      atomic.Int64
	foreign  atomic.Int64
	others   atomic.Int64
	latency  Histogram

	mu          sync.Mutex
	seen        []uint64
	unique      int64
	repeats     int64
	first, last time.Time
	fanned      int64
	lastFanned  time.Time
	badWhy      string
}

// SinkStats is what a sink has seen of one run.
type SinkStats struct {
	// Unique counts different events, Repeats arrivals of an event that was there
	// already; both below SinkPath only. Others counts requests to bad receivers.
	Unique, Repeats, Others int64
	// Verified and BadSignatures count the requests whose signature was checked.
	Verified, BadSignatures int64
	BadWhy                  string `json:",omitempty"`
	// Foreign counts requests with an id that is not of this run.
	Foreign int64
	// First and Last are the first and the last arrival of a new event.
	First, Last time.Time
	// Fanned counts arrivals below FanPath, LastFanned is the last of them.
	Fanned     int64
	LastFanned time.Time
	// P50 and P99 are times from stamp to arrival.
	P50, P99 time.Duration
}

// Reset forgets everything and expects the events of run from now on.
func (s *Sink) Reset(run string) {
	s.run.Store(&sinkRun{name: run + "-", seen: make([]uint64, maxEvents/64)})
}

// Stats is what has arrived since the last reset.
func (s *Sink) Stats() SinkStats {
	r := s.run.Load()
	if r == nil {
		return SinkStats{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return SinkStats{
		Unique: r.unique, Repeats: r.repeats, Others: r.others.Load(),
		Verified: r.verified.Load(), BadSignatures: r.bad.Load(), BadWhy: r.badWhy, Foreign: r.foreign.Load(),
		First: r.first, Last: r.last, Fanned: r.fanned, LastFanned: r.lastFanned, P50: r.latency.Quantile(0.5), P99: r.latency.Quantile(0.99),
	}
}

// ServeHTTP takes a delivery, or one of the two requests by which a parent process
// steers a sink: POST /-/reset?run=NAME and GET /-/stats.
func (s *Sink) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	switch {
	case strings.HasPrefix(req.URL.Path, SinkPath):
		s.receive(w, req)
	case strings.HasPrefix(req.URL.Path, FanPath):
		s.fan(w, req)
	case strings.HasPrefix(req.URL.Path, HangPath):
		s.hang(req)
	case strings.HasPrefix(req.URL.Path, FailPath):
		if r := s.run.Load(); r != nil {
			r.others.Add(1)
		}
		w.WriteHeader(http.StatusInternalServerError)
	case req.URL.Path == "/-/reset":
		s.Reset(req.URL.Query().Get("run"))
	case req.URL.Path == "/-/stats":
		_ = json.NewEncoder(w).Encode(s.Stats()) // the parent sees a broken answer
	default:
		http.NotFound(w, req)
	}
}

// fan counts one arrival of an event that goes to many.
func (s *Sink) fan(w http.ResponseWriter, req *http.Request) {
	_, err := io.Copy(io.Discard, req.Body)
	if r := s.run.Load(); r != nil && err == nil {
		r.mu.Lock()
		r.fanned++
		r.lastFanned = time.Now()
		r.mu.Unlock()
	}
	w.WriteHeader(http.StatusNoContent)
}

// hang reads the request and keeps its sender waiting.
func (s *Sink) hang(req *http.Request) {
	if r := s.run.Load(); r != nil {
		r.others.Add(1)
	}
	_, _ = io.Copy(io.Discard, req.Body) // a sender that left is noticed below
	t := time.NewTimer(hangFor)
	defer t.Stop()
	select {
	case <-t.C:
	case <-req.Context().Done():
	}
}

var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func (s *Sink) receive(w http.ResponseWriter, req *http.Request) {
	buf := bodies.Get().(*bytes.Buffer)
	defer bodies.Put(buf)
	buf.Reset()
	if _, err := buf.ReadFrom(io.LimitReader(req.Body, 2<<20)); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r := s.run.Load()
	if r == nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	r.arrived(req.Header.Get("webhook-id"), buf.Bytes(), time.Now())
	if n := r.requests.Add(1); s.VerifyEvery > 0 && n%s.VerifyEvery == 1%s.VerifyEvery {
		r.check(s.Key.Verify(req.Header, buf.Bytes(), time.Now()))
	}
	w.WriteHeader(http.StatusNoContent)
}

func (r *sinkRun) check(err error) {
	r.verified.Add(1)
	if err == nil {
		return
	}
	r.bad.Add(1)
	r.mu.Lock()
	r.badWhy = err.Error()
	r.mu.Unlock()
}

// arrived notes one event.
func (r *sinkRun) arrived(id string, body []byte, now time.Time) {
	number, ok := strings.CutPrefix(id, r.name)
	n, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil || n >= maxEvents {
		r.foreign.Add(1)
		return
	}
	if sent, ok := stamp(body); ok {
		r.latency.Add(now.Sub(sent))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	word, bit := &r.seen[n/64], uint64(1)<<(n%64)
	if *word&bit != 0 {
		r.repeats++
		return
	}
	*word |= bit
	r.unique++
	if r.first.IsZero() {
		r.first = now
	}
	r.last = now
}

// stamp reads the time that Padding.Event put into a body.
func stamp(body []byte) (time.Time, bool) {
	const mark = `"sent":`
	_, rest, ok := bytes.Cut(body, []byte(mark))
	if !ok {
		return time.Time{}, false
	}
	digits, _, _ := bytes.Cut(rest, []byte(","))
	ns, err := strconv.ParseInt(string(digits), 10, 64)
	return time.Unix(0, ns), err == nil
}
