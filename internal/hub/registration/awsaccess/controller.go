// Package awsaccess lets the agents of EKS clusters into a hub that is one, by AWS IAM: each accepted cluster gets a role that it may
// become, and the hub an access entry for that role.
package awsaccess

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/eks"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// workers is how many clusters are reconciled at once. IAM allows an account few requests a second.
const workers = 4

// resync is after how long what AWS has is compared again, as there is no watch of it. It is spread over half as long again.
const resync = time.Hour

// again is after how long a cluster that is refused for another one is looked at again: in whatever way that one loses its access. It is
// spread over half as long again.
const again = time.Minute

// Options configure the controller.
type Options struct {
	// Access is how to reach AWS. Without it, no cluster gets access, and clusters that had it are let go.
	Access *Access
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Controller reconciles the access of a ManagedCluster by AWS IAM.
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
	c := New(mgr.GetClient(), mgr.GetEventRecorder("registration-controller"), o)
	return ctrl.NewControllerManagedBy(mgr).Named("registration-managedcluster-awsaccess").
		For(&clusterv1.ManagedCluster{}, builder.WithPredicates(predicates.Either(concerns))).
		Watches(&clusterv1.ManagedCluster{}, handler.EnqueueRequestsFromMapFunc(c.clustersOfSameRole),
			builder.WithPredicates(deletions())).
		Watches(&rbacv1.Role{}, handler.EnqueueRequestsFromMapFunc(clusterOfRemainingWorks)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

// concerns reports whether a cluster registers by AWS IAM, or did.
func concerns(o client.Object) bool {
	return eks.Claims(o.GetAnnotations()) || controllerutil.ContainsFinalizer(o, fleet.FinalizerAWSAccess)
}

func deletions() predicate.Predicate {
	no := predicate.NewPredicateFuncs(func(client.Object) bool { return false })
	no.DeleteFunc = func(event.DeleteEvent) bool { return true }
	return no
}

// clustersOfSameRole maps a cluster that has gone to those that had no access because it had.
func (c *Controller) clustersOfSameRole(ctx context.Context, o client.Object) (requests []reconcile.Request) {
	suffix := o.GetAnnotations()[fleet.AnnotationManagedClusterIAMRoleSuffix]
	clusters := &clusterv1.ManagedClusterList{}
	if suffix == "" {
		return nil
	}
	if err := c.client.List(ctx, clusters, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Clusters that may have access now are looked at later", "suffix", suffix)
	}
	for i := range clusters.Items {
		if clusters.Items[i].Annotations[fleet.AnnotationManagedClusterIAMRoleSuffix] == suffix {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&clusters.Items[i])})
		}
	}
	return requests
}

// clusterOfRemainingWorks maps the role by which a denied cluster finalizes its works, which ends its access, to the cluster.
func clusterOfRemainingWorks(_ context.Context, o client.Object) []reconcile.Request {
	cluster := o.GetNamespace()
	if o.GetName() != fleet.RemainingWorksRole(cluster) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: cluster}}}
}

// Reconcile gives or takes away what lets the agent of the cluster in, and reports in a condition.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &clusterv1.ManagedCluster{}
	if err := c.client.Get(ctx, req.NamespacedName, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !concerns(cluster) {
		return ctrl.Result{}, nil
	}
	ended, err := c.ended(ctx, cluster)
	switch {
	case err != nil:
		return ctrl.Result{}, err
	case ended:
		return ctrl.Result{}, c.revoke(ctx, cluster)
	case !managedcluster.ActedOn(cluster):
		return ctrl.Result{}, nil // not decided yet, or the agent has to clean up
	case c.Access == nil:
		return ctrl.Result{}, c.report(ctx, cluster, metav1.ConditionFalse, fleet.ReasonAWSDriverNotEnabled,
			"The hub does not register clusters by AWS IAM: its registration drivers do not include awsirsa")
	}
	return c.grant(ctx, cluster)
}

