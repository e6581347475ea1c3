package hubapi

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const managedClusters = "managedclusters"

// Clusters lists the managed clusters that a label selector matches; an empty one matches all.
func (h *Hub) Clusters(ctx context.Context, labelSelector string) (*clusterv1.ManagedClusterList, error) {
	list := &clusterv1.ManagedClusterList{}
	err := h.clusters.Get().Resource(managedClusters).
		VersionedParams(&metav1.ListOptions{LabelSelector: labelSelector}, metav1.ParameterCodec).Do(ctx).Into(list)
	list.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("ManagedClusterList"))
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(clusterv1.GroupVersion.WithKind("ManagedCluster"))
		list.Items[i].ManagedFields = nil // as kubectl does: nobody reads them
	}
	return list, h.explain("list clusters", err)
}

// Cluster reads one managed cluster.
func (h *Hub) Cluster(ctx context.Context, name string) (*clusterv1.ManagedCluster, error) {
	cluster, err := h.ClusterWithManagers(ctx, name)
	cluster.ManagedFields = nil
	return cluster, err
}

// ClusterWithManagers reads one managed cluster, and who wrote which of its fields.
func (h *Hub) ClusterWithManagers(ctx context.Context, name string) (*clusterv1.ManagedCluster, error) {
	cluster := &clusterv1.ManagedCluster{}
	err := h.clusters.Get().Resource(managedClusters).Name(name).Do(ctx).Into(cluster)
	cluster.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("ManagedCluster"))
	return cluster, h.explain("read cluster "+name, err)
}

// AcceptCluster lets the agent of a cluster work with the hub.
func (h *Hub) AcceptCluster(ctx context.Context, name string) error {
	err := h.clusters.Patch(types.MergePatchType).Resource(managedClusters).Name(name).
		Body([]byte(`{"spec":{"hubAcceptsClient":true}}`)).Do(ctx).Error()
	return h.explain("accept cluster "+name, err)
}

// ForeignNamespace tells whether the hub has a namespace of a cluster's name that was not made for the cluster. Who may not look sees
// none.
func (h *Hub) ForeignNamespace(ctx context.Context, cluster string) (bool, error) {
	namespace := &corev1.Namespace{}
	err := h.core.Get().Resource("namespaces").Name(cluster).Do(ctx).Into(namespace)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return false, nil
	}
	return err == nil && namespace.Labels[fleet.LabelClusterName] != cluster, h.explain("read namespace "+cluster, err)
}

// WaitForCluster returns once the cluster exists and is as wanted. It fails only with what waiting cannot mend.
func (h *Hub) WaitForCluster(ctx context.Context, name string, wanted func(*clusterv1.ManagedCluster) bool) error {
	err := until(ctx, watched{client: h.clusters, resource: managedClusters, name: name}, wanted)
	return h.explain("wait for cluster "+name, err)
}

// WaitForNoCluster returns once a cluster that is being deleted is gone.
func (h *Hub) WaitForNoCluster(ctx context.Context, name string, uid types.UID) error {
	err := untilNone(ctx, watched{client: h.clusters, resource: managedClusters, name: name},
		func(cluster *clusterv1.ManagedCluster) bool { return cluster.UID == uid })
	return h.explain("wait for the deletion of cluster "+name, err)
}

// WaitForHeartbeat returns once the agent of a cluster has renewed its lease after a point in time.
func (h *Hub) WaitForHeartbeat(ctx context.Context, cluster string, after time.Time) error {
	source := watched{client: h.coordination, resource: "leases", namespace: cluster, name: fleet.ClusterNamespaceLease}
	err := until(ctx, source, func(lease *coordinationv1.Lease) bool {
		return lease.Spec.RenewTime != nil && lease.Spec.RenewTime.After(after)
	})
	return h.explain("wait for the agent of cluster "+cluster, err)
}

// WaitForNextHeartbeat returns once the agent of a cluster has renewed its lease, whatever its clock says.
func (h *Hub) WaitForNextHeartbeat(ctx context.Context, cluster string) error {
	var first *metav1.MicroTime
	seen := false
	source := watched{client: h.coordination, resource: "leases", namespace: cluster, name: fleet.ClusterNamespaceLease}
	err := until(ctx, source, func(lease *coordinationv1.Lease) bool {
		renewed := seen && !lease.Spec.RenewTime.Equal(first)
		first, seen = lease.Spec.RenewTime, true
		return renewed
	})
	return h.explain("wait for the agent of cluster "+cluster, err)
}
