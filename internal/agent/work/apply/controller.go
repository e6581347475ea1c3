// Package apply makes the managed cluster be what the ManifestWorks in its namespace on the hub say, and reports back.
//
// A pass over a work is always the same: put the finalizer on the work, apply what it lists, delete what it no longer lists, and
// report. The pass remembers the revision of each object as it was then, so a pass in which nothing has changed
// costs no request; after a restart, the first pass finds out again.
package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/agent/work/appliedmanifestwork"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/agent/work/deletion"
	"github.com/capstan-io/capstan/internal/agent/work/executor"
	"github.com/capstan-io/capstan/internal/agent/work/observe"
	"github.com/capstan-io/capstan/internal/agent/work/predecessor"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/repair"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// unwatched is how often works with objects of kinds that the agent cannot watch are reconciled, because there are no events of these.
const unwatched = 5 * time.Minute

// repairsAtOnce is how many repairs of an object are made without a delay.
const repairsAtOnce = 3

// Options configure the controller.
type Options struct {
	// Hub has the ManifestWorks.
	Hub cluster.Cluster
	// Objects reads and writes the objects of works on the managed cluster.
	Objects dynamic.Interface
	// Applied knows which of these objects have changed, and deletes them.
	Applied *deletion.Cluster
	// Observer reads of them what is to be reported to the hub.
	Observer *observe.Observer
	// Namespace of the works on the hub: the cluster's name.
	Namespace string
	// HubHash distinguishes works of this hub from those of others.
	HubHash string
	// AgentID is recorded with what this agent applies.
	AgentID string
	// Workers is how many works are applied at once.
	Workers int
	// Clusters knows which other clusters are on the hub.
	Clusters *predecessor.Clusters
	// Executors check what works do on behalf of others.
	Executors *executor.Checker
	// Record takes the events about works.
	Record Recorder
	// NamesSources reports whether works have an annotation, set by the agent alone, that says who sent them.
	NamesSources bool
	Clock        clock.Clock
}

// Controller reconciles ManifestWorks.
type Controller struct {
	Options
	hub         client.Client
	managed     client.Client
	names       *appliedmanifestwork.Names
	applier     *applier
	lastResults workResults
	deletions   deletions
	backlog     backlog
	siblings    siblings
}

// New returns a Controller that reads works from hub and applies them to managed.
func New(hub, managed client.Client, o Options) *Controller {
	names := &appliedmanifestwork.Names{HubHash: o.HubHash}
	return &Controller{
		Options: o, hub: hub, managed: managed, names: names,
		applier: &applier{managed: managed, objects: o.Objects, mapper: managed.RESTMapper(), tracked: o.Applied.Tracked, executors: o.Executors,
			backoff: repair.NewBackoff(o.Clock, repairsAtOnce), clock: o.Clock, names: names},
		backlog: backlog{works: map[string]bool{}}, siblings: siblings{ended: map[string]time.Time{}},
	}
}

// Register adds the controller to the manager of the managed cluster.
func Register(mgr ctrl.Manager, o Options) error {
	c := New(o.Hub.GetClient(), mgr.GetClient(), o)
	on := func(listen func(queue workQueue)) source.Source {
		return source.Func(func(_ context.Context, queue workQueue) error {
			listen(queue)
			return nil
		})
	}
	if err := mgr.Add(manager.RunnableFunc(c.countUntil)); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("work-manifestwork-apply").WithLogConstructor(c.loggerFor(mgr.GetLogger())).
		WatchesRawSource(source.Kind(o.Hub.GetCache(), &workv1.ManifestWork{}, &handler.TypedEnqueueRequestForObject[*workv1.ManifestWork]{})).
		Watches(&workv1.AppliedManifestWork{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o2 client.Object) []reconcile.Request {
			amw, ok := o2.(*workv1.AppliedManifestWork)
			if !ok || amw.Spec.HubHash != o.HubHash {
				return nil
			}
			return []reconcile.Request{c.requestFor(amw.Spec.ManifestWorkName)}
		})).
		WatchesRawSource(on(func(queue workQueue) {
			o.Applied.Tracked.Listen(func(owner string, object tracker.Object) { c.objectChanged(queue, owner, object) })
		})).
		WatchesRawSource(on(func(queue workQueue) {
			o.Observer.Listen(func(owner string) { c.readingChanged(queue, owner) })
		})).
		WatchesRawSource(on(func(queue workQueue) {
			o.Applied.ListenToDelays(func(owner string) { c.delayChanged(queue, owner) })
		})).
		WatchesRawSource(on(func(queue workQueue) {
			c.backlog.requeue = func(work string, after time.Duration) { queue.AddAfter(c.requestFor(work), after) }
		})).
		WithOptions(controller.Options{
			SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: o.Workers,
			RateLimiter: retry.Limiter(),
		}).
		Complete(c)
}

