// Package managedclustersets reads ManagedClusterSets of a hub.
package managedclustersets

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
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

// BoundTo selects the members of the cluster sets with a binding in a namespace. As for the scheduler, bindings count by their names.
func BoundTo(ctx context.Context, hub *hubapi.Hub, namespace string) (members []labels.Selector, err error) {
	bindings := &clusterv1beta2.ManagedClusterSetBindingList{}
	if err := hub.Client(Bindings).Namespace(namespace).List(ctx, metav1.ListOptions{}, bindings); err != nil {
		return nil, hub.Explain("list bindings of cluster sets in namespace "+namespace, err)
	}
	for i := range bindings.Items {
		set, err := Get(ctx, hub, bindings.Items[i].Name)
		if apierrors.IsNotFound(err) && !errors.Is(err, hubapi.ErrNotAHub) {
			continue
		}
		if err != nil {
			return nil, err
		}
		// A set with an invalid selector has no members.
		if selector, err := managedcluster.SetSelector(set); err == nil {
			members = append(members, selector)
		}
	}
	return members, nil
}
