// Package addonlease reports to the hub whether the agents of add-ons are alive, by the Leases that they renew on the managed cluster.
package addonlease

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/agent/addon/install"
	"github.com/capstan-io/capstan/internal/agent/addon/single"
	"github.com/capstan-io/capstan/internal/agent/work/tracker"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
)

const (
	// durations is how many of its own durations a lease may go without renewal. Agents that are made with the add-on framework may renew a
	// quarter of the duration late, and any agent may miss one renewal.
	durations = 3
	// defaultDuration is the duration of a lease without leaseDurationSeconds.
	defaultDuration = time.Minute
	// modeTimeout is how long a new add-on may be without a lease before that is reported, if its manager has not reported that there is to
	// be one.
	modeTimeout = install.ModeTimeout
)

// The wait after a failure doubles from the first to the last.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// Options configure the controller.
type Options struct {
	// Hub has the ManagedClusterAddOns, of which the controller reads the cache.
	Hub cluster.Cluster
	// Managed and Hosting are the clusters on which agents of add-ons run: the managed one, and for add-ons in hosted mode the one
	// that the agent itself runs in.
	Managed, Hosting *rest.Config
	// Grace is how long any lease may go without renewal; zero means three times the lease's own leaseDurationSeconds.
	Grace time.Duration
	Clock clock.Clock
}

// Controller sets the condition Available of ManagedClusterAddOns, unless their health is determined otherwise.
type Controller struct {
	Options
	hub              client.Client
	managed, hosting *leases
	seen             map[types.NamespacedName]renewal
	// missed is since when a lease is missing that has not been reported yet.
	missed map[types.NamespacedName]time.Time
	// agents knows where the agents of add-ons run.
	agents install.Modes
}

type leases = single.Objects[*coordinationv1.Lease]

// renewal is the renewTime of a lease in one of its versions, and when the controller saw it. The clocks of the agents of add-ons need not
// agree with this one, so what counts is when renewals are seen.
type renewal struct {
	lease         types.UID
	version       string
	renewed, seen time.Time
	// latest is the latest renewTime so far.
	latest time.Time
}

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	c := &Controller{
		Options: o, hub: o.Hub.GetClient(), seen: map[types.NamespacedName]renewal{}, missed: map[types.NamespacedName]time.Time{},
	}
	var err error
	if c.managed, err = newLeases(o.Managed); err != nil {
		return err
	}
	if c.hosting, err = newLeases(o.Hosting); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("addon-lease-watch").
		WithOptions(controller.Options{
			// One at a time: seen and missed have no lock.
			SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: 1,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		WatchesRawSource(source.Kind(o.Hub.GetCache(), &addonv1beta1.ManagedClusterAddOn{},
			&handler.TypedEnqueueRequestForObject[*addonv1beta1.ManagedClusterAddOn]{})).
		WatchesRawSource(c.managed).
		WatchesRawSource(c.hosting).
		Complete(c)
}

func newLeases(config *rest.Config) (*leases, error) {
	coordination, err := coordinationv1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for the leases of add-ons: %w", err)
	}
	return single.New(coordination.RESTClient(), "leases", &coordinationv1.Lease{}), nil
}

// Reconcile reports the state of the lease of one add-on. It requeues the add-on for when the lease runs out.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	if err := c.hub.Get(ctx, req.NamespacedName, addOn); apierrors.IsNotFound(err) {
		c.forget(req.NamespacedName)
		c.agents.Forget(req.NamespacedName)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("get ManagedClusterAddOn %s: %w", req, err)
	}
	now := c.Clock.Now()
	hosted, wait := c.agents.Hosted(addOn, now)
	switch {
	case addOn.Status.HealthCheck.Mode == addonv1beta1.HealthCheckModeCustomized:
		c.forget(req.NamespacedName)
		return ctrl.Result{}, nil
	case wait > 0:
		c.forget(req.NamespacedName)
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	watched := c.follow(addOn, hosted)
	lease, found, known := watched.Get(req.NamespacedName, leaseOf(addOn))
	if !known {
		return ctrl.Result{}, nil // the add-on is requeued when the lease is known
	}
	if wait := c.silence(addOn, found, now); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	cond, end := c.conditionOf(addOn.Name, req.NamespacedName, lease, found, now)
	if cond.Status == metav1.ConditionFalse && !meta.IsStatusConditionFalse(addOn.Status.Conditions, cond.Type) {
		var err error
		if cond, end, err = c.confirm(ctx, addOn, watched, now, cond); err != nil {
			return ctrl.Result{}, err
		}
	}
	before := addOn.DeepCopy()
	cond.LastTransitionTime = metav1.NewTime(now)
	meta.SetStatusCondition(&addOn.Status.Conditions, cond)
	if _, err := patch.Status(ctx, c.hub, addOn, before); err != nil {
		if apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: firstRetry}, nil
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return ctrl.Result{RequeueAfter: max(0, end.Sub(now))}, nil
}

func leaseOf(addOn *addonv1beta1.ManagedClusterAddOn) types.NamespacedName {
	return types.NamespacedName{Namespace: install.Namespace(addOn), Name: addOn.Name}
}

