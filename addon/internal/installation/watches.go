package installation

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/internal/catalogue"
	"github.com/capstan-io/capstan/addon/internal/workload"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/acceptance"
	"github.com/capstan-io/capstan/internal/machinery/addon/config"
	"github.com/capstan-io/capstan/internal/machinery/addon/dependencies"
	"github.com/capstan-io/capstan/internal/machinery/addon/ownership"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
)

// Indexes, by which the cost of an event is that of the add-ons it touches.
const (
	// indexOwner of works and permissions is the ManagedClusterAddOn they are of.
	indexOwner = "installation.owner"
	// indexName of ManagedClusterAddOns is their name alone.
	indexName = "installation.name"
	// indexConfig is each configuration that they refer to.
	indexConfig = "installation.config"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func (c *Controller) index(indexer client.FieldIndexer) error {
	type index struct {
		of      client.Object
		name    string
		extract client.IndexerFunc
	}
	indexes := []index{
		{&workv1.ManifestWork{}, indexOwner, ownerOfWork},
		{&addonv1beta1.ManagedClusterAddOn{}, indexName, func(o client.Object) []string { return []string{o.GetName()} }},
		{&addonv1beta1.ManagedClusterAddOn{}, indexConfig, configurations},
	}
	for _, kind := range permissionKinds() {
		indexes = append(indexes, index{kind, indexOwner, c.ownerOfPermission})
	}
	for _, i := range indexes {
		if err := indexer.IndexField(context.Background(), i.of, i.name, i.extract); err != nil {
			return fmt.Errorf("index %T by %s: %w; a manager of controller-runtime runs add-ons once: give it all of them together", i.of, i.name,
				err)
		}
	}
	return nil
}

func permissionKinds() []client.Object {
	return []client.Object{&rbacv1.Role{}, &rbacv1.RoleBinding{}, &rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}}
}

func ownerOfWork(o client.Object) []string {
	if key, ok := ownership.Of(o); ok {
		return []string{key.String()}
	}
	return nil
}

func (c *Controller) ownerOfPermission(o client.Object) []string {
	if c.applied(o) {
		return []string{keyOf(o).String()}
	}
	return nil
}

// applied tells whether an object is a permission that this manager has applied.
func (c *Controller) applied(o client.Object) bool {
	key := keyOf(o)
	return o.GetLabels()[fleet.LabelAddOnManager] == c.Manager && key.Name != "" && key.Namespace != ""
}

func configurations(o client.Object) (keys []string) {
	addOn, ok := o.(*addonv1beta1.ManagedClusterAddOn)
	if !ok {
		return nil
	}
	for _, ref := range addOn.Status.ConfigReferences {
		if ref.DesiredConfig != nil {
			resource := schema.GroupResource{Group: ref.Group, Resource: ref.Resource}
			keys = append(keys, configKey(resource, types.NamespacedName{Namespace: ref.DesiredConfig.Namespace, Name: ref.DesiredConfig.Name}))
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func configKey(resource schema.GroupResource, name types.NamespacedName) string {
	return resource.String() + "/" + name.String()
}

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
		kind, err := watched(resource, mapper)
		if err != nil {
			return err
		}
		key := func(o client.Object) string {
			return configKey(resource.GroupResource(), client.ObjectKeyFromObject(o))
		}
		b.Watches(kind, c.listed(indexConfig, key), builder.WithPredicates(predicate.Funcs{UpdateFunc: stateChanged}))
	}
	return nil
}

// watched is the object to watch configurations of a type with. Package addon/config reads them by the same: what has told of a change
// has it.
func watched(resource schema.GroupVersionResource, mapper meta.RESTMapper) (client.Object, error) {
	gvk, err := mapper.KindFor(resource)
	if err != nil {
		return nil, fmt.Errorf("find the configurations %s: %w; install their CustomResourceDefinition first", resource, err)
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gvk)
	return object, nil
}

// stateChanged leaves out changes of the status and of metadata. It compares what package addon/config compares: the definition of the
// kind may have changed what a configuration is without a new generation, or somebody has made it anew while nobody watched.
func stateChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*unstructured.Unstructured)
	after, too := e.ObjectNew.(*unstructured.Unstructured)
	if !ok || !too || before.GetUID() != after.GetUID() {
		return true
	}
	then, errThen := config.Hash(before)
	now, errNow := config.Hash(after)
	return errThen != nil || errNow != nil || then != now
}

