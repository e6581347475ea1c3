// Package heartbeat renews the Lease of the managed cluster on the hub.
package heartbeat

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/agent/registration/hubreport"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const (
	// defaultDuration is for a ManagedCluster that was written before the field had a default.
	defaultDuration = time.Minute
	// jitter spreads the heartbeats of a fleet: each comes up to this share later than configured.
	jitter = 0.25
)

// The wait after a failure doubles from the first to the last, which is short against the grace that a hub gives: when a
// hub is back, heartbeats of its clusters have to come before it takes them for lost.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// longestRenewal is how long the hub may take to renew the Lease. One that keeps the connection alive and answers nothing, or a load
// balancer in front of it, would hold up heartbeats for ever, and nobody would be told.
const longestRenewal = 30 * time.Second

// Options configure the controller.
type Options struct {
	// Hub has the ManagedCluster, of which the controller reads the cache.
	Hub cluster.Cluster
	// Leases reads and writes the Lease on the hub, without a cache.
	Leases client.Client
	// Lease is what the hub has just returned for the first heartbeat; if it is nil, that reads the Lease.
	Lease *coordinationv1.Lease
	// CheckHub is called when the hub does not take a heartbeat, or does not accept the cluster.
	CheckHub func()
	// Record takes the events of heartbeats that start and end.
	Record func(eventType, reason, action, note string, args ...any)
	// Report takes the results of heartbeats; nil if nobody wants them.
	Report *hubreport.Report
	Clock  clock.Clock
}

// Controller renews the lease of the agent's own ManagedCluster.
type Controller struct {
	Options
	clusters client.Reader
	leases   client.Client
	beating  bool

	lease   *coordinationv1.Lease // as the hub last returned it, so that a renewal is one request
	renewed time.Time
}

// New returns a Controller that reads ManagedClusters from a cache and writes leases through a client without one.
func New(clusters client.Reader, leases client.Client, o Options) *Controller {
	return &Controller{Options: o, clusters: clusters, leases: leases, lease: o.Lease}
}

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	return ctrl.NewControllerManagedBy(mgr).Named("registration-lease-renew").
		WithOptions(controller.Options{
			SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: 1,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		WatchesRawSource(source.Kind(o.Hub.GetCache(), &clusterv1.ManagedCluster{},
			&handler.TypedEnqueueRequestForObject[*clusterv1.ManagedCluster]{})).
		Complete(New(o.Hub.GetClient(), o.Leases, o))
}

// Reconcile renews the lease when it is due and comes back when it is due again.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	mc := &clusterv1.ManagedCluster{}
	if err := c.clusters.Get(ctx, req.NamespacedName, mc); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !mc.Spec.HubAcceptsClient {
		c.stopped(mc.Name)
		return ctrl.Result{}, nil
	}
	period := duration(mc)
	if due := c.renewed.Add(period); c.Clock.Now().Before(due) {
		return ctrl.Result{RequeueAfter: due.Sub(c.Clock.Now())}, nil
	}
	err := c.renew(ctx, mc.Name)
	c.Report.Attempted(ctx, err)
	if err != nil {
		c.lease = nil // another writer may have changed it, or the hub may have created it again
		if !apierrors.IsConflict(err) {
			c.CheckHub()
		}
		return ctrl.Result{}, err
	}
	late := jitter * rand.Float64() * float64(period) //nolint:gosec // it spreads heartbeats and protects nothing
	return ctrl.Result{RequeueAfter: period + time.Duration(late)}, nil
}

func duration(mc *clusterv1.ManagedCluster) time.Duration {
	if mc.Spec.LeaseDurationSeconds <= 0 {
		return defaultDuration
	}
	return time.Duration(mc.Spec.LeaseDurationSeconds) * time.Second
}

func (c *Controller) renew(ctx context.Context, cluster string) error {
	ctx, cancel := context.WithTimeout(ctx, longestRenewal)
	defer cancel()
	if c.lease == nil {
		lease, err := ReadLease(ctx, c.leases, cluster)
		if err != nil {
			return err
		}
		c.lease = lease
	}
	now := c.Clock.Now()
	c.lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(now))
	if err := c.leases.Update(ctx, c.lease); err != nil {
		return fmt.Errorf("renew the lease of cluster %s: %w", cluster, err)
	}
	c.renewed = now
	if !c.beating {
		c.beating = true
		c.Record(corev1.EventTypeNormal, fleet.EventManagedClusterLeaseUpdateStarted, "Renew", "Heartbeats of cluster %s go to the hub", cluster)
	}
	return nil
}

// ReadLease returns the Lease of a cluster from the hub.
func ReadLease(ctx context.Context, hub client.Reader, cluster string) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: cluster, Name: fleet.ClusterNamespaceLease}
	if err := hub.Get(ctx, key, lease); err != nil {
		return nil, fmt.Errorf("get Lease %s: %w", key, err)
	}
	return lease, nil
}

// stopped is for a cluster that the hub does not accept any more.
func (c *Controller) stopped(cluster string) {
	c.lease = nil
	c.CheckHub()
	if c.beating {
		c.beating = false
		c.Record(corev1.EventTypeWarning, fleet.EventManagedClusterLeaseUpdateStopped, "Renew",
			"The hub does not accept cluster %s any more; heartbeats end", cluster)
	}
}
