// Package accept creates what an accepted cluster has on the hub (a namespace, a lease and the rights of its agent), and revokes the
// rights when the cluster is denied or deleted.
package accept

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"github.com/capstan-io/capstan/internal/hub/registration/availability"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// workers is how many clusters are reconciled at once: each takes a few requests, and little CPU.
const workers = 10

// worksCheckInterval is when the namespace of a cluster that is being deleted or denied is checked again for ManifestWorks.
const worksCheckInterval = 5 * time.Second

// Options configure the controller.
type Options struct {
	// Labels are set on what is created for a cluster, in addition to its own.
	Labels map[string]string
	// KeepsContent is true if no controller empties the namespaces of deleted clusters.
	KeepsContent bool
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Controller reconciles a ManagedCluster's acceptance.
type Controller struct {
	Options
	client   client.Client
	live     client.Reader
	recorder events.EventRecorder
}

// New returns a Controller that works through the client, and through live where a cache is not worth it.
func New(c client.Client, live client.Reader, recorder events.EventRecorder, o Options) *Controller {
	return &Controller{Options: o, client: c, live: live, recorder: recorder}
}

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	c := New(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder("registration-controller"), o)
	ofCluster := handler.EnqueueRequestsFromMapFunc(clusterOfObject)
	others := builder.WithPredicates(predicate.Not(renewal()))
	return ctrl.NewControllerManagedBy(mgr).Named("registration-managedcluster-accept").
		For(&clusterv1.ManagedCluster{}, builder.WithPredicates(predicate.Or[client.Object](
			predicates.Generation(), predicate.LabelChangedPredicate{}, finalizersChanged()))).
		Watches(&corev1.Namespace{}, ofCluster, others).
		Watches(&rbacv1.ClusterRole{}, handler.EnqueueRequestsFromMapFunc(c.clusterOfRole), others).
		Watches(&rbacv1.ClusterRoleBinding{}, ofCluster, others).
		Watches(&rbacv1.RoleBinding{}, ofCluster, others).
		Watches(&rbacv1.Role{}, ofCluster, others).
		Watches(&coordinationv1.Lease{}, ofCluster, others).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

// clusterOfObject maps an object to its cluster by its label. Objects of add-ons are ignored.
func clusterOfObject(_ context.Context, o client.Object) []reconcile.Request {
	name := o.GetLabels()[fleet.LabelClusterName]
	if name == "" || o.GetLabels()[fleet.LabelAddOnName] != "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: name}}}
}

// clusterOfRole maps a role to its cluster. A role that all clusters share is mapped to any one cluster that is not being deleted.
func (c *Controller) clusterOfRole(ctx context.Context, o client.Object) []reconcile.Request {
	if _, common := commonRules[o.GetName()]; !common {
		return clusterOfObject(ctx, o)
	}
	clusters := &clusterv1.ManagedClusterList{}
	if err := c.client.List(ctx, clusters, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "A role that all clusters share has changed, and is put right when a cluster changes", "role",
			o.GetName())
		return nil
	}
	for i := range clusters.Items {
		if cluster := &clusters.Items[i]; cluster.DeletionTimestamp.IsZero() && !fleet.ReservedClusterName(cluster.Name) {
			return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(cluster)}}
		}
	}
	return nil // without clusters the role is not needed
}

// renewal matches the heartbeat of a lease, which does not affect this controller.
func renewal() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			_, lease := e.ObjectNew.(*coordinationv1.Lease)
			return lease && e.ObjectNew.GetDeletionTimestamp().IsZero()
		},
	}
}

func finalizersChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !equality.Semantic.DeepEqual(e.ObjectOld.GetFinalizers(), e.ObjectNew.GetFinalizers())
	}}
}

// Reconcile creates or revokes what spec.hubAcceptsClient entitles the cluster to, and reports in a condition.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &clusterv1.ManagedCluster{}
	err := c.client.Get(ctx, req.NamespacedName, cluster)
	if apierrors.IsNotFound(err) {
		return c.abandon(ctx, req.Name)
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("get ManagedCluster %s: %w", req.Name, err)
	}
	if fleet.ReservedClusterName(cluster.Name) {
		return ctrl.Result{}, c.refuse(ctx, cluster)
	}
	if !cluster.DeletionTimestamp.IsZero() {
		return c.release(ctx, cluster)
	}
	if err := c.ensureCommonRoles(ctx); err != nil {
		return ctrl.Result{}, err
	}
	if cluster.Spec.HubAcceptsClient {
		return c.accept(ctx, cluster)
	}
	// The finalizer is set before the first right is given. Without it there is nothing to revoke, even after a crash, except for the
	// rights of a former cluster of the same name.
	if !managedcluster.Denied(cluster) && !managedcluster.CutOff(cluster) {
		return c.revokeInherited(ctx, cluster.Name) // not decided yet
	}
	return c.deny(ctx, cluster)
}

