package selected

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/predicates"
)

// Decided reports whether the decisions of a placement tell all that it selects. A scheduler writes a decision even if it selects nothing,
// and its status after the object: until then the decision tells nothing. As the scheduler of Open Cluster Management leaves out the
// status of a decision without clusters, such a one counts if the others list as many clusters as the placement says that it selects.
func Decided(placement *clusterv1beta1.Placement, decisions []clusterv1beta1.PlacementDecision) bool {
	listed, complete := 0, len(decisions) > 0
	for i := range decisions {
		listed += len(decisions[i].Status.Decisions)
		complete = complete && decisions[i].Status.Decisions != nil
	}
	return complete || len(decisions) > 0 && scheduled(placement) && listed >= int(placement.Status.NumberOfSelectedClusters)
}

// scheduled reports whether the status of a placement was written.
func scheduled(placement *clusterv1beta1.Placement) bool {
	return meta.FindStatusCondition(placement.Status.Conditions, fleet.ConditionPlacementSatisfied) != nil
}

// PlacementChanged matches updates that change the spec of a placement, and those after which it may be Decided with the same decisions.
func PlacementChanged() predicate.Predicate {
	return predicate.Or(predicates.Generation(), predicate.Predicate(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		now, ok := e.ObjectNew.(*clusterv1beta1.Placement)
		before, beforeOK := e.ObjectOld.(*clusterv1beta1.Placement)
		return !ok || !beforeOK || scheduled(now) && !scheduled(before) ||
			now.Status.NumberOfSelectedClusters < before.Status.NumberOfSelectedClusters
	}}))
}
