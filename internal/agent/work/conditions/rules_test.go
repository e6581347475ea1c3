package conditions

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	content, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := o.UnmarshalJSON(content); err != nil {
		t.Fatal(err)
	}
	return o
}

const thing = `{apiVersion: example.com/v1, kind: Thing, metadata: {name: a}, spec: {size: 3, ratio: 0.5},
	status: {ready: 2, phase: Done, conditions: [{type: Ready, status: "True"}]}}`

func rule(expressions ...string) workv1.ConditionRule {
	return workv1.ConditionRule{Condition: "Done", Type: workv1.CelConditionExpressionsType, CelExpressions: expressions}
}

// WK-28 SD-08: rules of type CEL.
func TestCEL(t *testing.T) {
	t.Parallel()
	withMessage := func(r workv1.ConditionRule, message, expression string) workv1.ConditionRule {
		r.Message, r.MessageExpression = message, expression
		return r
	}
	const statusless = `{apiVersion: example.com/v1, kind: Thing, metadata: {name: a}}`
	for name, test := range map[string]struct {
		object          string
		rule            workv1.ConditionRule
		status          metav1.ConditionStatus
		reason, message string
	}{
		"true":         {thing, rule(`object.status.phase == "Done"`), "True", "ConditionRuleEvaluated", "Manifest is Done"},
		"false":        {thing, rule(`object.status.ready >= object.spec.size`), "False", "ConditionRuleEvaluated", "Manifest is not Done"},
		"all are true": {thing, rule(`true`, `object.status.ready == 2`), "True", "ConditionRuleEvaluated", "Manifest is Done"},
		"one is false": {thing, rule(`true`, `object.status.ready == 3`, `true`), "False", "ConditionRuleEvaluated", "Manifest is not Done"},
		"floats":       {thing, rule(`object.spec.ratio < 1`), "True", "ConditionRuleEvaluated", "Manifest is Done"},
		"conditions":   {thing, rule(`hasConditions(object.status) && object.status.conditions.exists(c, c.type == "Ready" && c.status == "True")`), "True", "ConditionRuleEvaluated", "Manifest is Done"},
		"no status": {statusless, rule(`hasConditions(object.status) ? true : false`), "False", "ConditionRuleEvaluated",
			"Manifest is not Done"},
		"empty status": {`{apiVersion: v1, kind: A, status: {conditions: []}}`, rule(`hasConditions(object.status)`), "False",
			"ConditionRuleEvaluated", "Manifest is not Done"},
		"quantities":      {thing, rule(`quantity("1Gi").isGreaterThan(quantity("1Mi"))`), "True", "ConditionRuleEvaluated", "Manifest is Done"},
		"missing field":   {statusless, rule(`object.status.ready == 2`), "False", "ConditionRuleExpressionError", "no such key: status"},
		"no bool at last": {thing, rule(`object.status.phase`), "False", "ConditionRuleExpressionError", "it must be a bool"},
		"guarded": {statusless, rule(`has(object.status)`, `object.status.ready == 2`), "False", "ConditionRuleEvaluated",
			"Manifest is not Done"},
		"guard is passed": {thing, rule(`has(object.status)`, `object.status.ready == 2`), "True", "ConditionRuleEvaluated", "Manifest is Done"},
		"guard too late": {statusless, rule(`object.status.ready == 2`, `has(object.status)`), "False", "ConditionRuleExpressionError",
			"no such key: status"},
		"guarded syntax": {statusless, rule(`has(object.status)`, `object.`), "False", "ConditionRuleExpressionError", "does not compile"},
		"syntax":         {thing, rule(`object.status.`), "False", "ConditionRuleExpressionError", "does not compile"},
		"no bool":        {thing, rule(`"text"`), "False", "ConditionRuleExpressionError", "must be a bool"},
		"unknown name":   {thing, rule(`subject.a`), "False", "ConditionRuleExpressionError", "undeclared reference to 'subject'"},
		"no result":      {thing, rule(`result`), "False", "ConditionRuleExpressionError", "undeclared reference to 'result'"},
		"no expressions": {thing, rule(), "False", "ConditionRuleInvalid", "no celExpressions"},
		"message":        {thing, withMessage(rule(`true`), "as told", ""), "True", "ConditionRuleEvaluated", "as told"},
		"expressed": {thing, withMessage(rule(`true`), "as told", `result ? object.metadata.name + " is done" : "not"`), "True",
			"ConditionRuleEvaluated", "a is done"},
		"expressed error": {thing, withMessage(rule(`true`), "as told", `object.nothing`), "True", "ConditionRuleEvaluated",
			"as told (messageExpression: "},
		"expressed wrong": {thing, withMessage(rule(`false`), "", `1`), "False", "ConditionRuleEvaluated",
			"Manifest is not Done (messageExpression: "},
		"long": {thing, withMessage(rule(`true`), strings.Repeat("ä", 40000), ""), "True", "ConditionRuleEvaluated", "ää ..."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := NewEvaluator().Evaluate(object(t, test.object), []workv1.ConditionRule{test.rule})
			if err != nil || len(got) != 1 {
				t.Fatalf("%v, %v", got, err)
			}
			if got[0].Type != "Done" || got[0].Status != test.status || got[0].Reason != test.reason ||
				!strings.Contains(got[0].Message, test.message) || len(got[0].Message) > 4096 {
				t.Errorf("%+v, want %s %s %q", got[0], test.status, test.reason, test.message)
			}
		})
	}
}

