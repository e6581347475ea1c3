package lookup

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/hub/debounce"
	"github.com/capstan-io/capstan/internal/hub/selected"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
)

// moment is how long events are collected before ClusterManagementAddOns, and other requests about many add-ons, are enqueued: each
// reconcile reads all of the add-ons.
const moment = 150 * time.Millisecond

// Later enqueues, after a moment, what an object is mapped to by its name.
func Later(of handler.MapFunc) handler.EventHandler { return debounce.ByName(moment, of) }

// LaterByLabels does so for mappings by labels, including the labels before a change.
func LaterByLabels(of handler.MapFunc) handler.EventHandler { return debounce.ByLabels(moment, of) }

// EntryOf maps a ManagedClusterAddOn to its ClusterManagementAddOn.
func EntryOf(_ context.Context, addOn client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: addOn.GetName()}}}
}

// OfWork maps a work of an add-on to its ManagedClusterAddOn.
func OfWork(_ context.Context, work client.Object) []reconcile.Request {
	if key, found := AddOnOfWork(work); found {
		return []reconcile.Request{{NamespacedName: key}}
	}
	return nil
}

// OfPlacement returns a function that maps a placement to the ClusterManagementAddOns that refer to it.
func OfPlacement(c client.Reader) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		return entries(ctx, c, client.MatchingFields{indexPlacement: o.GetNamespace() + "/" + fleet.LabelValue(o.GetName())})
	}
}

// OfDecision returns a function that maps a decision to the ClusterManagementAddOns that refer to its placement.
func OfDecision(c client.Reader) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		placement := o.GetLabels()[fleet.LabelPlacement]
		if placement == "" {
			return nil
		}
		return entries(ctx, c, client.MatchingFields{indexPlacement: o.GetNamespace() + "/" + placement})
	}
}

// OfCluster returns a function that maps a cluster to all ClusterManagementAddOns with placements: there are few, and their decisions
// name the clusters. It also maps a ManagedClusterSet and a binding to them.
func OfCluster(c client.Reader) handler.MapFunc {
	return func(ctx context.Context, _ client.Object) []reconcile.Request {
		return entries(ctx, c, client.MatchingFields{indexByPlacements: fleet.LabelTrue})
	}
}

func entries(ctx context.Context, c client.Reader, by ...client.ListOption) []reconcile.Request {
	list := &addonv1beta1.ClusterManagementAddOnList{}
	if err := c.List(ctx, list, append(by, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Find the ClusterManagementAddOns of an object")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// OnAllClusters returns a function that maps a ClusterManagementAddOn to its ManagedClusterAddOns.
func OnAllClusters(c client.Reader) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		return installed(ctx, c, client.MatchingFields{indexName: o.GetName()})
	}
}

// OnCluster returns a function that maps a ManagedCluster to its ManagedClusterAddOns.
func OnCluster(c client.Reader) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		return installed(ctx, c, client.InNamespace(o.GetName()))
	}
}

func installed(ctx context.Context, c client.Reader, by client.ListOption) []reconcile.Request {
	list := &addonv1beta1.ManagedClusterAddOnList{}
	if err := c.List(ctx, list, by, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Find the ManagedClusterAddOns of an object")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// EntryChanged matches changes of a ClusterManagementAddOn that users make.
func EntryChanged() predicate.Predicate {
	return predicate.Or[client.Object](predicates.Generation(), predicate.AnnotationChangedPredicate{})
}

// WatchClusters adds watches, to a controller of ClusterManagementAddOns, of what determines on which clusters these may be installed,
// apart from decisions: the clusters, and, unless decisions are trusted, the sets and their bindings.
func WatchClusters(b *builder.Builder, c client.Reader, trustDecisions bool) *builder.Builder {
	b.Watches(&clusterv1.ManagedCluster{}, Later(OfCluster(c)), builder.WithPredicates(InstallableChanged()))
	if !trustDecisions {
		b.Watches(&clusterv1beta2.ManagedClusterSet{}, Later(OfCluster(c)), builder.WithPredicates(predicates.Generation())).
			Watches(&clusterv1beta2.ManagedClusterSetBinding{}, Later(OfCluster(c)), builder.WithPredicates(predicates.Generation()))
	}
	return b
}

// InstallableChanged matches clusters on which add-ons may now be installed, or no longer.
func InstallableChanged() predicate.Predicate {
	return predicate.Or[client.Object](selected.ClusterChanged(), predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		now, ok := e.ObjectNew.(*clusterv1.ManagedCluster)
		then, thenOK := e.ObjectOld.(*clusterv1.ManagedCluster)
		return !ok || !thenOK || Installable(now) != Installable(then)
	}})
}
