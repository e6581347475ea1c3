// Package placement keeps PlacementDecisions what the scheduler (package internal/placement) makes of the fleet. It feeds the
// scheduler what the API says, and writes down what it selects.
package placement

import (
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/fleet"
	"github.com/capstan-io/capstan/internal/hub/placement/debug"
	scheduler "github.com/capstan-io/capstan/internal/placement"
)

// workers is how many placements are written at once. They decide one after the other, in microseconds, and then wait for
// the API.
const workers = 16

// byPlacement is the index of PlacementDecisions by the placement in their label: a namespace may have thousands.
const byPlacement = "placement"

// Controller reconciles Placements.
type Controller struct {
	client    client.Client
	recorder  events.EventRecorder
	clock     clock.Clock
	scheduler *scheduler.Scheduler

	// turns paces the events.
	turns *rate.Limiter

	restoring sync.Mutex
	// informed says that the scheduler knows the fleet, and what was decided.
	informed atomic.Bool
	// rescheduled tells the timer that the next time may be another.
	rescheduled chan struct{}
}

// New returns a Controller that works through the client, which has the index byPlacement.
func New(c client.Client, recorder events.EventRecorder, clk clock.Clock, s *scheduler.Scheduler) *Controller {
	return &Controller{client: c, recorder: recorder, clock: clk, scheduler: s, rescheduled: make(chan struct{}, 1),
		turns: rate.NewLimiter(eventsPerSecond, eventsAtOnce)}
}

// Register adds the controller to the manager. The endpoint, unless it is nil, says what the controller knows.
func Register(mgr ctrl.Manager, clk clock.Clock, options scheduler.Options, endpoint *debug.Endpoint) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &clusterv1beta1.PlacementDecision{}, byPlacement, placementOf)
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
	builder := ctrl.NewControllerManagedBy(mgr).Named("placement").WithOptions(controller.Options{MaxConcurrentReconciles: workers})
	for _, s := range c.sources(mgr.GetCache()) {
		builder = builder.WatchesRawSource(s)
	}
	return builder.Complete(c)
}

// placementOf is the name of the placement of a PlacementDecision.
func placementOf(o client.Object) []string {
	if name := o.GetLabels()[fleet.LabelPlacement]; name != "" {
		return []string{name}
	}
	return nil
}

// Reconcile schedules a placement and writes what is new.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if err := c.inform(ctx); err != nil {
		return ctrl.Result{}, err
	}
	owner := &clusterv1beta1.Placement{}
	if err := c.client.Get(ctx, req.NamespacedName, owner); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	began := c.clock.Now()
	result, known := c.scheduler.Schedule(req.NamespacedName)
	schedulingSeconds.Observe(c.clock.Since(began).Seconds())
	c.wakeTimer()
	if !known || result.Disabled || !owner.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	began = c.clock.Now()
	again, err := c.bind(ctx, owner, result)
	bindSeconds.Observe(c.clock.Since(began).Seconds())
	// Somebody else wrote, or the cache is behind what this controller wrote: the next look sees it.
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	}
	if err != nil || again.IsZero() {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: max(again.Sub(c.clock.Now()), staleRetry)}, nil
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

// restore tells a scheduler what was decided before it was there. Balance and Steady of the first placement need that of
// all.
func restore(ctx context.Context, reader client.Reader, s *scheduler.Scheduler) error {
	list := &clusterv1beta1.PlacementDecisionList{}
	if err := reader.List(ctx, list); err != nil {
		return err
	}
	clusters := map[scheduler.Key][]string{}
	for i := range list.Items {
		decision := &list.Items[i]
		for _, name := range placementOf(decision) {
			key := scheduler.Key{Namespace: decision.Namespace, Name: name}
			for _, d := range decision.Status.Decisions {
				clusters[key] = append(clusters[key], d.ClusterName)
			}
		}
	}
	for key, names := range clusters {
		s.Restore(key, names)
	}
	return nil
}
