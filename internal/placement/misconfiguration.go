package placement

import (
	"fmt"

	"github.com/capstan-io/capstan/internal/machinery/text"
)

// Parts of a placement that can make no sense, as conditions name them.
const (
	partPlacement   = "Placement"
	partPredicate   = "Predicate"
	partToleration  = "TaintToleration"
	partPrioritizer = "Prioritizer"
	partSpread      = "Spread"
	partGroups      = "DecisionGroups"
)

// Misconfiguration is why a Placement makes no sense. It keeps the decisions it has.
type Misconfiguration struct {
	// Part of the scheduler that it makes no sense to.
	Part string
	// Reason names the field, its value, and what would be right.
	Reason string
}

// Error is the message of the condition PlacementMisconfigured.
func (m *Misconfiguration) Error() string { return m.Part + ":" + m.Reason }

func misconfigured(part, format string, args ...any) *Misconfiguration {
	return &Misconfiguration{Part: part, Reason: text.Message(fmt.Sprintf(format, args...))}
}

// overBudget is that of CEL expressions that cost more than celBudget. It stays until somebody changes a spec or the cluster sets,
// whatever becomes of the clusters one by one: to find out whether it still holds would cost as much again.
func (s *Scheduler) overBudget() *Misconfiguration {
	return misconfigured(partPredicate,
		"spec.predicates: the celExpressions cost more than %d for all clusters of the bound ManagedClusterSets together; "+
			"use fewer or simpler ones, or a labelSelector beside them that leaves fewer clusters", s.celBudget)
}
