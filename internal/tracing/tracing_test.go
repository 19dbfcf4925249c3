package tracing

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

// received is a collector that hands on what it gets.
type received struct {
	collector.UnimplementedTraceServiceServer
	requests chan *collector.ExportTraceServiceRequest
}

func (r *received) Export(_ context.Context, in *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.requests <- in
	return &collector.ExportTraceServiceResponse{}, nil
}

func TestSpansReachTheCollector(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &received{requests: make(chan *collector.ExportTraceServiceRequest, 1)}
	s := grpc.NewServer()
	collector.RegisterTraceServiceServer(s, r)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-served })

	env := map[string]string{endpointVariable: "http://" + l.Addr().String()}
	t.Setenv(endpointVariable, env[endpointVariable])
	stop, err := Start(t.Context(), func(k string) string { return env[k] }, "doorstep-manager", "v1.2.3", logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	_, span := otel.Tracer("test").Start(t.Context(), "reconcile")
	span.End()
	if err := stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	in := <-r.requests
	if text := in.String(); !strings.Contains(text, "doorstep-manager") || !strings.Contains(text, "v1.2.3") || !strings.Contains(text, "reconcile") {
		t.Errorf("the collector got %s", text)
	}
}

func TestWhetherThereAreTraces(t *testing.T) {
	for _, c := range []struct {
		name string
		env  map[string]string
		fail string
	}{
		{"nothing is asked for", nil, ""},
		{"all of it is switched off", map[string]string{endpointVariable: "http://127.0.0.1:1", disabledVariable: "true"}, ""},
		{"by http", map[string]string{endpointVariable: "http://127.0.0.1:1", protocolVariable: "http/protobuf"}, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf: traces are sent by grpc only"},
		{"traces by http", map[string]string{tracesEndpointVariable: "http://127.0.0.1:1", tracesProtocolVariable: "http/json", protocolVariable: "grpc"}, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := otel.GetTracerProvider()
			stop, err := Start(t.Context(), func(k string) string { return c.env[k] }, "doorstep-manager", "dev", logr.Discard())
			if (err == nil) != (c.fail == "") || err != nil && !strings.Contains(err.Error(), c.fail) {
				t.Errorf("it says %v, want %q", err, c.fail)
			}
			if otel.GetTracerProvider() != before {
				t.Error("spans are sent somewhere")
			}
			if err := stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
