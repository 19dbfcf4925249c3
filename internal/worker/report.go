package worker

import (
	"context"
	"path/filepath"
	"time"

	"github.com/doorstep-dev/doorstep/internal/status"
)

// healthInterval is how much of endpoints' health a crash may lose.
const healthInterval = time.Minute

// saveHealth keeps endpoints' health on the volume.
func (w *worker) saveHealth(ctx context.Context) error {
	t := time.NewTicker(healthInterval)
	defer t.Stop()
	for stop := false; !stop; {
		select {
		case <-ctx.Done():
			stop = true
		case <-t.C:
		}
		if err := w.engine.Health.Save(filepath.Join(w.Data, healthFile)); err != nil {
			w.Log.Error(err, "The health of endpoints can't be kept; a restart counts it anew from what was kept before")
		}
	}
	return nil
}

// statuses writes back what is seen.
func (w *worker) statuses() *status.Writer {
	return &status.Writer{
		Client: w.client, Pool: w.Pool, Queue: w.engine.Store(), Lanes: w.engine.Lanes(), Plan: w.engine.Plan,
		Health: w.engine.Health, Clock: w.engine.Store().Clock(), Log: w.Log.WithName("status"),
	}
}
