package standalone

import "context"

// Run runs until ctx is done and then stops gracefully.
func Run(ctx context.Context, o Options) error { _ = o; <-ctx.Done(); return nil }
