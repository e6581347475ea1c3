// Package finalize takes what a deleted AppliedManifestWork owns off the managed cluster.
package finalize

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/workqueue"
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
	"github.com/capstan-io/capstan/internal/agent/work/applied"
	"github.com/capstan-io/capstan/internal/agent/work/finalizer"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/fleet"
)

// The wait after a failure doubles from the first to the last (WK-14).
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = time.Minute
)

// unwatched is how often objects that are on their way out are looked at if the agent cannot watch their kind.
const unwatched = 10 * time.Second

// Controller reconciles deleted AppliedManifestWorks of one hub (WK-14). It needs no hub for that.
type Controller struct {
	managed client.Client
	objects metadata.Interface
	tracked *tracker.Tracker
}

// New returns a Controller.
func New(managed client.Client, objects metadata.Interface, tracked *tracker.Tracker) *Controller {
	return &Controller{managed: managed, objects: objects, tracked: tracked}
}

// Register adds the controller to the manager. It minds only the AppliedManifestWorks of the hub with the hash: other agents
// beside this one may work for other hubs.
func Register(mgr ctrl.Manager, objects metadata.Interface, tracked *tracker.Tracker, hubHash string, workers int) error {
	ofDeleted := predicate.NewPredicateFuncs(func(o client.Object) bool {
		amw, ok := o.(*workv1.AppliedManifestWork)
		return ok && amw.Spec.HubHash == hubHash && !amw.DeletionTimestamp.IsZero()
	})
	onChange := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		tracked.Listen(func(owner string) { queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: owner}}) })
		return nil
	})
	return ctrl.NewControllerManagedBy(mgr).Named("finalize").
		For(&workv1.AppliedManifestWork{}, builder.WithPredicates(ofDeleted)).
		WatchesRawSource(onChange).
		WithOptions(controller.Options{
			SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: workers,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		Complete(New(mgr.GetClient(), objects, tracked))
}

// Reconcile deletes what the AppliedManifestWork owns, the last applied first, and lets go of it when all has gone.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	amw := &workv1.AppliedManifestWork{}
	if err := c.managed.Get(ctx, req.NamespacedName, amw); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if amw.DeletionTimestamp.IsZero() || !controllerutil.ContainsFinalizer(amw, fleet.FinalizerAppliedManifestWorkCleanup) {
		return ctrl.Result{}, nil
	}
	before := amw.Status.DeepCopy()
	backwards := slices.Clone(amw.Status.AppliedResources)
	slices.Reverse(backwards)
	remaining, removeErr := applied.Remove(ctx, c.objects, c.tracked, amw, backwards)
	slices.Reverse(remaining)
	amw.Status.AppliedResources = remaining
	if !equality.Semantic.DeepEqual(before, &amw.Status) {
		if err := c.managed.Status().Update(ctx, amw); err != nil {
			return ctrl.Result{}, fmt.Errorf("update the status of AppliedManifestWork %s: %w", amw.Name, err)
		}
	}
	if removeErr != nil {
		return ctrl.Result{}, removeErr
	}
	if len(remaining) > 0 {
		return ctrl.Result{RequeueAfter: c.lookAgain(remaining)}, nil
	}
	return ctrl.Result{}, finalizer.Remove(ctx, c.managed, amw, fleet.FinalizerAppliedManifestWorkCleanup)
}

// lookAgain is when to look at what remains, apart from the events of its end; 0 if those can be relied upon.
func (c *Controller) lookAgain(remaining []workv1.AppliedManifestResourceMeta) time.Duration {
	for _, r := range remaining {
		if _, known := c.tracked.Revision(applied.Object(r)); !known {
			return unwatched
		}
	}
	return 0
}
