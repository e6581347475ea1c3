package deletion

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
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

// Finalizer reconciles AppliedManifestWorks that are deleted: those of its hub, and those that the agent made for another hub. Other
// agents on the same cluster may work for other hubs, and finalize theirs. It needs no connection to a hub.
type Finalizer struct {
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

// NewFinalizer returns a Finalizer for the AppliedManifestWorks of managed.
func NewFinalizer(managed client.Client, o Options) *Finalizer {
	return &Finalizer{Options: o, managed: managed}
}

func registerFinalizer(mgr ctrl.Manager, o Options) error {
	ofDeleted := predicate.NewPredicateFuncs(func(obj client.Object) bool {
		amw, ok := obj.(*workv1.AppliedManifestWork)
		return ok && (amw.Spec.HubHash == o.HubHash || amw.Spec.AgentID == o.AgentID) && !amw.DeletionTimestamp.IsZero()
	})
	onChange := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		o.Applied.Tracked.Listen(func(owner string, _ tracker.Object) {
			queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: owner}})
		})
		return nil
	})
	return ctrl.NewControllerManagedBy(mgr).Named("work-appliedmanifestwork-finalize").
		For(&workv1.AppliedManifestWork{}, builder.WithPredicates(ofDeleted)).
		WatchesRawSource(onChange).
		WithOptions(controller.Options{
			SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: o.Workers,
			RateLimiter: retry.Limiter(),
		}).
		Complete(NewFinalizer(mgr.GetClient(), o))
}

// Reconcile deletes what the AppliedManifestWork owns, and removes its finalizer when all has gone.
func (f *Finalizer) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	amw := &workv1.AppliedManifestWork{}
	if err := f.managed.Get(ctx, req.NamespacedName, amw); err != nil {
		if apierrors.IsNotFound(err) {
			f.deletions.Delete(req.Name)
			f.Applied.setDelay(req.Name, nil)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if amw.DeletionTimestamp.IsZero() || !controllerutil.ContainsFinalizer(amw, fleet.FinalizerAppliedManifestWorkCleanup) {
		return ctrl.Result{}, nil
	}
	d, err := f.deletionOf(amw)
	if err != nil {
		return ctrl.Result{}, f.block(amw, err)
	}
	left, removeErr := f.Applied.removeAll(ctx, amw, d.left)
	if len(left) < len(d.left) {
		d.progress = f.Clock.Now()
	}
	d.left = appliedmanifestwork.Sorted(left)
	if len(left) == 0 && removeErr == nil {
		return ctrl.Result{}, patch.RemoveFinalizer(ctx, f.managed, amw, fleet.FinalizerAppliedManifestWorkCleanup)
	}
	again, err := f.report(ctx, amw, d, removeErr)
	if err := errors.Join(removeErr, err); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: retry.Soonest(again, f.requeueAfter(left))}, nil
}

// block says that nothing is deleted because of the error, and returns it.
func (f *Finalizer) block(amw *workv1.AppliedManifestWork, err error) error {
	f.Applied.setDelay(amw.Name, Blocked(amw, err))
	return err
}

// deletionOf is what is known of the deletion. It starts with all that may be there.
func (f *Finalizer) deletionOf(amw *workv1.AppliedManifestWork) (*deletion, error) {
	if existing, found := f.deletions.Load(amw.Name); found && existing.(*deletion).uid == amw.UID {
		return existing.(*deletion), nil
	}
	all, err := appliedmanifestwork.Inventory(f.managed.RESTMapper(), amw)
	if err != nil {
		return nil, err
	}
	d := &deletion{uid: amw.UID, left: appliedmanifestwork.Sorted(all), progress: f.Clock.Now()}
	f.deletions.Store(amw.Name, d)
	return d, nil
}

// report says what is left, and what delays it, once there has been no progress for a while, and returns when to do that.
func (f *Finalizer) report(ctx context.Context, amw *workv1.AppliedManifestWork, d *deletion, removeErr error) (again time.Duration,
	err error) {
	stands := f.Clock.Since(d.progress)
	if stands < reportAfter {
		f.Applied.setDelay(amw.Name, nil)
		again = reportAfter - stands
	} else {
		f.Applied.setDelay(amw.Name, f.Applied.explain(ctx, d.left, removeErr))
	}
	if stands < quiet {
		return quiet - stands, nil
	}
	return again, appliedmanifestwork.WriteInventory(ctx, f.managed, amw, d.left)
}

// requeueAfter is when to reconcile what remains without an event.
func (f *Finalizer) requeueAfter(remaining []workv1.AppliedManifestResourceMeta) time.Duration {
	for _, r := range remaining {
		if _, known := f.Applied.Tracked.Revision(appliedmanifestwork.Object(r)); !known {
			return unwatched
		}
	}
	return watched
}
