// Package autoapprove approves the first certificate of the clusters that trusted users bring.
package autoapprove

import (
	"context"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/capstan-io/capstan/internal/fleet"
	"github.com/capstan-io/capstan/internal/hub/registration/agentcsr"
)

// workers is how many requests are judged at once.
const workers = 10

// Controller reconciles the CertificateSigningRequests of agents that join (RG-13).
type Controller struct {
	client   client.Client
	recorder events.EventRecorder
	clock    clock.Clock
	users    []string
}

// New returns a Controller that works through the client and trusts the users.
func New(c client.Client, recorder events.EventRecorder, clk clock.Clock, users []string) *Controller {
	return &Controller{client: c, recorder: recorder, clock: clk, users: users}
}

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, clk clock.Clock, users []string) error {
	return ctrl.NewControllerManagedBy(mgr).Named("autoapprove").
		For(&certificatesv1.CertificateSigningRequest{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(New(mgr.GetClient(), mgr.GetEventRecorder("csr-approving-controller"), clk, users))
}

// Reconcile approves the request of a trusted user for exactly the identity of a cluster's agent.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := c.client.Get(ctx, req.NamespacedName, csr); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	cluster, _, ok := agentcsr.Requested(csr)
	if !ok || agentcsr.Decided(csr) || !slices.Contains(c.users, csr.Spec.Username) || fleet.ReservedClusterName(cluster) {
		return ctrl.Result{}, nil
	}
	if err := agentcsr.Approve(ctx, c.client, csr, c.clock.Now(), "The request comes from a user whose clusters are approved automatically."); err != nil {
		return ctrl.Result{}, err
	}
	c.recorder.Eventf(csr, nil, corev1.EventTypeNormal, fleet.EventManagedClusterAutoApproved, "Approve",
		"The first client certificate of ManagedCluster %s is approved: user %q is trusted", cluster, csr.Spec.Username)
	return ctrl.Result{}, nil
}