// notCreated leaves out the works that the controller has just made.
func notCreated() predicate.Predicate {
	return predicate.Funcs{CreateFunc: func(event.CreateEvent) bool { return false }}
}

// permissionChanged matches what happens to permissions that the controller has applied, until somebody takes the labels off.
func (c *Controller) permissionChanged() predicate.Predicate {
	return predicate.And(predicates.Either(c.applied), c.notNew())
}

// notNew leaves out the permissions that the controller has just made, but not those that it finds, nor those that come when their add-on
// is gone: that may have gone while they were made, and has not taken them along, for then they were not in the cache.
func (c *Controller) notNew() predicate.Predicate {
	return predicate.Funcs{CreateFunc: func(e event.CreateEvent) bool {
		if e.IsInInitialList {
			return true
		}
		// What the cache has will do, and waiting for what was written last would hold up all events: an add-on that has gone without the
		// cache knowing yet has an event of its own.
		return c.client.Get(context.Background(), keyOf(e.Object), &addonv1beta1.ManagedClusterAddOn{},
			client.DisableReadYourWritesConsistency) != nil
	}}
}

// foreign are conditions of an add-on that its manager neither sets nor needs.
var foreign = []string{
	fleet.ConditionProgressing, fleet.ConditionDegraded, fleet.ConditionCertificateRotated, fleet.ConditionTokenRefreshed,
}

// matters leaves out the changes of others that the controller has nothing to do with: reports of the agent, mostly.
func matters(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*addonv1beta1.ManagedClusterAddOn)
	after, too := e.ObjectNew.(*addonv1beta1.ManagedClusterAddOn)
	if !ok || !too || before.Generation != after.Generation || !before.DeletionTimestamp.Equal(after.DeletionTimestamp) {
		return true
	}
	return !equality.Semantic.DeepEqual(before.Annotations, after.Annotations) || !equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!slices.Equal(before.Finalizers, after.Finalizers) || !equality.Semantic.DeepEqual(stripped(before), stripped(after))
}

// stripped is what of the status may matter.
func stripped(addOn *addonv1beta1.ManagedClusterAddOn) addonv1beta1.ManagedClusterAddOnStatus {
	status := addOn.Status
	status.Conditions = slices.DeleteFunc(slices.Clone(status.Conditions), func(c metav1.Condition) bool {
		return slices.Contains(foreign, c.Type) ||
			c.Type == fleet.ConditionAvailable && addOn.Status.HealthCheck.Mode != addonv1beta1.HealthCheckModeCustomized
	})
	return status
}

// works tells whether an add-on is there and available, for others to build on.
func works(o client.Object) bool {
	addOn, ok := o.(*addonv1beta1.ManagedClusterAddOn)
	return ok && addOn.DeletionTimestamp.IsZero() && meta.IsStatusConditionTrue(addOn.Status.Conditions, fleet.ConditionAvailable)
}

// waiting are the add-ons on the cluster that may wait for this one, to be available or to be gone.
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

// ofPermission is the add-on of a permission. Of an update, it is asked before and after: somebody may take the labels off.
func (c *Controller) ofPermission(_ context.Context, o client.Object) []reconcile.Request {
	if !c.applied(o) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: keyOf(o)}}
}

// listed asks for the add-ons that the index has under the key of an object.
func (c *Controller) listed(index string, key func(client.Object) string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) (requests []reconcile.Request) {
		for _, addOn := range c.addOns(ctx, client.MatchingFields{index: key(o)}) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&addOn)})
		}
		return requests
	})
}