// WK-28: all rules of a manifest share one budget, and a single expression has a limit of its own.
func TestBudget(t *testing.T) {
	t.Parallel()
	items := make([]any, 300)
	for i := range items {
		items[i] = int64(i)
	}
	o := &unstructured.Unstructured{Object: map[string]any{"items": items}}
	const square = `object.items.all(a, object.items.all(b, a + b >= 0))` // some hundred thousand units
	const cube = `object.items.all(a, object.items.all(b, object.items.all(c, a + b + c >= 0)))`
	evaluate := func(rules ...workv1.ConditionRule) []metav1.Condition {
		t.Helper()
		got, err := NewEvaluator().Evaluate(o, rules)
		if err != nil || len(got) != len(rules) {
			t.Fatalf("%v, %v", got, err)
		}
		return got
	}
	if got := evaluate(rule(cube))[0]; got.Status != metav1.ConditionFalse || got.Reason != "ConditionRuleExpressionError" ||
		!strings.Contains(got.Message, "cost limit exceeded") {
		t.Errorf("an expression beyond all limits: %+v", got)
	}
	if got := evaluate(rule(square))[0]; got.Status != metav1.ConditionTrue {
		t.Errorf("an expression within limits: %+v", got)
	}
	var rules []workv1.ConditionRule
	for _, name := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
		r := rule(square)
		r.Condition = name
		rules = append(rules, r)
	}
	got := evaluate(rules...)
	if got[0].Status != metav1.ConditionTrue {
		t.Errorf("the first of many: %+v", got[0])
	}
	if last := got[len(got)-1]; last.Status != metav1.ConditionFalse || last.Reason != "ConditionRuleExpressionError" ||
		!strings.Contains(last.Message, "more than 10000000 together") {
		t.Errorf("the last of many: %+v", last)
	}
}