// accept creates what an accepted cluster has. The finalizer comes first, so that nothing is left behind when the cluster is deleted.
func (c *Controller) accept(ctx context.Context, cluster *clusterv1.ManagedCluster) (ctrl.Result, error) {
	before := cluster.DeepCopy()
	controllerutil.AddFinalizer(cluster, fleet.FinalizerManagedCluster)
	delete(cluster.Labels, fleet.LabelCutOff)
	if _, err := patch.Object(ctx, c.client, cluster, before); err != nil {
		return ctrl.Result{}, err
	}
	namespace := &corev1.Namespace{}
	if err := c.client.Get(ctx, client.ObjectKeyFromObject(cluster), namespace); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("get Namespace %s: %w", cluster.Name, err)
	}
	if !namespace.DeletionTimestamp.IsZero() {
		return c.leaveNamespace(ctx, cluster)
	}
	return ctrl.Result{}, c.setUp(ctx, cluster)
}

func (c *Controller) setUp(ctx context.Context, cluster *clusterv1.ManagedCluster) error {
	switch err := c.admit(ctx, cluster.Name); {
	case retry.IsConflict(err): // another writer was faster, which is not worth a condition
		return err
	case err != nil:
		return c.report(ctx, cluster, metav1.Condition{
			Type: fleet.ConditionHubAccepted, Status: metav1.ConditionFalse, Reason: fleet.ReasonHubClusterAdminAcceptFail,
			Message: fmt.Sprintf("The hub could not set up the cluster and tries again: %v", err),
		}, err)
	}
	return c.report(ctx, cluster, metav1.Condition{
		Type: fleet.ConditionHubAccepted, Status: metav1.ConditionTrue, Reason: fleet.ReasonHubClusterAdminAccepted,
		Message: "Accepted by hub cluster admin",
	}, nil)
}

// leaveNamespace lets go of the namespace of an accepted cluster that a user deletes: nothing can be created there, and a finalizer of this
// controller holds the rights by which the agent finalizes the works. When the namespace is gone, its deletion enqueues the cluster, which
// gets a new one.
func (c *Controller) leaveNamespace(ctx context.Context, cluster *clusterv1.ManagedCluster) (ctrl.Result, error) {
	done, err := c.revokeWhenDrained(ctx, cluster.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	return again(done), c.report(ctx, cluster, metav1.Condition{
		Type: fleet.ConditionHubAccepted, Status: metav1.ConditionFalse, Reason: fleet.ReasonHubClusterAdminAcceptFail,
		Message: fmt.Sprintf("Namespace %s is being deleted, with the works, add-ons and rights in it. When it is gone, the hub creates it "+
			"again and sets up the cluster there", cluster.Name) + withoutAgent(cluster, done),
	}, nil)
}

// withoutAgent says what to do about works that no agent finalizes.
func withoutAgent(cluster *clusterv1.ManagedCluster, done bool) string {
	if done || meta.IsStatusConditionTrue(cluster.Status.Conditions, fleet.ConditionClusterAvailable) {
		return ""
	}
	return fmt.Sprintf(". The agent has to finish the works, but the cluster is not available. If it never comes back, for each of them: "+
		"capstan delete work NAME --clusters %s --force", cluster.Name)
}

// refuse gives no rights to a cluster whose name stands for all clusters. Admission refuses such names, but this hub may run without
// it.
func (c *Controller) refuse(ctx context.Context, cluster *clusterv1.ManagedCluster) error {
	if !cluster.DeletionTimestamp.IsZero() {
		return patch.RemoveFinalizer(ctx, c.client, cluster, fleet.FinalizerManagedCluster)
	}
	if !cluster.Spec.HubAcceptsClient {
		return nil
	}
	return c.report(ctx, cluster, metav1.Condition{
		Type: fleet.ConditionHubAccepted, Status: metav1.ConditionFalse, Reason: fleet.ReasonHubClusterAdminAcceptFail,
		Message: fmt.Sprintf("The name %q is reserved: its group or role is one that the agents of all clusters share. Delete this ManagedCluster and "+
			"register the cluster under another name", cluster.Name),
	}, nil)
}

// deny revokes the rights. The agent may still read its own ManagedCluster, so that it learns that it was denied, and finalize the
// existing works. A cluster that is cut off may do neither.
func (c *Controller) deny(ctx context.Context, cluster *clusterv1.ManagedCluster) (ctrl.Result, error) {
	done, message := true, "Denied by hub cluster admin"
	var err error
	if managedcluster.CutOff(cluster) {
		message += " and cut off: its agent and its add-ons have no rights, not even to clean up"
		err = c.revokeAll(ctx, cluster.Name)
	} else if done, err = c.confine(ctx, cluster.Name); err == nil {
		err = c.ensureClusterRole(ctx, cluster.Name, deniedRules(cluster.Name))
	}
	switch {
	case retry.IsConflict(err):
		return ctrl.Result{}, err
	case err != nil:
		return ctrl.Result{}, c.report(ctx, cluster, metav1.Condition{
			Type: fleet.ConditionHubAccepted, Status: metav1.ConditionFalse, Reason: fleet.ReasonHubClusterAdminAcceptFail,
			Message: fmt.Sprintf("The cluster is denied; the hub could not take its rights away and tries again: %v", err),
		}, err)
	}
	err = c.report(ctx, cluster, metav1.Condition{
		Type: fleet.ConditionHubAccepted, Status: metav1.ConditionFalse, Reason: fleet.ReasonHubClusterAdminDenied, Message: message,
	}, nil)
	return again(done), err
}

// release revokes the rights; the namespace stays. While cleanup empties the namespace, the agent keeps its rights, by which it learns
// what to undo on its cluster; the end of cleanup enqueues the cluster again. A cluster that is cut off undoes nothing.
func (c *Controller) release(ctx context.Context, cluster *clusterv1.ManagedCluster) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(cluster, fleet.FinalizerManagedCluster) {
		return ctrl.Result{}, nil
	}
	if cluster.Spec.HubAcceptsClient && controllerutil.ContainsFinalizer(cluster, fleet.FinalizerResourceCleanup) {
		return ctrl.Result{}, nil
	}
	if !managedcluster.CutOff(cluster) {
		if done, err := c.revokeWhenDrained(ctx, cluster.Name); err != nil || !done {
			return again(done), errors.Join(err, c.reportKept(ctx, cluster))
		}
	} else if err := c.revokeAll(ctx, cluster.Name); err != nil {
		return ctrl.Result{}, err
	}
	if err := c.deleteLease(ctx, cluster.Name); err != nil {
		return ctrl.Result{}, err
	}
	if err := c.deleteClusterRole(ctx, cluster.Name); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, patch.RemoveFinalizer(ctx, c.client, cluster, fleet.FinalizerManagedCluster)
}

