// Package expire deletes ManagedClusters that were never accepted, so that those that anyone with a bootstrap credential creates do not
// accumulate.
package expire

import (
	"context"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/machinery/signingrequest"
)

// pendingRequeue is when an expired cluster is checked again whose agent still tries to join, or that may not be deleted.
const pendingRequeue = time.Hour

// Options configure the controller.
type Options struct {
	// After is how long a cluster waits to be accepted before it is deleted.
	After time.Duration
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Controller reconciles ManagedClusters that were created with a bootstrap credential. Those that administrators created wait for their
// agent without a limit.
type Controller struct {
	client client.Client
	clock  clock.PassiveClock
	after  time.Duration
}

// New returns a Controller that works through the client.
func New(c client.Client, o Options) *Controller {
	return &Controller{client: c, clock: o.Clock, after: o.After}
}

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	return ctrl.NewControllerManagedBy(mgr).Named("registration-managedcluster-expire").
		For(&clusterv1.ManagedCluster{}, builder.WithPredicates(predicates.Generation())).
		WithOptions(controller.Options{RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(New(mgr.GetClient(), o)))
}

// Reconcile deletes the cluster when its time is over and its agent no longer tries to join. The hub removes requests that nobody decides
// on after a day; an agent that still tries makes another, and would create the cluster again, too.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &clusterv1.ManagedCluster{}
	if err := c.client.Get(ctx, req.NamespacedName, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !undecided(cluster) {
		return ctrl.Result{}, nil
	}
	if left := c.after - c.clock.Since(cluster.CreationTimestamp.Time); left > 0 {
		return ctrl.Result{RequeueAfter: min(left, retry.LongestTimer)}, nil
	}
	asks, err := c.asks(ctx, cluster.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	if asks {
		return ctrl.Result{RequeueAfter: pendingRequeue}, nil
	}
	// With the precondition, a cluster that is accepted at this moment is not deleted.
	unchanged := client.Preconditions{UID: &cluster.UID, ResourceVersion: &cluster.ResourceVersion}
	if err := c.client.Delete(ctx, cluster, unchanged); apierrors.IsForbidden(err) {
		log.FromContext(ctx).Info("A ManagedCluster that nobody accepted stays, because the hub may not delete it", "cluster", cluster.Name,
			"reason", err.Error())
		return ctrl.Result{RequeueAfter: pendingRequeue}, nil
	} else if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	log.FromContext(ctx).Info("Deleted a ManagedCluster that nobody accepted", "cluster", cluster.Name,
		"requestedBy", cluster.Annotations[fleet.AnnotationRequestedBy], "created", cluster.CreationTimestamp)
	return ctrl.Result{}, nil
}

// undecided reports whether the cluster was created with a bootstrap credential, and never accepted or denied. The finalizer of a cluster
// that was accepted stays.
func undecided(cluster *clusterv1.ManagedCluster) bool {
	return cluster.Annotations[fleet.AnnotationRequestedBy] != "" && cluster.DeletionTimestamp.IsZero() &&
		!cluster.Spec.HubAcceptsClient && !controllerutil.ContainsFinalizer(cluster, fleet.FinalizerManagedCluster) &&
		meta.FindStatusCondition(cluster.Status.Conditions, fleet.ConditionHubAccepted) == nil
}

// asks reports whether the agent of the cluster still tries to join: it has a certificate request that is undecided, or approved. For the
// hour until the hub removes one with a certificate, whoever approved it has time to accept the cluster: agents of OCM that have their
// certificate do not create it again. What the ManagedCluster itself says does not count, as who creates it may say anything.
func (c *Controller) asks(ctx context.Context, cluster string) (bool, error) {
	requests := &certificatesv1.CertificateSigningRequestList{}
	if err := c.client.List(ctx, requests, signingrequest.OfCluster(cluster)); err != nil {
		return false, fmt.Errorf("list the certificate requests of cluster %s: %w", cluster, err)
	}
	return slices.ContainsFunc(requests.Items, func(csr certificatesv1.CertificateSigningRequest) bool {
		return !signingrequest.Refused(&csr)
	}), nil
}
