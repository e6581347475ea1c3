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
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
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
	"github.com/capstan-io/capstan/internal/agent/work/executor"
	"github.com/capstan-io/capstan/internal/agent/work/observe"
	"github.com/capstan-io/capstan/internal/agent/work/predecessor"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// unwatched is how often objects of kinds that the agent cannot watch are looked at: a safety net, where there is no event
// to go by.
const unwatched = 5 * time.Minute

// Options configure the controller.
type Options struct {
	// Namespace of the works on the hub: the cluster's name.
	Namespace string
	// HubHash tells works of this hub from those of others.
	HubHash string
	// AgentID is recorded with what this agent applies.
	AgentID string
	// Workers is how many works are applied at once.
	Workers int
	// Clusters tells which other clusters are on the hub.
	Clusters *predecessor.Clusters
	// Executors check what works do on behalf of others.
	Executors *executor.Checker
	// Record takes the events about works.
	Record Recorder
	Clock  clock.Clock
}

// Controller reconciles ManifestWorks.
type Controller struct {
	Options
	hub     client.Client
	managed client.Client
	cluster *applied.Cluster
	tracked *tracker.Tracker
	// observed answers what the hub is to be told of applied objects.
	observed  *observe.Observer
	applier   *applier
	passes    passes
	deletions deletions
	backlog   backlog
}

// New returns a Controller that reads works from hub and applies them to managed.
func New(hub, managed client.Client, dyn dynamic.Interface, cluster *applied.Cluster, observed *observe.Observer, o Options) *Controller {
	return &Controller{
		Options: o, hub: hub, managed: managed, cluster: cluster, tracked: cluster.Tracked, observed: observed,
		applier: &applier{managed: managed, objects: dyn, mapper: managed.RESTMapper(), tracked: cluster.Tracked, executors: o.Executors},
		backlog: backlog{works: map[string]bool{}},
	}
}

// Register adds the controller to the manager of the managed cluster.
func Register(mgr ctrl.Manager, hub cluster.Cluster, dyn dynamic.Interface, managed *applied.Cluster, observed *observe.Observer,
	o Options) error {
	c := New(hub.GetClient(), mgr.GetClient(), dyn, managed, observed, o)
	workOf := func(name string) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.Namespace, Name: name}}}
	}
	on := func(listen func(func(owner string)), concerns func(work string) bool) source.Source {
		return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			listen(func(owner string) {
				if work, ours := applied.WorkName(o.HubHash, owner); ours && concerns(work) {
					queue.Add(workOf(work)[0])
				}
			})
			return nil
		})
	}
	stays := func(work string) bool { return !c.deletions.has(work) } // what becomes of the objects of others is finalize's to see
	onReturn := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		c.backlog.requeue = func(work string, after time.Duration) { queue.AddAfter(workOf(work)[0], after) }
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
		WatchesRawSource(on(managed.Tracked.Listen, stays)).
		WatchesRawSource(on(observed.Listen, stays)).
		WatchesRawSource(on(managed.ListenToDelays, c.deletions.has)).
		WatchesRawSource(onReturn).
		WithOptions(controller.Options{
			SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: o.Workers,
			RateLimiter: retry.Limiter(),
		}).
		Complete(c)
}

// Reconcile is one pass over one work.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	result, err := c.reconcile(ctx, req)
	return c.backlog.resultOf(ctx, req.Name, result, err)
}

