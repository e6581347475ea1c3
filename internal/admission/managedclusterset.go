package admission

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
)

// ManagedClusterSetWarnings returns warnings for the user who creates a ManagedClusterSet (old is nil) or changes its selector: why it has
// no members whatever clusters there are, or what of it is not used. Such a set is stored, and its condition ClusterSetEmpty says the same.
func ManagedClusterSetWarnings(set, old *clusterv1beta2.ManagedClusterSet) []string {
	selector := set.Spec.ClusterSelector
	if old != nil && equality.Semantic.DeepEqual(selector, old.Spec.ClusterSelector) {
		return nil
	}
	exclusive := selector.SelectorType != clusterv1beta2.LabelSelector
	_, err := managedcluster.SetSelector(set)
	switch {
	case err != nil:
		return []string{fmt.Sprintf("no cluster is in the set: %v", err)}
	case exclusive && selector.LabelSelector != nil:
		return []string{fmt.Sprintf("spec.clusterSelector.labelSelector is not used: spec.clusterSelector.selectorType has to be %s for that",
			clusterv1beta2.LabelSelector)}
	case !exclusive && selector.LabelSelector == nil:
		return []string{"no cluster is in the set: spec.clusterSelector.labelSelector is missing; an empty one, {}, selects all clusters"}
	}
	return nil
}

// ManagedClusterSetDeletionWarnings returns warnings for the user who deletes a ManagedClusterSet that is in use: namespaces have
// ManagedClusterSetBindings to it, or clusters are in it. Clients of Open Cluster Management delete sets first, so none is refused.
func ManagedClusterSetDeletionWarnings(set *clusterv1beta2.ManagedClusterSet, namespaces []string) (warnings []string) {
	if len(namespaces) > 0 {
		warnings = append(warnings, fmt.Sprintf("ManagedClusterSet %s is bound to %s: Placements there do not select its clusters any more; "+
			"what they have put on these clusters goes, unless another bound set has the clusters", set.Name, few(namespaces)))
	}
	members := meta.FindStatusCondition(set.Status.Conditions, fleet.ConditionClusterSetEmpty)
	if members != nil && members.Status == metav1.ConditionFalse && set.Spec.ClusterSelector.SelectorType != clusterv1beta2.LabelSelector {
		warnings = append(warnings, fmt.Sprintf("ManagedClusterSet %s has members (%s): they keep the label %s=%s, and are in a set of this "+
			"name again if one is created", set.Name, members.Message, fleet.LabelClusterSet, set.Name))
	}
	return warnings
}

// few names no more than three namespaces, and says how many there are besides.
func few(namespaces []string) string {
	const most = 3
	named := slices.Sorted(slices.Values(namespaces))
	kind, rest := "namespace ", ""
	if len(named) > 1 {
		kind = "namespaces "
	}
	if more := len(named) - most; more > 0 {
		named, rest = named[:most], fmt.Sprintf(" and %d more", more)
	}
	return kind + strings.Join(named, ", ") + rest
}
