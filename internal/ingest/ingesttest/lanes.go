package ingesttest

import (
	"context"
	"sync"

	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
	"github.com/doorstep-dev/doorstep/internal/retry"
)

// Lanes are lanes that do as they are told.
type Lanes struct {
	// Fault is what Health gives.
	Fault error
	// TestFunc makes tests, where it is set.
	TestFunc func(context.Context, plan.EndpointKey) (ingest.TestAttempt, error)

	mu       sync.Mutex
	views    map[plan.EndpointKey]ingest.LaneView
	inFlight map[deliveryKey]bool
	retries  map[plan.EndpointKey]int
}

var _ ingest.Lanes = (*Lanes)(nil)

// NewLanes knows no lane.
func NewLanes() *Lanes {
	return &Lanes{
		views: make(map[plan.EndpointKey]ingest.LaneView), inFlight: make(map[deliveryKey]bool),
		retries: make(map[plan.EndpointKey]int),
	}
}

// Set makes a lane's view.
func (l *Lanes) Set(key plan.EndpointKey, v ingest.LaneView) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.views[key] = v
}

// SetInFlight puts a delivery in flight.
func (l *Lanes) SetInFlight(key plan.EndpointKey, seq queue.Seq) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight[deliveryKey{seq, key}] = true
	v := l.views[key]
	v.InFlight++
	l.views[key] = v
}

// View gives a lane.
func (l *Lanes) View(key plan.EndpointKey) (ingest.LaneView, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, ok := l.views[key]
	return v, ok
}

// InFlight reports what SetInFlight set.
func (l *Lanes) InFlight(key plan.EndpointKey, seq queue.Seq) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inFlight[deliveryKey{seq, key}]
}

// Health gives Fault.
func (l *Lanes) Health() error { return l.Fault }

// Enable makes a lane Active.
func (l *Lanes) Enable(_ context.Context, key plan.EndpointKey) error {
	l.Set(key, ingest.LaneView{State: ingest.LaneActive})
	return nil
}

// Retry brings forward as many as SetRetry said.
func (l *Lanes) Retry(_ context.Context, key plan.EndpointKey) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.retries[key]
	delete(l.retries, key)
	return n, nil
}

// SetRetry says how many deliveries the next Retry of an endpoint brings forward.
func (l *Lanes) SetRetry(key plan.EndpointKey, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retries[key] = n
}

// Test does what TestFunc says; without one, the receiver has answered 204.
func (l *Lanes) Test(ctx context.Context, key plan.EndpointKey) (ingest.TestAttempt, error) {
	if l.TestFunc != nil {
		return l.TestFunc(ctx, key)
	}
	return ingest.TestAttempt{WebhookID: "msg_test", Attempt: queue.Attempt{Status: 204, Class: retry.Delivered, Sent: queue.SentYes}}, nil
}
