package controllers

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"

	"go.opentelemetry.io/otel/codes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// patient traces each reconciliation of a controller, and has one that failed for a
// transient reason made again, later each time, without calling it an error: in a cluster
// where people edit objects and API servers restart, nothing is wrong with the manager, and
// nobody has anything to do.
func patient(controller string, r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		ctx, span := reconciling(ctx, controller, req)
		defer span.End()
		result, err := r.Reconcile(ctx, req)
		if err != nil {
			span.SetStatus(codes.Error, "it failed; the log tells why")
		}
		switch {
		case err == nil:
			return result, nil
		case !transient(err):
			return ctrl.Result{}, err // the error alone decides when it is tried again
		}
		log.FromContext(ctx).Info("It can't be done now; it is tried again", "reason", err.Error())
		// As long as after an error: RequeueAfter would start from the shortest time at each try.
		return ctrl.Result{Requeue: true}, nil //nolint:staticcheck // there is no other way to be put back by the rate limiter
	})
}

// transient reports whether an error, with all that are joined in it, goes away by itself:
// somebody else was faster, or the API server is away, busy, starting or stopping.
func transient(err error) bool {
	var several interface{ Unwrap() []error }
	if errors.As(err, &several) {
		for _, e := range several.Unwrap() {
			if !transient(e) {
				return false
			}
		}
		return true
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err),
		apierrors.IsServerTimeout(err), apierrors.IsTimeout(err), apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err),
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return true
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	}
	return unreachable(err)
}

// unreachable reports whether a request got no answer. A certificate that does not verify
// is no such case: it stays so until somebody mends it.
func unreachable(err error) bool {
	var call *url.Error
	if !errors.As(err, &call) {
		return false
	}
	var network net.Error
	return errors.As(call.Err, &network) || utilnet.IsProbableEOF(call.Err) || utilnet.IsHTTP2ConnectionLost(call.Err)
}
