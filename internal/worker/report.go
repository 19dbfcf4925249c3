package worker

import (
	"context"
	"path/filepath"
	"time"

	"github.com/doorstep-dev/doorstep/internal/status"
)

const (
	// healthInterval is how much of endpoints' health a crash may lose.
	healthInterval = time.Minute
	// freshInterval is how soon an endpoint of which nothing was kept yet is: without that, a crash
	// would leave nothing to tell of it.
	freshInterval = 5 * time.Second
)

// saveHealth keeps endpoints' health on the volume, and forgets that of deleted ones.
func (w *worker) saveHealth(ctx context.Context) error {
	t := time.NewTicker(freshInterval)
	defer t.Stop()
	saved := time.Now()
	for {
		select {
		case <-ctx.Done():
			w.saveHealthNow()
			return nil
		case <-t.C:
		}
		if w.engine.Health.Fresh() || time.Since(saved) >= healthInterval {
			w.saveHealthNow()
			saved = time.Now()
		}
	}
}

func (w *worker) saveHealthNow() {
	if p := w.engine.Plan(); p != nil {
		for i := range p.Tombstones {
			w.engine.Health.Forget(p.Tombstones[i].EndpointKey)
		}
	}
	if err := w.engine.Health.Save(filepath.Join(w.Data, healthFile)); err != nil {
		w.Log.Error(err, "The health of endpoints can't be kept; a restart counts it anew from what was kept before")
	}
}

// statuses writes back what is seen.
func (w *worker) statuses() *status.Writer {
	return &status.Writer{
		Client: w.client, Pool: w.Pool, Queue: w.engine.Store(), Lanes: w.engine.Lanes(), Plan: w.engine.Plan,
		Health: w.engine.Health, Clock: w.engine.Store().Clock(), Log: w.Log.WithName("status"),
	}
}
