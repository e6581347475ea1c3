package controlplane

import "context"

func (h *hub) watchAggregatedAPIs(ctx context.Context) error { <-ctx.Done(); return nil }
func (h *hub) runElected(ctx context.Context, run func(context.Context) error) error { return run(ctx) }