// reportKept says which works the deletion of a cluster waits for if no controller deletes them.
func (c *Controller) reportKept(ctx context.Context, cluster *clusterv1.ManagedCluster) error {
	if !c.KeepsContent {
		return nil
	}
	works, err := c.works(ctx, cluster.Name)
	if err != nil || len(works) == 0 {
		return err
	}
	return c.report(ctx, cluster, metav1.Condition{
		Type: fleet.ConditionDeleting, Status: metav1.ConditionFalse, Reason: fleet.ReasonResourceRemaining,
		Message: fmt.Sprintf("It waits for %s in the namespace %s: %s. Without the feature gate ResourceCleanup, the hub deletes none of them: "+
			"delete them; if the agent never comes back, by capstan delete work NAME --clusters %s --force",
			text.Count(len(works), "work"), cluster.Name, text.FirstFew(works), cluster.Name),
	}, nil)
}

// again returns a result that checks for remaining works on a timer: watching every ManifestWork of the fleet for the few clusters that
// are being deleted would cost more than it saves.
func again(done bool) ctrl.Result {
	if done {
		return ctrl.Result{}
	}
	return ctrl.Result{RequeueAfter: worksCheckInterval}
}

// report writes the condition if it has changed, and then an event. It returns cause, for the caller to retry. With acceptance it writes
// the first condition about the clocks, too, which the new lease says nothing against.
func (c *Controller) report(ctx context.Context, cluster *clusterv1.ManagedCluster, cond metav1.Condition, cause error) error {
	before := cluster.DeepCopy()
	cond.LastTransitionTime = metav1.NewTime(c.Clock.Now())
	meta.SetStatusCondition(&cluster.Status.Conditions, cond)
	if cond.Reason == fleet.ReasonHubClusterAdminAccepted &&
		meta.FindStatusCondition(cluster.Status.Conditions, fleet.ConditionClockSynced) == nil {
		meta.SetStatusCondition(&cluster.Status.Conditions, availability.ClockSynced(c.Clock.Now()))
	}
	changed, err := patch.Status(ctx, c.client, cluster, before)
	if err != nil {
		return err
	}
	if !changed {
		return cause
	}
	switch cond.Reason {
	case fleet.ReasonHubClusterAdminAccepted:
		c.recorder.Eventf(cluster, nil, corev1.EventTypeNormal, fleet.EventManagedClusterAccepted, "Accept", "%s", cond.Message)
	case fleet.ReasonHubClusterAdminDenied:
		c.recorder.Eventf(cluster, nil, corev1.EventTypeNormal, fleet.EventManagedClusterDenied, "Deny", "%s", cond.Message)
	}
	return cause
}
