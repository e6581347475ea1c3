// Package finalize takes what a deleted AppliedManifestWork owns off the managed cluster.
package finalize

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
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
	"github.com/capstan-io/capstan/internal/agent/work/applied"
	"github.com/capstan-io/capstan/internal/agent/work/finalizer"
	"github.com/capstan-io/capstan/internal/fleet"
	"github.com/capstan-io/capstan/internal/retry"
)

// reportInterval is how often the status tells what is left: the list of a large work is long, and most are gone at once.
const reportInterval = time.Second

// unwatched is how often objects that are on their way out are looked at if the agent cannot watch their kind.
const unwatched = 10 * time.Second

// Controller reconciles deleted AppliedManifestWorks of one hub (WK-14). It needs no hub for that.
type Controller struct {
	managed client.Client
	cluster *applied.Cluster
	clock   clock.PassiveClock
	// begun are the deletions under way, by name.
	begun sync.Map
}

// deletion of what an AppliedManifestWork owns, under way.
type deletion struct {
	uid      types.UID
	left     []workv1.AppliedManifestResourceMeta
	reported time.Time
}

// New returns a Controller.
func New(managed client.Client, cluster *applied.Cluster, clk clock.PassiveClock) *Controller {
	return &Controller{managed: managed, cluster: cluster, clock: clk}
}

// Register adds the controller to the manager. It minds only the AppliedManifestWorks of the hub with the hash, and those
// that the agent made for another hub: other agents beside this one may work for other hubs.
func Register(mgr ctrl.Manager, cluster *applied.Cluster, hubHash, agentID string, workers int, clk clock.PassiveClock) error {
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
			RateLimiter: retry.Limiter(),
		}).
		Complete(New(mgr.GetClient(), cluster, clk))
}

// Reconcile deletes what the AppliedManifestWork owns, and lets go of it when all has gone.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	amw := &workv1.AppliedManifestWork{}
	if err := c.managed.Get(ctx, req.NamespacedName, amw); err != nil {
		if apierrors.IsNotFound(err) {
			c.begun.Delete(req.Name)
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
	left, removeErr := c.cluster.Remove(ctx, amw, d.left)
	d.left = applied.Sorted(left)
	if len(left) == 0 && removeErr == nil {
		return ctrl.Result{}, finalizer.Remove(ctx, c.managed, amw, fleet.FinalizerAppliedManifestWorkCleanup)
	}
	reportAgain, err := c.report(ctx, amw, d)
	if err := errors.Join(removeErr, err); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: soonest(reportAgain, c.lookAgain(left))}, nil
}

// deletionOf is what is known of the deletion. It begins with all that may be there: what was applied, and what an agent that
// was killed may have applied.
func (c *Controller) deletionOf(amw *workv1.AppliedManifestWork) (*deletion, error) {
	if known, begun := c.begun.Load(amw.Name); begun && known.(*deletion).uid == amw.UID {
		return known.(*deletion), nil
	}
	unrecorded, err := applied.Unrecorded(c.managed.RESTMapper(), amw)
	if err != nil {
		return nil, err
	}
	d := &deletion{uid: amw.UID, left: applied.Sorted(slices.Concat(amw.Status.AppliedResources, unrecorded)), reported: c.clock.Now()}
	c.begun.Store(amw.Name, d)
	return d, nil
}

// report writes into the status what is left, or tells when to do that.
func (c *Controller) report(ctx context.Context, amw *workv1.AppliedManifestWork, d *deletion) (again time.Duration, err error) {
	if equality.Semantic.DeepEqual(amw.Status.AppliedResources, d.left) {
		return 0, nil
	}
	if due := d.reported.Add(reportInterval).Sub(c.clock.Now()); due > 0 {
		return due, nil
	}
	amw.Status.AppliedResources = d.left
	if err := c.managed.Status().Update(ctx, amw); err != nil {
		return 0, fmt.Errorf("update the status of AppliedManifestWork %s: %w", amw.Name, err)
	}
	d.reported = c.clock.Now()
	return 0, nil
}

// soonest of durations, where 0 is never.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
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
