// Package placement runs the scheduler (package internal/placement) as a controller: it passes the objects of the API to the scheduler,
// and writes what the scheduler selects as PlacementDecisions, conditions and events. docs/placement-internals.md has all steps from
// an event to a decision.
package placement

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/hub/placement/debug"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	scheduler "github.com/capstan-io/capstan/internal/placement"
)

// workers is how many placements are reconciled at the same time. The scheduler decides one after the other, in microseconds each;
// the workers spend their time in requests to the API server.
const workers = 16

// Delays before a reconcile that follows a write conflict: the first one, and the longest one of repeated conflicts.
const (
	minRetryDelay = 20 * time.Millisecond
	maxRetryDelay = time.Minute
)

// Options configure the controller.
type Options struct {
	// TieBreak orders clusters of equal scores; scheduler.TieBreakName by default.
	TieBreak scheduler.TieBreak
	// TrustDecisions says that the hub acts on all PlacementDecisions, whichever clusters they name.
	TrustDecisions bool
	// Debug is the endpoint that explains what placements select. Register opens it; nil for none.
	Debug *debug.Endpoint
	// Clock is the source of time.
	Clock clock.Clock
}

// Controller reconciles Placements.
type Controller struct {
	client    client.Client
	recorder  events.EventRecorder
	clock     clock.Clock
	scheduler *scheduler.Scheduler

	// eventLimiter limits how many events are written, and delayed are those that wait for it.
	eventLimiter *rate.Limiter
	delayed      chan delayedEvents
	// retries has the delays after write conflicts.
	retries workqueue.TypedRateLimiter[ctrl.Request]

	restoreMu sync.Mutex
	// restored says that the scheduler has all objects and all stored decisions.
	restored atomic.Bool
	// timerWake wakes the goroutine that advances the time of the scheduler: its next time may be another.
	timerWake chan struct{}
	// evaluatorWake wakes the goroutines that evaluate CEL expressions: there may be more to do.
	evaluatorWake chan struct{}
}

// New returns a Controller that reads and writes through the client, whose cache has the index byPlacement.
func New(c client.Client, recorder events.EventRecorder, clk clock.Clock, s *scheduler.Scheduler) *Controller {
	return &Controller{
		client:        c,
		recorder:      recorder,
		clock:         clk,
		scheduler:     s,
		eventLimiter:  rate.NewLimiter(eventsPerSecond, eventBurst),
		delayed:       make(chan delayedEvents, eventsPerSecond*int(maxEventDelay/time.Second)+eventBurst),
		retries:       workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](minRetryDelay, maxRetryDelay),
		timerWake:     make(chan struct{}, 1),
		evaluatorWake: make(chan struct{}, evaluatorCount),
	}
}

// Register adds the controller to the manager, and opens the debug endpoint.
func Register(mgr ctrl.Manager, o Options) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &clusterv1beta1.PlacementDecision{}, byPlacement, relatedPlacements)
	if err != nil {
		return err
	}
	options := scheduler.Options{TieBreak: o.TieBreak, TrustDecisions: o.TrustDecisions}
	timed := options
	timed.Timer = timePlugins(o.Clock)
	c := New(mgr.GetClient(), mgr.GetEventRecorder("placement-controller"), o.Clock, scheduler.New(timed))
	if o.Debug != nil {
		e := newExplainer(c, mgr.GetAPIReader(), options)
		if err := e.open(o.Debug, mgr); err != nil {
			return err
		}
	}
	builder := ctrl.NewControllerManagedBy(mgr).Named("placement-placement-schedule").WithOptions(controller.Options{
		MaxConcurrentReconciles: workers,
		RateLimiter:             retry.Limiter(),
	})
	for _, s := range c.sources(mgr.GetCache()) {
		builder = builder.WatchesRawSource(s)
	}
	return builder.Complete(retry.Conflicts(c))
}

// Reconcile schedules a placement and writes what has changed.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if err := c.restoreOnce(ctx); err != nil {
		return ctrl.Result{}, err
	}
	owner, err := c.placement(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := c.restoreUnmanaged(ctx, req.NamespacedName, owner); err != nil {
		return ctrl.Result{}, err
	}
	if owner == nil {
		c.retries.Forget(req)
		return ctrl.Result{}, nil
	}
	result := c.schedule(owner)
	if result == nil {
		c.retries.Forget(req)
		return ctrl.Result{}, nil
	}
	return c.write(ctx, req, owner, result)
}

// placement gets a Placement; nil if it does not exist.
func (c *Controller) placement(ctx context.Context, key scheduler.Key) (*clusterv1beta1.Placement, error) {
	owner := &clusterv1beta1.Placement{}
	if err := c.client.Get(ctx, key, owner); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("get Placement %s: %w", key, err)
	}
	return owner, nil
}

// restoreUnmanaged passes the stored decisions of a placement to the scheduler if it does not manage them: another writer does. owner is
// nil for decisions whose placement does not exist.
func (c *Controller) restoreUnmanaged(ctx context.Context, key scheduler.Key, owner *clusterv1beta1.Placement) error {
	if c.scheduler.Manages(key) {
		return nil
	}
	var uid types.UID
	if owner != nil {
		uid = owner.UID
	}
	return c.restorePlacement(ctx, key, uid)
}

// schedule returns what is to be written for a placement, or nil. Nothing is to be written for a placement that is disabled or being
// deleted. While the scheduler has another version of it than the client, nothing is written yet: the scheduler enqueues the placement
// again once it has caught up.
func (c *Controller) schedule(owner *clusterv1beta1.Placement) *scheduler.Result {
	started := c.clock.Now()
	result, known := c.scheduler.Schedule(client.ObjectKeyFromObject(owner))
	schedulingSeconds.Observe(c.clock.Since(started).Seconds())
	c.wake()
	switch {
	case !known, result.UID != owner.UID, result.Generation != owner.Generation, result.Disabled, !owner.DeletionTimestamp.IsZero():
		return nil
	case result.Deferred:
		c.recordDeferred(owner)
	}
	return result
}

// write writes a result. After a conflict with another writer, or if the cache is behind the writes of this controller, the placement is
// reconciled again with a delay.
func (c *Controller) write(ctx context.Context, req ctrl.Request, owner *clusterv1beta1.Placement,
	result *scheduler.Result) (ctrl.Result, error) {
	started := c.clock.Now()
	again, err := c.bind(ctx, owner, result)
	bindSeconds.Observe(c.clock.Since(started).Seconds())
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return ctrl.Result{RequeueAfter: c.retries.When(req)}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	c.retries.Forget(req)
	if again.IsZero() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: max(again.Sub(c.clock.Now()), minRetryDelay)}, nil
}

// restoreOnce passes all stored decisions to the scheduler before the first placement is scheduled. If that fails, the next reconcile
// tries again.
func (c *Controller) restoreOnce(ctx context.Context) error {
	c.restoreMu.Lock()
	defer c.restoreMu.Unlock()
	if c.restored.Load() {
		return nil
	}
	if err := restore(ctx, c.client, c.scheduler); err != nil {
		return err
	}
	c.restored.Store(true)
	return nil
}
