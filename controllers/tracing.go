package controllers

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	ctrl "sigs.k8s.io/controller-runtime"
)

// tracer's spans go nowhere unless the process was told where (internal/tracing).
func tracer() trace.Tracer {
	return otel.Tracer("github.com/doorstep-dev/doorstep/controllers")
}

// reconciling begins the span of one reconciliation.
func reconciling(ctx context.Context, controller string, req ctrl.Request) (context.Context, trace.Span) {
	return tracer().Start(ctx, "reconcile "+controller, trace.WithAttributes(
		attribute.String("k8s.namespace.name", req.Namespace), attribute.String("doorstep.object.name", req.Name),
	))
}
