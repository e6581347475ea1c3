package conditions

import (
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/budget/celbudget"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// Variables of expressions.
const (
	objectVariable = "object"
	resultVariable = "result" // of expressions for messages: whether the condition is True
)

// compilers compile expressions that say whether a condition is True, and those for its message.
type compilers struct{ rules, messages *celbudget.Compiler }

func newCompilers() compilers {
	made := sync.OnceValues(newEnvironments)
	return compilers{
		rules: celbudget.NewCompiler("condition rules", func() (*cel.Env, error) {
			envs, err := made()
			return envs.rules, err
		}, cel.BoolType, nil),
		messages: celbudget.NewCompiler("messages of condition rules", func() (*cel.Env, error) {
			envs, err := made()
			return envs.messages, err
		}, cel.StringType, nil),
	}
}

// environments are those of rules and of messages. They offer what the expressions of Kubernetes offer, and hasConditions.
type environments struct{ rules, messages *cel.Env }

func newEnvironments() (environments, error) {
	since := version.MajorMinor(1, 0)
	rules, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: since,
		EnvOptions: []cel.EnvOption{
			cel.Variable(objectVariable, cel.DynType),
			cel.Function("hasConditions", cel.Overload("dyn_has_conditions", []*cel.Type{cel.DynType}, cel.BoolType,
				cel.OverloadIsNonStrict(), cel.UnaryBinding(hasConditions))),
		},
	})
	if err != nil {
		return environments{}, err
	}
	messages, err := rules.Extend(environment.VersionedOptions{
		IntroducedVersion: since, EnvOptions: []cel.EnvOption{cel.Variable(resultVariable, cel.BoolType)},
	})
	if err != nil {
		return environments{}, err
	}
	return environments{rules: rules.StoredExpressionsEnv(), messages: messages.StoredExpressionsEnv()}, nil
}

// hasConditions reports whether a status has conditions. An object without a status has none, which is why an argument that
// cannot be read is no error.
func hasConditions(status ref.Val) ref.Val {
	fields, ok := status.(traits.Mapper)
	if !ok {
		return types.False
	}
	conditions, found := fields.Find(types.String("conditions"))
	if !found {
		return types.False
	}
	list, ok := conditions.(traits.Lister)
	return types.Bool(ok && list.Size() != types.IntZero)
}

// compile names the expression that does not compile.
func compile(c *celbudget.Compiler, expression string) (cel.Program, error) {
	program, err := c.Compile(expression)
	if err != nil {
		return nil, fmt.Errorf("%s does not compile: %w", text.Quote(expression), err)
	}
	return program, nil
}

// allowance is what the expressions of one manifest may still cost, in the units of Kubernetes.
type allowance struct {
	left int64
	// refused is why none of them is compiled at all.
	refused error
}

// newAllowance is that of all rules of one manifest together, about a second of processor time.
func newAllowance(rules []workv1.ConditionRule) *allowance {
	return &allowance{left: celconfig.RuntimeCELCostBudget, refused: celbudget.Count(expressionsOf(rules))}
}

// evaluate runs a program on variables, at the expense of the allowance.
func (a *allowance) evaluate(p cel.Program, variables map[string]any) (ref.Val, error) {
	if a.left < 0 {
		return nil, a.exceeded()
	}
	value, details, err := p.Eval(variables)
	if details != nil {
		if cost := details.ActualCost(); cost != nil {
			a.left -= int64(min(*cost, celconfig.RuntimeCELCostBudget+1))
		}
	}
	switch {
	case err != nil:
		return nil, err
	case a.left < 0:
		return nil, a.exceeded()
	}
	return value, nil
}

func (*allowance) exceeded() error {
	return fmt.Errorf("the condition rules of this manifest cost more than %d together; make their expressions cheaper",
		celconfig.RuntimeCELCostBudget)
}
