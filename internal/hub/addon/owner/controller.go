// Package owner sets the metadata of ManagedClusterAddOns: the owner reference to their ClusterManagementAddOn, and the annotations
// that they share with their ManagedCluster.
package owner

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/hub/addon/lookup"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// workers is how many ManagedClusterAddOns are written at once.
const workers = 10

// Options configure the controller, which needs none so far.
type Options struct{}

// Controller reconciles the metadata of ManagedClusterAddOns.
type Controller struct{ client client.Client }

// New returns a Controller that works through the client.
func New(c client.Client) *Controller { return &Controller{client: c} }

// Register adds the controller to the manager, whose cache needs the indexes of package lookup.
func Register(mgr ctrl.Manager, _ Options) error {
	c := New(mgr.GetClient())
	return ctrl.NewControllerManagedBy(mgr).Named("addon-managedclusteraddon-owner").
		For(&addonv1beta1.ManagedClusterAddOn{}, builder.WithPredicates(metadataChanged())).
		Watches(&addonv1beta1.ClusterManagementAddOn{}, handler.EnqueueRequestsFromMapFunc(lookup.OnAllClusters(c.client)),
			builder.WithPredicates(entryChanged())).
		Watches(&clusterv1.ManagedCluster{}, handler.EnqueueRequestsFromMapFunc(lookup.OnCluster(c.client)),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
				return !equality.Semantic.DeepEqual(shared(e.ObjectOld), shared(e.ObjectNew))
			}})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

// entryChanged matches changes of what add-ons copy from a ClusterManagementAddOn: its identity, and its annotations.
func entryChanged() predicate.Predicate {
	return predicate.Or[client.Object](predicate.AnnotationChangedPredicate{}, predicates.Recreated())
}

func metadataChanged() predicate.Predicate {
	return predicate.Or[client.Object](predicate.AnnotationChangedPredicate{}, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !equality.Semantic.DeepEqual(e.ObjectOld.GetOwnerReferences(), e.ObjectNew.GetOwnerReferences())
	}})
}

// Reconcile completes the metadata of a ManagedClusterAddOn, once its ClusterManagementAddOn exists.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	addOn := &addonv1beta1.ManagedClusterAddOn{}
	if err := c.client.Get(ctx, req.NamespacedName, addOn); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !addOn.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	entry := &addonv1beta1.ClusterManagementAddOn{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: addOn.Name}, entry); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !entry.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	cluster := &clusterv1.ManagedCluster{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: addOn.Namespace}, cluster); apierrors.IsNotFound(err) {
		cluster = nil
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("get ManagedCluster %s: %w", addOn.Namespace, err)
	}
	before := addOn.DeepCopy()
	Complete(addOn, entry, cluster)
	_, err := patch.Object(ctx, c.client, addOn, before)
	return ctrl.Result{}, client.IgnoreNotFound(err)
}
