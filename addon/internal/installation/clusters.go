package installation

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/internal/catalogue"
	"github.com/capstan-io/capstan/addon/internal/workload"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
)

// ofCluster enqueues the add-ons on a cluster, and those that the cluster hosts, if its change affects them.
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
			if available(before) != available(after) || managedcluster.ActedOn(before) != managedcluster.ActedOn(after) ||
				managedcluster.CutOff(before) != managedcluster.CutOff(after) || before.Status.Version != after.Status.Version {
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

// concerns reports whether a change of the cluster affects an add-on on it.
func (c *Controller) concerns(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn, before, after *clusterv1.ManagedCluster) bool {
	agent, err := c.Catalogue.Agent(ctx, addOn)
	if err != nil || agent == nil {
		return err != nil
	}
	if c.depends(ctx, addOn, agent.Options().Health.Mode, available(before), available(after)) {
		return true
	}
	if managedcluster.Denied(before) != managedcluster.Denied(after) || managedcluster.CutOff(before) != managedcluster.CutOff(after) {
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

// depends reports whether a change of the cluster's availability affects an add-on: how long it waits for hooks, its health, or the state
// of works that the cluster has not reported on. For most add-ons an outage changes nothing, and reconciling all of them would mean to
// render all of them.
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
