// Package accept gives an accepted cluster its place on the hub (a namespace, a lease and the rights of its agent) and
// takes it away again when the cluster is denied or deleted.
package accept

import (
	"context"
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
	"github.com/capstan-io/capstan/internal/machinery/acceptance"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// workers is how many clusters are reconciled at once: each costs a handful of round trips, not CPU.
const workers = 10

// worksRecheck is how soon a leaving cluster's namespace is looked at again for ManifestWorks.
const worksRecheck = 5 * time.Second

// Options configure the controller.
type Options struct {
	// Labels are put on what is made for a cluster, beside its own.
	Labels map[string]string
	// KeepsContent says that nobody empties the namespaces of clusters that are gone.
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

// New returns a Controller that works through the client, and through live where a cache would not pay.
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

// clusterOfObject finds the cluster an object belongs to by its label. What belongs to an add-on on the cluster is not looked at here.
func clusterOfObject(_ context.Context, o client.Object) []reconcile.Request {
	name := o.GetLabels()[fleet.LabelClusterName]
	if name == "" || o.GetLabels()[fleet.LabelAddOnName] != "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: name}}}
}

// clusterOfRole finds the cluster a role belongs to. Of those that belong to all clusters, any one will see to them that is
// here to stay.
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
	return nil // without clusters nobody needs the role
}

// renewal matches the heartbeat of a lease, which changes nothing this controller looks at.
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

// Reconcile gives the cluster what its spec.hubAcceptsClient entitles it to and says so in a condition.
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
		return ctrl.Result{}, c.accept(ctx, cluster)
	}
	// The finalizer comes before the first right, so without it there is nothing to take away, even after a crash, but what was left behind
	// by a cluster that had the name before.
	if !acceptance.Denied(cluster) && !acceptance.CutOff(cluster) {
		return c.disinherit(ctx, cluster.Name) // nobody has decided yet
	}
	return c.deny(ctx, cluster)
}

// accept makes what an accepted cluster has: first of all the finalizer, so that nothing is left behind when the cluster is deleted.
func (c *Controller) accept(ctx context.Context, cluster *clusterv1.ManagedCluster) error {
	before := cluster.DeepCopy()
	controllerutil.AddFinalizer(cluster, fleet.FinalizerManagedCluster)
	delete(cluster.Labels, fleet.LabelCutOff)
	if _, err := patch.Object(ctx, c.client, cluster, before); err != nil {
		return err
	}
	switch err := c.admit(ctx, cluster.Name); {
	case retry.IsConflict(err): // somebody else was faster, which is nothing to tell
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

// refuse keeps a cluster whose name stands for all clusters from any right. Admission refuses such names; this hub may not
// have had it.
func (c *Controller) refuse(ctx context.Context, cluster *clusterv1.ManagedCluster) error {
	if !cluster.DeletionTimestamp.IsZero() {
		return c.setFinalizer(ctx, cluster, controllerutil.RemoveFinalizer)
	}
	if !cluster.Spec.HubAcceptsClient {
		return nil
	}
	return c.report(ctx, cluster, metav1.Condition{
		Type: fleet.ConditionHubAccepted, Status: metav1.ConditionFalse, Reason: fleet.ReasonHubClusterAdminAcceptFail,
		Message: fmt.Sprintf("The name %q is reserved: its group or role is one that the agents of all clusters share. Delete this ManagedCluster and register the cluster under another name", cluster.Name),
	}, nil)
}

// deny takes the rights away, but that the agent may go on reading its own ManagedCluster, so that it learns of it, and may finish with the
// works that there are. One that is cut off keeps neither.
func (c *Controller) deny(ctx context.Context, cluster *clusterv1.ManagedCluster) (ctrl.Result, error) {
	done, message := true, "Denied by hub cluster admin"
	var err error
	if acceptance.CutOff(cluster) {
		message += " and cut off: its agent and its add-ons have no rights, not even to clean up"
		err = c.takeAll(ctx, cluster.Name)
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

// release takes the rights away; the namespace stays. While the hub empties it, the agent needs them: it learns by them what it has to undo
// on the cluster. The end of that brings the cluster back here. One that is cut off undoes nothing.
func (c *Controller) release(ctx context.Context, cluster *clusterv1.ManagedCluster) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(cluster, fleet.FinalizerManagedCluster) {
		return ctrl.Result{}, nil
	}
	if cluster.Spec.HubAcceptsClient && controllerutil.ContainsFinalizer(cluster, fleet.FinalizerResourceCleanup) {
		return ctrl.Result{}, nil
	}
	if !acceptance.CutOff(cluster) {
		if done, err := c.seeOff(ctx, cluster.Name); err != nil || !done {
			return again(done), err
		}
	} else if err := c.takeAll(ctx, cluster.Name); err != nil {
		return ctrl.Result{}, err
	}
	if err := c.deleteLease(ctx, cluster.Name); err != nil {
		return ctrl.Result{}, err
	}
	if err := c.deleteClusterRole(ctx, cluster.Name); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, c.setFinalizer(ctx, cluster, controllerutil.RemoveFinalizer)
}

// again looks for remaining works on a timer: watching every ManifestWork of the fleet for the few clusters that are
// leaving would cost more than it saves.
func again(done bool) ctrl.Result {
	if done {
		return ctrl.Result{}
	}
	return ctrl.Result{RequeueAfter: worksRecheck}
}

func (c *Controller) setFinalizer(ctx context.Context, cluster *clusterv1.ManagedCluster, set func(client.Object, string) bool) error {
	before := cluster.DeepCopy()
	set(cluster, fleet.FinalizerManagedCluster)
	_, err := patch.Object(ctx, c.client, cluster, before)
	return err
}

// report writes the condition, if it is news, and tells of it in an event. It returns cause, for the caller to retry.
func (c *Controller) report(ctx context.Context, cluster *clusterv1.ManagedCluster, cond metav1.Condition, cause error) error {
	before := cluster.DeepCopy()
	cond.LastTransitionTime = metav1.NewTime(c.Clock.Now())
	meta.SetStatusCondition(&cluster.Status.Conditions, cond)
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
