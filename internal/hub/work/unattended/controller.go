// Package unattended says of ManifestWorks that are being deleted why nobody finalizes them: the agent that has to is not there.
package unattended

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

const (
	// workers is how many works are reconciled at once.
	workers = 5
	// patience is how long an agent has for a deletion before anything is said about it. That of a denied cluster polls every half minute.
	patience = time.Minute
)

// Options configure the controller.
type Options struct {
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Controller reconciles the condition Deleting of ManifestWorks whose agent does not write it.
type Controller struct {
	client client.Client
	clock  clock.PassiveClock
}

// New returns a Controller that works through the client.
func New(c client.Client, o Options) *Controller {
	return &Controller{client: c, clock: o.Clock}
}

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	c := New(mgr.GetClient(), o)
	return ctrl.NewControllerManagedBy(mgr).Named("work-manifestwork-unattended").
		For(&workv1.ManifestWork{}, builder.WithPredicates(startsWaiting())).
		Watches(&clusterv1.ManagedCluster{}, handler.EnqueueRequestsFromMapFunc(c.worksOf), builder.WithPredicates(agentChanged())).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

// waits reports whether an object is being deleted and its agent has to let go of it.
func waits(o client.Object) bool {
	return !o.GetDeletionTimestamp().IsZero() && controllerutil.ContainsFinalizer(o, fleet.FinalizerManifestWorkCleanup)
}

// startsWaiting matches works that start to wait for their agent, and those that do when the hub starts. What an agent that is there after
// all writes into the status is its own word.
func startsWaiting() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return waits(e.Object) },
		UpdateFunc:  func(e event.UpdateEvent) bool { return waits(e.ObjectNew) && !waits(e.ObjectOld) },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// agentChanged matches changes of what is known of the agent of a cluster.
func agentChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, // the works of all clusters are reconciled when the hub starts
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*clusterv1.ManagedCluster)
			after, ok2 := e.ObjectNew.(*clusterv1.ManagedCluster)
			return ok1 && ok2 && absence(before) != absence(after)
		},
	}
}

// worksOf maps a cluster to its works that wait for its agent.
func (c *Controller) worksOf(ctx context.Context, cluster client.Object) (requests []reconcile.Request) {
	works := &workv1.ManifestWorkList{}
	if err := c.client.List(ctx, works, client.InNamespace(cluster.GetName()), client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Works that are being deleted are looked at when they change", "cluster", cluster.GetName())
		return nil
	}
	for i := range works.Items {
		if waits(&works.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&works.Items[i])})
		}
	}
	return requests
}

// Reconcile says what the deletion of a work waits for if no agent is there to say so. An agent that comes back says it itself; the
// agents of Open Cluster Management say nothing, so what the hub has said is taken back.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	work := &workv1.ManifestWork{}
	if err := c.client.Get(ctx, req.NamespacedName, work); err != nil || !waits(work) {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	cluster := &clusterv1.ManagedCluster{}
	err := c.client.Get(ctx, client.ObjectKey{Name: work.Namespace}, cluster)
	why := absence(cluster)
	switch {
	case apierrors.IsNotFound(err):
		why = "which does not exist on the hub"
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("get ManagedCluster %s: %w", work.Namespace, err)
	}
	if why == "" {
		return ctrl.Result{}, c.takeBack(ctx, work)
	}
	if left := patience - c.clock.Since(work.DeletionTimestamp.Time); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	return ctrl.Result{}, c.report(ctx, work, why)
}

// absence says why the agent of a cluster may not be there to finalize works; empty if it is. The deletion of a cluster, with its works,
// has a condition of its own.
func absence(cluster *clusterv1.ManagedCluster) string {
	switch {
	case !cluster.DeletionTimestamp.IsZero():
		return ""
	case managedcluster.CutOff(cluster):
		return "which is cut off: its agent has no rights"
	case managedcluster.Denied(cluster):
		return "which is denied: its agent finishes the works that it knows, if it still runs"
	case !meta.IsStatusConditionTrue(cluster.Status.Conditions, fleet.ConditionClusterAvailable):
		return "which is not available"
	}
	return ""
}

// messagePrefix is what all messages of the hub start with, and none of an agent.
const messagePrefix = "The agent has to delete what the work has applied to cluster "

// takeBack removes the condition if it is the hub's.
func (c *Controller) takeBack(ctx context.Context, work *workv1.ManifestWork) error {
	condition := meta.FindStatusCondition(work.Status.Conditions, fleet.ConditionDeleting)
	if condition == nil || !strings.HasPrefix(condition.Message, messagePrefix) {
		return nil
	}
	before := work.DeepCopy()
	meta.RemoveStatusCondition(&work.Status.Conditions, fleet.ConditionDeleting)
	_, err := patch.Status(ctx, c.client, work, before)
	return client.IgnoreNotFound(err)
}

func (c *Controller) report(ctx context.Context, work *workv1.ManifestWork, why string) error {
	before := work.DeepCopy()
	meta.SetStatusCondition(&work.Status.Conditions, metav1.Condition{
		Type: fleet.ConditionDeleting, Status: metav1.ConditionTrue, Reason: fleet.ReasonWorkDeleting,
		ObservedGeneration: work.Generation, LastTransitionTime: metav1.NewTime(c.clock.Now()),
		Message: fmt.Sprintf(messagePrefix+"%s, %s. If it never comes back: "+
			"capstan delete work %s --clusters %s --force; what was applied stays on the cluster", work.Namespace, why, work.Name, work.Namespace),
	})
	_, err := patch.Status(ctx, c.client, work, before)
	return client.IgnoreNotFound(err)
}
