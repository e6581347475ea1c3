package placement

import "fmt"

// Parts of a placement that can make no sense, as conditions name them.
const (
	partPlacement   = "Placement"
	partPredicate   = "Predicate"
	partToleration  = "TaintToleration"
	partPrioritizer = "Prioritizer"
	partSpread      = "Spread"
	partGroups      = "DecisionGroups"
)

// Misconfiguration is why a Placement makes no sense. It keeps the decisions it has (PL-26).
type Misconfiguration struct {
	// Part of the scheduler that it makes no sense to.
	Part string
	// Reason names the field, its value, and what would be right.
	Reason string
}

// Error is the message of the condition PlacementMisconfigured (PL-19).
func (m *Misconfiguration) Error() string { return m.Part + ":" + m.Reason }

func misconfigured(part, format string, args ...any) *Misconfiguration {
	return &Misconfiguration{Part: part, Reason: fmt.Sprintf(format, args...)}
}
