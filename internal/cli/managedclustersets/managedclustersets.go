// Package managedclustersets reads ManagedClusterSets of a hub.
package managedclustersets

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
)

var (
	// Resource is that of ManagedClusterSets.
	Resource = clusterv1beta2.GroupVersion.WithResource("managedclustersets")
	// Bindings is the resource of ManagedClusterSetBindings.
	Bindings = clusterv1beta2.GroupVersion.WithResource("managedclustersetbindings")

	kind = clusterv1beta2.GroupVersion.WithKind("ManagedClusterSet")
)

// List lists the cluster sets.
func List(ctx context.Context, hub *hubapi.Hub) (*clusterv1beta2.ManagedClusterSetList, error) {
	list := &clusterv1beta2.ManagedClusterSetList{}
	err := hub.Client(Resource).ListAs(ctx, kind, metav1.ListOptions{}, list)
	return list, hub.Explain("list cluster sets", err)
}

// Get reads one cluster set.
func Get(ctx context.Context, hub *hubapi.Hub, name string) (*clusterv1beta2.ManagedClusterSet, error) {
	set := &clusterv1beta2.ManagedClusterSet{}
	err := hub.Client(Resource).GetAs(ctx, kind, name, set)
	return set, hub.Explain("read cluster set "+name, err)
}
