// Package apply makes the managed cluster be what the ManifestWorks in its namespace on the hub say, and reports back.
//
// A pass over a work is always the same: hold on to the work, apply what it lists, take away what it no longer lists,
// report. What a pass left in order is remembered with the state it was left in, so a pass in which nothing has changed
// costs no request; the memory rebuilds itself after a restart.
package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/applied"
	"github.com/capstan-io/capstan/internal/agent/work/finalizer"
	"github.com/capstan-io/capstan/internal/agent/work/observe"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/fleet"
)

// The wait before a failed work is tried again doubles from the first to the last, on top of what changes wake it for.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = time.Minute
)

// unwatched is how often objects of kinds that the agent cannot watch are looked at: a safety net, where there is no event
// to go by.
const unwatched = 5 * time.Minute

// Options configure the controller.
type Options struct {
	// Namespace of the works on the hub: the cluster's name.
	Namespace string
	// HubHash tells works of this hub from those of others (WK-03).
	HubHash string
	// AgentID is recorded with what this agent applies.
	AgentID string
	// Workers is how many works are applied at once.
	Workers int
	Clock   clock.Clock
}

// Controller reconciles ManifestWorks (WK-01 to WK-05, WK-11, WK-13, WK-14).
type Controller struct {
	Options
	hub     client.Client
	managed client.Client
	objects metadata.Interface
	tracked *tracker.Tracker
	// observed answers what the hub is to be told of applied objects.
	observed *observe.Observer
	applier  *applier
	passes   passes
}

// New returns a Controller that reads works from hub and applies them to managed.
func New(hub, managed client.Client, dyn dynamic.Interface, objects metadata.Interface, tracked *tracker.Tracker, observed *observe.Observer, o Options) *Controller {
	return &Controller{
		Options: o, hub: hub, managed: managed, objects: objects, tracked: tracked, observed: observed,
		applier: &applier{objects: dyn, mapper: managed.RESTMapper(), tracked: tracked},
	}
}

