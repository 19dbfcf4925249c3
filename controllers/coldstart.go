package controllers

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// coldStart keeps the manager's peak down while its cache fills: the metadata of all
// Secrets and ConfigMaps of the cluster passes through it then, with annotations that may
// be as long as a Secret, and next to nothing of that is kept. Collecting twice as often
// meanwhile takes a third off what thousands of them add to the peak. GOGC, where it is
// set, holds throughout.
type coldStart struct {
	cache cache.Cache
	// usual is the percentage from then on.
	usual int
}

// coldPercent is the collector's percentage while the cache fills.
const coldPercent = 50

// newColdStart sets the collector; what it returns sets it back.
func newColdStart(c cache.Cache) *coldStart {
	s := &coldStart{cache: c}
	if os.Getenv("GOGC") == "" {
		s.usual = debug.SetGCPercent(coldPercent)
	}
	return s
}

// NeedLeaderElection is false: a cache is filled before its manager leads.
func (*coldStart) NeedLeaderElection() bool { return false }

// Start waits until the cache is full.
func (s *coldStart) Start(ctx context.Context) error {
	if s.usual == 0 {
		return nil
	}
	defer debug.SetGCPercent(s.usual)
	for _, kind := range []string{"Secret", "ConfigMap"} {
		o := &metav1.PartialObjectMetadata{}
		o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
		if _, err := s.cache.GetInformer(ctx, o); err != nil && ctx.Err() == nil {
			return fmt.Errorf("fill the cache: %w", err)
		}
	}
	return nil
}
