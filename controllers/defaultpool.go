package controllers

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/doorstep-dev/doorstep/api/v1alpha1"
)

// defaultPool makes the DeliveryPool default of the installation's namespace once, and
// never again: whoever changes or deletes it has decided. That it was made is noted in a
// ConfigMap.
type defaultPool struct {
	client    client.Client
	live      client.Reader
	namespace string
	log       logr.Logger
}

// defaultPoolMark is the ConfigMap that notes it.
const defaultPoolMark = "doorstep-default-pool"

// NeedLeaderElection: only one manager makes it.
func (*defaultPool) NeedLeaderElection() bool { return true }

// Start tries until it is decided.
func (d *defaultPool) Start(ctx context.Context) error {
	t := time.NewTicker(5 * time.Second)
	defer t.Stop()
	for {
		err := d.ensure(ctx)
		if err == nil {
			return nil
		}
		d.log.Error(err, "The default DeliveryPool can't be made; it is tried again")
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

func (d *defaultPool) ensure(ctx context.Context) error {
	mark := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: d.namespace, Name: defaultPoolMark,
		Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelName: v1alpha1.AppName},
	}}
	err := d.live.Get(ctx, client.ObjectKeyFromObject(mark), &corev1.ConfigMap{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	pool := &v1alpha1.DeliveryPool{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: v1alpha1.DefaultPoolName}}
	err = d.live.Get(ctx, types.NamespacedName{Namespace: d.namespace, Name: v1alpha1.DefaultPoolName}, &v1alpha1.DeliveryPool{})
	if apierrors.IsNotFound(err) {
		if err = d.client.Create(ctx, pool); err == nil {
			d.log.Info("Made the default DeliveryPool", "namespace", d.namespace)
		}
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make DeliveryPool %s/%s: %w", d.namespace, v1alpha1.DefaultPoolName, err)
	}
	if err := d.client.Create(ctx, mark); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("note that the default DeliveryPool was made: %w", err)
	}
	return nil
}
