// Package placements reads Placements of a hub and what they have selected.
package placements

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
)

// Resource is that of Placements.
var Resource = clusterv1beta1.GroupVersion.WithResource("placements")

var (
	decisions = clusterv1beta1.GroupVersion.WithResource("placementdecisions")
	kind      = clusterv1beta1.GroupVersion.WithKind("Placement")
)

// List lists the Placements of a namespace, of all namespaces if it is empty.
func List(ctx context.Context, hub *hubapi.Hub, namespace string) (*clusterv1beta1.PlacementList, error) {
	list := &clusterv1beta1.PlacementList{}
	err := hub.Client(Resource).Namespace(namespace).ListAs(ctx, kind, metav1.ListOptions{}, list)
	return list, hub.Explain("list placements", err)
}

// Get reads one Placement.
func Get(ctx context.Context, hub *hubapi.Hub, namespace, name string) (*clusterv1beta1.Placement, error) {
	placement := &clusterv1beta1.Placement{}
	err := hub.Client(Resource).Namespace(namespace).GetAs(ctx, kind, name, placement)
	return placement, hub.Explain("read placement "+name+" of namespace "+namespace, err)
}

// Decisions lists what the placements of a namespace, of all namespaces if it is empty, have selected.
func Decisions(ctx context.Context, hub *hubapi.Hub, namespace string) (*clusterv1beta1.PlacementDecisionList, error) {
	list := &clusterv1beta1.PlacementDecisionList{}
	err := hub.Client(decisions).Namespace(namespace).List(ctx, metav1.ListOptions{}, list)
	return list, hub.Explain("list placement decisions", err)
}
