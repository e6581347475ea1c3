// Package autoaccept accepts clusters that trusted users register.
package autoaccept

import (
	"context"
	"fmt"
	"slices"
	"time"

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

// contested is how often a cluster is looked at again whose ARN another one claims, too.
const contested = 5 * time.Minute

// IndexRole is the index of ManagedClusters by the IAM role that they would get for the ARN that they claim.
const IndexRole = "autoaccept.role"

// RoleOf returns what has the values of IndexRole, for a hub.
func RoleOf(hub eks.Cluster) client.IndexerFunc {
	return func(cluster client.Object) []string {
		pair, err := eks.Verify(hub, cluster.GetAnnotations())
		if err != nil {
			return nil
		}
		return []string{pair.HubRole()}
	}
}

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
// AWS lets in nobody but the cluster with the ARN. Of several with one ARN, an administrator decides which that is.
type Controller struct {
	Options
	client   client.Client
	recorder events.EventRecorder
}

// New returns a Controller that works through the client.
func New(c client.Client, recorder events.EventRecorder, o Options) *Controller {
	return &Controller{Options: o, client: c, recorder: recorder}
}

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &clusterv1.ManagedCluster{}, IndexRole, RoleOf(o.Hub)); err != nil {
		return fmt.Errorf("index ManagedClusters by %s: %w", IndexRole, err)
	}
	return ctrl.NewControllerManagedBy(mgr).Named("registration-managedcluster-autoaccept").
		For(&clusterv1.ManagedCluster{}, builder.WithPredicates(predicate.Or[client.Object](
			predicates.Generation(), predicate.AnnotationChangedPredicate{}))).
		Watches(&certificatesv1.CertificateSigningRequest{}, handler.EnqueueRequestsFromMapFunc(clusterOf)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(New(mgr.GetClient(), mgr.GetEventRecorder("registration-controller"), o)))
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
	trusted, again, err := c.trusted(ctx, cluster)
	if err != nil || !trusted {
		return ctrl.Result{RequeueAfter: again}, err
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

// trusted reports whether the cluster is the only one with its trusted ARN, or a trusted user got a certificate for its agent. One that is
// not may be later, without an event about it: then it says when to look again.
func (c *Controller) trusted(ctx context.Context, cluster *clusterv1.ManagedCluster) (trusted bool, again time.Duration, err error) {
	if pair, err := eks.Verify(c.Hub, cluster.Annotations); err == nil && c.ARNs.Match(pair.Managed) {
		rival, err := c.rival(ctx, cluster, pair)
		if err != nil || rival == "" {
			return err == nil, 0, err
		}
		c.recorder.Eventf(cluster, nil, corev1.EventTypeWarning, fleet.EventManagedClusterAutoAcceptanceWithheld, "Accept",
			"ManagedCluster %s claims %s or its IAM role, too, so none of them is accepted automatically. Delete each that is not this cluster "+
				"of AWS: kubectl delete managedcluster NAME", rival, pair.Managed.ARN())
		again = contested
	}
	trusted, err = c.trustedRequest(ctx, cluster)
	return trusted, again, err
}

// rival is another ManagedCluster that claims the role of this one: anyone who may join can. It is empty if there is none.
func (c *Controller) rival(ctx context.Context, cluster *clusterv1.ManagedCluster, pair eks.Pair) (string, error) {
	claim := &clusterv1.ManagedClusterList{}
	if err := c.client.List(ctx, claim, client.MatchingFields{IndexRole: pair.HubRole()}, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list the ManagedClusters that claim %s: %w", pair.Managed.ARN(), err)
	}
	for i := range claim.Items {
		if name := claim.Items[i].Name; name != cluster.Name {
			return name, nil
		}
	}
	return "", nil
}

// trustedRequest reports whether the hub approved a request of a trusted user for an agent of this cluster, and not of a former one of the
// same name.
func (c *Controller) trustedRequest(ctx context.Context, cluster *clusterv1.ManagedCluster) (bool, error) {
	requests := &certificatesv1.CertificateSigningRequestList{}
	if err := c.client.List(ctx, requests, signingrequest.OfCluster(cluster.Name)); err != nil {
		return false, fmt.Errorf("list the certificate requests of cluster %s: %w", cluster.Name, err)
	}
	return slices.ContainsFunc(requests.Items, func(csr certificatesv1.CertificateSigningRequest) bool {
		// The label can be changed later, the request cannot.
		_, _, _, ok := c.GRPC.RequestedAgent(&csr)
		if !ok || !signingrequest.ApprovedByHub(&csr) || !c.GRPC.FromTrusted(&csr, c.Users) {
			return false
		}
		if signingrequest.OutdatedToJoin(&csr, cluster) {
			log.FromContext(ctx).Info("A request of a trusted user is for a former cluster of the name, or from before this one was cut off, and "+
				"does not have it accepted", "certificateSigningRequest", csr.Name)
			return false
		}
		return true
	}), nil
}
