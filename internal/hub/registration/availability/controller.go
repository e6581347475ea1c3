// Package availability sets the conditions ManagedClusterConditionAvailable and ManagedClusterConditionClockSynced of clusters from the
// Leases that their agents renew.
package availability

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

const (
	// workers is how many clusters are reconciled at once: many may be lost together.
	workers = 10
	// graceFactor is how many lease durations may pass without a heartbeat.
	graceFactor = 5
	// defaultLeaseDuration is used for a ManagedCluster that was written before the field had a default.
	defaultLeaseDuration = time.Minute
	// longestLeaseDuration is what longer ones count as: the field takes some of which graceFactor are more than a Duration can be.
	longestLeaseDuration = 20 * 365 * 24 * time.Hour
)

// Options configure the controller.
type Options struct {
	// Clock is the source of time.
	Clock clock.Clock
	// LeaseNamespace is for a Lease of the hub itself, by which it knows since when it receives heartbeats without an interruption; empty
	// means that there is none.
	LeaseNamespace string
}

// Controller reconciles the conditions of a ManagedCluster that follow from its heartbeats.
type Controller struct {
	client         client.Client
	recorder       events.EventRecorder
	clock          clock.Clock
	leaseNamespace string
	heartbeats     *heartbeats
}

// New returns a Controller that works through the client.
func New(c client.Client, recorder events.EventRecorder, o Options) *Controller {
	return &Controller{client: c, recorder: recorder, clock: o.Clock, leaseNamespace: o.LeaseNamespace, heartbeats: newHeartbeats(o.Clock)}
}

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	c := New(mgr.GetClient(), mgr.GetEventRecorder("lease-controller"), o)
	if o.LeaseNamespace != "" {
		if err := mgr.Add(manager.RunnableFunc(c.renewOwn)); err != nil {
			return err
		}
	}
	return ctrl.NewControllerManagedBy(mgr).Named("registration-managedcluster-availability").
		For(&clusterv1.ManagedCluster{}, builder.WithPredicates(predicate.Or[client.Object](
			predicates.Generation(), predicate.AnnotationChangedPredicate{}))).
		Watches(&coordinationv1.Lease{}, handler.EnqueueRequestsFromMapFunc(c.onLease)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

func (c *Controller) onLease(_ context.Context, o client.Object) []reconcile.Request {
	lease, ok := o.(*coordinationv1.Lease)
	if !ok || lease.Name != fleet.ClusterNamespaceLease {
		return nil
	}
	c.heartbeats.observe(lease)
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: lease.Namespace}}}
}

// Reconcile checks the last heartbeat of the cluster, and is due again when the next one is overdue.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &clusterv1.ManagedCluster{}
	if err := c.client.Get(ctx, req.NamespacedName, cluster); apierrors.IsNotFound(err) {
		c.heartbeats.forget(req.Name)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, err
	}
	if !cluster.Spec.HubAcceptsClient {
		return ctrl.Result{}, nil
	}
	last, known, err := c.last(ctx, cluster.Name)
	if err != nil || !known {
		return ctrl.Result{}, err
	}
	before := cluster.DeepCopy()
	remaining := c.heartbeats.overdue(cluster.Name, graceOf(cluster)).Sub(c.clock.Now())
	if remaining > 0 && !managedcluster.Accepted(cluster) {
		return ctrl.Result{RequeueAfter: remaining}, nil // the lease is new; acceptance is about to be reported, and the clocks with it
	}
	c.setClockSynced(cluster, last)
	if remaining <= 0 {
		if has, err := c.hasLease(ctx, cluster.Name); err != nil || !has {
			return ctrl.Result{}, err
		}
		c.setUnknown(cluster)
	}
	changed, err := patch.Status(ctx, c.client, cluster, before)
	if err != nil {
		return ctrl.Result{}, err
	}
	if changed {
		c.recordEvents(cluster, before)
	}
	if remaining <= 0 {
		// The next heartbeat enqueues the cluster. The agent may set the condition to available, and then be lost before its next
		// heartbeat.
		remaining = graceOf(cluster)
	}
	return ctrl.Result{RequeueAfter: remaining}, nil
}

// last returns the last heartbeat of a cluster. If the cluster was deleted and created again, its lease may be older than the cluster,
// so that there is no event for it.
func (c *Controller) last(ctx context.Context, cluster string) (last heartbeat, known bool, err error) {
	if last, known = c.heartbeats.of(cluster); known {
		return last, true, nil
	}
	lease := &coordinationv1.Lease{}
	if err := c.client.Get(ctx, leaseOf(cluster), lease); err != nil {
		return last, false, client.IgnoreNotFound(err)
	}
	c.heartbeats.observe(lease)
	last, known = c.heartbeats.of(cluster)
	return last, known, nil
}