// ended reports whether the cluster has no access any more. It goes with the last of its other rights: the agent of a cluster that is
// deleted has to clean up, and that of one that is denied to finalize its works, unless it is cut off.
func (c *Controller) ended(ctx context.Context, cluster *clusterv1.ManagedCluster) (bool, error) {
	switch {
	case managedcluster.CutOff(cluster):
		return true, nil
	case !cluster.DeletionTimestamp.IsZero():
		return !controllerutil.ContainsFinalizer(cluster, fleet.FinalizerManagedCluster), nil
	case !eks.Claims(cluster.Annotations):
		return true, nil
	case !managedcluster.Denied(cluster):
		return false, nil
	}
	condition := meta.FindStatusCondition(cluster.Status.Conditions, fleet.ConditionHubAccepted)
	if condition == nil || condition.Reason != fleet.ReasonHubClusterAdminDenied {
		return false, nil // its rights are being taken
	}
	err := c.client.Get(ctx, client.ObjectKey{Namespace: cluster.Name, Name: fleet.RemainingWorksRole(cluster.Name)}, &rbacv1.Role{})
	return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
}

// grant lets the cluster in.
func (c *Controller) grant(ctx context.Context, cluster *clusterv1.ManagedCluster) (ctrl.Result, error) {
	pair, err := eks.Verify(c.Access.hub, cluster.Annotations)
	if err != nil {
		return ctrl.Result{}, c.refuse(ctx, cluster, err)
	}
	owner, err := c.Access.clusterOf(ctx, pair.HubRole())
	if err != nil {
		return ctrl.Result{}, c.failToCompare(ctx, cluster, pair, err)
	}
	switch other, err := c.holder(ctx, owner, cluster.Name, pair); {
	case err != nil:
		return ctrl.Result{}, err
	case other != nil:
		if err := c.refuse(ctx, cluster, taken(other, pair)); err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{RequeueAfter: wait.Jitter(again, 0.5)}, nil
	}
	if earlier := cluster.Annotations[fleet.AnnotationAWSRole]; earlier != pair.HubRole() {
		if err := c.take(ctx, cluster, earlier); err != nil {
			return ctrl.Result{}, c.fail(ctx, cluster, err)
		}
	}
	if err := c.record(ctx, cluster, pair.HubRole()); err != nil {
		return ctrl.Result{}, err
	}
	switch err := c.Access.grant(ctx, cluster.Name, owner, pair); {
	case is[readError](err) && owner == cluster.Name:
		return ctrl.Result{}, c.failToCompare(ctx, cluster, pair, err)
	case err != nil:
		return ctrl.Result{}, c.fail(ctx, cluster, err)
	}
	return ctrl.Result{RequeueAfter: wait.Jitter(resync, 0.5)},
		c.report(ctx, cluster, metav1.ConditionTrue, fleet.ReasonAWSAccessGranted, granted(pair))
}

// granted is what the condition of a cluster with access says.
func granted(pair eks.Pair) string {
	return fmt.Sprintf("%s has access as IAM role %s", pair.Managed.ARN(), pair.HubRoleARN())
}

// failToCompare is fail where AWS does not say what it has. A cluster that was given access is taken to have it still.
func (c *Controller) failToCompare(ctx context.Context, cluster *clusterv1.ManagedCluster, pair eks.Pair, cause error) error {
	has := meta.FindStatusCondition(cluster.Status.Conditions, fleet.ConditionAWSAccess)
	if has != nil && has.Status == metav1.ConditionTrue && has.Message == granted(pair) {
		return cause
	}
	return c.fail(ctx, cluster, cause)
}

// holder is another ManagedCluster that has the access entry, and would be shut out by this one; nil if there is none.
func (c *Controller) holder(ctx context.Context, owner, cluster string, pair eks.Pair) (*clusterv1.ManagedCluster, error) {
	if owner == "" || owner == cluster {
		return nil, nil
	}
	other := &clusterv1.ManagedCluster{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: owner}, other); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if other.Annotations[fleet.AnnotationAWSRole] == pair.HubRole() {
		return other, nil
	}
	claimed, err := eks.Verify(c.Access.hub, other.Annotations)
	if err == nil && claimed.HubRole() == pair.HubRole() && other.Spec.HubAcceptsClient {
		return other, nil
	}
	return nil, nil
}

// taken says why a cluster gets no access while another ManagedCluster has it.
func taken(holder *clusterv1.ManagedCluster, pair eks.Pair) error {
	if arn := holder.Annotations[fleet.AnnotationManagedClusterARN]; arn != pair.Managed.ARN() {
		return fmt.Errorf("%s has the same IAM role as %q, which has access as ManagedCluster %s, as account and name are the same; "+
			"register one of the two by another driver, or delete it", pair.Managed.ARN(), arn, holder.Name)
	}
	return fmt.Errorf("%s is ManagedCluster %s already, and has access as that; delete one of the two", pair.Managed.ARN(), holder.Name)
}

