package apply

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
)

// recordCompletion writes down what is complete of the work by its status in memory, before the hub is told.
func (c *Controller) recordCompletion(ctx context.Context, amw *workv1.AppliedManifestWork, work *workv1.ManifestWork) error {
	return appliedmanifestwork.WriteCompletion(ctx, c.managed, amw, appliedmanifestwork.NewCompletion(work))
}

// keepComplete has both know that a work is complete: the hub, and the AppliedManifestWork, which may say nothing of it yet.
func (c *Controller) keepComplete(ctx context.Context, work *workv1.ManifestWork, isNews bool) error {
	if isNews {
		return c.writeStatus(ctx, work)
	}
	amw, name := &workv1.AppliedManifestWork{}, c.names.Of(work.Name)
	if err := c.managed.Get(ctx, types.NamespacedName{Name: name}, amw); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !amw.DeletionTimestamp.IsZero() || appliedmanifestwork.CompletionOf(amw, work.UID) != nil {
		return nil
	}
	return c.recordCompletion(ctx, amw, work)
}

// recall gives a work that comes without a status, as brokers send it, that of what is complete. It reports whether the work is complete,
// and the hub is to be told again: it has the same status, unless it was restored. What is being deleted was of a work that has gone: that
// this one may have its UID, which some sources make of the name, says nothing.
func (c *Controller) recall(ctx context.Context, work *workv1.ManifestWork) (isNews bool, err error) {
	if len(work.Status.Conditions) > 0 {
		return false, nil
	}
	amw, name := &workv1.AppliedManifestWork{}, c.names.Of(work.Name)
	if err := c.managed.Get(ctx, types.NamespacedName{Name: name}, amw); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	completion := appliedmanifestwork.CompletionOf(amw, work.UID)
	if completion == nil || !amw.DeletionTimestamp.IsZero() {
		return false, nil
	}
	work.Status = completion.Status
	return conditions.IsComplete(work) && !completion.Reduced, nil
}
