package replicaset

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	runtimecontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	workv1alpha1 "github.com/capstan-io/capstan/api/work/v1alpha1"
	"github.com/capstan-io/capstan/internal/hub/debounce"
	"github.com/capstan-io/capstan/internal/hub/selected"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
	"github.com/capstan-io/capstan/internal/machinery/retry"
)

// Indexes of the cache.
const (
	// indexKey finds a set by the label of its works, which has a hash in place of a long name.
	indexKey = "replicaset.key"
	// indexPlacement finds the sets that refer to a placement.
	indexPlacement = "replicaset.placement"
	// indexOverrides finds the sets with overrides.
	indexOverrides = "replicaset.overrides"
	// indexSet finds the works of a set.
	indexSet = "work.replicaset"
	// indexDecisionOf finds the decisions of a placement.
	indexDecisionOf = "decision.placement"
)

// moment is how long events are collected: each reconcile reads all the works and writes the status.
const moment = 50 * time.Millisecond

// Register adds the controller to the manager.
func Register(mgr ctrl.Manager, o Options) error {
	if err := AddIndexes(context.Background(), mgr.GetFieldIndexer()); err != nil {
		return err
	}
	secrets, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(),
		Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("prepare a client without cache: %w", err)
	}
	c := New(mgr.GetClient(), secrets, mgr.GetEventRecorder("manifestworkreplicaset-controller"), o)
	controller := ctrl.NewControllerManagedBy(mgr).Named("work-manifestworkreplicaset-deploy").
		For(&workv1alpha1.ManifestWorkReplicaSet{}, builder.WithPredicates(predicate.Or[client.Object](
			predicates.Generation(), predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&workv1.ManifestWork{}, debounce.ByLabels(moment, c.ofWork), builder.WithPredicates(updates(matters))).
		Watches(&clusterv1beta1.Placement{}, handler.EnqueueRequestsFromMapFunc(c.ofPlacement),
			builder.WithPredicates(selected.PlacementChanged())).
		Watches(&clusterv1beta1.PlacementDecision{}, handler.EnqueueRequestsFromMapFunc(c.ofDecision)).
		Watches(&clusterv1.ManagedCluster{}, debounce.ByName(moment, c.ofCluster), builder.WithPredicates(updates(hasOtherValues))).
		Watches(&clusterv1.ManagedCluster{}, debounce.ByName(moment, c.actingOn),
			builder.WithPredicates(updates(selected.ClusterChanged().Update))).
		Watches(&clusterv1.ManagedCluster{}, debounce.ByName(moment, c.movingFrom), builder.WithPredicates(availabilityChanged())).
		WithOptions(runtimecontroller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()})
	if !o.TrustDecisions {
		controller.
			Watches(&clusterv1beta2.ManagedClusterSetBinding{}, handler.EnqueueRequestsFromMapFunc(c.ofNamespace),
				builder.WithPredicates(predicates.Generation())).
			Watches(&clusterv1beta2.ManagedClusterSet{}, handler.EnqueueRequestsFromMapFunc(c.ofClusterSet),
				builder.WithPredicates(predicates.Generation()))
	}
	return controller.Complete(retry.Conflicts(c))
}

// RegisterDisabled adds a controller that finalizes sets, and does nothing else: those that were there while sets had a
// controller have its finalizer.
func RegisterDisabled(mgr ctrl.Manager, o Options) error {
	kind := workv1alpha1.GroupVersion.WithKind("ManifestWorkReplicaSet")
	if _, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version); meta.IsNoMatchError(err) {
		return nil // a hub without the kind has no sets
	} else if err != nil {
		return fmt.Errorf("look for %s: %w", kind.Kind, err)
	}
	if err := AddIndexes(context.Background(), mgr.GetFieldIndexer()); err != nil {
		return err
	}
	o.Disabled = true
	c := New(mgr.GetClient(), mgr.GetClient(), mgr.GetEventRecorder("manifestworkreplicaset-controller"), o)
	return ctrl.NewControllerManagedBy(mgr).Named("work-manifestworkreplicaset-release").
		For(&workv1alpha1.ManifestWorkReplicaSet{}, builder.WithPredicates(predicates.Generation())).
		Watches(&workv1.ManifestWork{}, debounce.ByLabels(moment, c.ofWork), builder.WithPredicates(updates(matters))).
		WithOptions(runtimecontroller.Options{MaxConcurrentReconciles: workers, RateLimiter: retry.Limiter()}).
		Complete(retry.Conflicts(c))
}

