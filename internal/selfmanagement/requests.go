package selfmanagement

import (
	"context"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	authenticationuser "k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/machinery/signingrequest"
)

// registerRequests adds the controller of the first certificate of the agent; the hub renews it as that of any agent.
func (s *self) registerRequests(manager ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(manager).Named("selfmanagement-csr-approve").
		For(&certificatesv1.CertificateSigningRequest{}).
		WithOptions(controller.Options{SkipNameValidation: ptr.To(true), RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(reconcile.Func(s.reconcileRequest)))
}

// reconcileRequest approves what an administrator has requested for the agent, as the agent does when it registers: who has a credential to
// join with could otherwise take the place of the agent.
func (s *self) reconcileRequest(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := s.client.Get(ctx, request.NamespacedName, csr); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	_, user, ok := signingrequest.RequestedAgent(csr)
	if !ok || signingrequest.Decided(csr) || user != fleet.ClusterUser(s.name, s.agent) ||
		!slices.Contains(csr.Spec.Groups, authenticationuser.SystemPrivilegedGroup) {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, signingrequest.Approve(ctx, s.client, csr, s.clock.Now(), "The hub manages this cluster itself.")
}
