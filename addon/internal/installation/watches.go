package installation

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/addon/dependencies"
	"github.com/capstan-io/capstan/internal/machinery/addon/ownership"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func (c *Controller) watch(b *builder.Builder, mapper meta.RESTMapper) error {
	b.For(&addonv1beta1.ManagedClusterAddOn{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: matters})).
		Watches(&addonv1beta1.ManagedClusterAddOn{}, handler.EnqueueRequestsFromMapFunc(c.waiting), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return len(dependencies.Of(e.Object)) > 0 },
			UpdateFunc: func(e event.UpdateEvent) bool {
				return works(e.ObjectOld) != works(e.ObjectNew) || !slices.Equal(dependencies.Of(e.ObjectOld), dependencies.Of(e.ObjectNew))
			},
		})).
		Watches(&clusterv1.ManagedCluster{}, c.ofCluster()).
		Watches(&addonv1beta1.ClusterManagementAddOn{}, c.listed(indexName, client.Object.GetName), builder.WithPredicates(
			predicate.Or[client.Object](predicates.Generation(), predicate.AnnotationChangedPredicate{}))).
		Watches(&workv1.ManifestWork{}, handler.EnqueueRequestsFromMapFunc(ofWork), builder.WithPredicates(notCreated())).
		WatchesRawSource(c.Requeue.Source(itself))
	for _, kind := range permissionKinds() {
		b.Watches(kind, handler.EnqueueRequestsFromMapFunc(c.ofPermission), builder.WithPredicates(c.permissionChanged()))
	}
	for _, resource := range c.Configs {
		kinds, err := watched(resource, mapper)
		if err != nil {
			return err
		}
		key := func(o client.Object) string {
			return configKey(resource.GroupResource(), client.ObjectKeyFromObject(o))
		}
		for _, kind := range kinds {
			b.Watches(kind, c.listed(indexConfig, key), builder.WithPredicates(predicate.Funcs{UpdateFunc: stateChanged}))
		}
	}
	return nil
}

// watched returns the objects with which configurations of a type are watched: in its version, and in the preferred one, of which the hub
// takes the hash. Package addon/config reads them in the same form, so from the same caches: a read after an event sees the change.
func watched(resource schema.GroupVersionResource, mapper meta.RESTMapper) ([]client.Object, error) {
	gvk, err := mapper.KindFor(resource)
	if err != nil {
		return nil, fmt.Errorf("find the configurations %s: %w; install their CustomResourceDefinition first", resource, err)
	}
	preferred, err := mapper.RESTMapping(gvk.GroupKind())
	if err != nil {
		return nil, fmt.Errorf("find the preferred version of the configurations %s: %w", resource, err)
	}
	if preferred.GroupVersionKind == gvk {
		return []client.Object{ofKind(gvk)}, nil
	}
	return []client.Object{ofKind(gvk), ofKind(preferred.GroupVersionKind)}, nil
}

func ofKind(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gvk)
	return object
}

// waiting returns the add-ons on the cluster that may wait for this one to be available or gone.
func (c *Controller) waiting(ctx context.Context, o client.Object) (requests []reconcile.Request) {
	needed := dependencies.Of(o)
	for _, other := range c.addOns(ctx, client.InNamespace(o.GetNamespace())) {
		if slices.Contains(needed, other.Name) || slices.Contains(dependencies.Of(&other), o.GetName()) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&other)})
		}
	}
	return requests
}

func itself(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
}

func ofWork(_ context.Context, o client.Object) []reconcile.Request {
	key, ok := ownership.Of(o)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// ofPermission returns the add-on of a permission. An update maps the object before and after, because its labels may have been
// removed.
func (c *Controller) ofPermission(_ context.Context, o client.Object) []reconcile.Request {
	if !c.applied(o) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: keyOf(o)}}
}

// listed enqueues the add-ons that the index has for an object.
func (c *Controller) listed(index string, key func(client.Object) string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) (requests []reconcile.Request) {
		for _, addOn := range c.addOns(ctx, client.MatchingFields{index: key(o)}) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&addOn)})
		}
		return requests
	})
}

// addOns returns the add-ons that the options select, straight from the cache: they must not be changed.
func (c *Controller) addOns(ctx context.Context, options ...client.ListOption) []addonv1beta1.ManagedClusterAddOn {
	addOns := &addonv1beta1.ManagedClusterAddOnList{}
	if err := c.client.List(ctx, addOns, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "List the add-ons that an event is about")
		return nil
	}
	return addOns.Items
}
