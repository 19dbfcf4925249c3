package tracing

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// The variables by which traces are asked for, as OpenTelemetry names them. The exporter
// reads all others of its kind (headers, certificates, compression, timeout) by itself.
// Source: https://opentelemetry.io/docs/specs/otel/protocol/exporter/
const (
	endpointVariable       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tracesEndpointVariable = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	protocolVariable       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	tracesProtocolVariable = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	disabledVariable       = "OTEL_SDK_DISABLED"
)

// Start makes the spans of this process go to the collector that the environment names, as
// those of service. The function it returns sends what is left, and ends it. A collector
// that can't be reached is logged and harms nothing.
func Start(ctx context.Context, getenv func(string) string, service, version string, log logr.Logger) (stop func(context.Context) error, err error) {
	stop = func(context.Context) error { return nil }
	if getenv(disabledVariable) == "true" || getenv(endpointVariable) == "" && getenv(tracesEndpointVariable) == "" {
		return stop, nil
	}
	for _, name := range []string{tracesProtocolVariable, protocolVariable} {
		if p := getenv(name); p == "grpc" {
			break // the more special one decides
		} else if p != "" {
			return stop, fmt.Errorf("%s=%s: traces are sent by grpc only; give the collector's gRPC endpoint (mostly port 4317) and set it to grpc, or leave it out", name, p)
		}
	}
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return stop, fmt.Errorf("set up traces by %s: %w", endpointVariable, err)
	}
	what, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", service), attribute.String("service.version", version)),
		resource.WithFromEnv(), // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES stand above
	)
	if err != nil {
		return stop, errors.Join(fmt.Errorf("read OTEL_RESOURCE_ATTRIBUTES: %w", err), exporter.Shutdown(ctx))
	}
	log = log.WithName("tracing")
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Info("Traces can't be sent, and are dropped", "error", err.Error())
	}))
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(what))
	otel.SetTracerProvider(provider)
	return provider.Shutdown, nil
}