// WK-29: whether Jobs and Pods have finished.
func TestWellKnown(t *testing.T) {
	t.Parallel()
	job := func(condition string) string {
		return `{apiVersion: batch/v1, kind: Job, metadata: {name: a}, status: {conditions: [` + condition + `]}}`
	}
	pod := func(phase string) string {
		return `{apiVersion: v1, kind: Pod, metadata: {name: a}, status: {phase: ` + phase + `}}`
	}
	for name, test := range map[string]struct {
		object, condition string
		want              metav1.ConditionStatus
	}{
		"job complete":     {job(`{type: Complete, status: "True"}`), "Complete", "True"},
		"job failed":       {job(`{type: Failed, status: "True"}`), "Complete", "True"},
		"job running":      {job(`{type: Complete, status: "False"}`), "Complete", "False"},
		"new job":          {`{apiVersion: batch/v1, kind: Job}`, "Complete", "False"},
		"pod succeeded":    {pod("Succeeded"), "", "True"},
		"pod failed":       {pod("Failed"), "Complete", "True"},
		"pod running":      {pod("Running"), "Complete", "False"},
		"another kind":     {thing, "Complete", ""},
		"another job":      {`{apiVersion: example.com/v1, kind: Job}`, "Complete", ""},
		"another question": {pod("Failed"), "Dirty", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := NewEvaluator().Evaluate(object(t, test.object),
				[]workv1.ConditionRule{{Condition: test.condition, Type: workv1.WellKnownConditionsType}})
			if err != nil {
				t.Fatal(err)
			}
			var status metav1.ConditionStatus
			if len(got) > 0 {
				status = got[0].Status
				if got[0].Type != "Complete" || got[0].Reason != "ConditionRuleEvaluated" || got[0].Message == "" {
					t.Errorf("%+v", got[0])
				}
			}
			if status != test.want {
				t.Errorf("status %q, want %q", status, test.want)
			}
		})
	}
}

// A condition that cannot be reported, or that would hide the agent's own, is refused; the others are set.
func TestRefusedRules(t *testing.T) {
	t.Parallel()
	good := rule(`true`)
	for _, name := range []string{"Applied", "Available", "StatusFeedbackSynced", "Deleting", "DryRun", "StatusTruncated", "not a type", "-", "",
		strings.Repeat("a", 317)} {
		bad := rule(`true`)
		bad.Condition = name
		got, err := NewEvaluator().Evaluate(object(t, thing), []workv1.ConditionRule{bad, good})
		if err == nil || !strings.Contains(err.Error(), `"`+name+`"`) {
			t.Errorf("%q: error %v", name, err)
		}
		if len(got) != 1 || got[0].Type != "Done" {
			t.Errorf("%q: %+v", name, got)
		}
	}
	two := []workv1.ConditionRule{{Type: workv1.WellKnownConditionsType}, {Condition: "Complete", Type: workv1.WellKnownConditionsType}}
	if got, err := NewEvaluator().Evaluate(object(t, `{apiVersion: batch/v1, kind: Job}`), two); err != nil || len(got) != 1 {
		t.Errorf("one condition of two rules: %+v, %v", got, err)
	}
}

// Expressions are the same when they come from the cache.
func TestFromCache(t *testing.T) {
	t.Parallel()
	e := NewEvaluator()
	r := rule(`object.status.ready == 2`)
	r.MessageExpression = `"is " + string(result)`
	bad := rule(`object.`)
	bad.Condition = "Bad"
	first, err := e.Evaluate(object(t, thing), []workv1.ConditionRule{r, bad})
	if err != nil {
		t.Fatal(err)
	}
	second, err := e.Evaluate(object(t, thing), []workv1.ConditionRule{r, bad})
	if err != nil || !cmp.Equal(first, second) {
		t.Errorf("%v, %s", err, cmp.Diff(first, second))
	}
}

// Whatever a rule says, it ends in a condition that can be reported.
func FuzzCEL(f *testing.F) {
	for _, seed := range []string{`object.status.ready > 1`, `hasConditions(object.status)`, `object.`, `[1,2].map(x, x * 2).size() == 2`,
		`"a".matches("(a+)+$")`, "\x00"} {
		f.Add(seed, seed)
	}
	e := NewEvaluator()
	o := object(f, thing)
	f.Fuzz(func(t *testing.T, expression, message string) {
		r := rule(expression)
		r.MessageExpression = message
		got, err := e.Evaluate(o, []workv1.ConditionRule{r})
		if err != nil || len(got) != 1 || got[0].Reason == "" || len(got[0].Message) > 2*maxMessage {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
