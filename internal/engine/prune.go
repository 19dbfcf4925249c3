package engine

import (
	"context"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

const (
	// pruneInterval is how soon the store notices that it has grown over its size; looking
	// costs next to nothing while nothing is to be forgotten.
	pruneInterval = time.Second
	// dropEvery is of how many looks one drops payloads, if they are to be dropped: each
	// reads what was delivered since.
	dropEvery = 10
)

// prune forgets what the plan's retention has ended for.
func (e *Engine) prune(ctx context.Context) error {
	t := time.NewTicker(pruneInterval)
	defer t.Stop()
	for look := 0; ; look++ {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		now := e.Plan()
		if now == nil {
			continue // how long things are kept isn't known
		}
		r := retentionOf(&now.Pool, e.store.Clock().Now())
		r.DropPayloads = r.DropPayloads && look%dropEvery == 0
		_, err := e.store.Prune(ctx, r)
		if err != nil && ctx.Err() == nil {
			e.Log.Error(err, "Forgetting old events failed; it is tried again in a minute")
			pause(ctx, time.Minute)
		}
	}
}

// retentionOf is a pool's retention at a time.
func retentionOf(pool *plan.Pool, now time.Time) queue.Retention {
	return queue.Retention{
		Delivered:    now.Add(-pool.Retention.Delivered),
		DeadLetters:  now.Add(-pool.Retention.DeadLetters),
		Identities:   now.Add(-pool.Ingest.DedupeWindow),
		MaxBytes:     pool.Retention.MaxBytes,
		DropPayloads: pool.Retention.DropPayloads,
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
