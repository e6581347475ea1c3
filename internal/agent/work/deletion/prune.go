package deletion

import (
	"context"
	"errors"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
)

// Prune deletes what a work that stays does not own any more: a pass over it has found out what it owns, and what is obsolete of what it
// owned before. What it owns is recorded first: after a crash in between it is still known what there is to delete. What does not go at
// once stays recorded, and is obsolete in the next pass.
func (c *Cluster) Prune(ctx context.Context, managed client.Client, amw *workv1.AppliedManifestWork,
	owned, obsolete []workv1.AppliedManifestResourceMeta) error {
	err := appliedmanifestwork.WriteInventory(ctx, managed, amw, slices.Concat(owned, obsolete))
	if err != nil || len(obsolete) == 0 {
		return err
	}
	remaining, removeErr := c.removeAll(ctx, amw, obsolete)
	return errors.Join(removeErr, appliedmanifestwork.WriteInventory(ctx, managed, amw, slices.Concat(owned, remaining)))
}
