package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/applied"
	"github.com/capstan-io/capstan/internal/agent/work/finalizer"
	"github.com/capstan-io/capstan/internal/fleet"
	"github.com/capstan-io/capstan/internal/manifest"
)

// finish is WK-14: the AppliedManifestWork takes everything with it; the work goes when it has gone.
func (c *Controller) finish(ctx context.Context, work *workv1.ManifestWork) error {
	if !controllerutil.ContainsFinalizer(work, fleet.FinalizerManifestWorkCleanup) || c.released.has(work) {
		return nil
	}
	if err := c.reportDeleting(ctx, work); err != nil {
		return err
	}
	amw := &workv1.AppliedManifestWork{}
	err := c.managed.Get(ctx, types.NamespacedName{Name: fleet.AppliedManifestWorkName(c.HubHash, work.Name)}, amw)
	switch {
	case err == nil && c.claimed(amw) != nil: // there is nothing of this work on the cluster
	case err == nil && amw.DeletionTimestamp.IsZero():
		return c.deleteApplied(ctx, work, amw)
	case err == nil:
		return nil // its end brings us back
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("get the AppliedManifestWork of ManifestWork %s: %w", work.Name, err)
	}
	c.forget(work.Name)
	if err := c.backlog.heard(finalizer.Remove(ctx, c.hub, work, fleet.FinalizerManifestWorkCleanup)); err != nil {
		return fmt.Errorf("remove the finalizer of ManifestWork %s: %w", work.Name, err)
	}
	c.released.add(work)
	return nil
}

// released are works that are let go of and that the cache still has: when a hub is busy, its watch lags behind, and each event
// until then would ask for the same again.
type released struct{ m sync.Map }

func (r *released) add(work *workv1.ManifestWork) { r.m.Store(work.Name, work.UID) }

func (r *released) has(work *workv1.ManifestWork) bool {
	uid, ok := r.m.Load(work.Name)
	return ok && uid == work.UID
}

func (r *released) delete(work string) { r.m.Delete(work) }

// deleteApplied heeds the delete option as it is now, which the last pass may not have seen (WK-12).
func (c *Controller) deleteApplied(ctx context.Context, work *workv1.ManifestWork, amw *workv1.AppliedManifestWork) error {
	unrecorded, err := applied.Unrecorded(c.managed.RESTMapper(), amw)
	if err != nil {
		return err
	}
	var owned, orphans []workv1.AppliedManifestResourceMeta
	for _, r := range slices.Concat(amw.Status.AppliedResources, unrecorded) {
		strategy := manifest.ConfigFor(work.Spec.ManifestConfigs, r.ResourceIdentifier).UpdateStrategy.Type
		if manifest.IsOwned(work.Spec.DeleteOption, strategy, r.ResourceIdentifier) {
			owned = append(owned, r)
		} else {
			orphans = append(orphans, r)
		}
	}
	fresh := c.newApplied(work, amw.Annotations[fleet.AnnotationManifests])
	if len(orphans) > 0 {
		remaining, releaseErr := c.cluster.Release(ctx, amw, orphans)
		if err := c.writeInventory(ctx, amw, append(owned, remaining...)); err != nil || releaseErr != nil {
			return errors.Join(releaseErr, err)
		}
		delete(fresh.Annotations, fleet.AnnotationManifests) // the status lists what there is
	}
	if err := c.describe(ctx, amw, fresh); err != nil {
		return err
	}
	return client.IgnoreNotFound(c.managed.Delete(ctx, amw))
}

// forget drops what is remembered of a work that has gone.
func (c *Controller) forget(work string) {
	last := c.passes.get(work)
	if last == nil {
		return
	}
	owner := fleet.AppliedManifestWorkName(c.HubHash, work)
	for _, o := range last.outcomes {
		if o.resolved {
			c.tracked.Forget(owner, o.object())
			c.observed.Forget(owner, o.object())
		}
	}
	c.observed.ForgetOwner(owner)
	c.passes.delete(work)
}