// AddIndexes adds the indexes that the controller uses.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, index := range Indexes() {
		if err := indexer.IndexField(ctx, index.Object, index.Name, index.Values); err != nil {
			return fmt.Errorf("index %T by %s: %w", index.Object, index.Name, err)
		}
	}
	return nil
}

// Index is an index that the controller uses.
type Index struct {
	Object client.Object
	Name   string
	Values client.IndexerFunc
}

// Indexes returns the indexes that the controller uses.
func Indexes() []Index {
	byLabel := func(label string) client.IndexerFunc {
		return func(o client.Object) []string {
			if value := o.GetLabels()[label]; value != "" {
				return []string{value}
			}
			return nil
		}
	}
	return []Index{
		{&workv1alpha1.ManifestWorkReplicaSet{}, indexKey, func(o client.Object) []string {
			return []string{fleet.ManifestWorkReplicaSetKey(o.GetNamespace(), o.GetName())}
		}},
		{&workv1alpha1.ManifestWorkReplicaSet{}, indexPlacement, placementsOf},
		{&workv1alpha1.ManifestWorkReplicaSet{}, indexOverrides, func(o client.Object) []string {
			return []string{strconv.FormatBool(o.GetAnnotations()[fleet.AnnotationOverrides] != "")}
		}},
		{&workv1.ManifestWork{}, indexSet, byLabel(fleet.LabelManifestWorkReplicaSet)},
		{&clusterv1beta1.PlacementDecision{}, indexDecisionOf, byLabel(fleet.LabelPlacement)},
	}
}

func placementsOf(o client.Object) []string {
	set, ok := o.(*workv1alpha1.ManifestWorkReplicaSet)
	if !ok {
		return nil
	}
	names := make([]string, 0, len(set.Spec.PlacementRefs))
	for _, ref := range set.Spec.PlacementRefs {
		names = append(names, fleet.LabelValue(ref.Name))
	}
	return names
}

// updates matches works or clusters that come or go, and those updates of them that matter. What is there when the hub starts is left out:
// the sets themselves are enqueued then, and to find those of each work of a fleet would take longer than to reconcile them.
func updates(matter func(event.UpdateEvent) bool) predicate.Predicate {
	return predicate.Funcs{CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList }, UpdateFunc: matter}
}

// matters reports whether a change of a work affects this controller. Reports on single objects do not.
func matters(e event.UpdateEvent) bool {
	now, ok := e.ObjectNew.(*workv1.ManifestWork)
	then, thenOK := e.ObjectOld.(*workv1.ManifestWork)
	return !ok || !thenOK || now.Generation != then.Generation || now.DeletionTimestamp.IsZero() != then.DeletionTimestamp.IsZero() ||
		!equality.Semantic.DeepEqual(now.Labels, then.Labels) || !equality.Semantic.DeepEqual(now.Status.Conditions, then.Status.Conditions)
}

func (c *Controller) ofWork(ctx context.Context, o client.Object) []reconcile.Request {
	key := o.GetLabels()[fleet.LabelManifestWorkReplicaSet]
	if key == "" {
		return nil
	}
	return c.sets(ctx, client.MatchingFields{indexKey: key})
}

func (c *Controller) ofPlacement(ctx context.Context, o client.Object) []reconcile.Request {
	return c.sets(ctx, client.InNamespace(o.GetNamespace()), client.MatchingFields{indexPlacement: fleet.LabelValue(o.GetName())})
}

