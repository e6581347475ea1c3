// Package placement keeps PlacementDecisions what the scheduler (package internal/placement) makes of the fleet. It feeds the
// scheduler what the API says, and writes down what it selects.
package placement

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// workers is how many placements are written at once. They decide one after the other, in microseconds, and then wait for
// the API.
const workers = 16

// How long it takes until another look when somebody else wrote at the same time: at first, and at most when that goes on.
const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = time.Minute
)

// Controller reconciles Placements.
type Controller struct {
	client    client.Client
	recorder  events.EventRecorder
	clock     clock.Clock
	scheduler *scheduler.Scheduler

	// turns paces the events, and retries what goes wrong for a while.
	turns   *rate.Limiter
	late    chan lateEvents
	retries workqueue.TypedRateLimiter[ctrl.Request]

	restoring sync.Mutex
	// informed says that the scheduler knows the fleet, and what was decided.
	informed atomic.Bool
	// rescheduled tells the timer that the next time may be another.
	rescheduled chan struct{}
	// unevaluated tells the one who applies CEL expressions that there may be more to do.
	unevaluated chan struct{}
}

// New returns a Controller that works through the client, which has the index byPlacement.
func New(c client.Client, recorder events.EventRecorder, clk clock.Clock, s *scheduler.Scheduler) *Controller {
	return &Controller{client: c, recorder: recorder, clock: clk, scheduler: s, rescheduled: make(chan struct{}, 1),
		unevaluated: make(chan struct{}, evaluators),
		turns:       rate.NewLimiter(eventsPerSecond, eventsAtOnce),
		late:        make(chan lateEvents, eventsPerSecond*int(eventsLatest/time.Second)+eventsAtOnce),
		retries:     workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](firstRetry, lastRetry)}
}

// Register adds the controller to the manager. The endpoint, unless it is nil, says what the controller knows.
func Register(mgr ctrl.Manager, clk clock.Clock, options scheduler.Options, endpoint *debug.Endpoint) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &clusterv1beta1.PlacementDecision{}, byPlacement, concerned)
	if err != nil {
		return err
	}
	options.Timer = timePlugins(clk)
	c := New(mgr.GetClient(), mgr.GetEventRecorder("placement-controller"), clk, scheduler.New(options))
	if endpoint != nil {
		options.Timer = nil
		e := &explainer{controller: c, api: mgr.GetAPIReader(), options: options}
		if err := e.openTo(endpoint, mgr); err != nil {
			return err
		}
	}
	builder := ctrl.NewControllerManagedBy(mgr).Named("placement-placement-schedule").WithOptions(controller.Options{MaxConcurrentReconciles: workers,
		RateLimiter: retry.Limiter()})
	for _, s := range c.sources(mgr.GetCache()) {
		builder = builder.WatchesRawSource(s)
	}
	return builder.Complete(c)
}

// Reconcile schedules a placement and writes what is new.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if err := c.inform(ctx); err != nil {
		return ctrl.Result{}, err
	}
	owner := &clusterv1beta1.Placement{}
	missing := c.client.Get(ctx, req.NamespacedName, owner)
	if client.IgnoreNotFound(missing) != nil {
		return ctrl.Result{}, missing
	}
	if !c.scheduler.Decides(req.NamespacedName) {
		if err := c.follow(ctx, req.NamespacedName, owner.UID); err != nil {
			return ctrl.Result{}, err
		}
	}
	if missing != nil {
		c.retries.Forget(req)
		return ctrl.Result{}, nil
	}
	began := c.clock.Now()
	result, known := c.scheduler.Schedule(req.NamespacedName)
	schedulingSeconds.Observe(c.clock.Since(began).Seconds())
	c.wake()
	if !known || result.UID != owner.UID || result.Generation != owner.Generation {
		c.retries.Forget(req)
		return ctrl.Result{}, nil // the scheduler is about to hear of this one, and will ask for it
	}
	if result.Disabled || !owner.DeletionTimestamp.IsZero() {
		c.retries.Forget(req)
		return ctrl.Result{}, nil
	}
	if result.Pending {
		c.retries.Forget(req)
		if result.Deferred {
			c.tellDeferred(owner)
		}
		return ctrl.Result{}, nil // the scheduler asks for it when it can be decided
	}
	began = c.clock.Now()
	again, err := c.bind(ctx, owner, result)
	bindSeconds.Observe(c.clock.Since(began).Seconds())
	// Somebody else wrote, or the cache is behind what this controller wrote: the next look sees it.
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
	return ctrl.Result{RequeueAfter: max(again.Sub(c.clock.Now()), firstRetry)}, nil
}

// inform restores once what was decided before, and tries again where that fails.
func (c *Controller) inform(ctx context.Context) error {
	c.restoring.Lock()
	defer c.restoring.Unlock()
	if c.informed.Load() {
		return nil
	}
	if err := restore(ctx, c.client, c.scheduler); err != nil {
		return err
	}
	c.informed.Store(true)
	return nil
}
