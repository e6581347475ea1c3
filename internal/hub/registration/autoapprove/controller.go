// Package autoapprove approves the first certificate of clusters that trusted users register.
package autoapprove

import (
	"context"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/machinery/signingrequest"
)

// workers is how many requests are reconciled at once.
const workers = 10

// Options configure the controller.
type Options struct {
	// Users are the users whose clusters get their first certificate without a decision of an administrator.
	Users []string
	// GRPC has those of the gRPC server.
	GRPC signingrequest.GRPC
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Controller reconciles the CertificateSigningRequests of agents that join.
type Controller struct {
	client   client.Client
	recorder events.EventRecorder
	clock    clock.PassiveClock
	users    []string
	grpc     signingrequest.GRPC
}

// New returns a Controller that works through the client.
func New(c client.Client, recorder events.EventRecorder, o Options) *Controller {
	return &Controller{client: c, recorder: recorder, clock: o.Clock, users: o.Users, grpc: o.GRPC}
}

// Register adds the controller to the manager, whose cache has the index of signingrequest.AddClusterIndex.
func Register(mgr ctrl.Manager, o Options) error {
	c := New(mgr.GetClient(), mgr.GetEventRecorder("csr-approving-controller"), o)
	return ctrl.NewControllerManagedBy(mgr).Named("registration-csr-autoapprove").
		For(&certificatesv1.CertificateSigningRequest{}).
		Watches(&clusterv1.ManagedCluster{}, handler.EnqueueRequestsFromMapFunc(c.withheld), builder.WithPredicates(isReleased())).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

// isReleased matches a cluster that is no longer what its requests were withheld for: it is lost, has gone, or is accepted again.
func isReleased() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return connected(e.ObjectOld) && !connected(e.ObjectNew) || denied(e.ObjectOld) && !denied(e.ObjectNew)
		},
	}
}

// denied reports whether a cluster is denied, with or without rights left to its agent.
func denied(cluster client.Object) bool {
	mc, ok := cluster.(*clusterv1.ManagedCluster)
	return ok && (managedcluster.Denied(mc) || managedcluster.CutOff(mc))
}

// connected reports whether a cluster is accepted and its agent renews its lease.
func connected(cluster client.Object) bool {
	mc, ok := cluster.(*clusterv1.ManagedCluster)
	if !ok {
		return false
	}
	available := meta.FindStatusCondition(mc.Status.Conditions, fleet.ConditionClusterAvailable)
	return mc.Spec.HubAcceptsClient && available != nil && available.Status != metav1.ConditionUnknown
}

// withheld returns the undecided requests of a cluster.
func (c *Controller) withheld(ctx context.Context, cluster client.Object) []ctrl.Request {
	waiting, err := signingrequest.List(ctx, c.client, signingrequest.Undecided, signingrequest.OfCluster(cluster.GetName()))
	if err != nil {
		log.FromContext(ctx).Error(err, "The requests that wait for a cluster to be gone cannot be looked at again", "cluster", cluster.GetName())
	}
	return waiting
}

// nameAgent says how an administrator approves a request. A cluster that has joined has an agent already, so another one has to be named.
const nameAgent = "If it is meant to be, name it, as the command says it without --requesters: capstan accept --clusters %s --requesters NAME"

// Reconcile approves the request of a trusted user for exactly the identity of a cluster's agent. It does not approve one for a
// connected cluster: many clusters share one bootstrap credential, and everyone with that credential could take over any of them. Such
// a request waits until the cluster is lost, or for an administrator.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := c.client.Get(ctx, req.NamespacedName, csr); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	cluster, _, requester, ok := c.grpc.RequestedAgent(csr)
	if !ok || signingrequest.Decided(csr) || !c.grpc.FromTrusted(csr, c.users) || fleet.ReservedClusterName(cluster) {
		return ctrl.Result{}, nil
	}
	mc := &clusterv1.ManagedCluster{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: cluster}, mc); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if connected(mc) {
		c.recorder.Eventf(csr, nil, corev1.EventTypeWarning, fleet.EventManagedClusterAutoApprovalWithheld, "Approve",
			"ManagedCluster %s is connected; another agent for it is not approved automatically. "+nameAgent, cluster, cluster)
		return ctrl.Result{}, nil
	}
	if denied(mc) {
		c.recorder.Eventf(csr, nil, corev1.EventTypeWarning, fleet.EventManagedClusterAutoApprovalWithheld, "Approve",
			"ManagedCluster %s is denied; an agent for it is not approved automatically. "+nameAgent, cluster, cluster)
		return ctrl.Result{}, nil
	}
	if err := signingrequest.Approve(ctx, c.client, csr, c.clock.Now(),
		"The request comes from a user whose clusters are approved automatically."); err != nil {
		return ctrl.Result{}, err
	}
	c.recorder.Eventf(csr, nil, corev1.EventTypeNormal, fleet.EventManagedClusterAutoApproved, "Approve",
		"The first client certificate of ManagedCluster %s is approved: user %q is trusted", cluster, requester)
	return ctrl.Result{}, nil
}