func (c *Controller) ofDecision(ctx context.Context, o client.Object) []reconcile.Request {
	placement := o.GetLabels()[fleet.LabelPlacement]
	if placement == "" {
		return nil
	}
	return c.sets(ctx, client.InNamespace(o.GetNamespace()), client.MatchingFields{indexPlacement: placement})
}

// ofCluster returns all sets with overrides: there are few, and their decisions name the clusters.
func (c *Controller) ofCluster(ctx context.Context, _ client.Object) []reconcile.Request {
	return c.sets(ctx, client.MatchingFields{indexOverrides: strconv.FormatBool(true)})
}

// actingOn returns the sets with works on a cluster, and those that wait for it.
func (c *Controller) actingOn(ctx context.Context, cluster client.Object) []reconcile.Request {
	requests := c.waiting.on(cluster.GetName())
	works := &workv1.ManifestWorkList{}
	if err := c.client.List(ctx, works, client.InNamespace(cluster.GetName()), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Find the ManifestWorkReplicaSets of a cluster")
		return requests
	}
	seen := map[string]bool{}
	for i := range works.Items {
		if key := works.Items[i].Labels[fleet.LabelManifestWorkReplicaSet]; !seen[key] {
			seen[key] = true
			requests = append(requests, c.ofWork(ctx, &works.Items[i])...)
		}
	}
	return requests
}

// movingFrom returns the sets with works on a cluster to which it matters whether that is lost.
func (c *Controller) movingFrom(ctx context.Context, cluster client.Object) []reconcile.Request {
	return slices.DeleteFunc(c.actingOn(ctx, cluster), func(request reconcile.Request) bool {
		set := &workv1alpha1.ManifestWorkReplicaSet{}
		err := c.client.Get(ctx, request.NamespacedName, set, client.UnsafeDisableDeepCopy)
		return err == nil && set.Annotations[fleet.AnnotationMaxLost] == ""
	})
}

// availabilityChanged passes the updates by which a cluster becomes available or unavailable.
func availabilityChanged() predicate.Predicate {
	available := func(o client.Object) bool {
		cluster, ok := o.(*clusterv1.ManagedCluster)
		return ok && meta.IsStatusConditionTrue(cluster.Status.Conditions, fleet.ConditionClusterAvailable)
	}
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc:  func(e event.UpdateEvent) bool { return available(e.ObjectOld) != available(e.ObjectNew) },
	}
}

// ofNamespace returns the sets in the namespace of a binding.
func (c *Controller) ofNamespace(ctx context.Context, binding client.Object) []reconcile.Request {
	return c.sets(ctx, client.InNamespace(binding.GetNamespace()))
}

// ofClusterSet returns the sets in the namespaces that bind a ManagedClusterSet.
func (c *Controller) ofClusterSet(ctx context.Context, clusterSet client.Object) (requests []reconcile.Request) {
	bindings := &clusterv1beta2.ManagedClusterSetBindingList{}
	if err := c.client.List(ctx, bindings, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Find the namespaces that a ManagedClusterSet is bound to")
		return nil
	}
	for i := range bindings.Items {
		if bindings.Items[i].Name == clusterSet.GetName() {
			requests = append(requests, c.ofNamespace(ctx, &bindings.Items[i])...)
		}
	}
	return requests
}

// hasOtherValues reports whether a change of a cluster affects values that overrides may use.
func hasOtherValues(e event.UpdateEvent) bool {
	now, ok := e.ObjectNew.(*clusterv1.ManagedCluster)
	then, thenOK := e.ObjectOld.(*clusterv1.ManagedCluster)
	return !ok || !thenOK || !equality.Semantic.DeepEqual(now.Labels, then.Labels) ||
		!equality.Semantic.DeepEqual(now.Status.ClusterClaims, then.Status.ClusterClaims)
}

func (c *Controller) sets(ctx context.Context, by ...client.ListOption) []reconcile.Request {
	sets := &workv1alpha1.ManifestWorkReplicaSetList{}
	if err := c.client.List(ctx, sets, append(by, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Find the ManifestWorkReplicaSets of an object")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(sets.Items))
	for i := range sets.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&sets.Items[i])})
	}
	return requests
}
