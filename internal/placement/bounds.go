package placement

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/budget"
	"github.com/capstan-io/capstan/internal/machinery/budget/celbudget"
	"github.com/capstan-io/capstan/internal/placement/celselector"
)

// Bounds of the lists of a Placement, as each entry may be evaluated for each cluster. Package budget has bounds for the entries.
const (
	maxClusterSets    = 1000
	maxPredicates     = 100
	maxTolerations    = 250
	maxPrioritizers   = 100
	maxDecisionGroups = 500
)

// CheckBounds returns the first list of a Placement that exceeds its bound; nil if none does.
func CheckBounds(spec *clusterv1beta1.PlacementSpec) *Misconfiguration {
	groups := &spec.DecisionStrategy.GroupStrategy
	for _, list := range []struct {
		part, field string
		n, limit    int
	}{
		{partPlacement, "spec.clusterSets", len(spec.ClusterSets), maxClusterSets},
		{partPredicate, "spec.predicates", len(spec.Predicates), maxPredicates},
		{partToleration, "spec.tolerations", len(spec.Tolerations), maxTolerations},
		{partPrioritizer, "spec.prioritizerPolicy.configurations", len(spec.PrioritizerPolicy.Configurations), maxPrioritizers},
		{partSpread, "spec.spreadPolicy.spreadConstraints", len(spec.SpreadPolicy.SpreadConstraints), maxConstraints},
		{partGroups, "spec.decisionStrategy.groupStrategy.decisionGroups", len(groups.DecisionGroups), maxDecisionGroups},
	} {
		if list.n > list.limit {
			return misconfigured(list.part, "%s: there are %d; there must be %d at most", list.field, list.n, list.limit)
		}
	}
	if err := checkPredicates(spec.Predicates); err != nil {
		return misconfigured(partPredicate, "spec.predicates%v", err)
	}
	if err := checkGroups(groups.DecisionGroups); err != nil {
		return misconfigured(partGroups, "spec.decisionStrategy.groupStrategy.decisionGroups: %v", err)
	}
	return nil
}

// checkPredicates checks the bounds of all predicates together. The error continues the path spec.predicates.
func checkPredicates(predicates []clusterv1beta1.ClusterPredicate) error {
	var selectors []*metav1.LabelSelector
	var expressions []string
	for i := range predicates {
		s := &predicates[i].RequiredClusterSelector
		selectors = append(selectors, &s.LabelSelector, &metav1.LabelSelector{MatchExpressions: s.ClaimSelector.MatchExpressions})
		for j, expression := range s.CelSelector.CelExpressions {
			if n := len(expression); n > celbudget.ExpressionBytes {
				return fmt.Errorf("[%d].requiredClusterSelector.celSelector.celExpressions[%d] has %d bytes; the limit is %d bytes", i, j, n,
					celbudget.ExpressionBytes)
			}
		}
		expressions = append(expressions, s.CelSelector.CelExpressions...)
	}
	if err := errors.Join(budget.Selectors(selectors...), celbudget.Count(expressions)); err != nil {
		return fmt.Errorf(": %w", err)
	}
	return nil
}

func checkGroups(groups []clusterv1beta1.DecisionGroup) error {
	var selectors []*metav1.LabelSelector
	for i := range groups {
		s := &groups[i].ClusterSelector
		selectors = append(selectors, &s.LabelSelector, &metav1.LabelSelector{MatchExpressions: s.ClaimSelector.MatchExpressions})
	}
	return budget.Selectors(selectors...)
}

// precompile compiles the CEL expressions of a Placement into the cache of programs, unless they exceed the bounds. It is called
// before the scheduler is locked, so that no other call waits for the compiler when the spec is parsed under the lock.
func precompile(spec *clusterv1beta1.PlacementSpec) {
	if checkPredicates(spec.Predicates) != nil {
		return
	}
	for i := range spec.Predicates {
		// Errors are reported when the spec is parsed.
		_, _ = celselector.Compile(spec.Predicates[i].RequiredClusterSelector.CelSelector.CelExpressions)
	}
}
