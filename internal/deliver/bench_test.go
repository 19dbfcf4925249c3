package deliver

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/sign"
)

var discardLog = log.New(io.Discard, "", 0)

func newReader(r io.Reader) *bufio.Reader { return bufio.NewReader(r) }

func sink(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusNoContent)
}

// measure reports CPU time beside elapsed time, which says little on a busy
// machine. It is that of the whole process, the server included.
func measure(b *testing.B) func() {
	b.ReportAllocs()
	before := cpuTime(b)
	return func() { b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N)/1e3, "cpu-µs/op") }
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkDo measures a whole attempt of 1 KiB against a server in the same
// process; BenchmarkBareClient a POST of the same body, signed, by an http.Client.
func BenchmarkDo(b *testing.B) {
	s, _ := newServer(b, false, false, sink)
	c := newClient(b, Options{})
	r := newRequest(b, s.URL)
	r.Event.Body = bytes.Repeat([]byte("a"), 1024)
	defer measure(b)()
	for b.Loop() {
		if res := c.Do(context.Background(), r); res.Status != http.StatusNoContent {
			b.Fatalf("%+v", res)
		}
	}
}

func BenchmarkBareClient(b *testing.B) {
	s, _ := newServer(b, false, false, sink)
	key, err := sign.ParseKey(testSecret)
	if err != nil {
		b.Fatal(err)
	}
	body := bytes.Repeat([]byte("a"), 1024)
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}, Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	defer measure(b)()
	for b.Loop() {
		signature, err := sign.Sign(nil, []sign.Key{key}, "evt_1", 1_792_000_000, body)
		if err != nil {
			b.Fatal(err)
		}
		req, err := http.NewRequest(http.MethodPost, s.URL, bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Webhook-Id", "evt_1")
		req.Header.Set("Webhook-Timestamp", "1792000000")
		req.Header.Set("Webhook-Signature", string(signature))
		resp, err := client.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}