func (c *Controller) reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	work := &workv1.ManifestWork{}
	if err := c.hub.Get(ctx, req.NamespacedName, work); err != nil {
		if apierrors.IsNotFound(err) {
			c.forget(req.Name)
			c.deletions.end(req.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !work.DeletionTimestamp.IsZero() {
		return c.finish(ctx, work)
	}
	c.deletions.end(work.Name)
	if isComplete(work) {
		c.forget(work.Name)
		return ctrl.Result{}, nil
	}
	if isDryRun(work) {
		return ctrl.Result{}, c.dryRun(ctx, work)
	}
	if ended, err := c.endDryRun(ctx, work); ended || err != nil {
		return ctrl.Result{}, err // the event of it brings the work back
	}
	last := c.passes.get(work.Name)
	named := namedBy(work, last)
	amw, err := c.begin(ctx, work, named)
	if claimed := new(claimedError); errors.As(err, &claimed) {
		return c.refuse(ctx, work, claimed)
	}
	if err != nil || amw == nil {
		return ctrl.Result{}, err
	}
	if c.settled(last, work, amw) {
		return ctrl.Result{RequeueAfter: c.untilRecheck(last.outcomes)}, nil
	}
	outcomes := c.applier.apply(ctx, amw, work, last)
	c.ask(amw.Name, work, last, outcomes)
	c.passes.put(work.Name, &pass{work: work.UID, generation: work.Generation, owner: amw.UID, named: named, outcomes: outcomes})
	changes := newsOf(work, outcomes)
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
	if reportErr == nil {
		c.tell(work, changes, len(outcomes))
	}
	c.untrack(last, outcomes, amw)
	failed := failures(outcomes)
	if again := c.untilRecheck(outcomes); again > 0 && failed != nil {
		c.backlog.requeue(work.Name, again) // what has failed may wait longer
	}
	if err := errors.Join(recordErr, reportErr, failed); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: c.conclude(outcomes, amw)}, nil
}

// begin puts the finalizer on the work and ensures its AppliedManifestWork, both at once: the finalizer has to come
// before anything that it must clean up, and an AppliedManifestWork that owns nothing is not that. It returns nil while an
// earlier AppliedManifestWork of the work is going away: the event of its end brings the work back here.
func (c *Controller) begin(ctx context.Context, work *workv1.ManifestWork, named string) (*workv1.AppliedManifestWork, error) {
	fresh := c.newApplied(work, named)
	var holdErr, ensureErr error
	var amw *workv1.AppliedManifestWork
	var both sync.WaitGroup
	if !controllerutil.ContainsFinalizer(work, fleet.FinalizerManifestWorkCleanup) {
		both.Go(func() {
			holdErr = c.backlog.observe(patch.AddFinalizer(ctx, c.hub, work, fleet.FinalizerManifestWorkCleanup))
		})
	}
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

// ensureApplied creates the AppliedManifestWork, or takes on the one that exists. It returns fresh if it created that, and nil while an
// earlier one is being deleted. The error is a
// *claimedError if it is another's.
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
	}
	if claimed := c.claimed(ctx, amw); claimed != nil {
		return nil, claimed
	}
	if !amw.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	return amw, c.bringUpToDate(ctx, amw, fresh)
}

// bringUpToDate makes an earlier AppliedManifestWork say what a fresh one would, before anything is applied. What it named
// and its status does not list goes to the status first: it may have been applied, and no annotation will tell.
func (c *Controller) bringUpToDate(ctx context.Context, amw, fresh *workv1.AppliedManifestWork) error {
	if amw.Annotations[fleet.AnnotationManifests] != fresh.Annotations[fleet.AnnotationManifests] {
		if err := c.recordUnlisted(ctx, amw); err != nil {
			return err
		}
	}
	return c.describe(ctx, amw, fresh)
}

// describe makes the AppliedManifestWork say what a fresh one would, but for the status.
func (c *Controller) describe(ctx context.Context, amw, fresh *workv1.AppliedManifestWork) error {
	before := amw.DeepCopy()
	controllerutil.AddFinalizer(amw, fleet.FinalizerAppliedManifestWorkCleanup)
	amw.Spec.AgentID = fresh.Spec.AgentID
	for _, key := range ownAnnotations {
		if value, ok := fresh.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&amw.ObjectMeta, key, value)
		} else {
			delete(amw.Annotations, key)
		}
	}
	if equality.Semantic.DeepEqual(before, amw) {
		return nil
	}
	if err := c.managed.Patch(ctx, amw, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("take over AppliedManifestWork %s: %w", amw.Name, err)
	}
	return nil
}

// recordUnlisted lists in the status what was named and may have been applied without being listed. Mostly, that is nothing:
// an agent that was not interrupted has listed it all.
func (c *Controller) recordUnlisted(ctx context.Context, amw *workv1.AppliedManifestWork) error {
	unrecorded, err := applied.Unrecorded(c.managed.RESTMapper(), amw)
	if err != nil {
		return err
	}
	return c.writeInventory(ctx, amw, append(slices.Clone(amw.Status.AppliedResources), unrecorded...))
}

// ownAnnotations are those of an AppliedManifestWork that the agent keeps up to date.
var ownAnnotations = []string{fleet.AnnotationManifests, fleet.AnnotationPropagationPolicy, fleet.AnnotationClusterName}