// countUntil returns when the context ends, and with it the disputes that the controller has counted: the agent makes another controller
// for each connection to a hub.
func (c *Controller) countUntil(ctx context.Context) error {
	<-ctx.Done()
	c.lastResults.end()
	return nil
}

// Reconcile is one pass over one work.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	result, err := c.reconcile(ctx, req)
	return c.backlog.resultOf(ctx, req.Name, result, err)
}

func (c *Controller) reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	work := &workv1.ManifestWork{}
	err := c.hub.Get(ctx, req.NamespacedName, work)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if err == nil && !work.DeletionTimestamp.IsZero() {
		return c.finalize(ctx, work)
	}
	c.deletions.end(req.Name)
	if err != nil {
		return ctrl.Result{}, c.forgetGone(ctx, req.Name)
	}
	isNews, err := c.recall(ctx, work)
	switch {
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("find out what is complete of ManifestWork %s: %w", work.Name, err)
	case conditions.IsComplete(work):
		c.forget(work.Name)
		return ctrl.Result{}, c.keepComplete(ctx, work, isNews)
	case isDryRun(work):
		return ctrl.Result{}, c.dryRun(ctx, work)
	}
	if ended, err := c.endDryRun(ctx, work); ended || err != nil {
		return ctrl.Result{}, err // the event of the change requeues the work
	}
	return c.sync(ctx, work)
}

// sync applies what the work lists, prunes what it lists no more, and reports.
func (c *Controller) sync(ctx context.Context, work *workv1.ManifestWork) (ctrl.Result, error) {
	last := c.lastResults.get(work.Name)
	named := namedBy(work, last)
	amw, err := c.prepare(ctx, work, named)
	if claimed := new(conditions.ClaimedError); errors.As(err, &claimed) {
		return c.refuse(ctx, work, claimed)
	}
	if err != nil || amw == nil {
		return ctrl.Result{}, err
	}
	var endedErr error
	if last != nil && last.owner == amw.UID { // a Job that has ended and gone since the last pass is not to be made again by this one
		endedErr = c.recordEnded(ctx, amw, last.results)
	}
	if endedErr == nil && c.isUpToDate(last, work, amw) {
		return ctrl.Result{RequeueAfter: c.untilRequeue(last.results)}, nil
	}
	results, live := c.applier.apply(ctx, amw, work, last)
	c.observe(amw.Name, work, last, results, live)
	c.lastResults.put(work.Name, &workResult{work: work.UID, generation: work.Generation, owner: amw.UID, named: named, results: results})
	recordErr := errors.Join(endedErr, c.recordEnded(ctx, amw, results), c.prune(ctx, amw, last, results))
	reportErr := c.report(ctx, amw, work, results, recordErr)
	if err := errors.Join(recordErr, reportErr, failures(results)); err != nil {
		if again := c.untilRequeue(results); again > 0 {
			c.backlog.requeue(work.Name, again) // what has failed may wait longer
		}
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: c.requeueAfter(results, amw)}, nil
}
