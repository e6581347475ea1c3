package placement

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/placement/report"
)

// Result is what a placement selects.
type Result struct {
	// Key of the placement.
	Key Key
	// UID and Generation are those of the Placement that Schedule went by. The API may have a newer one by now.
	UID        types.UID
	Generation int64
	// Disabled says that the annotation AnnotationSchedulingDisable keeps everything as it is: nothing is
	// to be written, and nothing else below is set.
	Disabled bool
	// Pending says that Evaluate has not yet applied the CEL expressions to all clusters: nothing is to be written, and
	// Groups says what the decisions were. Deferred says that the placements of the namespace have cost so much lately that this
	// one waits for its turn.
	Pending, Deferred bool
	// Misconfigured says why the spec makes no sense; nil when it does. The decisions there are stay as they are,
	// and Groups says what they were.
	Misconfigured *Misconfiguration
	// Groups of the selected clusters, in order; one at least, which may be empty.
	Groups []Group
	// Selected is how many clusters there are in all groups.
	Selected int
	// Changed says that these are not the clusters of the Schedule before.
	Changed bool
	// Satisfied is the condition PlacementSatisfied, without times and generation.
	Satisfied metav1.Condition
	// Funnel is how the number of clusters came down to those selected.
	Funnel Funnel
	// Prioritizers that apply.
	Prioritizers []Prioritizer
	// Scores are the final scores that decided, of the candidates whose names come first, for an event of up to
	// 1000 characters.
	Scores []ClusterScore
	// ExpiredScores names candidates of which an AddOnPlacementScore that the placement uses is no longer valid, by
	// name. It counts as 0.
	ExpiredScores []string
	// ScoreRateLimit is the least time between two writes of scores alone.
	ScoreRateLimit time.Duration
}

// Group is a decision group.
type Group struct {
	// Name of the group; empty when it has none.
	Name string
	// Decisions in the order of sortBy.
	Decisions []clusterv1beta1.ClusterDecision
}

// Funnel counts clusters.
type Funnel = report.Funnel

// ConditionMisconfigured is the condition PlacementMisconfigured, without times and generation.
func (r *Result) ConditionMisconfigured() metav1.Condition {
	condition := metav1.Condition{
		Type:    fleet.ConditionPlacementMisconfigured,
		Status:  metav1.ConditionFalse,
		Reason:  fleet.ReasonSucceedConfigured,
		Message: "Placement configurations check pass",
	}
	if r.Misconfigured != nil {
		condition.Status, condition.Reason = metav1.ConditionTrue, fleet.ReasonMisconfigured
		condition.Message = r.Misconfigured.Error()
	}
	return condition
}

// misconfiguredResult is the result of a placement that is misconfigured: it keeps what it has. That it may not select anything whatever
// its spec says comes first.
func (s *Scheduler) misconfiguredResult(p *placement, invalid *Misconfiguration) *Result {
	result := &Result{Key: p.key, Disabled: p.disabled, Misconfigured: invalid, Groups: s.previousGroups(p), Selected: len(p.ids),
		Satisfied: metav1.Condition{
			Type:    fleet.ConditionPlacementSatisfied,
			Status:  metav1.ConditionFalse,
			Reason:  fleet.ReasonNotAllDecisionsScheduled,
			Message: fmt.Sprintf("The placement is misconfigured; the %d clusters selected before stay", len(p.ids)),
		}}
	bound := s.boundSets(s.namespaces[p.key.Namespace])
	switch sets := filterSets(bound, p.object.Spec.ClusterSets); {
	case len(sets) == 0:
		result.Satisfied.Reason, result.Satisfied.Message = unboundReason(p, bound)
	case !slices.ContainsFunc(sets, (*clusterSet).hasMembers):
		result.Satisfied.Reason, result.Satisfied.Message = fleet.ReasonAllManagedClusterSetsEmpty, noMembers
	}
	return result
}

// noMembers is what is said of placements whose cluster sets have no clusters.
const noMembers = "The bound ManagedClusterSets have no clusters"

// pendingResult is the result of a placement whose CEL expressions were not applied to all clusters: it keeps what it has.
func (s *Scheduler) pendingResult(p *placement) *Result {
	return &Result{
		Key: p.key, Disabled: p.disabled, Pending: true, Deferred: p.class.evaluation.deferred, Groups: s.previousGroups(p), Selected: len(p.ids),
		Satisfied: metav1.Condition{
			Type:    fleet.ConditionPlacementSatisfied,
			Status:  metav1.ConditionFalse,
			Reason:  fleet.ReasonNotAllDecisionsScheduled,
			Message: fmt.Sprintf("The CEL expressions are still to be evaluated; the %d clusters selected before stay", len(p.ids)),
		},
	}
}

// unboundReason is why a placement has no cluster sets.
func unboundReason(p *placement, bound []*clusterSet) (reason, message string) {
	if len(bound) == 0 {
		return fleet.ReasonNoManagedClusterSetBindings,
			fmt.Sprintf("No ManagedClusterSetBinding in namespace %s leads to a ManagedClusterSet; bind one", p.key.Namespace)
	}
	return fleet.ReasonNoIntersection, fmt.Sprintf("None of spec.clusterSets %q is bound to namespace %s", p.object.Spec.ClusterSets,
		p.key.Namespace)
}

// satisfiedCondition is the condition PlacementSatisfied. Its reasons come in this order. What it says changes only when the placement
// is affected by something.
func (s *Scheduler) satisfiedCondition(p *placement, cs *candidateSet, candidates, selected int) metav1.Condition {
	condition := metav1.Condition{Type: fleet.ConditionPlacementSatisfied, Status: metav1.ConditionFalse}
	switch {
	case cs == nil:
		condition.Reason, condition.Message = unboundReason(p, s.boundSets(s.namespaces[p.key.Namespace]))
	case cs.inClusterSets.empty():
		condition.Reason = fleet.ReasonAllManagedClusterSetsEmpty
		condition.Message = noMembers
	case candidates == 0:
		condition.Reason = fleet.ReasonNoManagedClusterMatched
		condition.Message = "No cluster of the bound ManagedClusterSets matches spec.predicates with all its taints tolerated"
	case selected == 0 && p.spec.limit == unlimited:
		condition.Reason = fleet.ReasonNotAllDecisionsScheduled
		condition.Message = "No cluster that matches has the labels and claims that spec.spreadPolicy wants"
	case selected < p.spec.limit:
		condition.Reason = fleet.ReasonNotAllDecisionsScheduled
		condition.Message = fmt.Sprintf("%d cluster decisions unscheduled", p.spec.limit-selected)
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, fleet.ReasonAllDecisionsScheduled
		condition.Message = "All cluster decisions scheduled"
	}
	return condition
}
