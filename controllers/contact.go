package controllers

import (
	"context"
	"errors"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// askInterval is the time between two questions whether the API server is there.
	askInterval = 5 * time.Second
	// askTimeout bounds one of them.
	askTimeout = 5 * time.Second
)

// contact is a clock that stands still while the API server can't be reached: a manager
// that sees nothing has no reason to say that workers are silent.
type contact struct {
	live      client.Reader
	namespace string

	mu sync.Mutex
	// at is the clock's time as of seen, when the API server last answered.
	at, seen time.Time
}

func newContact(live client.Reader, namespace string) *contact {
	now := time.Now()
	return &contact{live: live, namespace: namespace, at: now, seen: now}
}

// Now is the clock's time.
func (c *contact) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at.Add(min(time.Since(c.seen), askInterval))
}

// answered moves the clock on; what lies further back than a question or two is left out.
func (c *contact) answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.at, c.seen = c.at.Add(min(now.Sub(c.seen), askInterval+askTimeout)), now
}

// Start asks until ctx is done.
func (c *contact) Start(ctx context.Context) error {
	t := time.NewTicker(askInterval)
	defer t.Stop()
	for {
		if c.ask(ctx) {
			c.answered()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// ask reports whether the API server answers, whatever it says.
func (c *contact) ask(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	err := c.live.Get(ctx, types.NamespacedName{Namespace: c.namespace, Name: LeaderElectionID}, &coordinationv1.Lease{})
	status := apierrors.APIStatus(nil)
	return err == nil || errors.As(err, &status)
}
