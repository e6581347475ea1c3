// Package managedclusters reads ManagedClusters of a hub, accepts them and waits for them.
package managedclusters

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Resource is that of ManagedClusters.
var Resource = clusterv1.GroupVersion.WithResource(fleet.ResourceManagedClusters)

// List lists the managed clusters that a label selector matches; an empty one matches all.
func List(ctx context.Context, hub *hubapi.Hub, labelSelector string) (*clusterv1.ManagedClusterList, error) {
	list := &clusterv1.ManagedClusterList{}
	err := hub.Client(Resource).List(ctx, metav1.ListOptions{LabelSelector: labelSelector}, list)
	list.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("ManagedClusterList"))
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(clusterv1.GroupVersion.WithKind("ManagedCluster"))
		list.Items[i].ManagedFields = nil // as kubectl does: nobody reads them
	}
	return list, hub.Explain("list clusters", err)
}

// Get reads one managed cluster.
func Get(ctx context.Context, hub *hubapi.Hub, name string) (*clusterv1.ManagedCluster, error) {
	cluster, err := GetWithManagers(ctx, hub, name)
	cluster.ManagedFields = nil
	return cluster, err
}

// GetWithManagers reads one managed cluster, and who wrote which of its fields.
func GetWithManagers(ctx context.Context, hub *hubapi.Hub, name string) (*clusterv1.ManagedCluster, error) {
	cluster := &clusterv1.ManagedCluster{}
	err := hub.Client(Resource).Get(ctx, name, cluster)
	cluster.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("ManagedCluster"))
	return cluster, hub.Explain("read cluster "+name, err)
}

// Accept lets the agent of a cluster work with the hub.
func Accept(ctx context.Context, hub *hubapi.Hub, name string) error {
	err := hub.Client(Resource).MergePatch(ctx, name, []byte(`{"spec":{"hubAcceptsClient":true}}`))
	return hub.Explain("accept cluster "+name, err)
}

// Wait returns once the cluster exists and meets the condition. It fails only with what waiting cannot mend.
func Wait(ctx context.Context, hub *hubapi.Hub, name string, condition func(*clusterv1.ManagedCluster) bool) error {
	err := hubapi.Until(ctx, hub.Client(Resource), hubapi.Named(name), condition)
	return hub.Explain("wait for cluster "+name, err)
}
