package admission

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/budget"
	"github.com/capstan-io/capstan/internal/machinery/budget/celbudget"
	"github.com/capstan-io/capstan/internal/machinery/budget/pathbudget"
)

// mostConfigs is how many manifestConfigs a ManifestWork may have. Each is compared with each manifest.
const mostConfigs = 2000

// validateManifestConfigs refuses more rules and expressions, or longer ones, than an agent interprets. Other mistakes are reported in
// the conditions of the manifest. An update (old is nil for a creation) is checked only for what it changes.
func validateManifestConfigs(path *field.Path, spec, old *workv1.ManifestWorkSpec) (errs field.ErrorList) {
	if old != nil && equality.Semantic.DeepEqual(spec.ManifestConfigs, old.ManifestConfigs) {
		return nil
	}
	path = path.Child("manifestConfigs")
	if n := len(spec.ManifestConfigs); n > mostConfigs {
		return field.ErrorList{field.TooMany(path, n, mostConfigs)}
	}
	for i := range spec.ManifestConfigs {
		errs = append(errs, validateManifestConfig(path.Index(i), &spec.ManifestConfigs[i])...)
	}
	return errs
}

func validateManifestConfig(path *field.Path, config *workv1.ManifestConfigOption) (errs field.ErrorList) {
	paths := 0
	for i, rule := range config.FeedbackRules {
		paths += max(len(rule.JSONPaths), 1)
		for j, jsonPath := range rule.JSONPaths {
			errs = append(errs, atMost(path.Child("feedbackRules").Index(i).Child("jsonPaths").Index(j).Child("path"), jsonPath.Path,
				pathbudget.PathBytes)...)
		}
	}
	if paths > pathbudget.Paths {
		errs = append(errs, field.TooMany(path.Child("feedbackRules"), paths, pathbudget.Paths))
	}
	errs = append(errs, validateConditionRules(path.Child("conditionRules"), config.ConditionRules)...)
	if strategy := config.UpdateStrategy; strategy != nil && strategy.ServerSideApply != nil {
		errs = append(errs, validateIgnoreFields(path.Child("updateStrategy", "serverSideApply", "ignoreFields"),
			strategy.ServerSideApply.IgnoreFields)...)
	}
	return errs
}

func validateConditionRules(path *field.Path, rules []workv1.ConditionRule) (errs field.ErrorList) {
	if n := len(rules); n > celbudget.Rules {
		return field.ErrorList{field.TooMany(path, n, celbudget.Rules)}
	}
	var expressions []string
	for i := range rules {
		for j, expression := range rules[i].CelExpressions {
			errs = append(errs, atMost(path.Index(i).Child("celExpressions").Index(j), expression, celbudget.ExpressionBytes)...)
		}
		errs = append(errs, atMost(path.Index(i).Child("messageExpression"), rules[i].MessageExpression, celbudget.ExpressionBytes)...)
		expressions = append(expressions, rules[i].CelExpressions...)
		if rules[i].MessageExpression != "" {
			expressions = append(expressions, rules[i].MessageExpression)
		}
	}
	if err := celbudget.Count(expressions); err != nil && len(errs) == 0 {
		errs = append(errs, field.Invalid(path, fmt.Sprintf("%d rules", len(rules)), err.Error()))
	}
	return errs
}

func validateIgnoreFields(path *field.Path, entries []workv1.IgnoreField) (errs field.ErrorList) {
	n := 0
	for i := range entries {
		for name, expressions := range map[string][]string{
			"jsonPaths": entries[i].JSONPaths, "jsonPointers": entries[i].JSONPointers, "jqPathExpressions": entries[i].JQPathExpressions,
		} {
			for j, expression := range expressions {
				errs = append(errs, atMost(path.Index(i).Child(name).Index(j), expression, budget.FieldExpressionBytes)...)
			}
			n += len(expressions)
		}
	}
	if n > budget.FieldExpressions {
		errs = append(errs, field.TooMany(path, n, budget.FieldExpressions))
	}
	return errs
}

// atMost returns an error for a text that is longer than the limit, which quotes the beginning of the text.
func atMost(path *field.Path, text string, limit int) field.ErrorList {
	const prefixLength = 100
	err := budget.Length("the expression", len(text), limit)
	if err == nil {
		return nil
	}
	return field.ErrorList{field.Invalid(path, text[:prefixLength]+"…", err.Error())}
}