// record comes before anything is made in AWS.
func (c *Controller) record(ctx context.Context, cluster *clusterv1.ManagedCluster, role string) error {
	before := cluster.DeepCopy()
	controllerutil.AddFinalizer(cluster, fleet.FinalizerAWSAccess)
	metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, fleet.AnnotationAWSRole, role)
	_, err := patch.Object(ctx, c.client, cluster, before)
	return err
}

// take takes a recorded role away, unless it has become that of another ManagedCluster.
func (c *Controller) take(ctx context.Context, cluster *clusterv1.ManagedCluster, role string) error {
	if c.Access == nil || !eks.IsHubRole(role) {
		return nil
	}
	owner, err := c.Access.clusterOf(ctx, role)
	if err != nil {
		return err
	}
	if owner != "" && owner != cluster.Name {
		return nil
	}
	return c.Access.revoke(ctx, role)
}

// revoke lets the cluster go. Where AWS cannot be reached any more, as the hub does not register clusters by AWS IAM, what was made there
// stays, and an event names it.
func (c *Controller) revoke(ctx context.Context, cluster *clusterv1.ManagedCluster) error {
	role := cluster.Annotations[fleet.AnnotationAWSRole]
	if err := c.take(ctx, cluster, role); err != nil {
		return c.fail(ctx, cluster, err)
	}
	if c.Access == nil && role != "" {
		c.recorder.Eventf(cluster, nil, corev1.EventTypeWarning, fleet.EventResourceCleanupFail, "Revoke",
			"IAM role %s and its access entry stay in AWS: the registration drivers of the hub do not include awsirsa any more", role)
	}
	before := cluster.DeepCopy()
	if meta.RemoveStatusCondition(&cluster.Status.Conditions, fleet.ConditionAWSAccess) {
		if _, err := patch.Status(ctx, c.client, cluster, before); err != nil {
			return err
		}
	}
	before = cluster.DeepCopy()
	delete(cluster.Annotations, fleet.AnnotationAWSRole)
	controllerutil.RemoveFinalizer(cluster, fleet.FinalizerAWSAccess)
	_, err := patch.Object(ctx, c.client, cluster, before)
	return client.IgnoreNotFound(err)
}

// refuse takes away what the cluster had, and says what an administrator has to correct.
func (c *Controller) refuse(ctx context.Context, cluster *clusterv1.ManagedCluster, reason error) error {
	if err := c.take(ctx, cluster, cluster.Annotations[fleet.AnnotationAWSRole]); err != nil {
		return c.fail(ctx, cluster, err)
	}
	return c.report(ctx, cluster, metav1.ConditionFalse, fleet.ReasonAWSIdentityRefused, fmt.Sprintf("The cluster gets no access: %v", reason))
}

// fail reports what AWS refused and returns it, for the controller to try again.
func (c *Controller) fail(ctx context.Context, cluster *clusterv1.ManagedCluster, cause error) error {
	message := "The hub tries again: " + stable(cause)
	if !cluster.DeletionTimestamp.IsZero() {
		message += fmt.Sprintf(". The ManagedCluster stays until the IAM role %s and its access entry are gone. If the hub can never delete "+
			"them, delete them in AWS, and take the finalizer %s off the ManagedCluster",
			cluster.Annotations[fleet.AnnotationAWSRole], fleet.FinalizerAWSAccess)
	}
	if err := c.report(ctx, cluster, metav1.ConditionFalse, fleet.ReasonAWSRequestFailed, message); err != nil {
		return err
	}
	return cause
}

// report writes the condition if it has changed, and then an event.
func (c *Controller) report(
	ctx context.Context, cluster *clusterv1.ManagedCluster, status metav1.ConditionStatus, reason, message string,
) error {
	before := cluster.DeepCopy()
	meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{
		Type: fleet.ConditionAWSAccess, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(c.Clock.Now()),
	})
	changed, err := patch.Status(ctx, c.client, cluster, before)
	if err != nil || !changed {
		return err
	}
	if status == metav1.ConditionTrue {
		c.recorder.Eventf(cluster, nil, corev1.EventTypeNormal, fleet.EventEKSRegistrationRequestApproved, "Grant", "%s", message)
	} else {
		c.recorder.Eventf(cluster, nil, corev1.EventTypeWarning, fleet.EventEKSRegistrationRequestRefused, "Grant", "%s", message)
	}
	return nil
}