// Register adds the controller to the manager of the managed cluster.
func Register(mgr ctrl.Manager, hub cluster.Cluster, dyn dynamic.Interface, objects metadata.Interface, tracked *tracker.Tracker, observed *observe.Observer, o Options) error {
	c := New(hub.GetClient(), mgr.GetClient(), dyn, objects, tracked, observed, o)
	workOf := func(name string) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.Namespace, Name: name}}}
	}
	onDrift := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		tracked.Listen(func(owner string) {
			if work, ours := applied.WorkName(o.HubHash, owner); ours {
				queue.Add(workOf(work)[0])
			}
		})
		return nil
	})
	onNews := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		observed.Listen(func(owner string, after time.Duration) {
			if work, ours := applied.WorkName(o.HubHash, owner); ours {
				queue.AddAfter(workOf(work)[0], after)
			}
		})
		return nil
	})
	return ctrl.NewControllerManagedBy(mgr).Named("apply").
		WatchesRawSource(source.Kind(hub.GetCache(), &workv1.ManifestWork{}, &handler.TypedEnqueueRequestForObject[*workv1.ManifestWork]{})).
		Watches(&workv1.AppliedManifestWork{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o2 client.Object) []reconcile.Request {
			amw, ok := o2.(*workv1.AppliedManifestWork)
			if !ok || amw.Spec.HubHash != o.HubHash {
				return nil
			}
			return workOf(amw.Spec.ManifestWorkName)
		})).
		WatchesRawSource(onDrift).
		WatchesRawSource(onNews).
		WithOptions(controller.Options{
			SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: o.Workers,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		Complete(c)
}

// Reconcile is one pass over one work.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	work := &workv1.ManifestWork{}
	if err := c.hub.Get(ctx, req.NamespacedName, work); err != nil {
		if apierrors.IsNotFound(err) {
			c.forget(req.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !work.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, c.finish(ctx, work)
	}
	if isComplete(work) {
		c.forget(work.Name)
		return ctrl.Result{}, nil
	}
	amw, err := c.begin(ctx, work)
	if err != nil || amw == nil {
		return ctrl.Result{}, err
	}
	last := c.passes.get(work.Name)
	if c.settled(last, work, amw) {
		return ctrl.Result{}, nil
	}
	outcomes := c.applier.apply(ctx, amw, work, last)
	c.ask(amw.Name, work, last, outcomes)
	c.passes.put(work.Name, &pass{work: work.UID, generation: work.Generation, owner: amw.UID, outcomes: outcomes})
	// One on the cluster, one on the hub: neither waits for the other.
	var recordErr, reportErr error
	var both sync.WaitGroup
	recorded := make(chan struct{})
	both.Go(func() {
		defer close(recorded)
		recordErr = c.record(ctx, amw, outcomes)
	})
	both.Go(func() {
		reportErr = c.report(ctx, work, outcomes, func() error { <-recorded; return recordErr })
	})
	both.Wait()
	c.untrack(last, outcomes, amw)
	return c.conclude(outcomes, amw), errors.Join(recordErr, reportErr, failures(outcomes))
}

// begin takes hold of the work, which is WK-02, and sees to its AppliedManifestWork, both at once: the finalizer has to come
// before anything that it must clean up, and an AppliedManifestWork that owns nothing is not that. It returns nil while an
// earlier AppliedManifestWork of the work is going away: the event of its end brings the work back here.
func (c *Controller) begin(ctx context.Context, work *workv1.ManifestWork) (*workv1.AppliedManifestWork, error) {
	fresh := c.newApplied(work)
	var holdErr, ensureErr error
	var amw *workv1.AppliedManifestWork
	var both sync.WaitGroup
	both.Go(func() { holdErr = finalizer.Add(ctx, c.hub, work, fleet.FinalizerManifestWorkCleanup) })
	both.Go(func() { amw, ensureErr = c.ensureApplied(ctx, fresh) })
	both.Wait()
	if holdErr == nil {
		return amw, ensureErr
	}
	holdErr = fmt.Errorf("add the finalizer to ManifestWork %s: %w", fresh.Spec.ManifestWorkName, holdErr)
	if amw == fresh {
		// The work may have gone, and nothing would ever ask for the end of its AppliedManifestWork.
		ensureErr = client.IgnoreNotFound(c.managed.Delete(ctx, amw))
	}
	return nil, errors.Join(holdErr, ensureErr)
}

// ensureApplied is WK-03. It returns fresh if it made that, and nil while an earlier one is going away.
func (c *Controller) ensureApplied(ctx context.Context, fresh *workv1.AppliedManifestWork) (*workv1.AppliedManifestWork, error) {
	name := fresh.Name
	amw := &workv1.AppliedManifestWork{}
	err := c.managed.Get(ctx, types.NamespacedName{Name: name}, amw)
	switch {
	case apierrors.IsNotFound(err):
		if err := c.managed.Create(ctx, fresh); err != nil {
			return nil, fmt.Errorf("create AppliedManifestWork %s: %w", name, err)
		}
		return fresh, nil
	case err != nil:
		return nil, fmt.Errorf("get AppliedManifestWork %s: %w", name, err)
	case !amw.DeletionTimestamp.IsZero():
		return nil, nil
	}
	before := amw.DeepCopy()
	controllerutil.AddFinalizer(amw, fleet.FinalizerAppliedManifestWorkCleanup)
	amw.Spec.AgentID = c.AgentID
	if equality.Semantic.DeepEqual(before, amw) {
		return amw, nil
	}
	if err := c.managed.Patch(ctx, amw, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("take over AppliedManifestWork %s: %w", name, err)
	}
	return amw, nil
}

func (c *Controller) newApplied(work *workv1.ManifestWork) *workv1.AppliedManifestWork {
	amw := &workv1.AppliedManifestWork{Spec: workv1.AppliedManifestWorkSpec{
		HubHash: c.HubHash, AgentID: c.AgentID, ManifestWorkName: work.Name,
	}}
	amw.Name = fleet.AppliedManifestWorkName(c.HubHash, work.Name)
	amw.Labels = maps.Clone(work.Labels)
	amw.Finalizers = []string{fleet.FinalizerAppliedManifestWorkCleanup}
	return amw
}

// record writes down what the work owns and takes away what it owned before (WK-13), in that order: after a crash in
// between it is still known what there is to take away.
func (c *Controller) record(ctx context.Context, amw *workv1.AppliedManifestWork, outcomes []outcome) error {
	owned, obsolete := inventory(amw.Status.AppliedResources, outcomes)
	if err := c.writeInventory(ctx, amw, append(owned, obsolete...)); err != nil || len(obsolete) == 0 {
		return err
	}
	remaining, removeErr := applied.Remove(ctx, c.objects, c.tracked, amw, obsolete)
	return errors.Join(removeErr, c.writeInventory(ctx, amw, append(owned, remaining...)))
}

func (c *Controller) writeInventory(ctx context.Context, amw *workv1.AppliedManifestWork, resources []workv1.AppliedManifestResourceMeta) error {
	if equality.Semantic.DeepEqual(amw.Status.AppliedResources, resources) {
		return nil
	}
	amw.Status.AppliedResources = resources
	if err := c.managed.Status().Update(ctx, amw); err != nil {
		return fmt.Errorf("update the status of AppliedManifestWork %s: %w", amw.Name, err)
	}
	return nil
}

// finish is WK-14: the AppliedManifestWork takes everything with it; the work goes when it has gone.
func (c *Controller) finish(ctx context.Context, work *workv1.ManifestWork) error {
	if !controllerutil.ContainsFinalizer(work, fleet.FinalizerManifestWorkCleanup) {
		return nil
	}
	if err := c.reportDeleting(ctx, work); err != nil {
		return err
	}
	amw := &workv1.AppliedManifestWork{}
	err := c.managed.Get(ctx, types.NamespacedName{Name: fleet.AppliedManifestWorkName(c.HubHash, work.Name)}, amw)
	switch {
	case err == nil && amw.DeletionTimestamp.IsZero():
		return client.IgnoreNotFound(c.managed.Delete(ctx, amw))
	case err == nil:
		return nil // its end brings us back
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("get the AppliedManifestWork of ManifestWork %s: %w", work.Name, err)
	}
	c.forget(work.Name)
	if err := finalizer.Remove(ctx, c.hub, work, fleet.FinalizerManifestWorkCleanup); err != nil {
		return fmt.Errorf("remove the finalizer of ManifestWork %s: %w", work.Name, err)
	}
	return nil
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

// untrack ends the interest in what the work no longer names and never owned, such as what could not be applied. What it
// owned is tracked until it has gone.
func (c *Controller) untrack(last *pass, outcomes []outcome, amw *workv1.AppliedManifestWork) {
	if last == nil {
		return
	}
	needed := make(map[tracker.Object]bool, len(outcomes)+len(amw.Status.AppliedResources))
	for i := range outcomes {
		if outcomes[i].resolved {
			needed[outcomes[i].object()] = true
		}
	}
	for _, r := range amw.Status.AppliedResources {
		needed[applied.Object(r)] = true
	}
	for i := range last.outcomes {
		if o := &last.outcomes[i]; o.resolved && !needed[o.object()] {
			c.tracked.Forget(amw.Name, o.object())
		}
	}
}

// conclude asks for another look at what no watch looks after.
func (c *Controller) conclude(outcomes []outcome, amw *workv1.AppliedManifestWork) ctrl.Result {
	for _, o := range outcomes {
		if o.err != nil || o.frozen {
			continue
		}
		if _, known := c.tracked.Revision(o.object()); !known {
			return ctrl.Result{RequeueAfter: unwatched}
		}
	}
	for _, r := range amw.Status.AppliedResources { // some may be on their way out
		if _, known := c.tracked.Revision(applied.Object(r)); !known {
			return ctrl.Result{RequeueAfter: unwatched}
		}
	}
	return ctrl.Result{}
}

// settled tells whether the last pass over this very work went well, and nothing has changed since.
func (c *Controller) settled(last *pass, work *workv1.ManifestWork, amw *workv1.AppliedManifestWork) bool {
	if last == nil || last.work != work.UID || last.generation != work.Generation || last.owner != amw.UID {
		return false
	}
	for _, o := range last.outcomes {
		if o.err != nil || !o.frozen && !c.applier.unchanged(&o) {
			return false
		}
	}
	owned, obsolete := inventory(amw.Status.AppliedResources, last.outcomes)
	return len(obsolete) == 0 && equality.Semantic.DeepEqual(owned, amw.Status.AppliedResources) &&
		!c.updateStatus(work.DeepCopy(), last.outcomes)
}