func (c *Controller) newApplied(work *workv1.ManifestWork, named string) *workv1.AppliedManifestWork {
	amw := &workv1.AppliedManifestWork{Spec: workv1.AppliedManifestWorkSpec{
		HubHash: c.HubHash, AgentID: c.AgentID, ManifestWorkName: work.Name,
	}}
	amw.Name = fleet.AppliedManifestWorkName(c.HubHash, work.Name)
	amw.Labels = maps.Clone(work.Labels)
	amw.Finalizers = []string{fleet.FinalizerAppliedManifestWorkCleanup}
	amw.Annotations = map[string]string{fleet.AnnotationClusterName: c.Namespace}
	if named != "" {
		amw.Annotations[fleet.AnnotationManifests] = named
	}
	if manifest.NamesForeground(work.Spec.DeleteOption) {
		amw.Annotations[fleet.AnnotationPropagationPolicy] = string(metav1.DeletePropagationForeground)
	}
	return amw
}

// namedBy is what the work names, as its AppliedManifestWork writes it down.
func namedBy(work *workv1.ManifestWork, last *pass) string {
	if last != nil && last.work == work.UID && last.generation == work.Generation {
		return last.named
	}
	var named []manifest.Identity
	for _, m := range manifest.Decode(work.Spec.Workload.Manifests) {
		if m.Err == nil {
			named = append(named, manifest.Identify(m.Object))
		}
	}
	return applied.EncodeNamed(named)
}

// record writes down what the work owns and takes away what it owned before, in that order: after a crash in
// between it is still known what there is to take away.
func (c *Controller) record(ctx context.Context, amw *workv1.AppliedManifestWork, outcomes []outcome) error {
	owned, obsolete := inventory(amw.Status.AppliedResources, outcomes)
	if err := c.writeInventory(ctx, amw, append(owned, obsolete...)); err != nil || len(obsolete) == 0 {
		return err
	}
	remaining, removeErr := c.cluster.Remove(ctx, amw, obsolete)
	return errors.Join(removeErr, c.writeInventory(ctx, amw, append(owned, remaining...)))
}

// writeInventory writes down what the AppliedManifestWork owns, in the order of the API.
func (c *Controller) writeInventory(ctx context.Context, amw *workv1.AppliedManifestWork,
	resources []workv1.AppliedManifestResourceMeta) error {
	resources = applied.Sorted(resources)
	if equality.Semantic.DeepEqual(amw.Status.AppliedResources, resources) {
		return nil
	}
	amw.Status.AppliedResources = resources
	if err := c.managed.Status().Update(ctx, amw); err != nil {
		return fmt.Errorf("update the status of AppliedManifestWork %s: %w", amw.Name, err)
	}
	return nil
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

// conclude is when to take another look at what no event tells of; 0 is never.
func (c *Controller) conclude(outcomes []outcome, amw *workv1.AppliedManifestWork) time.Duration {
	again := c.untilRecheck(outcomes)
	if !c.isWatched(outcomes, amw) && (again == 0 || again > unwatched) {
		return unwatched
	}
	return again
}

// untilRecheck is how long the rights of the executor are known to be what they were in the pass; 0 is for ever.
func (c *Controller) untilRecheck(outcomes []outcome) time.Duration {
	var first time.Time
	for i := range outcomes {
		if at := outcomes[i].recheck; outcomes[i].err == nil && !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	if first.IsZero() {
		return 0
	}
	return max(first.Sub(c.Clock.Now()), time.Nanosecond)
}

// isWatched tells whether events tell of all objects of the work.
func (c *Controller) isWatched(outcomes []outcome, amw *workv1.AppliedManifestWork) bool {
	for _, o := range outcomes {
		if o.err != nil || o.frozen {
			continue
		}
		if _, known := c.tracked.Revision(o.object()); !known {
			return false
		}
	}
	for _, r := range amw.Status.AppliedResources { // some may be on their way out
		if _, known := c.tracked.Revision(applied.Object(r)); !known {
			return false
		}
	}
	return true
}

// settled tells whether the last pass over this very work went well, and nothing has changed since.
func (c *Controller) settled(last *pass, work *workv1.ManifestWork, amw *workv1.AppliedManifestWork) bool {
	if last == nil || last.work != work.UID || last.generation != work.Generation || last.owner != amw.UID {
		return false
	}
	now := c.Clock.Now()
	for _, o := range last.outcomes {
		if o.err != nil || !o.frozen && !c.applier.unchanged(&o) || !o.recheck.IsZero() && !now.Before(o.recheck) {
			return false
		}
	}
	owned, obsolete := inventory(amw.Status.AppliedResources, last.outcomes)
	return len(obsolete) == 0 && equality.Semantic.DeepEqual(applied.Sorted(owned), amw.Status.AppliedResources) &&
		!c.updateStatus(work.DeepCopy(), last.outcomes)
}
