package ingest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/doorstep-dev/doorstep/internal/event"
	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// forgetful is a queue that takes everything at once, so that the handler alone is measured.
type forgetful struct{ queue.Queue }

func (forgetful) Accept(_ context.Context, events []queue.NewEvent) ([]queue.Accepted, error) {
	return []queue.Accepted{{Seq: 1, Endpoints: len(events[0].Endpoints)}}, nil
}

// Usage is of a store without limits.
func (forgetful) Usage() queue.Usage { return queue.Usage{} }

// discard is a response writer that costs nothing.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }

func benchmarkBody() []byte { return []byte(plainFrame("evt_1", strings.Repeat("x", 1024-42))) }

// newPost is a POST of 1 KiB whose body can be had again and again.
func newPost(b *testing.B) (*http.Request, *bytes.Reader) {
	body := bytes.NewReader(benchmarkBody())
	r, err := http.NewRequest(http.MethodPost, "http://127.0.0.1/v1/namespaces/shop/events", body)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	return r, body
}

func BenchmarkAccept1KiB(b *testing.B) {
	for _, endpoints := range []int{1, 50} {
		b.Run(fmt.Sprintf("endpoints=%d", endpoints), func(b *testing.B) {
			p := &plan.Plan{}
			for i := range endpoints {
				p.Endpoints = append(p.Endpoints, plan.Endpoint{
					EndpointKey: plan.EndpointKey{Namespace: "shop", Name: fmt.Sprint("e", i)}, EventTypes: []string{"a.*"}})
			}
			a := newAPI(b, func(o *ingest.Options) { o.Queue, o.Plan = forgetful{}, func() *plan.Plan { return p } })
			r, body := newPost(b)
			w := &discard{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := body.Seek(0, io.SeekStart); err != nil {
					b.Fatal(err)
				}
				a.ServeHTTP(w, r)
				if w.status != http.StatusAccepted {
					b.Fatalf("status %d", w.status)
				}
			}
		})
	}
}

// BenchmarkParse1KiB is what of it is parsing.
func BenchmarkParse1KiB(b *testing.B) {
	r, _ := newPost(b)
	body := benchmarkBody()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := event.Parse("shop", r.Header, body, event.Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}