// hasLease reports whether the agent of a cluster can send heartbeats. Without a lease, as in a namespace that is being deleted, it cannot,
// and those that came before say nothing.
func (c *Controller) hasLease(ctx context.Context, cluster string) (bool, error) {
	err := c.client.Get(ctx, leaseOf(cluster), &coordinationv1.Lease{})
	if apierrors.IsNotFound(err) {
		c.heartbeats.forget(cluster)
	}
	return err == nil, client.IgnoreNotFound(err)
}

func leaseOf(cluster string) client.ObjectKey {
	return client.ObjectKey{Namespace: cluster, Name: fleet.ClusterNamespaceLease}
}

// graceOf returns how long the hub waits for a heartbeat of the cluster.
func graceOf(cluster *clusterv1.ManagedCluster) time.Duration {
	if cluster.Spec.LeaseDurationSeconds <= 0 {
		return graceFactor * defaultLeaseDuration
	}
	return graceFactor * min(time.Duration(cluster.Spec.LeaseDurationSeconds)*time.Second, longestLeaseDuration)
}

func (c *Controller) setUnknown(cluster *clusterv1.ManagedCluster) {
	c.set(cluster, metav1.Condition{
		Type: fleet.ConditionClusterAvailable, Status: metav1.ConditionUnknown, Reason: fleet.ReasonManagedClusterLeaseUpdateStopped,
		Message: "Registration agent stopped updating its lease.",
	})
}

// ClockSynced returns the condition of a cluster whose clock is that of the hub. It is so until a heartbeat says otherwise.
func ClockSynced(since time.Time) metav1.Condition {
	return metav1.Condition{
		Type: fleet.ConditionClockSynced, Status: metav1.ConditionTrue, Reason: fleet.ReasonManagedClusterClockSynced,
		Message: "The clock of the managed cluster is synced with the hub.", LastTransitionTime: metav1.NewTime(since),
	}
}

// setClockSynced sets the condition about the clocks of cluster and hub, by when the last heartbeat was written: the hub may learn of it
// late. Nothing else depends on it: the hub uses the time at which it learned of a heartbeat. One that waited for the hub says nothing.
func (c *Controller) setClockSynced(cluster *clusterv1.ManagedCluster, last heartbeat) {
	if c.heartbeats.waited(last) {
		return
	}
	skew := last.written.Sub(last.renewTime.Time).Abs()
	synced := skew < graceOf(cluster) || cluster.Annotations[fleet.AnnotationSkipClockSyncCheck] == "true"
	cond := ClockSynced(c.clock.Now())
	if !synced {
		cond.Status, cond.Reason = metav1.ConditionFalse, fleet.ReasonManagedClusterClockOutOfSync
		cond.Message = fmt.Sprintf("The clock of the managed cluster differs from the hub's by %s; set it, for instance with NTP.",
			skew.Round(time.Second))
		// The skew differs a little with each heartbeat, which is not worth a write.
		if now := meta.FindStatusCondition(cluster.Status.Conditions, cond.Type); now != nil && now.Status == cond.Status {
			return
		}
	}
	c.set(cluster, cond)
}

func (c *Controller) set(cluster *clusterv1.ManagedCluster, cond metav1.Condition) {
	cond.LastTransitionTime = metav1.NewTime(c.clock.Now())
	meta.SetStatusCondition(&cluster.Status.Conditions, cond)
}

// recordEvents writes an event for each condition whose status has changed.
func (c *Controller) recordEvents(cluster, before *clusterv1.ManagedCluster) {
	if changed := transition(cluster, before, fleet.ConditionClusterAvailable); changed != nil {
		// In the cluster's namespace, where the agent's own events about its availability are.
		there := cluster.DeepCopy()
		there.Namespace = cluster.Name
		c.recorder.Eventf(there, nil, corev1.EventTypeWarning, fleet.EventAvailableUnknown, "UpdateCondition",
			"The managed cluster %s is not heard of any more: no heartbeat for %s", cluster.Name, graceOf(cluster))
	}
	if changed := transition(cluster, before, fleet.ConditionClockSynced); changed != nil {
		kind := corev1.EventTypeNormal
		if changed.Status == metav1.ConditionFalse {
			kind = corev1.EventTypeWarning
		}
		c.recorder.Eventf(cluster, nil, kind, fleet.EventManagedClusterClockSyncedConditionUpdated, "UpdateCondition", "%s", changed.Message)
	}
}

func transition(cluster, before *clusterv1.ManagedCluster, kind string) *metav1.Condition {
	now, then := meta.FindStatusCondition(cluster.Status.Conditions, kind), meta.FindStatusCondition(before.Status.Conditions, kind)
	if now == nil || then != nil && then.Status == now.Status {
		return nil
	}
	return now
}
