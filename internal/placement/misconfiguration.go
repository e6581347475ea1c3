package placement

import (
	"fmt"

	"github.com/capstan-io/capstan/internal/machinery/text"
)

// Parts of a Placement, as the condition PlacementMisconfigured names them.
const (
	partPlacement   = "Placement"
	partPredicate   = "Predicate"
	partToleration  = "TaintToleration"
	partPrioritizer = "Prioritizer"
	partSpread      = "Spread"
	partGroups      = "DecisionGroups"
)

// Misconfiguration is why the spec of a Placement is invalid. The Placement keeps its decisions.
type Misconfiguration struct {
	// Part of the Placement that is invalid.
	Part string
	// Reason names the field, its value and what is accepted.
	Reason string
}

// Error is the message of the condition PlacementMisconfigured.
func (m *Misconfiguration) Error() string { return m.Part + ":" + m.Reason }

func misconfigured(part, format string, args ...any) *Misconfiguration {
	return &Misconfiguration{Part: part, Reason: text.Message(fmt.Sprintf(format, args...))}
}

// overBudget is the misconfiguration of CEL expressions that exceed celBudget. It stays until a spec, a binding or the selector of a
// cluster set changes. Changes of single clusters do not end it: to evaluate the expressions again would cost as much again.
func (ev *evaluations) overBudget() *Misconfiguration {
	return misconfigured(partPredicate,
		"spec.predicates: the celExpressions cost more than %d for all clusters of the bound ManagedClusterSets together; "+
			"use fewer or simpler ones, or an additional labelSelector that leaves fewer clusters", ev.celBudget)
}
