package celselector

import (
	"cmp"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
)

// Cluster is a ManagedCluster to match with selectors. Their expressions together may cost what Kubernetes allows for all expressions and
// one object; beyond it, the cluster matches no selector. It is for one goroutine.
type Cluster struct {
	object    *clusterv1.ManagedCluster
	scores    Scores
	value     ref.Val // of the variable; nil until an expression is evaluated
	costs     *Costs
	remaining uint64
}

// NewCluster returns a Cluster. What evaluations cost is added to costs.
func NewCluster(object *clusterv1.ManagedCluster, scores Scores, costs *Costs) *Cluster {
	return &Cluster{object: object, scores: scores, costs: costs, remaining: celconfig.RuntimeCELCostBudget}
}

// matches returns nil if an expression is true.
func (c *Cluster) matches(expression string) error {
	if c.costs.Ended() || c.remaining == 0 {
		return cmp.Or(c.costs.ctx.Err(), errOverBudget)
	}
	program, err := c.program(expression)
	if err != nil {
		return &mismatch{expression: expression, err: err}
	}
	value, details, err := program.ContextEval(c.costs.ctx, c.variables())
	within := c.charge(details)
	switch ended := c.costs.ctx.Err(); {
	case ended != nil:
		return ended // whatever the expression has made of the interruption
	case !within:
		return errOverBudget
	case err != nil:
		return &mismatch{expression: expression, err: err}
	case value != types.True:
		return &mismatch{expression: expression, value: value}
	}
	return nil
}

// program returns the program of an expression, which is compiled again if it is not in the cache any more.
func (c *Cluster) program(expression string) (cel.Program, error) {
	program, compiled, err := compiler.Program(expression)
	if c.costs.add(evaluationCost); compiled {
		c.costs.add(int64(len(expression)) * compileCost)
	}
	return program, err
}

func (c *Cluster) variables() activation {
	if c.value == nil {
		c.value = newClusterValue(c.object, c.scores)
	}
	return activation{c.value}
}

// charge adds what an evaluation has cost, and reports whether the cluster may cost that much.
func (c *Cluster) charge(details *cel.EvalDetails) bool {
	cost := details.ActualCost()
	if cost == nil {
		return true
	}
	c.costs.add(int64(*cost)) //nolint:gosec // programs end far below the limit
	within := *cost <= c.remaining
	c.remaining -= min(*cost, c.remaining)
	return within
}
