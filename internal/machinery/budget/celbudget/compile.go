// Package celbudget compiles and runs CEL expressions of users within bounds.
//
// Kubernetes bounds what an expression may cost when it runs, in units of about 100 ns. That is not enough for input that users
// write: some expressions of a few hundred bytes take minutes to compile, because a macro or the type of a value doubles with each step,
// and what one step of a running expression costs is known only when it is over, by then in gigabytes. So there are bounds for
//
//   - the text and the syntax tree of an expression (compile.go, tree.go);
//   - the values that an operation is given, before it starts (guard.go);
//   - what is charged for operations whose cost does not follow from the lengths of their arguments (costs.go);
//   - the programs that are kept in memory (cache.go).
package celbudget

import (
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/capstan-io/capstan/internal/machinery/budget"
)

// Bounds of the expressions of one object, such as a Placement, or of one manifest of a ManifestWork.
const (
	// Rules is how many condition rules a manifest may have: each is a condition in the status of its ManifestWork.
	Rules = 100
	// Expressions is how many there may be.
	Expressions = 100
	// ExpressionBytes is how long one may be.
	ExpressionBytes = 8 << 10
	// TotalBytes is how long all of them may be together.
	TotalBytes = 32 << 10
)

// Count fails if there are more expressions than there may be, or if they are longer.
func Count(expressions []string) error {
	if err := budget.Count("CEL expressions", len(expressions), Expressions); err != nil {
		return err
	}
	total := 0
	for i, expression := range expressions {
		if err := budget.Length(fmt.Sprintf("CEL expression %d", i), len(expression), ExpressionBytes); err != nil {
			return err
		}
		total += len(expression)
	}
	return budget.Length("the CEL expressions together", total, TotalBytes)
}

// Compiler compiles expressions of one environment and one type. It may be used by several goroutines.
type Compiler struct {
	name    string
	prepare func() (prepared, error) // once
	output  *cel.Type
	costs   interpreter.ActualCostEstimator
}

// prepared is an environment, and what its functions do.
type prepared struct {
	*cel.Env
	guard guard
}

// NewCompiler returns a Compiler. Its name distinguishes the environment from others. The costs are those of functions that the environment
// has in addition to those of Kubernetes; nil if it has none.
func NewCompiler(name string, environment func() (*cel.Env, error), output *cel.Type, costs interpreter.ActualCostEstimator) *Compiler {
	return &Compiler{name: name, output: output, costs: costs, prepare: sync.OnceValues(func() (prepared, error) {
		env, err := environment()
		if err != nil {
			return prepared{}, &EnvironmentError{err}
		}
		implementations, err := implementationsOf(env)
		if err != nil {
			return prepared{}, &EnvironmentError{err}
		}
		return prepared{env, guard{implementations}}, nil
	})}
}

// EnvironmentError is of failures that are not the expression's.
type EnvironmentError struct{ err error }

func (e *EnvironmentError) Error() string {
	return "the CEL environment cannot be made: " + e.err.Error()
}

// Unwrap returns why.
func (e *EnvironmentError) Unwrap() error { return e.err }

// Compile compiles an expression, unless its program is known. Its loops end soon after the context of a ContextEval. The error says what
// is wrong with it; it does not name it.
func (c *Compiler) Compile(expression string) (cel.Program, error) {
	if err := budget.Length("the CEL expression", len(expression), ExpressionBytes); err != nil {
		return nil, err
	}
	program, _, err := c.Program(expression)
	return program, err
}

// Program is what Compile returns for an expression that is not too long, and whether it had to be compiled for that.
func (c *Compiler) Program(expression string) (program cel.Program, compiled bool, err error) {
	program, err = programs.get(programKey{c.name, expression}, func() (cel.Program, error) {
		compiled = true
		return c.compile(expression)
	})
	return program, compiled, err
}

func (c *Compiler) compile(expression string) (cel.Program, error) {
	env, err := c.prepare()
	if err != nil {
		return nil, err
	}
	if err := checkMacros(expression); err != nil {
		return nil, err
	}
	parsed, issues := env.Parse(expression)
	if issues.Err() != nil {
		return nil, firstOf(issues)
	}
	if err := checkTree(parsed.NativeRep().Expr()); err != nil {
		return nil, err
	}
	checked, issues := env.Check(parsed)
	if issues.Err() != nil {
		return nil, firstOf(issues)
	}
	if t := checked.OutputType(); !t.IsExactType(c.output) && !t.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("it results in a value of type %s; it must be a %s", t, c.output)
	}
	return env.Program(checked,
		cel.CustomDecoratorV2(env.guard.decorate),
		cel.InterruptCheckFrequency(celconfig.CheckFrequency),
		cel.OptimizeRegex(constantMatches("matches"), constantMatches("matches_string")),
		cel.CostTracking(costs{own: c.costs}),
		cel.CostTrackerOptions(deepCosts()...))
}

// firstOf is the first issue, and how many there are. Each quotes the line that it is about, which is all of the expression.
func firstOf(issues *cel.Issues) error {
	all := issues.Errors()
	if len(all) == 0 {
		return issues.Err()
	}
	message := fmt.Sprintf("%d:%d: %s", all[0].Location.Line(), all[0].Location.Column()+1, all[0].Message)
	if more := len(all) - 1; more > 0 {
		message += fmt.Sprintf(", and %d more", more)
	}
	return fmt.Errorf("%s", strings.TrimPrefix(message, "-1:1: "))
}
