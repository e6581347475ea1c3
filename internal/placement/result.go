package placement

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/text"
	"github.com/capstan-io/capstan/internal/placement/report"
)

// Result is what a placement selects.
type Result struct {
	// UID and Generation are those of the Placement that was scheduled. The API may have a newer one by now.
	UID        types.UID
	Generation int64
	// Disabled says that the Placement has the annotation AnnotationSchedulingDisable: nothing is to be written, and no other field
	// is set but UID and Generation.
	Disabled bool
	// Pending says that CEL expressions are still to be evaluated: Groups has the decisions so far that the placement may keep, and
	// nothing is to be written but that it lost others. Deferred says that the namespace has used up its budget for CEL expressions, so
	// that this takes longer.
	Pending, Deferred bool
	// Misconfigured says what is invalid in the spec; nil when it is valid. With an invalid spec, Groups has the decisions so far that
	// the placement may keep.
	Misconfigured *Misconfiguration
	// Groups of the selected clusters, in order. There is at least one, which may be empty.
	Groups []Group
	// Selected is the number of clusters in all groups.
	Selected int
	// Satisfied is the condition PlacementSatisfied, without times and generation.
	Satisfied metav1.Condition
	// Funnel counts the clusters that are left after each step.
	Funnel Funnel
	// Scores are the total scores of the first candidates by name, for an event of up to 1000 characters.
	Scores []ClusterScore
	// ExpiredScores names the candidates with an expired AddOnPlacementScore that the placement uses, sorted. It counts as 0.
	ExpiredScores []string
	// ScoreRateLimit is the least time between two writes that change nothing but scores, reasons and the order of clusters.
	ScoreRateLimit time.Duration
}

// Group is a decision group.
type Group struct {
	// Name of the group; empty when it has none.
	Name string
	// Decisions in the order of sortBy.
	Decisions []clusterv1beta1.ClusterDecision
}

// reasons returns the reasons of the decisions by the names of their clusters.
func (r *Result) reasons() map[string]string {
	reasons := map[string]string{}
	for _, group := range r.Groups {
		for _, decision := range group.Decisions {
			reasons[decision.ClusterName] = decision.Reason
		}
	}
	return reasons
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

// misconfiguredResult is the result of a misconfigured placement, which keeps its decisions. Missing cluster sets are a more important
// reason, as without these no spec selects a cluster.
func (sn *snapshot) misconfiguredResult(p *placement, invalid *Misconfiguration) *Result {
	bound := sn.boundSets(p.key.Namespace)
	sets := filterSets(bound, p.object.Spec.ClusterSets)
	result := p.keptResult(sets, "The placement is misconfigured")
	result.Misconfigured = invalid
	switch {
	case len(sets) == 0:
		result.Satisfied.Reason, result.Satisfied.Message = unboundReason(p, bound)
	case !slices.ContainsFunc(sets, (*clusterSet).hasMembers):
		result.Satisfied.Reason, result.Satisfied.Message = fleet.ReasonAllManagedClusterSetsEmpty, noMembers
	}
	return result
}

// noMembers is the message for placements whose cluster sets are empty.
const noMembers = "The bound ManagedClusterSets have no clusters"

// pendingResult is the result of a placement whose CEL expressions are still to be evaluated, which keeps its decisions. It keeps those in
// all sets that are bound to its namespace: after a change of spec.clusterSets, it selects the new clusters when it gives up the old ones.
func (sn *snapshot) pendingResult(p *placement) *Result {
	result := p.keptResult(sn.boundSets(p.key.Namespace), "The CEL expressions are still to be evaluated")
	result.Pending, result.Deferred = true, p.class.evaluation.deferred
	return result
}

// keptResult is the result of a placement that keeps its decisions for the clusters of some sets, for the reason why.
func (p *placement) keptResult(sets []*clusterSet, why string) *Result {
	groups, kept := p.keptGroups(sets)
	return &Result{Disabled: p.disabled, Groups: groups, Selected: kept, Satisfied: metav1.Condition{
		Type:    fleet.ConditionPlacementSatisfied,
		Status:  metav1.ConditionFalse,
		Reason:  fleet.ReasonNotAllDecisionsScheduled,
		Message: fmt.Sprintf("%s; the %d clusters selected before stay", why, kept),
	}}
}

// unboundReason is why a placement has no cluster sets.
func unboundReason(p *placement, bound []*clusterSet) (reason, message string) {
	if len(bound) == 0 {
		return fleet.ReasonNoManagedClusterSetBindings,
			fmt.Sprintf("No ManagedClusterSetBinding in namespace %s leads to a ManagedClusterSet; bind one", p.key.Namespace)
	}
	return fleet.ReasonNoIntersection, text.Message(fmt.Sprintf("None of spec.clusterSets %q is bound to namespace %s",
		p.object.Spec.ClusterSets, p.key.Namespace))
}

// satisfiedCondition is the condition PlacementSatisfied. The first reason that applies wins. The message depends on nothing but what
// makes the placement affected by events.
func (sn *snapshot) satisfiedCondition(p *placement, cs *candidateSet, candidates, selected int) metav1.Condition {
	condition := metav1.Condition{Type: fleet.ConditionPlacementSatisfied, Status: metav1.ConditionFalse}
	switch {
	case p.class == nil:
		condition.Reason, condition.Message = unboundReason(p, sn.boundSets(p.key.Namespace))
	case cs.inClusterSets == 0:
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
