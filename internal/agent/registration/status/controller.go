// Package status reports to the hub on the managed cluster: that it has joined, whether its API server answers, its version,
// its resources and its claims.
package status

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	aboutv1alpha1 "github.com/capstan-io/capstan/api/about/v1alpha1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	"github.com/capstan-io/capstan/internal/agent/hubevents"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// The wait after a failure doubles from the first to the last: a hub that is back should soon have the state of its clusters.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Options configure the controller.
type Options struct {
	// Hub has the ManagedCluster.
	Hub cluster.Cluster
	// Cluster is the managed cluster's name on the hub.
	Cluster string
	// Prober reports whether the managed cluster's API server answers.
	Prober *Prober
	// Certificate has the condition of the agent's client certificate.
	Certificate *Notice
	// Nodes says whether the managed cluster has nodes at all; a hub that is managed itself has none.
	Nodes bool
	// Claims and Properties say whether the ClusterClaims and ClusterProperties of the managed cluster are reported.
	Claims, Properties bool
	// MaxCustomClaims is how many claims beyond the reserved ones are reported.
	MaxCustomClaims int
	// ReservedClaimSuffixes end the names of claims that are always reported.
	ReservedClaimSuffixes []string
	// Recorder takes events for the hub.
	Recorder events.EventRecorder
	Clock    clock.Clock
}

// Controller reconciles the status of the agent's own ManagedCluster with what it sees on the managed cluster.
type Controller struct {
	Options
	hub     client.Client
	managed client.Reader
}

// New returns a Controller that reads managed and writes hub.
func New(hub client.Client, managed client.Reader, o Options) *Controller {
	return &Controller{Options: o, hub: hub, managed: managed}
}

// Register adds the controller to the manager of the managed cluster.
func Register(mgr ctrl.Manager, o Options) error {
	c := New(o.Hub.GetClient(), mgr.GetClient(), o)
	self := []reconcile.Request{{NamespacedName: client.ObjectKey{Name: o.Cluster}}}
	toCluster := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return self })
	builder := ctrl.NewControllerManagedBy(mgr).Named("registration-managedcluster-status").
		WithOptions(controller.Options{
			SkipNameValidation: ptr.To(true),
			RateLimiter:        workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		WatchesRawSource(source.Kind(o.Hub.GetCache(), &clusterv1.ManagedCluster{},
			&handler.TypedEnqueueRequestForObject[*clusterv1.ManagedCluster]{})).
		WatchesRawSource(o.Prober.Source(self)).
		WatchesRawSource(o.Certificate.source(self))
	if o.Claims {
		builder = builder.Watches(&clusterv1alpha1.ClusterClaim{}, toCluster)
	}
	if o.Properties {
		builder = builder.Watches(&aboutv1alpha1.ClusterProperty{}, toCluster)
	}
	if o.Nodes {
		builder = builder.WatchesRawSource(source.Kind(mgr.GetCache(), &corev1.Node{},
			handler.TypedEnqueueRequestsFromMapFunc(func(context.Context, *corev1.Node) []reconcile.Request { return self }),
			predicate.TypedFuncs[*corev1.Node]{UpdateFunc: resourcesChanged}))
	}
	return builder.Complete(c)
}

// resourcesChanged leaves out the heartbeats of nodes.
func resourcesChanged(e event.TypedUpdateEvent[*corev1.Node]) bool {
	return e.ObjectOld.Spec.Unschedulable != e.ObjectNew.Spec.Unschedulable ||
		!equality.Semantic.DeepEqual(e.ObjectOld.Status.Capacity, e.ObjectNew.Status.Capacity) ||
		!equality.Semantic.DeepEqual(e.ObjectOld.Status.Allocatable, e.ObjectNew.Status.Allocatable)
}

// Reconcile writes all of the status in one patch, if any of it has changed.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	mc := &clusterv1.ManagedCluster{}
	if err := c.hub.Get(ctx, req.NamespacedName, mc); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !mc.Spec.HubAcceptsClient {
		return ctrl.Result{}, nil
	}
	before := mc.DeepCopy()
	c.setCondition(mc, metav1.Condition{
		Type: fleet.ConditionJoined, Status: metav1.ConditionTrue, Reason: fleet.ReasonManagedClusterJoined,
		Message: "Managed cluster joined",
	})
	health := c.Prober.Health(ctx)
	if health.Condition.Type != "" {
		c.setCondition(mc, health.Condition)
	}
	if health.Version != "" {
		mc.Status.Version.Kubernetes = health.Version
	}
	if cond, known := c.Certificate.get(); known {
		c.setCondition(mc, cond)
	}
	if err := c.describe(ctx, mc); err != nil {
		return ctrl.Result{}, err
	}
	if equality.Semantic.DeepEqual(before.Status, mc.Status) {
		return ctrl.Result{}, nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.hub.Status().Patch(ctx, mc, patch); err != nil {
		return ctrl.Result{}, fmt.Errorf("patch status of ManagedCluster %s: %w", mc.Name, err)
	}
	c.recordAvailability(before, mc)
	return ctrl.Result{}, nil
}

// describe reports what clusters are chosen by. Nobody chooses one that is being deleted: of that the hub only needs to know whether its
// agent is there to clean up.
func (c *Controller) describe(ctx context.Context, mc *clusterv1.ManagedCluster) error {
	if !mc.DeletionTimestamp.IsZero() {
		return nil
	}
	if err := c.setResources(ctx, mc); err != nil {
		return err
	}
	return c.setClaims(ctx, mc)
}

// recordAvailability records an event when the managed cluster's API server comes or goes.
func (c *Controller) recordAvailability(before, after *clusterv1.ManagedCluster) {
	was := meta.FindStatusCondition(before.Status.Conditions, fleet.ConditionClusterAvailable)
	is := meta.FindStatusCondition(after.Status.Conditions, fleet.ConditionClusterAvailable)
	if is == nil || was != nil && was.Status == is.Status {
		return
	}
	if is.Status == metav1.ConditionTrue {
		c.recordEvent(after, corev1.EventTypeNormal, fleet.EventAvailable, "Probe", "The managed cluster is available")
		return
	}
	c.recordEvent(after, corev1.EventTypeWarning, fleet.EventUnavailable, "Probe", "%s", is.Message)
}

// recordEvent writes an event about the cluster on the hub.
func (c *Controller) recordEvent(mc *clusterv1.ManagedCluster, eventType, reason, action, note string, args ...any) {
	c.Recorder.Eventf(hubevents.Of(mc), nil, eventType, reason, action, note, args...)
}

func (c *Controller) setCondition(mc *clusterv1.ManagedCluster, cond metav1.Condition) {
	cond.LastTransitionTime = metav1.NewTime(c.Clock.Now())
	meta.SetStatusCondition(&mc.Status.Conditions, cond)
}
