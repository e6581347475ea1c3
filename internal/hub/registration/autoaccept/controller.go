// Package autoaccept accepts clusters that trusted users register.
package autoaccept

import (
	"context"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/eks"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/machinery/signingrequest"
)

// workers is how many clusters are accepted at once.
const workers = 10

// creationDelay is how much later than its certificate request an agent may create its ManagedCluster. Agents of OCM create both at once,
// and the ManagedCluster again and again while a webhook of the hub is down, as in an upgrade. With their certificate, they make no other
// request by which the hub could accept the cluster.
const creationDelay = 5 * time.Minute

// Options configure the controller.
type Options struct {
	// Users are the users whose clusters are accepted without a decision of an administrator.
	Users []string
	// GRPC has those of the gRPC server.
	GRPC signingrequest.GRPC
	// ARNs match the ARNs of EKS clusters that are accepted without a decision of an administrator.
	ARNs eks.Patterns
	// Hub is the hub as AWS knows it, for the ARNs.
	Hub eks.Cluster
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Controller reconciles ManagedClusters that are neither accepted nor denied. A ManagedCluster alone is not enough: the hub must have
// approved a certificate for its agent, because a trusted user requested it. One that registers by AWS IAM needs none: whoever created it,
// AWS lets in nobody but the cluster with the ARN.
type Controller struct {
	Options
	client client.Client
}

// New returns a Controller that works through the client.
func New(c client.Client, o Options) *Controller {
	return &Controller{Options: o, client: c}
}

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	return ctrl.NewControllerManagedBy(mgr).Named("registration-managedcluster-autoaccept").
		For(&clusterv1.ManagedCluster{}, builder.WithPredicates(predicate.Or[client.Object](
			predicates.Generation(), predicate.AnnotationChangedPredicate{}))).
		Watches(&certificatesv1.CertificateSigningRequest{}, handler.EnqueueRequestsFromMapFunc(clusterOf)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(New(mgr.GetClient(), o)))
}

func clusterOf(_ context.Context, o client.Object) []reconcile.Request {
	csr, ok := o.(*certificatesv1.CertificateSigningRequest)
	if !ok || !signingrequest.ApprovedByHub(csr) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: csr.Labels[fleet.LabelClusterName]}}}
}

// Reconcile accepts the cluster once; later decisions of administrators stay.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &clusterv1.ManagedCluster{}
	if err := c.client.Get(ctx, req.NamespacedName, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if decided(cluster) || !cluster.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	trusted, err := c.trusted(ctx, cluster)
	if err != nil || !trusted {
		return ctrl.Result{}, err
	}
	before := cluster.DeepCopy()
	cluster.Spec.HubAcceptsClient = true
	// With an accepted cluster comes its finalizer, which would be another write.
	controllerutil.AddFinalizer(cluster, fleet.FinalizerManagedCluster)
	metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, fleet.AnnotationAutomaticallyAcceptedOn, c.Clock.Now().UTC().Format(time.RFC3339))
	_, err = patch.Object(ctx, c.client, cluster, before)
	return ctrl.Result{}, err
}

// decided reports whether the cluster is, or was, accepted. The finalizer stays even when an agent that is about to be denied clears its
// status.
func decided(cluster *clusterv1.ManagedCluster) bool {
	return cluster.Spec.HubAcceptsClient || controllerutil.ContainsFinalizer(cluster, fleet.FinalizerManagedCluster) ||
		cluster.Annotations[fleet.AnnotationAutomaticallyAcceptedOn] != "" ||
		meta.FindStatusCondition(cluster.Status.Conditions, fleet.ConditionHubAccepted) != nil
}

// trusted reports whether the cluster is one with a trusted ARN, or a trusted user got a certificate for its agent.
func (c *Controller) trusted(ctx context.Context, cluster *clusterv1.ManagedCluster) (bool, error) {
	if len(c.ARNs) > 0 && eks.Claims(cluster.Annotations) {
		pair, err := eks.Verify(c.Hub, cluster.Annotations)
		if err == nil && c.ARNs.Match(pair.Managed) {
			return true, nil
		}
	}
	return c.trustedRequest(ctx, cluster)
}

// trustedRequest reports whether the hub approved a request of a trusted user for an agent of this cluster, and not of a former one of the
// same name: the request is at most creationDelay older than the cluster, and not older than the certificates that hold for the cluster.
func (c *Controller) trustedRequest(ctx context.Context, cluster *clusterv1.ManagedCluster) (bool, error) {
	requests := &certificatesv1.CertificateSigningRequestList{}
	if err := c.client.List(ctx, requests, signingrequest.OfCluster(cluster.Name)); err != nil {
		return false, fmt.Errorf("list the certificate requests of cluster %s: %w", cluster.Name, err)
	}
	since := cluster.CreationTimestamp.Add(-creationDelay)
	return slices.ContainsFunc(requests.Items, func(csr certificatesv1.CertificateSigningRequest) bool {
		// The label can be changed later, the request cannot.
		_, _, _, ok := c.GRPC.RequestedAgent(&csr)
		if !ok || !signingrequest.ApprovedByHub(&csr) || !c.GRPC.FromTrusted(&csr, c.Users) {
			return false
		}
		if csr.CreationTimestamp.Time.Before(since) || signingrequest.Outdated(&csr, cluster) {
			log.FromContext(ctx).Info("A request of a trusted user is for a former cluster of the name and does not have this one accepted",
				"certificateSigningRequest", csr.Name)
			return false
		}
		return true
	}), nil
}
