// Package taint taints clusters that are not available, so that placements avoid them.
package taint

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// workers is how many clusters are reconciled at once: many may be lost together.
const workers = 10

// Options configure the controller, which needs none so far.
type Options struct{}

// Controller reconciles the hub's own taints of a ManagedCluster.
type Controller struct {
	client   client.Client
	recorder events.EventRecorder
}

// New returns a Controller that works through the client.
func New(c client.Client, recorder events.EventRecorder) *Controller {
	return &Controller{client: c, recorder: recorder}
}

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, _ Options) error {
	return ctrl.NewControllerManagedBy(mgr).Named("registration-managedcluster-taint").
		For(&clusterv1.ManagedCluster{}, builder.WithPredicates(predicate.Or[client.Object](
			predicates.Generation(), availabilityChanged()))).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(New(mgr.GetClient(), mgr.GetEventRecorder("taint-controller"))))
}

func availabilityChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*clusterv1.ManagedCluster)
		after, ok2 := e.ObjectNew.(*clusterv1.ManagedCluster)
		return ok1 && ok2 && availability(before) != availability(after)
	}}
}

// Reconcile sets the taint for the availability of the cluster, and removes the other one.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &clusterv1.ManagedCluster{}
	if err := c.client.Get(ctx, req.NamespacedName, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !cluster.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	before := cluster.DeepCopy()
	available := availability(cluster)
	set(cluster, fleet.TaintUnreachable, available == metav1.ConditionUnknown)
	set(cluster, fleet.TaintUnavailable, available == metav1.ConditionFalse)
	changed, err := patch.Object(ctx, c.client, cluster, before)
	if err != nil || !changed {
		return ctrl.Result{}, err
	}
	c.recorder.Eventf(cluster, nil, corev1.EventTypeNormal, fleet.EventManagedClusterConditionAvailableUpdated, "UpdateTaints",
		"The cluster now has the taints: %s", describe(cluster.Spec.Taints))
	return ctrl.Result{}, nil
}

// availability returns the availability of a cluster; it is unknown until the cluster reports it.
func availability(cluster *clusterv1.ManagedCluster) metav1.ConditionStatus {
	cond := meta.FindStatusCondition(cluster.Status.Conditions, fleet.ConditionClusterAvailable)
	if cond == nil {
		return metav1.ConditionUnknown
	}
	return cond.Status
}

// set adds or removes a taint. Admission sets its time, because it knows since when the cluster has it.
func set(cluster *clusterv1.ManagedCluster, key string, desired bool) {
	ours := func(t clusterv1.Taint) bool { return t.Key == key && t.Effect == clusterv1.TaintEffectNoSelect }
	has := slices.ContainsFunc(cluster.Spec.Taints, ours)
	switch {
	case desired && !has:
		cluster.Spec.Taints = append(cluster.Spec.Taints, clusterv1.Taint{Key: key, Effect: clusterv1.TaintEffectNoSelect})
	case !desired && has:
		cluster.Spec.Taints = slices.DeleteFunc(cluster.Spec.Taints, ours)
	}
}

func describe(taints []clusterv1.Taint) string {
	if len(taints) == 0 {
		return "none"
	}
	var all []string
	for _, t := range taints {
		all = append(all, fmt.Sprintf("%s:%s", t.Key, t.Effect))
	}
	return fmt.Sprint(all)
}
