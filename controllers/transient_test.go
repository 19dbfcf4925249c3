package controllers

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestTransientErrorsAreNoErrors(t *testing.T) {
	endpoints := schema.GroupResource{Group: "doorstep.dev", Resource: "webhookendpoints"}
	call := func(err error) error { return &url.Error{Op: "Patch", URL: "https://127.0.0.1:6443/", Err: err} }
	refused := call(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	conflict := apierrors.NewConflict(endpoints, "orders", errors.New("the object has been modified"))
	forbidden := apierrors.NewForbidden(endpoints, "orders", errors.New("no"))
	terminating := apierrors.NewForbidden(endpoints, "orders", errors.New("the namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for _, c := range []struct {
		name string
		err  error
		want bool
	}{
		{"a conflict", conflict, true},
		{"one that is wrapped", fmt.Errorf("apply Service x: %w", conflict), true},
		{"too many requests", apierrors.NewTooManyRequests("later", 1), true},
		{"the API server stops", apierrors.NewServiceUnavailable("stopping"), true},
		{"etcd is slow", apierrors.NewServerTimeout(endpoints, "patch", 1), true},
		{"an answer that takes too long", apierrors.NewTimeoutError("too long", 1), true},
		{"its own time is over", fmt.Errorf("read: %w", context.DeadlineExceeded), true},
		{"nobody listens", refused, true},
		{"a connection that ends", call(errors.New("http2: client connection lost")), true},
		{"a namespace that is going", terminating, true},
		{"two of them", errors.Join(refused, conflict), true},
		{"one of them beside another", fmt.Errorf("both: %w", errors.Join(conflict, forbidden)), false},
		{"a right that is missing", forbidden, false},
		{"a certificate of somebody else", call(x509.UnknownAuthorityError{}), false},
		{"what the API server refuses", apierrors.NewBadRequest("no"), false},
		{"anything else", errors.New("a fault"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := transient(c.err); got != c.want {
				t.Errorf("transient(%v) is %v, want %v", c.err, got, c.want)
			}
			inner := reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) {
				return ctrl.Result{RequeueAfter: time.Minute}, c.err
			})
			result, err := patient("test", inner).Reconcile(t.Context(), ctrl.Request{})
			if (err == nil) != c.want || result.Requeue != c.want { //nolint:staticcheck // see patient
				t.Errorf("gives %+v, %v", result, err)
			}
		})
	}
	done := reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) {
		return ctrl.Result{RequeueAfter: time.Minute}, nil
	})
	if result, err := patient("test", done).Reconcile(t.Context(), ctrl.Request{}); err != nil || result.RequeueAfter != time.Minute {
		t.Errorf("what was done gives %+v, %v", result, err)
	}
}
