package ingesttest

import (
	"context"
	"sync"

	"github.com/doorstep-dev/doorstep/internal/ingest"
	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

// Lanes are lanes that do as they are told.
type Lanes struct {
	// Fault is what Health gives.
	Fault error

	mu       sync.Mutex
	views    map[plan.EndpointKey]ingest.LaneView
	inFlight map[deliveryKey]bool
}

var _ ingest.Lanes = (*Lanes)(nil)

// NewLanes knows no lane.
func NewLanes() *Lanes {
	return &Lanes{views: make(map[plan.EndpointKey]ingest.LaneView), inFlight: make(map[deliveryKey]bool)}
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
