package ingest_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/plan"
)

// BenchmarkServe1KiB is the whole way through net/http and a socket, beside a handler that only reads the body: the
// difference is what Doorstep adds before the queue.
func BenchmarkServe1KiB(b *testing.B) {
	p := &plan.Plan{Endpoints: []plan.Endpoint{{EndpointKey: plan.EndpointKey{Namespace: "shop", Name: "e"}}}}
	api := newAPI(b, func(o *ingest.Options) { o.Queue, o.Plan = forgetful{}, func() *plan.Plan { return p } })
	bare := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadFull(r.Body, make([]byte, r.ContentLength))
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{"id":"evt_1","source":"","webhookId":"evt_1","endpoints":1}`)
	})
	for name, h := range map[string]http.Handler{"doorstep": api, "bare": bare} {
		b.Run(name, func(b *testing.B) {
			s := httptest.NewUnstartedServer(h)
			s.Config = ingest.NewServer(h)
			s.Start()
			defer s.Close()
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			body := benchmarkBody()
			request := append(fmt.Appendf(nil, "%sContent-Length: %d\r\n\r\n", postHead, len(body)), body...)
			answers := bufio.NewReader(conn)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := conn.Write(request); err != nil {
					b.Fatal(err)
				}
				res, err := http.ReadResponse(answers, nil)
				if err != nil || res.StatusCode != http.StatusAccepted {
					b.Fatal(res, err)
				}
				_, _ = io.Copy(io.Discard, res.Body)
			}
		})
	}
}
