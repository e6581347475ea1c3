// Package finalize takes what a deleted AppliedManifestWork owns off the managed cluster.
package finalize

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
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
	cluster *applied.Cluster
	// absorbed are the UIDs of those whose status lists all that is left, so that the annotation need not be looked at.
	absorbed sync.Map
}

// New returns a Controller.
func New(managed client.Client, cluster *applied.Cluster) *Controller {
	return &Controller{managed: managed, cluster: cluster}
}

// Register adds the controller to the manager. It minds only the AppliedManifestWorks of the hub with the hash, and those
// that the agent made for another hub: other agents beside this one may work for other hubs.
func Register(mgr ctrl.Manager, cluster *applied.Cluster, hubHash, agentID string, workers int) error {
	ofDeleted := predicate.NewPredicateFuncs(func(o client.Object) bool {
		amw, ok := o.(*workv1.AppliedManifestWork)
		return ok && (amw.Spec.HubHash == hubHash || amw.Spec.AgentID == agentID) && !amw.DeletionTimestamp.IsZero()
	})
	onChange := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		cluster.Tracked.Listen(func(owner string) { queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: owner}}) })
		return nil
	})
	return ctrl.NewControllerManagedBy(mgr).Named("finalize").
		For(&workv1.AppliedManifestWork{}, builder.WithPredicates(ofDeleted)).
		WatchesRawSource(onChange).
		WithOptions(controller.Options{
			SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: workers,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		Complete(New(mgr.GetClient(), cluster))
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
	backwards, err := c.owned(amw)
	if err != nil {
		return ctrl.Result{}, err
	}
	slices.Reverse(backwards)
	remaining, removeErr := c.cluster.Remove(ctx, amw, backwards)
	slices.Reverse(remaining)
	amw.Status.AppliedResources = remaining
	if !equality.Semantic.DeepEqual(before, &amw.Status) {
		if err := c.managed.Status().Update(ctx, amw); err != nil {
			return ctrl.Result{}, fmt.Errorf("update the status of AppliedManifestWork %s: %w", amw.Name, err)
		}
	}
	c.absorbed.Store(amw.UID, true)
	if removeErr != nil {
		return ctrl.Result{}, removeErr
	}
	if len(remaining) > 0 {
		return ctrl.Result{RequeueAfter: c.lookAgain(remaining)}, nil
	}
	c.absorbed.Delete(amw.UID)
	return ctrl.Result{}, finalizer.Remove(ctx, c.managed, amw, fleet.FinalizerAppliedManifestWorkCleanup)
}

// owned is all that may be there: what was applied, and what an agent that was killed may have applied.
func (c *Controller) owned(amw *workv1.AppliedManifestWork) ([]workv1.AppliedManifestResourceMeta, error) {
	if _, all := c.absorbed.Load(amw.UID); all {
		return slices.Clone(amw.Status.AppliedResources), nil
	}
	unrecorded, err := applied.Unrecorded(c.managed.RESTMapper(), amw)
	return slices.Concat(amw.Status.AppliedResources, unrecorded), err
}

// lookAgain is when to look at what remains, apart from the events of its end; 0 if those can be relied upon.
func (c *Controller) lookAgain(remaining []workv1.AppliedManifestResourceMeta) time.Duration {
	for _, r := range remaining {
		if _, known := c.cluster.Tracked.Revision(applied.Object(r)); !known {
			return unwatched
		}
	}
	return 0
}
