// Package clusterset counts the members of each ManagedClusterSet.
package clusterset

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// countDelay is how long after a cluster has joined or left a set its members are counted, so that clusters that do so together are counted
// once.
const countDelay = time.Second

// Options configure the controller.
type Options struct {
	// Clock is the source of time.
	Clock clock.PassiveClock
}

// Controller reconciles the condition ClusterSetEmpty of a ManagedClusterSet.
type Controller struct {
	client client.Client
	clock  clock.PassiveClock
}

// New returns a Controller that works through the client.
func New(c client.Client, o Options) *Controller { return &Controller{client: c, clock: o.Clock} }

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	c := New(mgr.GetClient(), o)
	return ctrl.NewControllerManagedBy(mgr).Named("registration-managedclusterset-status").
		For(&clusterv1beta2.ManagedClusterSet{}, builder.WithPredicates(predicates.Generation())).
		Watches(&clusterv1.ManagedCluster{}, handler.Funcs{
			CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { c.enqueue(ctx, q, e.Object.GetLabels(), nil) },
			DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { c.enqueue(ctx, q, nil, e.Object.GetLabels()) },
			UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
				c.enqueue(ctx, q, e.ObjectNew.GetLabels(), e.ObjectOld.GetLabels())
			},
		}, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		WithOptions(controller.Options{RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// enqueue enqueues the sets that the cluster has joined or left with a change of its labels.
func (c *Controller) enqueue(ctx context.Context, q queue, after, before labels.Set) {
	sets := &clusterv1beta2.ManagedClusterSetList{}
	if err := c.client.List(ctx, sets, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "List the sets of a cluster")
		return
	}
	for i := range sets.Items {
		members, err := managedcluster.SetSelector(&sets.Items[i])
		if err != nil {
			continue // its own reconcile reports the error
		}
		if is, was := after != nil && members.Matches(after), before != nil && members.Matches(before); is != was {
			q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: sets.Items[i].Name}}, countDelay)
		}
	}
}

// Reconcile counts the members of the set.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	set := &clusterv1beta2.ManagedClusterSet{}
	if err := c.client.Get(ctx, req.NamespacedName, set); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !set.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	cond, err := c.count(ctx, set)
	if err != nil {
		return ctrl.Result{}, err
	}
	before := set.DeepCopy()
	meta.SetStatusCondition(&set.Status.Conditions, cond)
	_, err = patch.Status(ctx, c.client, set, before)
	return ctrl.Result{}, err
}

func (c *Controller) count(ctx context.Context, set *clusterv1beta2.ManagedClusterSet) (metav1.Condition, error) {
	cond := metav1.Condition{
		Type: fleet.ConditionClusterSetEmpty, ObservedGeneration: set.Generation, LastTransitionTime: metav1.NewTime(c.clock.Now()),
	}
	members, err := managedcluster.SetSelector(set)
	if err != nil {
		// A set with an invalid selector is empty, and its condition says why.
		cond.Status, cond.Reason, cond.Message = metav1.ConditionTrue, fleet.ReasonNoClusterMatched, text.Message(err.Error())
		return cond, nil
	}
	clusters := &clusterv1.ManagedClusterList{}
	if err := c.client.List(ctx, clusters, client.MatchingLabelsSelector{Selector: members}, client.UnsafeDisableDeepCopy); err != nil {
		return cond, fmt.Errorf("list the members of ManagedClusterSet %s: %w", set.Name, err)
	}
	if len(clusters.Items) == 0 {
		cond.Status, cond.Reason, cond.Message = metav1.ConditionTrue, fleet.ReasonNoClusterMatched, "No ManagedCluster selected"
		return cond, nil
	}
	cond.Status, cond.Reason = metav1.ConditionFalse, fleet.ReasonClustersSelected
	cond.Message = fmt.Sprintf("%d ManagedClusters selected", len(clusters.Items))
	return cond, nil
}
