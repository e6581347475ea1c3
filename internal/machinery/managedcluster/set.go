package managedcluster

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"

	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/budget"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// SetSelector returns the selector of the labels of members. It fails if the selectorType is unknown or the labelSelector invalid.
func SetSelector(set *clusterv1beta2.ManagedClusterSet) (labels.Selector, error) {
	spec := set.Spec.ClusterSelector
	switch spec.SelectorType {
	case "", clusterv1beta2.ExclusiveClusterSetLabel:
		return labels.SelectorFromSet(labels.Set{fleet.LabelClusterSet: set.Name}), nil
	case clusterv1beta2.LabelSelector:
		// As everywhere in Kubernetes, nil selects nothing and an empty selector everything.
		selector, err := budget.SelectorOf(spec.LabelSelector)
		if err != nil {
			return nil, fmt.Errorf("spec.clusterSelector.labelSelector: %w", err)
		}
		return selector, nil
	default:
		return nil, fmt.Errorf("spec.clusterSelector.selectorType: %q is neither %s nor %s",
			spec.SelectorType, clusterv1beta2.ExclusiveClusterSetLabel, clusterv1beta2.LabelSelector)
	}
}
