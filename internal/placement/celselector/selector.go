// Package celselector matches ManagedClusters with CEL.
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
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/budget/celbudget"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// Scores returns the items of an AddOnPlacementScore of the cluster; none if it does not exist or has expired.
type Scores func(name string) []clusterv1alpha1.AddOnPlacementScoreItem

// Selector is a compiled celSelector. It is safe for concurrent use. Its programs are in a cache of the package that keeps the most
// recently used ones of all selectors, so that memory does not grow with the number of selectors.
type Selector struct {
	expressions []string
}

var compiler = celbudget.NewCompiler(variable, environment, cel.BoolType, functionCosts{})

// Costs in addition to those of the expression: of each evaluation, and of each byte of an expression that has to be compiled again.
const (
	evaluationCost = 5
	compileCost    = 5
)

// Compile compiles the expressions, all of which a cluster must match. It fails if there are too many, or one does not compile or is not
// of type bool.
func Compile(expressions []string) (*Selector, error) {
	if err := celbudget.Count(expressions); err != nil {
		return nil, fmt.Errorf("celExpressions: %w", err)
	}
	for i, expression := range expressions {
		if _, err := compiler.Compile(expression); err != nil {
			return nil, fmt.Errorf("celExpressions[%d]: compilation failed: %w", i, err)
		}
	}
	return &Selector{expressions}, nil
}

// Matches returns nil if the cluster matches all expressions, else the reason: an expression that is false or fails, or costs that exceed
// what they may be.
func (s *Selector) Matches(cluster *Cluster) error {
	for _, expression := range s.expressions {
		if err := cluster.matches(expression); err != nil {
			return err
		}
	}
	return nil
}

// mismatch is why a cluster does not match. Its text is made when it is read, as thousands of clusters may not match.
type mismatch struct {
	expression string
	value      ref.Val
	err        error // of an evaluation without a value
}

// Error gives the type of a value that is no bool, but not the value, which may be of any size.
func (u *mismatch) Error() string {
	switch value := u.value.(type) {
	case nil:
		return fmt.Sprintf("the CEL expression %s failed: %v", text.Quote(u.expression), u.err)
	case types.Bool:
		return fmt.Sprintf("the CEL expression %s is %t", text.Quote(u.expression), bool(value))
	default:
		return fmt.Sprintf("the CEL expression %s is a %s; it must be a bool", text.Quote(u.expression), value.Type().TypeName())
	}
}

var errOverBudget = errors.New("the CEL expressions cost too much; use fewer or simpler ones")
