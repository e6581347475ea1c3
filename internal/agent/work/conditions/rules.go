package conditions

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/budget"
	"github.com/capstan-io/capstan/internal/machinery/budget/celbudget"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// Evaluator evaluates condition rules. It may be used by several goroutines; they share the expressions that it compiled.
type Evaluator struct{ compilers compilers }

// NewEvaluator returns an Evaluator. The first rule of type CEL takes some milliseconds more.
func NewEvaluator() *Evaluator { return &Evaluator{compilers: newCompilers()} }

// reserved are the conditions that the agent sets and removes whatever the rules are. Of the others that it sets, a rule takes the place.
var reserved = []string{fleet.ConditionApplied, fleet.ConditionAvailable, fleet.ConditionStatusFeedbackSynced, fleet.ConditionDeleting,
	fleet.ConditionDryRun, fleet.ConditionStatusTruncated}

// conditionType is what the API takes for one.
var conditionType = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$`)

const maxConditionType = 316

// expressionsOf are all CEL expressions of the rules of a manifest, which are bounded together.
func expressionsOf(rules []workv1.ConditionRule) (all []string) {
	for i := range rules {
		all = append(all, rules[i].CelExpressions...)
		if rules[i].MessageExpression != "" {
			all = append(all, rules[i].MessageExpression)
		}
	}
	return all
}

// Evaluate returns the conditions that the rules set on the manifest of an object, without times and
// generations. The error names rules that cannot set a condition at all, one a line.
func (e *Evaluator) Evaluate(object *unstructured.Unstructured, rules []workv1.ConditionRule) ([]metav1.Condition, error) {
	if err := budget.Count("condition rules", len(rules), celbudget.Rules); err != nil {
		return nil, err
	}
	var set []metav1.Condition
	var failures []error
	left := newAllowance(rules)
	for _, rule := range rules {
		if err := check(rule); err != nil {
			failures = append(failures, err)
			continue
		}
		cond, ok := e.evaluate(object, rule, left)
		isSet := slices.ContainsFunc(set, func(c metav1.Condition) bool { return c.Type == cond.Type })
		if ok && !isSet {
			set = append(set, cond)
		}
	}
	return set, errors.Join(failures...)
}

// check refuses rules whose conditions could not be reported, or would hide those of the manifest itself.
func check(rule workv1.ConditionRule) error {
	switch {
	case slices.Contains(reserved, rule.Condition):
		return fmt.Errorf("the condition %q of a rule is set by the agent itself; name another one", rule.Condition)
	case rule.Condition == "" && rule.Type == workv1.WellKnownConditionsType:
		return nil
	case len(rule.Condition) > maxConditionType || !conditionType.MatchString(rule.Condition):
		return fmt.Errorf("the condition %q of a rule is no type of a condition, such as Complete or example.com/Ready", rule.Condition)
	}
	return nil
}

func (e *Evaluator) evaluate(object *unstructured.Unstructured, rule workv1.ConditionRule, left *allowance) (cond metav1.Condition,
	ok bool) {
	if rule.Type == workv1.WellKnownConditionsType {
		return wellKnown(object, rule)
	}
	cond = metav1.Condition{Type: rule.Condition, Reason: fleet.ReasonConditionRuleEvaluated}
	met, err := e.allTrue(object, rule, left)
	switch {
	case err == nil:
		cond.Status = statusOf(met)
		cond.Message = clip(e.message(object, rule, met, left))
		return cond, true
	case errors.As(err, new(*celbudget.EnvironmentError)):
		cond.Status, cond.Reason = metav1.ConditionUnknown, fleet.ReasonConditionRuleInternalError
	case errors.Is(err, errInvalid):
		cond.Status, cond.Reason = metav1.ConditionFalse, fleet.ReasonConditionRuleInvalid
	default:
		cond.Status, cond.Reason = metav1.ConditionFalse, fleet.ReasonConditionRuleExpressionError
	}
	cond.Message = clip(err.Error())
	return cond, true
}

// errInvalid is of rules that say nothing to evaluate.
var errInvalid = errors.New("the rule is invalid")

// allTrue reports whether all expressions of a rule are true. They are evaluated in their order as far as the first that is false,
// so one may guard those after it; one that does not compile is reported at once, wherever it is.
func (e *Evaluator) allTrue(object *unstructured.Unstructured, rule workv1.ConditionRule, left *allowance) (bool, error) {
	if len(rule.CelExpressions) == 0 {
		return false, fmt.Errorf("%w: it has no celExpressions", errInvalid)
	}
	if left.refused != nil {
		return false, fmt.Errorf("%w: of all condition rules of the manifest, %w", errInvalid, left.refused)
	}
	programs := make([]cel.Program, 0, len(rule.CelExpressions))
	for _, expression := range rule.CelExpressions {
		compiled, err := compile(e.compilers.rules, expression)
		if err != nil {
			return false, err
		}
		programs = append(programs, compiled)
	}
	for i, expression := range rule.CelExpressions {
		value, err := left.evaluate(programs[i], map[string]any{objectVariable: object.Object})
		if err != nil {
			return false, fmt.Errorf("%s cannot be evaluated: %w", text.Quote(expression), err)
		}
		met, ok := value.(types.Bool)
		if !ok {
			return false, fmt.Errorf("%s results in a value of type %s; it must be a bool", text.Quote(expression), value.Type().TypeName())
		}
		if !bool(met) {
			return false, nil
		}
	}
	return true, nil
}

// message of a rule that was evaluated. What is wrong with an expression for it does not take the result away.
func (e *Evaluator) message(object *unstructured.Unstructured, rule workv1.ConditionRule, met bool, left *allowance) string {
	message := rule.Message
	if message == "" {
		message = defaultMessage(rule.Condition, met)
	}
	if rule.MessageExpression == "" {
		return message
	}
	expressed, err := e.express(object, rule.MessageExpression, met, left)
	if err != nil {
		return fmt.Sprintf("%s (messageExpression: %v)", message, err)
	}
	return expressed
}

func (e *Evaluator) express(object *unstructured.Unstructured, expression string, met bool, left *allowance) (string, error) {
	compiled, err := compile(e.compilers.messages, expression)
	if err != nil {
		return "", err
	}
	value, err := left.evaluate(compiled, map[string]any{objectVariable: object.Object, resultVariable: met})
	if err != nil {
		return "", fmt.Errorf("%s cannot be evaluated: %w", text.Quote(expression), err)
	}
	message, ok := value.(types.String)
	if !ok {
		return "", fmt.Errorf("%s results in a value of type %s; it must be a string", text.Quote(expression), value.Type().TypeName())
	}
	return string(message), nil
}

func defaultMessage(condition string, met bool) string {
	if met {
		return "Manifest is " + condition
	}
	return "Manifest is not " + condition
}

func statusOf(met bool) metav1.ConditionStatus {
	if met {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}
