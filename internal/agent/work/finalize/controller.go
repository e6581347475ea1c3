// Package finalize deletes from the managed cluster what a deleted AppliedManifestWork owns.
package finalize

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// The status lists what is left when nothing has gone for as long as quiet: the list of a large work is long, and most objects are gone
// at once. What delays the others is reported after reportAfter.
const (
	quiet       = time.Second
	reportAfter = 10 * time.Second
)

// How often objects that are being deleted are reconciled without an event: those of kinds that the agent cannot watch are read, and of the
// others the tracker is queried, because the last change may have had no event.
const (
	unwatched = 10 * time.Second
	watched   = time.Minute
)

// Options configure the controller.
type Options struct {
	// Applied deletes objects from the managed cluster.
	Applied *appliedmanifestwork.Cluster
	// HubHash distinguishes AppliedManifestWorks of this hub from those of others.
	HubHash string
	// AgentID is recorded with what this agent applies, for whatever hub.
	AgentID string
	// Workers is how many AppliedManifestWorks are finalized at once.
	Workers int
	Clock   clock.PassiveClock
}

// Controller reconciles AppliedManifestWorks that are deleted: those of its hub, and those that the agent made for another hub. Other
// agents on the same cluster may work for other hubs, and finalize theirs. It needs no connection to a hub.
type Controller struct {
	Options
	managed client.Client
	// deletions are those in progress, by name.
	deletions sync.Map
}

// deletion of what an AppliedManifestWork owns, in progress.
type deletion struct {
	uid  types.UID
	left []workv1.AppliedManifestResourceMeta
	// progress is when the last object was seen to go.
	progress time.Time
}

// New returns a Controller for the AppliedManifestWorks of managed.
func New(managed client.Client, o Options) *Controller {
	return &Controller{Options: o, managed: managed}
}

// Register adds the controller to the manager of the managed cluster.
func Register(mgr ctrl.Manager, o Options) error {
	ofDeleted := predicate.NewPredicateFuncs(func(obj client.Object) bool {
		amw, ok := obj.(*workv1.AppliedManifestWork)
		return ok && (amw.Spec.HubHash == o.HubHash || amw.Spec.AgentID == o.AgentID) && !amw.DeletionTimestamp.IsZero()
	})
	onChange := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		o.Applied.Tracked.Listen(func(owner string) { queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: owner}}) })
		return nil
	})
	return ctrl.NewControllerManagedBy(mgr).Named("work-appliedmanifestwork-finalize").
		For(&workv1.AppliedManifestWork{}, builder.WithPredicates(ofDeleted)).
		WatchesRawSource(onChange).
		WithOptions(controller.Options{
			SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: o.Workers,
			RateLimiter: retry.Limiter(),
		}).
		Complete(New(mgr.GetClient(), o))
}

// Reconcile deletes what the AppliedManifestWork owns, and removes its finalizer when all has gone.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	amw := &workv1.AppliedManifestWork{}
	if err := c.managed.Get(ctx, req.NamespacedName, amw); err != nil {
		if apierrors.IsNotFound(err) {
			c.deletions.Delete(req.Name)
			c.Applied.SetDelay(req.Name, nil)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if amw.DeletionTimestamp.IsZero() || !controllerutil.ContainsFinalizer(amw, fleet.FinalizerAppliedManifestWorkCleanup) {
		return ctrl.Result{}, nil
	}
	d, err := c.deletionOf(amw)
	if err != nil {
		return ctrl.Result{}, err
	}
	left, removeErr := c.Applied.Remove(ctx, amw, d.left)
	if len(left) < len(d.left) {
		d.progress = c.Clock.Now()
	}
	d.left = appliedmanifestwork.Sorted(left)
	if len(left) == 0 && removeErr == nil {
		return ctrl.Result{}, patch.RemoveFinalizer(ctx, c.managed, amw, fleet.FinalizerAppliedManifestWorkCleanup)
	}
	again, err := c.report(ctx, amw, d, removeErr)
	if err := errors.Join(removeErr, err); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: retry.Soonest(again, c.requeueAfter(left))}, nil
}

// deletionOf is what is known of the deletion. It starts with all that may be there: what was applied, and what an agent that
// was killed may have applied.
func (c *Controller) deletionOf(amw *workv1.AppliedManifestWork) (*deletion, error) {
	if existing, found := c.deletions.Load(amw.Name); found && existing.(*deletion).uid == amw.UID {
		return existing.(*deletion), nil
	}
	unrecorded, err := appliedmanifestwork.Unrecorded(c.managed.RESTMapper(), amw)
	if err != nil {
		return nil, err
	}
	d := &deletion{uid: amw.UID, left: appliedmanifestwork.Sorted(slices.Concat(amw.Status.AppliedResources, unrecorded)),
		progress: c.Clock.Now()}
	c.deletions.Store(amw.Name, d)
	return d, nil
}

// report says what is left, and what delays it, once there has been no progress for a while, and returns when to do that.
func (c *Controller) report(ctx context.Context, amw *workv1.AppliedManifestWork, d *deletion, removeErr error) (again time.Duration,
	err error) {
	stands := c.Clock.Since(d.progress)
	if stands < reportAfter {
		c.Applied.SetDelay(amw.Name, nil)
		again = reportAfter - stands
	} else {
		c.Applied.SetDelay(amw.Name, c.Applied.Explain(ctx, d.left, removeErr))
	}
	if stands < quiet {
		return quiet - stands, nil
	}
	return again, appliedmanifestwork.WriteInventory(ctx, c.managed, amw, d.left)
}

// requeueAfter is when to reconcile what remains without an event.
func (c *Controller) requeueAfter(remaining []workv1.AppliedManifestResourceMeta) time.Duration {
	for _, r := range remaining {
		if _, known := c.Applied.Tracked.Revision(appliedmanifestwork.Object(r)); !known {
			return unwatched
		}
	}
	return watched
}
