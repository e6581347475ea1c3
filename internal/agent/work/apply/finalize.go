package apply

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/deletion"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
)

// slow is how long a deletion takes at least before it is reported: most works are gone before a user could read that.
const slow = 2 * time.Second

// finalize has the AppliedManifestWork deleted, and with it all that it owns (package deletion). When it has gone, it removes the finalizer
// of the work.
func (c *Controller) finalize(ctx context.Context, work *workv1.ManifestWork) (ctrl.Result, error) {
	d := c.deletions.start(work, c.Clock.Now())
	if !controllerutil.ContainsFinalizer(work, fleet.FinalizerManifestWorkCleanup) || d.released {
		return ctrl.Result{}, nil
	}
	amw := &workv1.AppliedManifestWork{}
	err := c.managed.Get(ctx, types.NamespacedName{Name: c.names.Of(work.Name)}, amw)
	switch {
	case err == nil && c.claimed(ctx, amw) != nil: // there is nothing of this work on the cluster
	case err == nil:
		return c.await(ctx, work, amw, d)
	case !apierrors.IsNotFound(err):
		return ctrl.Result{}, fmt.Errorf("get the AppliedManifestWork of ManifestWork %s: %w", work.Name, err)
	}
	c.forget(work.Name)
	if err := c.backlog.observe(patch.RemoveFinalizer(ctx, c.hub, work, fleet.FinalizerManifestWorkCleanup)); err != nil {
		return ctrl.Result{}, fmt.Errorf("remove the finalizer of ManifestWork %s: %w", work.Name, err)
	}
	d.released = true
	return ctrl.Result{}, nil
}

// await deletes the AppliedManifestWork, whose end requeues the work, and reports if that takes a while.
func (c *Controller) await(ctx context.Context, work *workv1.ManifestWork, amw *workv1.AppliedManifestWork, d *workDeletion) (ctrl.Result,
	error) {
	if amw.DeletionTimestamp.IsZero() {
		c.ignore(work.Name)
	}
	err := c.Applied.DeleteApplied(ctx, c.managed, work, amw, c.newApplied(work, amw.Annotations[fleet.AnnotationManifests]))
	soon, delay := slow-c.Clock.Since(d.since), c.Applied.Delay(amw.Name)
	switch {
	case err == nil && soon > 0:
		return ctrl.Result{RequeueAfter: soon}, nil
	case soon > 0:
		return ctrl.Result{}, err // it is tried again soon
	case err != nil:
		delay = deletion.Blocked(amw, err)
	}
	return ctrl.Result{}, errors.Join(err, c.reportDeleting(ctx, work, delay))
}

// deletions are in progress, of works by their name.
type deletions struct{ m sync.Map }

// workDeletion is the deletion of a work.
type workDeletion struct {
	work  types.UID
	since time.Time
	// released is set once the finalizer of the work was removed. The cache may still have the work: when a hub is busy, its watch lags
	// behind, and each event until then would have the finalizer removed again.
	released bool
}

func (d *deletions) start(work *workv1.ManifestWork, now time.Time) *workDeletion {
	if existing, ok := d.m.Load(work.Name); ok && existing.(*workDeletion).work == work.UID {
		return existing.(*workDeletion)
	}
	started := &workDeletion{work: work.UID, since: now}
	d.m.Store(work.Name, started)
	return started
}

func (d *deletions) has(work string) bool {
	_, ok := d.m.Load(work)
	return ok
}

func (d *deletions) end(work string) { d.m.Delete(work) }

// ignore ends the queries about the objects of a work: the answers are not reported any more.
func (c *Controller) ignore(work string) {
	last := c.lastResults.get(work)
	if last == nil {
		return
	}
	owner := c.names.Of(work)
	for i := range last.results {
		if o := &last.results[i]; o.resolved {
			c.Observer.Forget(owner, o.object())
		}
	}
	c.Observer.ForgetOwner(owner)
}

// forget drops what is remembered of a work that owns nothing more, or is left as it is.
func (c *Controller) forget(work string) { c.forgetExcept(work, nil) }

// forgetGone drops what is remembered of a work that is not on the hub. What its AppliedManifestWork lists is yet to be deleted, or is
// being deleted, and stays tracked until then: both are one owner to the tracker.
func (c *Controller) forgetGone(ctx context.Context, work string) error {
	amw := &workv1.AppliedManifestWork{}
	if err := c.managed.Get(ctx, types.NamespacedName{Name: c.names.Of(work)}, amw); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get the AppliedManifestWork of ManifestWork %s, which is gone: %w", work, err)
	}
	c.forgetExcept(work, amw.Status.AppliedResources)
	return nil
}

// forgetExcept drops what is remembered of a work, and leaves tracked what is to be kept.
func (c *Controller) forgetExcept(work string, kept []workv1.AppliedManifestResourceMeta) {
	last := c.lastResults.get(work)
	if last == nil {
		return
	}
	c.ignore(work)
	owner := &workv1.AppliedManifestWork{Status: workv1.AppliedManifestWorkStatus{AppliedResources: kept}}
	owner.Name = c.names.Of(work)
	c.untrack(last, nil, owner)
	c.lastResults.delete(work)
	c.siblings.forget(work)
}
