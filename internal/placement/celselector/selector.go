// Package celselector matches ManagedClusters with CEL (PL-03).
//
// The environment is that of Kubernetes (strings, lists, regular expressions, URLs, IP addresses, quantities, semantic
// versions, optional values) and, of our own:
//
//   - managedCluster, the ManagedCluster as a map, with the names of the API: managedCluster.metadata.labels;
//   - managedCluster.scores("NAME"), the items of the AddOnPlacementScore NAME of the cluster as a list of maps with
//     name, value and quantity; empty when there is none or its validUntil has passed;
//   - "TEXT".parseJSON(), the text as a value.
package celselector

import (
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
)

// Scores looks the items of an AddOnPlacementScore of the cluster up; none when there is none that is valid.
type Scores func(name string) []clusterv1alpha1.AddOnPlacementScoreItem

// Selector is a compiled celSelector. It is safe for concurrent use.
type Selector struct {
	programs []program
}

type program struct {
	cel.Program
	expression string
}

// evaluationCost is what an evaluation costs beside what the expression does.
const evaluationCost = 5

// Compile parses the expressions, all of which a cluster must meet. It fails on one that does not compile or that is not
// of type bool.
func Compile(expressions []string) (*Selector, error) {
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("setting up CEL: %w", err)
	}
	selector := &Selector{programs: make([]program, len(expressions))}
	for i, expression := range expressions {
		ast, issues := env.Compile(expression)
		if issues.Err() != nil {
			return nil, fmt.Errorf("celExpressions[%d]: compilation failed: %w", i, issues.Err())
		}
		if kind := ast.OutputType(); !kind.IsExactType(cel.BoolType) && !kind.IsExactType(cel.DynType) {
			return nil, fmt.Errorf("celExpressions[%d]: compilation failed: %q is of type %s, it must be of type bool",
				i, expression, kind)
		}
		compiled, err := env.Program(ast, cel.CostTracking(costs{}))
		if err != nil {
			return nil, fmt.Errorf("celExpressions[%d]: compilation failed: %w", i, err)
		}
		selector.programs[i] = program{Program: compiled, expression: expression}
	}
	return selector, nil
}

// Matches tells whether the cluster meets all expressions. The error says why it does not: an expression that is false,
// that failed, or that costs more than Kubernetes lets one evaluation, or all of them for one cluster, cost. What they
// cost is added to the costs.
func (s *Selector) Matches(cluster *clusterv1.ManagedCluster, scores Scores, costs *Costs) error {
	input := activation{newClusterValue(cluster, scores)}
	left := uint64(celconfig.RuntimeCELCostBudget)
	for _, program := range s.programs {
		value, details, err := program.Eval(input)
		if details != nil && details.ActualCost() != nil {
			cost := *details.ActualCost()
			if costs.add(cost + evaluationCost); cost > left {
				return errTooDear
			}
			left -= cost
		}
		if err != nil {
			return &unmet{expression: program.expression, err: err}
		}
		if value.Value() != true {
			return &unmet{expression: program.expression, value: value.Value()}
		}
	}
	return nil
}

// unmet is why a cluster does not match. Thousands do not, and of few somebody reads why.
type unmet struct {
	expression string
	value      any
	err        error // of an evaluation without a value
}

func (u *unmet) Error() string {
	if u.err != nil {
		return fmt.Sprintf("the CEL expression %q failed: %v", u.expression, u.err)
	}
	return fmt.Sprintf("the CEL expression %q is %v", u.expression, u.value)
}

var errTooDear = errors.New("the CEL expressions cost too much; use fewer or simpler ones")
