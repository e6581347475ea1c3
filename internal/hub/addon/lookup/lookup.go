// Package lookup finds what belongs to an add-on: its installations, the clusters that are to have it, and its works. It reads from the
// cache; its results must not be changed.
package lookup

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Indexes of the cache.
const (
	// indexName finds the ManagedClusterAddOns of an add-on, in all namespaces.
	indexName = "addon.name"
	// indexPlacement finds the ClusterManagementAddOns that refer to a placement.
	indexPlacement = "addon.placement"
	// indexByPlacements finds the ClusterManagementAddOns that placements install.
	indexByPlacements = "addon.byplacements"
	// indexDecisionOf finds the decisions of a placement.
	indexDecisionOf = "addon.decision"
	// indexWorkOf finds the works of an add-on on a cluster.
	indexWorkOf = "addon.work"
)

// AddIndexes adds the indexes that this package uses.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	return add(ctx, indexer, Indexes()...)
}

// AddNameIndex adds what [OnAllClusters] needs of them, for a process that reads no placements.
func AddNameIndex(ctx context.Context, indexer client.FieldIndexer) error {
	return add(ctx, indexer, byName)
}

func add(ctx context.Context, indexer client.FieldIndexer, indexes ...Index) error {
	for _, index := range indexes {
		if err := indexer.IndexField(ctx, index.Object, index.Name, index.Values); err != nil {
			return fmt.Errorf("index %T by %s: %w", index.Object, index.Name, err)
		}
	}
	return nil
}

// Index is an index of the cache.
type Index struct {
	Object client.Object
	Name   string
	Values client.IndexerFunc
}

var byName = Index{&addonv1beta1.ManagedClusterAddOn{}, indexName, func(o client.Object) []string { return []string{o.GetName()} }}

// Indexes returns the indexes that this package uses.
func Indexes() []Index {
	return []Index{
		byName,
		{&addonv1beta1.ClusterManagementAddOn{}, indexPlacement, placementsOf},
		{&addonv1beta1.ClusterManagementAddOn{}, indexByPlacements, func(o client.Object) []string {
			if len(placementsOf(o)) == 0 {
				return nil
			}
			return []string{fleet.LabelTrue}
		}},
		{&clusterv1beta1.PlacementDecision{}, indexDecisionOf, func(o client.Object) []string {
			if placement := o.GetLabels()[fleet.LabelPlacement]; placement != "" {
				return []string{placement}
			}
			return nil
		}},
		{&workv1.ManifestWork{}, indexWorkOf, func(o client.Object) []string {
			if key, found := AddOnOfWork(o); found {
				return []string{key.String()}
			}
			return nil
		}},
	}
}

func placementsOf(o client.Object) (keys []string) {
	addOn, ok := o.(*addonv1beta1.ClusterManagementAddOn)
	if !ok || addOn.Spec.InstallStrategy.Type != addonv1beta1.InstallStrategyPlacements {
		return nil
	}
	for _, placement := range addOn.Spec.InstallStrategy.Placements {
		keys = append(keys, placement.Namespace+"/"+fleet.LabelValue(placement.Name))
	}
	return keys
}

// AddOnOfWork returns the ManagedClusterAddOn that a work was made for, by its labels. Works of ManifestWorkReplicaSets belong to none.
func AddOnOfWork(work client.Object) (client.ObjectKey, bool) {
	name := work.GetLabels()[fleet.LabelAddOnName]
	if _, ofSet := work.GetLabels()[fleet.LabelManifestWorkReplicaSet]; ofSet || name == "" {
		return client.ObjectKey{}, false
	}
	if namespace := work.GetLabels()[fleet.LabelAddOnNamespace]; namespace != "" {
		return client.ObjectKey{Namespace: namespace, Name: name}, true
	}
	return client.ObjectKey{Namespace: work.GetNamespace(), Name: name}, true
}

// Installations returns the ManagedClusterAddOns of an add-on, by their clusters.
func Installations(ctx context.Context, c client.Reader, addOn string) (map[string]*addonv1beta1.ManagedClusterAddOn, error) {
	list := &addonv1beta1.ManagedClusterAddOnList{}
	if err := c.List(ctx, list, client.MatchingFields{indexName: addOn}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the ManagedClusterAddOns of %s: %w", addOn, err)
	}
	installations := make(map[string]*addonv1beta1.ManagedClusterAddOn, len(list.Items))
	for i := range list.Items {
		installations[list.Items[i].Namespace] = &list.Items[i]
	}
	return installations, nil
}

// Works returns the ManifestWorks of an add-on on its cluster, and on its hosting cluster if it has one. Works in other namespaces do
// not count: users who may write there could label works as if they were the add-on's.
func Works(ctx context.Context, c client.Reader, addOn *addonv1beta1.ManagedClusterAddOn) ([]workv1.ManifestWork, error) {
	key, list := client.ObjectKeyFromObject(addOn), &workv1.ManifestWorkList{}
	if err := c.List(ctx, list, client.MatchingFields{indexWorkOf: key.String()}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the ManifestWorks of ManagedClusterAddOn %s: %w", key, err)
	}
	hosting := addOn.Annotations[fleet.AnnotationHostingClusterName]
	works := make([]workv1.ManifestWork, 0, len(list.Items))
	for _, work := range list.Items {
		if work.Namespace == addOn.Namespace || work.Namespace == hosting {
			works = append(works, work)
		}
	}
	return works, nil
}

// Clusters returns all clusters, by name.
func Clusters(ctx context.Context, c client.Reader) (map[string]*clusterv1.ManagedCluster, error) {
	list := &clusterv1.ManagedClusterList{}
	if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the clusters: %w", err)
	}
	clusters := make(map[string]*clusterv1.ManagedCluster, len(list.Items))
	for i := range list.Items {
		clusters[list.Items[i].Name] = &list.Items[i]
	}
	return clusters, nil
}

// Installable reports whether an install strategy may install add-ons on a cluster: the hub has accepted it, it is not being deleted, and
// it has no annotation against it.
func Installable(cluster *clusterv1.ManagedCluster) bool {
	return cluster != nil && cluster.DeletionTimestamp.IsZero() &&
		meta.IsStatusConditionTrue(cluster.Status.Conditions, fleet.ConditionHubAccepted) &&
		cluster.Annotations[fleet.AnnotationDisableAutomaticInstallation] != fleet.LabelTrue
}

// SelfManaged reports whether an add-on manages its own lifecycle.
func SelfManaged(entry *addonv1beta1.ClusterManagementAddOn) bool { return addon.SelfManaged(entry) }
