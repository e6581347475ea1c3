// Package renewal approves the certificate signing requests with which the agent of an accepted cluster renews its own
// client certificate.
package renewal

import (
	"context"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
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
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/machinery/signingrequest"
)

// workers is how many requests are reconciled at once.
const workers = 10

// retryInterval is when a request is checked again whose requester may not renew. The acceptance of its cluster enqueues it at once;
// this is for changes of rights, which have no event.
const retryInterval = time.Minute

// Options configure the controller.
type Options struct {
	// GRPC says whether agents also register by the gRPC server.
	GRPC signingrequest.GRPC
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Controller reconciles the CertificateSigningRequests of cluster agents.
type Controller struct {
	client   client.Client
	recorder events.EventRecorder
	clock    clock.PassiveClock
	grpc     signingrequest.GRPC
}

// New returns a Controller that works through the client.
func New(c client.Client, recorder events.EventRecorder, o Options) *Controller {
	return &Controller{client: c, recorder: recorder, clock: o.Clock, grpc: o.GRPC}
}

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	c := New(mgr.GetClient(), mgr.GetEventRecorder("csr-approving-controller"), o)
	return ctrl.NewControllerManagedBy(mgr).Named("registration-csr-renew").
		For(&certificatesv1.CertificateSigningRequest{}).
		Watches(&clusterv1.ManagedCluster{}, handler.EnqueueRequestsFromMapFunc(c.requestsOfCluster), builder.WithPredicates(becameAccepted())).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

// becameAccepted matches a cluster whose agent has got its rights just now.
func becameAccepted() predicate.Predicate {
	accepted := func(o client.Object) bool {
		cluster, ok := o.(*clusterv1.ManagedCluster)
		return ok && meta.IsStatusConditionTrue(cluster.Status.Conditions, fleet.ConditionHubAccepted)
	}
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc:  func(e event.UpdateEvent) bool { return accepted(e.ObjectNew) && !accepted(e.ObjectOld) },
	}
}

// requestsOfCluster returns the undecided requests with the cluster's label.
func (c *Controller) requestsOfCluster(ctx context.Context, cluster client.Object) []reconcile.Request {
	requests, err := signingrequest.List(ctx, c.client, signingrequest.Undecided, signingrequest.OfCluster(cluster.GetName()))
	if err != nil {
		log.FromContext(ctx).Error(err, "The certificate requests of a cluster cannot be looked at again", "cluster", cluster.GetName())
	}
	return requests
}

// Reconcile approves the request if it renews the identity of its requester. Other requests are left to an administrator.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := c.client.Get(ctx, req.NamespacedName, csr); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	cluster, user, requester, ok := c.grpc.RequestedAgent(csr)
	if !ok || user != requester || signingrequest.Decided(csr) {
		return ctrl.Result{}, nil
	}
	why, err := c.objection(ctx, csr, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	if why != "" {
		c.withhold(ctx, csr, cluster, why)
		return ctrl.Result{}, nil
	}
	allowed, err := c.mayRenew(ctx, csr, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !allowed {
		log.FromContext(ctx).Info("Renewal left for an administrator: the requester may not renew client certificates", "user", requester)
		return ctrl.Result{RequeueAfter: retryInterval}, nil
	}
	return ctrl.Result{}, c.approve(ctx, csr)
}

// objection returns why the cluster may not renew: it does not exist, it is not accepted, or the certificate of its agent is no longer
// valid here. The right to renew alone is not enough, because it may have been left over.
func (c *Controller) objection(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, name string) (string, error) {
	cluster := &clusterv1.ManagedCluster{}
	err := c.client.Get(ctx, client.ObjectKey{Name: name}, cluster)
	switch {
	case apierrors.IsNotFound(err) || err == nil && !cluster.Spec.HubAcceptsClient:
		return fmt.Sprintf("ManagedCluster %s does not exist or is not accepted; its agent gets no new certificate. If it is meant to have one, run: "+
			"capstan accept --clusters %s", name, name), nil
	case err != nil:
		return "", err
	case signingrequest.Outdated(csr, cluster):
		return "The request stays as it is: " + signingrequest.OutdatedMessage(cluster), nil
	}
	return "", nil
}

// withhold leaves the request undecided. The acceptance of the cluster enqueues it again.
func (c *Controller) withhold(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, cluster, why string) {
	log.FromContext(ctx).Info("Renewal withheld", "cluster", cluster, "user", csr.Spec.Username, "reason", why)
	c.recorder.Eventf(csr, nil, corev1.EventTypeWarning, fleet.EventManagedClusterRenewalWithheld, "Approve", "%s", why)
}

// mayRenew checks whether the requester's cluster is still accepted: only then its agent has this right.
// Of a requester behind the gRPC server, the hub knows the name alone: the groups are those that the agent of this name has.
func (c *Controller) mayRenew(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, cluster string) (bool, error) {
	extra := make(map[string]authorizationv1.ExtraValue, len(csr.Spec.Extra))
	for k, v := range csr.Spec.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	who := authorizationv1.SubjectAccessReviewSpec{User: csr.Spec.Username, UID: csr.Spec.UID, Groups: csr.Spec.Groups, Extra: extra}
	if c.grpc.Forwarded(csr) {
		who = authorizationv1.SubjectAccessReviewSpec{User: c.grpc.Requester(csr), Groups: fleet.ClusterGroups(cluster)}
	}
	sar := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: who.User, UID: who.UID, Groups: who.Groups, Extra: who.Extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: fleet.GroupRegister, Resource: fleet.ResourceManagedClusters, Subresource: fleet.SubresourceClientCertificates,
			Verb: fleet.VerbRenew,
		},
	}}
	// A review is answered, not stored, so there is nothing for the cache to wait for.
	if err := c.client.Create(ctx, sar, client.DisableReadYourWritesConsistency); err != nil {
		return false, fmt.Errorf("review access of the requester of CertificateSigningRequest %s: %w", csr.Name, err)
	}
	return sar.Status.Allowed, nil
}

func (c *Controller) approve(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) error {
	if err := signingrequest.Approve(ctx, c.client, csr, c.clock.Now(),
		"The agent of an accepted cluster renews its own client certificate."); err != nil {
		return err
	}
	c.recorder.Eventf(csr, nil, corev1.EventTypeNormal, fleet.EventManagedClusterCSRAutoApproved, "Approve",
		"Renewal of the client certificate of ManagedCluster %s approved", csr.Labels[fleet.LabelClusterName])
	return nil
}
