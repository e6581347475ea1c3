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

var kind = clusterv1.GroupVersion.WithKind("ManagedCluster")

// List lists the managed clusters that a label selector matches; an empty one matches all.
func List(ctx context.Context, hub *hubapi.Hub, labelSelector string) (*clusterv1.ManagedClusterList, error) {
	list := &clusterv1.ManagedClusterList{}
	err := hub.Client(Resource).ListAs(ctx, kind, metav1.ListOptions{LabelSelector: labelSelector}, list)
	return list, hub.Explain("list clusters", err)
}

// Get reads one managed cluster.
func Get(ctx context.Context, hub *hubapi.Hub, name string) (*clusterv1.ManagedCluster, error) {
	cluster := &clusterv1.ManagedCluster{}
	err := hub.Client(Resource).GetAs(ctx, kind, name, cluster)
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

// ListIn lists objects in the namespaces of clusters, of all of them if none is named; list lists those of one, or of all, and items are
// those of a list. A cluster that the hub does not have is an error.
func ListIn[L, T any](ctx context.Context, hub *hubapi.Hub, clusters []string, list func(cluster string) (*L, error), items func(*L) *[]T) (
	*L, error,
) {
	if len(clusters) == 0 {
		return list("")
	}
	var all *L
	for _, cluster := range clusters {
		one, err := list(cluster)
		if err != nil {
			return nil, err
		}
		if len(*items(one)) == 0 { // the API does not distinguish a cluster without any from no cluster
			if _, err := Get(ctx, hub, cluster); err != nil {
				return nil, err
			}
		}
		if all == nil {
			all = one
		} else {
			*items(all) = append(*items(all), *items(one)...)
		}
	}
	return all, nil
}