// follow watches the lease where the add-on's agent runs, and nowhere else.
func (c *Controller) follow(addOn *addonv1beta1.ManagedClusterAddOn, hosted bool) *leases {
	here, there := c.managed, c.hosting
	if hosted {
		here, there = there, here
	}
	owner := client.ObjectKeyFromObject(addOn)
	there.Follow(owner)
	here.Follow(owner, leaseOf(addOn))
	return here
}

// confirm judges by the lease itself where the watch has not seen it renewed: that is behind while the API server does not answer, and when
// this agent was stopped for a while. Where the agent may not read the lease, the watch has to do.
func (c *Controller) confirm(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn, from *leases, now time.Time,
	watched metav1.Condition) (metav1.Condition, time.Time, error) {
	lease, err := from.Read(ctx, leaseOf(addOn))
	switch {
	case apierrors.IsForbidden(err):
		return watched, time.Time{}, nil
	case client.IgnoreNotFound(err) != nil:
		return watched, time.Time{}, fmt.Errorf("read Lease %s of add-on %s: %w", leaseOf(addOn), addOn.Name, err)
	}
	cond, end := c.conditionOf(addOn.Name, client.ObjectKeyFromObject(addOn), lease, err == nil, now)
	return cond, end, nil
}

func (c *Controller) forget(owner types.NamespacedName) {
	c.managed.Follow(owner)
	c.hosting.Follow(owner)
	delete(c.seen, owner)
	delete(c.missed, owner)
}

// silence is how long to report nothing about a lease that is missing: the manager of the add-on may be about to report, with what it
// deploys, that the health is determined otherwise. Not every add-on has a manager that does. Where the time to report on which cluster
// the agent runs has passed, this time has passed, too.
func (c *Controller) silence(addOn *addonv1beta1.ManagedClusterAddOn, found bool, now time.Time) time.Duration {
	reports := func(condition string) bool {
		return meta.FindStatusCondition(addOn.Status.Conditions, condition) != nil
	}
	owner := client.ObjectKeyFromObject(addOn)
	_, located := install.Hosted(addOn)
	if found || !located || addOn.Status.HealthCheck.Mode != "" || reports(fleet.ConditionManifestApplied) || reports(fleet.ConditionAvailable) {
		delete(c.missed, owner)
		return 0
	}
	if c.missed[owner].IsZero() {
		c.missed[owner] = now
	}
	return c.missed[owner].Add(modeTimeout).Sub(now)
}

// conditionOf returns the condition that follows from a lease, and when it will be another without an event; zero is never.
func (c *Controller) conditionOf(addOn string, owner types.NamespacedName, lease *coordinationv1.Lease, found bool,
	now time.Time) (metav1.Condition, time.Time) {
	if !found {
		delete(c.seen, owner)
		return metav1.Condition{
			Type: fleet.ConditionAvailable, Status: metav1.ConditionUnknown, Reason: fleet.ReasonAddOnLeaseNotFound,
			Message: fmt.Sprintf("The status of %s add-on is unknown: its agent has no lease.", addOn),
		}, time.Time{}
	}
	grace := c.graceOf(lease)
	last := c.observe(owner, lease, now)
	if end := last.Add(grace); now.Before(end) {
		return metav1.Condition{
			Type: fleet.ConditionAvailable, Status: metav1.ConditionTrue, Reason: fleet.ReasonAddOnLeaseUpdated,
			Message: addOn + " add-on is available.",
		}, end
	}
	return metav1.Condition{
		Type: fleet.ConditionAvailable, Status: metav1.ConditionFalse, Reason: fleet.ReasonAddOnLeaseUpdateStopped,
		Message: fmt.Sprintf("%s add-on is not available: its agent has not renewed its lease for more than %s.", addOn, grace),
	}, time.Time{}
}

func (c *Controller) graceOf(lease *coordinationv1.Lease) time.Duration {
	if c.Grace > 0 {
		return c.Grace
	}
	duration := defaultDuration
	if seconds := lease.Spec.LeaseDurationSeconds; seconds != nil && *seconds > 0 {
		duration = time.Duration(*seconds) * time.Second
	}
	return durations * duration
}

// observe returns when the lease was last renewed. For a lease that is seen for the first time, that is its renewTime.
func (c *Controller) observe(owner types.NamespacedName, lease *coordinationv1.Lease, now time.Time) time.Time {
	var renewed time.Time
	if lease.Spec.RenewTime != nil {
		renewed = lease.Spec.RenewTime.Time
	}
	last, next := c.seen[owner], renewal{lease: lease.UID, version: lease.ResourceVersion, renewed: renewed, seen: now, latest: renewed}
	switch again := last.lease == lease.UID; {
	case !again && renewed.Before(now):
		next.seen = renewed
	case again && !last.isFollowedBy(next):
		next = last
	case again && last.latest.After(renewed):
		next.latest = last.latest
	}
	c.seen[owner] = next
	return next.seen
}

// isFollowedBy reports whether a lease was renewed. Any other renewTime counts: the clock by which it is renewed may have been set back. A
// watch that is behind shows earlier versions, of which only a renewTime counts that is later than all before, as when the cluster was
// restored.
func (r renewal) isFollowedBy(next renewal) bool {
	if tracker.IsOlder(next.version, r.version) {
		return next.renewed.After(r.latest)
	}
	return !next.renewed.Equal(r.renewed)
}
