package standalone

import (
	"context"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

const pruneInterval = time.Minute

// prune forgets what the plan's retention has ended for.
func (p *process) prune(ctx context.Context) error {
	t := time.NewTicker(pruneInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		_, err := p.store.Prune(ctx, retentionOf(&p.plan.Load().Pool, p.store.Clock().Now()))
		if err != nil && ctx.Err() == nil {
			p.Log.Error(err, "Forgetting old events failed; it is tried again in a minute")
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
