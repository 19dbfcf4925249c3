package engine

import (
	"testing"
	"time"

	"github.com/doorstep-dev/doorstep/internal/plan"
	"github.com/doorstep-dev/doorstep/internal/queue"
)

func TestRetentionOfAPlan(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	got := retentionOf(&plan.Pool{
		Ingest:    plan.Ingest{DedupeWindow: time.Hour},
		Retention: plan.Retention{Delivered: 2 * time.Hour, DeadLetters: 3 * time.Hour, MaxBytes: 4, DropPayloads: true},
	}, now)
	want := queue.Retention{
		Delivered: now.Add(-2 * time.Hour), DeadLetters: now.Add(-3 * time.Hour), Identities: now.Add(-time.Hour),
		MaxBytes: 4, DropPayloads: true,
	}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