// addOns are those that the options select. They are the cache's own.
func (c *Controller) addOns(ctx context.Context, options ...client.ListOption) []addonv1beta1.ManagedClusterAddOn {
	addOns := &addonv1beta1.ManagedClusterAddOnList{}
	if err := c.client.List(ctx, addOns, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "List the add-ons that an event is about")
		return nil
	}
	return addOns.Items
}

// ofCluster asks for the add-ons on a cluster, and for those that it hosts, to which its change matters.
func (c *Controller) ofCluster() handler.EventHandler {
	all := func(ctx context.Context, o client.Object, q queue) {
		for _, addOn := range c.addOns(ctx, client.InNamespace(o.GetName())) {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&addOn)})
		}
		add(q, c.hosted.by(o.GetName()))
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { all(ctx, e.Object, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { all(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, ok := e.ObjectOld.(*clusterv1.ManagedCluster)
			after, too := e.ObjectNew.(*clusterv1.ManagedCluster)
			if !ok || !too {
				return
			}
			if !before.DeletionTimestamp.Equal(after.DeletionTimestamp) {
				all(ctx, after, q)
				return
			}
			for _, addOn := range c.addOns(ctx, client.InNamespace(after.Name)) {
				if c.concerns(ctx, &addOn, before, after) {
					q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&addOn)})
				}
			}
			if available(before) != available(after) || acceptance.ActedOn(before) != acceptance.ActedOn(after) ||
				before.Status.Version != after.Status.Version {
				add(q, c.hosted.by(after.Name))
			}
		},
	}
}

func add(q queue, requests []reconcile.Request) {
	for _, request := range requests {
		q.Add(request)
	}
}

// concerns tells whether a change of the cluster matters to an add-on on it.
func (c *Controller) concerns(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn, before, after *clusterv1.ManagedCluster) bool {
	agent, err := c.Catalogue.Agent(ctx, addOn)
	if err != nil || agent == nil {
		return err != nil
	}
	if c.depends(ctx, addOn, agent.Options().Health.Mode, available(before), available(after)) {
		return true
	}
	if acceptance.Denied(before) != acceptance.Denied(after) {
		return true
	}
	if catalogue.Installation(agent, before, addOn).HostingCluster != catalogue.Installation(agent, after, addOn).HostingCluster {
		return true
	}
	if redeploy := agent.Options().RedeployOn; redeploy != nil {
		return redeploy(before, after)
	}
	return !equality.Semantic.DeepEqual(before.Labels, after.Labels) || !equality.Semantic.DeepEqual(before.Annotations, after.Annotations) ||
		!equality.Semantic.DeepEqual(before.Status.ClusterClaims, after.Status.ClusterClaims) || before.Status.Version != after.Status.Version
}

// depends tells whether it matters to an add-on that its cluster is heard of, or not any more: to how long hooks are waited for, to what is
// said of its health, and to what is said of works that the cluster has not answered to. An outage of a whole fleet is nothing new
// to most add-ons, and to look at each would be to render all of them.
func (c *Controller) depends(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn, health addon.HealthMode, before,
	after metav1.ConditionStatus) bool {
	switch {
	case before == after:
		return false
	case !addOn.DeletionTimestamp.IsZero() || health != addon.HealthLease && health != addon.HealthNone:
		return true
	case before != metav1.ConditionTrue && after != metav1.ConditionTrue:
		return false
	}
	works, err := c.worksOf(ctx, client.ObjectKeyFromObject(addOn))
	return err != nil || slices.ContainsFunc(works, func(w workv1.ManifestWork) bool { return !workload.Answered(&w) })
}

func available(cluster *clusterv1.ManagedCluster) metav1.ConditionStatus {
	if condition := meta.FindStatusCondition(cluster.Status.Conditions, fleet.ConditionClusterAvailable); condition != nil {
		return condition.Status
	}
	return metav1.ConditionUnknown
}
