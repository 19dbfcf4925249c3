package worker

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// renewInterval is well under the minute after which the manager misses a worker.
const renewInterval = 10 * time.Second

// renew renews the worker's Lease. That it can't stops nothing: the manager says that it
// doesn't hear of the worker, and deliveries go on.
func (w *worker) renew(ctx context.Context) error {
	t := time.NewTicker(renewInterval)
	defer t.Stop()
	failing := false
	for {
		err := w.renewOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !failing:
			w.Log.Info("The Lease can't be renewed; it is tried again, and deliveries go on", "error", err.Error())
		case err == nil && failing:
			w.Log.Info("The Lease is renewed again")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

func (w *worker) renewOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var l coordinationv1.Lease
	if err := w.client.Get(ctx, types.NamespacedName{Namespace: w.Pool.Namespace, Name: w.Pod}, &l); err != nil {
		return err
	}
	now, seconds := metav1.NowMicro(), int32(60)
	if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity != w.Pod {
		l.Spec.AcquireTime = &now
	}
	l.Spec.HolderIdentity, l.Spec.RenewTime, l.Spec.LeaseDurationSeconds = &w.Pod, &now, &seconds
	return w.client.Update(ctx, &l)
}
