package conditions

import (
	"errors"
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/utils/lru"
)

// Variables of expressions.
const (
	objectVariable = "object"
	resultVariable = "result" // of expressions for messages: whether the condition is True
)

// compiledExpressions is how many expressions are kept compiled. To compile one takes about a millisecond.
const compiledExpressions = 256

// compiler compiles expressions, and keeps those that it compiled last.
type compiler struct {
	environments func() (environments, error)
	compiled     *lru.Cache
}

func newCompiler() *compiler {
	return &compiler{environments: sync.OnceValues(newEnvironments), compiled: lru.New(compiledExpressions)}
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

// hasConditions tells whether a status has conditions. An object without a status has none, which is why an argument that
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

// program is a compiled expression, or why there is none.
type program struct {
	cel.Program
	err error
}

type programKey struct {
	message    bool
	expression string
}

// errEnvironment is of failures that are not the expression's.
var errEnvironment = errors.New("the CEL environment cannot be made")

// condition compiles an expression that says whether a condition is True.
func (c *compiler) condition(expression string) (cel.Program, error) {
	return c.compile(programKey{expression: expression}, types.BoolType)
}

// message compiles an expression for a message.
func (c *compiler) message(expression string) (cel.Program, error) {
	return c.compile(programKey{message: true, expression: expression}, types.StringType)
}

func (c *compiler) compile(key programKey, output *cel.Type) (cel.Program, error) {
	if known, ok := c.compiled.Get(key); ok {
		return known.(program).Program, known.(program).err
	}
	compiled, err := c.compileAnew(key, output)
	c.compiled.Add(key, program{compiled, err})
	return compiled, err
}

func (c *compiler) compileAnew(key programKey, output *cel.Type) (cel.Program, error) {
	envs, err := c.environments()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errEnvironment, err)
	}
	env := envs.rules
	if key.message {
		env = envs.messages
	}
	ast, issues := env.Compile(key.expression)
	if issues.Err() != nil {
		return nil, fmt.Errorf("%q does not compile: %w", key.expression, issues.Err())
	}
	if t := ast.OutputType(); !t.IsExactType(output) && !t.IsExactType(types.DynType) {
		return nil, fmt.Errorf("%q results in a value of type %s; it must be a %s", key.expression, t, output)
	}
	compiled, err := env.Program(ast)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errEnvironment, err)
	}
	return compiled, nil
}

// budget is what the expressions of one manifest may still cost, in the units of Kubernetes.
type budget int64

// newBudget is that of all rules of one manifest together, about a second of processor time.
func newBudget() *budget {
	b := budget(celconfig.RuntimeCELCostBudget)
	return &b
}

// evaluate runs a program on variables, at the expense of the budget.
func (b *budget) evaluate(p cel.Program, variables map[string]any) (ref.Val, error) {
	if *b < 0 {
		return nil, b.exceeded()
	}
	value, details, err := p.Eval(variables)
	if details != nil {
		if cost := details.ActualCost(); cost != nil {
			*b -= budget(min(*cost, celconfig.RuntimeCELCostBudget+1))
		}
	}
	switch {
	case err != nil:
		return nil, err
	case *b < 0:
		return nil, b.exceeded()
	}
	return value, nil
}

func (*budget) exceeded() error {
	return fmt.Errorf("the condition rules of this manifest cost more than %d together; make their expressions cheaper",
		celconfig.RuntimeCELCostBudget)
}
