// Package managednamespace lists in the status of each cluster the namespaces that its ManagedClusterSets want on it.
package managednamespace

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
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
)

// workers is how many clusters are written at once when a set changes.
const workers = 10

// Options configure the controller, which needs none so far.
type Options struct{}

// Controller reconciles status.managedNamespaces of a ManagedCluster. The conditions there are the agent's.
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
	c := New(mgr.GetClient(), mgr.GetEventRecorder("managed-namespace-controller"))
	return ctrl.NewControllerManagedBy(mgr).Named("registration-managednamespace-sync").
		For(&clusterv1.ManagedCluster{},
			builder.WithPredicates(predicate.Or[client.Object](predicate.LabelChangedPredicate{}, predicates.Recreated()))).
		Watches(&clusterv1beta2.ManagedClusterSet{}, handler.Funcs{
			CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { c.enqueueMembers(ctx, q, e.Object) },
			DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { c.enqueueMembers(ctx, q, e.Object) },
			UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
				c.enqueueMembers(ctx, q, e.ObjectOld)
				c.enqueueMembers(ctx, q, e.ObjectNew)
			},
		}, builder.WithPredicates(predicates.Generation())).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// enqueueMembers enqueues the clusters of a set that wants namespaces.
func (c *Controller) enqueueMembers(ctx context.Context, q queue, o client.Object) {
	set, ok := o.(*clusterv1beta2.ManagedClusterSet)
	if !ok || len(set.Spec.ManagedNamespaces) == 0 {
		return
	}
	members, err := managedcluster.SetSelector(set)
	if err != nil {
		return // a set that selects nothing has no members
	}
	clusters := &clusterv1.ManagedClusterList{}
	if err := c.client.List(ctx, clusters, client.MatchingLabelsSelector{Selector: members}, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "List the members of a set", "set", set.Name)
		return
	}
	for i := range clusters.Items {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: clusters.Items[i].Name}})
	}
}

// Reconcile writes the list of the cluster's namespaces, if it has changed.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &clusterv1.ManagedCluster{}
	if err := c.client.Get(ctx, req.NamespacedName, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !cluster.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	sets := &clusterv1beta2.ManagedClusterSetList{}
	if err := c.client.List(ctx, sets, client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("list ManagedClusterSets: %w", err)
	}
	before := cluster.DeepCopy()
	cluster.Status.ManagedNamespaces = desiredNamespaces(cluster, sets.Items)
	changed, err := patch.Status(ctx, c.client, cluster, before)
	if changed {
		c.recorder.Eventf(cluster, nil, corev1.EventTypeNormal, fleet.EventManagedNamespacesUpdated, "UpdateManagedNamespaces",
			"The sets of the cluster want %d namespaces on it", len(cluster.Status.ManagedNamespaces))
	}
	return ctrl.Result{}, err
}

// desiredNamespaces returns the list, ordered by set and name. Existing entries keep their conditions.
func desiredNamespaces(cluster *clusterv1.ManagedCluster,
	sets []clusterv1beta2.ManagedClusterSet) []clusterv1.ClusterSetManagedNamespaceStatus {
	var list []clusterv1.ClusterSetManagedNamespaceStatus
	for i := range sets {
		members, err := managedcluster.SetSelector(&sets[i])
		if err != nil || !sets[i].DeletionTimestamp.IsZero() || !members.Matches(labels.Set(cluster.Labels)) {
			continue
		}
		for _, ns := range sets[i].Spec.ManagedNamespaces {
			entry := clusterv1.ClusterSetManagedNamespaceStatus{Name: ns.Name, ClusterSet: sets[i].Name}
			at := slices.IndexFunc(cluster.Status.ManagedNamespaces, func(old clusterv1.ClusterSetManagedNamespaceStatus) bool {
				return old.Name == entry.Name && old.ClusterSet == entry.ClusterSet
			})
			if at >= 0 {
				entry.Conditions = cluster.Status.ManagedNamespaces[at].Conditions
			}
			list = append(list, entry)
		}
	}
	slices.SortFunc(list, func(a, b clusterv1.ClusterSetManagedNamespaceStatus) int {
		return cmp.Or(cmp.Compare(a.ClusterSet, b.ClusterSet), cmp.Compare(a.Name, b.Name))
	})
	return list
}
