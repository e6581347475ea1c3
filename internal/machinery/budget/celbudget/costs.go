package celbudget

import (
	"math"
	"slices"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/cel/library"
)

// costs are those of Kubernetes, and more for operations that may take far longer than these say.
type costs struct {
	library.CostEstimator
	own interpreter.ActualCostEstimator
}

// CallCost is the price of one call.
func (c costs) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	if c.own != nil {
		if cost := c.own.CallCost(function, overload, args, result); cost != nil {
			return cost
		}
	}
	if types.IsError(result) {
		return c.failureCost(function, overload, args, result)
	}
	var least uint64
	switch function {
	case "matches", "find", "findAll":
		least = matchCost(textOf(args[1]), lengthOf(args[0]))
	case "_==_", "_!=_":
		if isDeep(args[0]) && isDeep(args[1]) && lengthOf(args[0]) == lengthOf(args[1]) {
			least = weightOf(args)
		}
	case "@in", "indexOf", "lastIndexOf", "includes", "join", "format":
		least = weightOf(args)
	}
	return atLeast(c.CostEstimator.CallCost(function, overload, args, result), least)
}

// failureCost is the price of a call that failed. A check may have kept it from what it would cost, but the check has read the arguments.
func (c costs) failureCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	if checks[function] == nil {
		return nil
	}
	return atLeast(c.CostEstimator.CallCost(function, overload, args, result), weightOf(args))
}

// deepCosts are the prices of functions of lists of which cel-go counts the outer list alone. It asks for these before CallCost.
func deepCosts() (all []interpreter.CostTrackerOption) {
	for _, overload := range []string{
		"list_sets_contains_list", "list_sets_intersects_list", "list_sets_equivalent_list", "list_distinct", // compare all pairs
	} {
		all = append(all, interpreter.OverloadCostTracker(overload, func(args []ref.Val, _ ref.Val) *uint64 {
			shortest := slices.Min(lengthsOf(args))
			cost := callCost + weightOf(args)*uint64(max(1, shortest))
			return &cost
		}))
	}
	for _, overload := range []string{"list_flatten", "list_flatten_int"} {
		all = append(all, interpreter.OverloadCostTracker(overload, func(args []ref.Val, _ ref.Val) *uint64 {
			cost := callCost + weightOf(args)
			return &cost
		}))
	}
	return all
}

// callCost is what cel-go takes for the result of such a function.
const callCost uint64 = common.ListCreateBaseCost

func lengthsOf(args []ref.Val) []int {
	lengths := make([]int, len(args))
	for i, arg := range args {
		lengths[i] = lengthOf(arg)
	}
	return lengths
}

func atLeast(price *uint64, least uint64) *uint64 {
	if least == 0 || price != nil && *price >= least {
		return price
	}
	return &least
}

// matchCost is the price of Kubernetes, which follows from the length of the regular expression, or one that follows from its parts.
func matchCost(pattern string, text int) uint64 {
	const partsPerUnit = 16 // a byte of a text is tried with one part in some 6 ns
	byLength := math.Ceil(float64(1+
		text)*common.StringTraversalCostFactor) * math.Ceil(float64(len(pattern))*common.RegexStringLengthCostFactor)
	return max(uint64(byLength), uint64(partsOf(pattern)*text/partsPerUnit)) //nolint:gosec // neither is negative
}

// weightOf is nothing for texts and numbers, of which Kubernetes knows the price.
func weightOf(args []ref.Val) uint64 {
	if !slices.ContainsFunc(args, isDeep) {
		return 0
	}
	left := mostWeight
	for _, arg := range args {
		weigh(arg, &left)
	}
	return uint64(mostWeight - left)
}

func isDeep(value ref.Val) bool {
	switch value.(type) {
	case traits.Lister, traits.Mapper:
		return true
	}
	return false
}
