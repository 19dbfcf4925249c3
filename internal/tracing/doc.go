// Package tracing sends OpenTelemetry traces to where the standard variables of the
// environment say, by OTLP over gRPC. Where they say nothing, there are no traces, and
// spans cost nothing.
//
// Spans hold names of objects, never the content of an event, a Secret or a URL.
package tracing
