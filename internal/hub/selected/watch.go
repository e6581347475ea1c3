package selected

import (
	"maps"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
	"github.com/capstan-io/capstan/internal/placement/decided"
)

// PlacementChanged matches updates that change the spec of a placement, and those after which the same decisions may be [decided.All].
func PlacementChanged() predicate.Predicate {
	return predicate.Or(predicates.Generation(), predicate.Predicate(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		now, ok := e.ObjectNew.(*clusterv1beta1.Placement)
		before, beforeOK := e.ObjectOld.(*clusterv1beta1.Placement)
		return !ok || !beforeOK || decided.Scheduled(now) && !decided.Scheduled(before) ||
			now.Status.NumberOfSelectedClusters < before.Status.NumberOfSelectedClusters
	}}))
}

// ClusterChanged matches updates that may change whether the hub acts on a cluster, or the reason. Labels with the state of add-ons
// change often, and are ignored: a set that selects by them changes the decisions as well.
func ClusterChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		now, ok := e.ObjectNew.(*clusterv1.ManagedCluster)
		before, beforeOK := e.ObjectOld.(*clusterv1.ManagedCluster)
		return !ok || !beforeOK || managedcluster.ActedOn(now) != managedcluster.ActedOn(before) ||
			managedcluster.Denied(now) != managedcluster.Denied(before) ||
			!maps.Equal(withoutAddOnLabels(now.Labels), withoutAddOnLabels(before.Labels))
	}}
}

func withoutAddOnLabels(all map[string]string) map[string]string {
	kept := make(map[string]string, len(all))
	for key, value := range all {
		if !strings.HasPrefix(key, fleet.LabelAddOnFeaturePrefix) {
			kept[key] = value
		}
	}
	return kept
}
