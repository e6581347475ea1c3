package bombs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/admission"
	"github.com/capstan-io/capstan/internal/agent/work/conditions"
	"github.com/capstan-io/capstan/internal/agent/work/ignore"
	"github.com/capstan-io/capstan/internal/machinery/addon/images"
	"github.com/capstan-io/capstan/internal/machinery/addon/template"
	"github.com/capstan-io/capstan/internal/machinery/budget"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
	"github.com/capstan-io/capstan/internal/machinery/manifest/feedback"
	"github.com/capstan-io/capstan/internal/machinery/manifest/override"
	"github.com/capstan-io/capstan/internal/placement"
	"github.com/capstan-io/capstan/internal/placement/celselector"
)

// mostMemory is what one bomb may allocate on one interpreter, garbage included: several times what the dearest of them does.
const mostMemory = 400 << 20

// interpreters are all that compile or interpret what users or agents write. They are given a text wherever they take one.
var interpreters = map[string]func(t *testing.T, text string) error{
	"placement, CEL": func(t *testing.T, text string) error {
		selector, err := celselector.Compile([]string{text})
		if err != nil {
			return err
		}
		cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "a",
			Annotations: map[string]string{"text": strings.Repeat("ab", 50_000)}}}
		none := func(string) []clusterv1alpha1.AddOnPlacementScoreItem { return nil }
		return selector.Matches(celselector.NewCluster(cluster, none, celselector.NewCosts(t.Context(), math.MaxInt64)))
	},
	"placement, list of CEL": func(_ *testing.T, text string) error {
		return bad(placement.CheckBounds(&clusterv1beta1.PlacementSpec{
			Predicates: []clusterv1beta1.ClusterPredicate{{RequiredClusterSelector: clusterv1beta1.ClusterSelector{
				CelSelector: clusterv1beta1.ClusterCelSelector{CelExpressions: strings.Split(text, "\n")},
			}}}}))
	},
	"placement, selector": func(_ *testing.T, text string) error {
		return bad(placement.CheckBounds(&clusterv1beta1.PlacementSpec{
			Predicates: []clusterv1beta1.ClusterPredicate{{RequiredClusterSelector: clusterv1beta1.ClusterSelector{
				LabelSelector: selectorOf(text),
			}}}}))
	},
	"cluster set": func(_ *testing.T, text string) error {
		selector := selectorOf(text)
		_, err := managedcluster.SetSelector(&clusterv1beta2.ManagedClusterSet{Spec: clusterv1beta2.ManagedClusterSetSpec{
			ClusterSelector: clusterv1beta2.ManagedClusterSelector{SelectorType: clusterv1beta2.LabelSelector, LabelSelector: &selector},
		}})
		return err
	},
	"condition rule": func(_ *testing.T, text string) error {
		set, err := conditions.NewEvaluator().Evaluate(live,
			[]workv1.ConditionRule{{Condition: "A", Type: workv1.CelConditionExpressionsType, CelExpressions: []string{text}}})
		return errors.Join(err, errors.New(set[0].Message))
	},
	"message of a condition rule": func(_ *testing.T, text string) error {
		set, err := conditions.NewEvaluator().Evaluate(live,
			[]workv1.ConditionRule{{Condition: "A", Type: workv1.CelConditionExpressionsType, CelExpressions: []string{"true"},
				MessageExpression: "string(" + text + ")"}})
		return errors.Join(err, errors.New(set[0].Message))
	},
	"condition rules": func(_ *testing.T, text string) error {
		set, err := conditions.NewEvaluator().Evaluate(live,
			[]workv1.ConditionRule{{Condition: "A", Type: workv1.CelConditionExpressionsType, CelExpressions: strings.Split(text, "\n")}})
		return errors.Join(err, errors.New(set[0].Message))
	},
	"feedback": func(_ *testing.T, text string) error {
		_, err := feedback.Values(live,
			[]workv1.FeedbackRule{{Type: workv1.JSONPathsType, JSONPaths: []workv1.JSONPath{{Name: "a", Path: text}}}}, feedback.MaxJSONRaw)
		return err
	},
	"feedback, list": func(_ *testing.T, text string) error {
		rule := workv1.FeedbackRule{Type: workv1.JSONPathsType}
		for i, path := range strings.Split(text, "\n") {
			rule.JSONPaths = append(rule.JSONPaths, workv1.JSONPath{Name: fmt.Sprint(i), Path: path})
		}
		_, err := feedback.Values(live, []workv1.FeedbackRule{rule}, feedback.MaxJSONRaw)
		return err
	},
	"ignored JSON path": func(t *testing.T, text string) error {
		return ignored(t, workv1.IgnoreField{JSONPaths: []string{text}})
	},
	"ignored JSON pointer": func(t *testing.T, text string) error {
		return ignored(t, workv1.IgnoreField{JSONPointers: []string{text}})
	},
	"ignored jq": func(t *testing.T, text string) error {
		return ignored(t, workv1.IgnoreField{JQPathExpressions: []string{text}})
	},
	"ignored list": func(t *testing.T, text string) error {
		return ignored(t, workv1.IgnoreField{JSONPointers: strings.Split(text, "\n")})
	},
	"overrides": func(_ *testing.T, text string) error {
		overrides, errs := override.Parse(field.NewPath("overrides"), text)
		if len(errs) > 0 {
			return errs.ToAggregate()
		}
		raw, err := json.Marshal(live.Object)
		if err != nil {
			return err
		}
		manifests := []workv1.Manifest{{RawExtension: kruntime.RawExtension{Raw: raw}}}
		tried := override.Try(overrides, manifests)
		applied := overridden(overrides, manifests)
		if (tried == nil) != (applied == nil) {
			return fmt.Errorf("admission says %w, and the controller %w", tried, applied)
		}
		return applied
	},
	"path of an override": func(_ *testing.T, text string) error {
		content, err := json.Marshal([]map[string]any{{"set": []map[string]any{{"path": text, "value": 1}}}})
		if err != nil {
			return err
		}
		_, errs := override.Parse(field.NewPath("overrides"), string(content))
		return errs.ToAggregate()
	},
	"template": func(_ *testing.T, text string) error { return rendered(text, strings.Repeat("v", 1024)) },
	"variable": func(_ *testing.T, text string) error { return rendered(strings.Repeat("{{A}}", 10_000), text) },
	"amount of a cluster": func(_ *testing.T, text string) error {
		cluster := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": clusterv1.GroupVersion.String(), "kind": "ManagedCluster", "metadata": map[string]any{"name": "a"},
			"status": map[string]any{"allocatable": map[string]any{"cpu": text}},
		}}
		return admission.ValidateReadable(cluster, nil, "status")
	},
	"identifier of a container": func(_ *testing.T, text string) error {
		pattern, err := images.ContainerPattern(text)
		if err == nil {
			pattern.MatchString(strings.Repeat("ab", 200))
		}
		return err
	},
}

// bombs are texts that take the processor or the memory where there is no bound, and which interpreters refuse them, with what they say.
var bombs = map[string]struct {
	text    string
	refused map[string]string
}{
	"25,000 lines": {strings.Repeat("true\n", 25_000), map[string]string{
		"placement, list of CEL": "spec.predicates: CEL expressions: there are 25001; the limit is 100",
		"condition rules":        "CEL expressions: there are 25001; the limit is 100",
		"placement, selector":    "spec.predicates: entries of matchLabels and matchExpressions: there are 25001; the limit is 500",
		"cluster set":            "spec.clusterSelector.labelSelector: entries of matchLabels and matchExpressions: there are 25001; the limit is 500",
		"feedback, list":         "JSON paths of the feedback rules of a manifest: there are 25001; the limit is 250",
		"ignored list":           "updateStrategy.serverSideApply.ignoreFields: expressions: there are 25001; the limit is 100",
	}},
	"a megabyte": {strings.Repeat("a", 1<<20), map[string]string{
		"placement, CEL": "it has 1048576 bytes; the limit is 8192 bytes", "condition rule": "the limit is 8192 bytes",
		"feedback":   "the limit is 4096 bytes",
		"ignored jq": "the limit is 4096 bytes", "ignored JSON path": "the limit is 4096 bytes",
		"ignored JSON pointer":      "the limit is 4096 bytes",
		"identifier of a container": "the limit is 4096 bytes", "variable": "with the values of its variables, the template has too many bytes",
	}},
	"CEL, macros that double": {"optional.of(1)" + strings.Repeat(".optMap(x, x)", 60) + ".hasValue()",
		cel("optMap and optFlatMap in a CEL expression: there are 60; the limit is 8")},
	"CEL, types that double": {"[1]" + strings.Repeat(".map(a, {a: a})", 40) + ".size() == 0", cel("entries of maps with a computed key")},
	"CEL, lists that double": {"[[0,0]]" + strings.Repeat(".map(l, l+l)", 60) + ".size() == 0",
		cel("elements of a list in a CEL expression: there are")},
	"CEL, trees that double": {"[dyn(0)]" + strings.Repeat(".map(l, dyn([l,l]))", 60) + ".exists(l, l == l)", cel("counted to its depth")},
	"CEL, texts that double": {`"ab"` + strings.Repeat(`.replace("a","aa").replace("b","bb")`, 60) + ".size() == 0",
		cel("a text in a CEL expression: it has")},
	"CEL, a result of any size": {"dyn([dyn(0)]" + strings.Repeat(".map(l, dyn([l,l]))", 60) + ")", map[string]string{
		"placement, CEL": "is a list; it must be a bool", "condition rule": "results in a value of type list; it must be a bool",
	}},
	"CEL, terms":                  {"true" + strings.Repeat(" && 1 == 1", 800), cel("has too many parts")},
	"CEL, a loop":                 {loop(5), cel("cost limit exceeded")},
	"a regular expression in CEL": {`"ab".matches("` + strings.Repeat("(x{0,900})", 100) + `$")`, cel("repeats too much")},
	"a regular expression":        {strings.Repeat("(x{0,900})", 100), map[string]string{"identifier of a container": "repeats too much"}},
	"JSON path, recursion": {strings.Repeat("..a", 7), map[string]string{
		"feedback": "values of the object; the limit is 2000000", "ignored JSON path": "", // by the number of results, or by time
	}},
	"JSON path, unions": {".list" + strings.Repeat("[0,0,0,0,0,0,0,0]", 20),
		map[string]string{"feedback": "alternatives of a JSON path"}},
	"JSON path, loops": {".list}{range .list[*]}{range .list[*]}{.a}{end}{end",
		map[string]string{"feedback": "it must be one path", "ignored JSON path": "it must be one path"}},
	"jq, a text":     {`"a" * 300000000`, jq("this operator")},
	"jq, a function": {"def f: ., f; f", jq("functions of its own")},
	"jq, a range":    {"[range(1e9)]", jq("an array of what is not constant")},
	"jq, a list":     {".[500000000] = 1", jq("this operator")},
	"jq, a fold":     {`reduce range(1e9) as $i (""; . + "a")`, jq("loops")},
	"jq, recursion":  {".. | .. | .. | .. | ..", jq("")},
	"overrides, copies": {"- jsonPatch: [" + strings.Repeat("{op: copy, from: /list, path: /list/0}, ", 30) + "]",
		overrides("its copy operations copy too many bytes")},
	"overrides, an index": {"- set: [{path: /list/2000000000, value: 1}]",
		overrides("/list/2000000000 is element 2000000000 of a list of 500; the limit is 500")},
	"overrides, an index in what is made": {"- set: [{path: /new/2000000000/a, value: 1}]",
		overrides("/new/2000000000 is element 2000000000 of a list of 0")},
	"overrides, operations": {"- jsonPatch: [" + strings.Repeat("{op: test, path: /kind, value: A}, ", 1001) + "]",
		overrides("Invalid value: \"1001 changes\": all overrides together may have 1000 changes")},
	"overrides, steps": {strings.Repeat("- mergePatch: {a: {"+members(100)+"}}\n", 900),
		overrides("counted in steps; the limit is 20000")},
	"overrides, aliases": {"- mergePatch: {a: &a \"" + strings.Repeat("a", 10_000) + "\", b: [" +
		strings.Repeat("*a, ", 10_000) + "]}", overrides("with its aliases and anchors, the YAML is too large")},
	"overrides, nesting": {"- mergePatch: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000), overrides("")},
	"a small quantity": {"1e-10000000",
		map[string]string{"amount of a cluster": "status.allocatable.cpu: Invalid value: \"1e-10000000\": the quantity \"1e-10000000\" has too large an exponent; the limit is 100"}},
	"a large quantity": {"1000000000000000000001e3000000",
		map[string]string{"amount of a cluster": "has too large an exponent; the limit is 100"}},
	"template": {strings.Repeat("{{A}}", 100_000),
		map[string]string{"template": "with the values of its variables, the template has too many bytes"}},
	"brackets":    {strings.Repeat("[", 4000), nil},
	"parentheses": {strings.Repeat("(", 4000), nil},
	"braces":      {strings.Repeat("{", 4000), nil},
	"filters":     {strings.Repeat("[?(@.a", 600), nil},
	"commas":      {"." + strings.Repeat(",.a", 1000), nil},
	"pipes":       {"." + strings.Repeat("|.a?", 900), nil},
	"slashes":     {strings.Repeat("/0", 2000), nil},
	"quotes":      {strings.Repeat(`\"`, 2000), nil},
}

func cel(text string) map[string]string {
	return map[string]string{"placement, CEL": text, "condition rule": text}
}
func jq(text string) map[string]string        { return map[string]string{"ignored jq": text} }
func overrides(text string) map[string]string { return map[string]string{"overrides": text} }

// Nobody who may write one object takes the hub or an agent down with it: each bomb ends, without taking more memory than it may, on
// everything that interprets input, and those that it is made for say which bound it breaks.
func TestBombs(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	for bomb, b := range bombs {
		for name, interpret := range interpreters {
			t.Run(bomb+" on "+name, func(t *testing.T) {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				err := interpret(t, b.text)
				runtime.ReadMemStats(&after)
				if taken := after.TotalAlloc - before.TotalAlloc; taken > mostMemory {
					t.Errorf("it takes %d MiB of memory", taken>>20)
				}
				want, refused := b.refused[name]
				if refused && (err == nil || !strings.Contains(err.Error(), want)) {
					t.Errorf("got %.500v, want an error with %q", err, want)
				}
			})
		}
	}
}

// live is an object of half a megabyte.
var live = func() *unstructured.Unstructured {
	list := make([]any, 500)
	for i := range list {
		list[i] = map[string]any{"a": map[string]any{"a": strings.Repeat("a", 900), "b": []any{int64(1), int64(2)}}}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "A", "metadata": map[string]any{"name": "a", "namespace": "a"}, "list": list, "deep": nested(60),
	}}
}()

func nested(levels int) any {
	var value any = "a"
	for range levels {
		value = map[string]any{"a": value}
	}
	return value
}

func ignored(t *testing.T, entry workv1.IgnoreField) error {
	t.Helper()
	fields, err := ignore.Compile([]workv1.IgnoreField{entry}, workv1.IgnoreFieldsConditionOnSpokePresent)
	if err != nil {
		return err
	}
	fields.Values(t.Context(), live.Object)
	_, err = fields.Without(t.Context(), live.Object)
	return err
}

func overridden(overrides []override.Override, manifests []workv1.Manifest) error {
	r, err := override.NewRenderer(overrides, manifests)
	if err != nil {
		return err
	}
	v, err := r.Variant(override.Cluster{Name: "a"})
	if err != nil {
		return err
	}
	_, _, err = r.Render(v)
	return err
}

func rendered(text, value string) error {
	raw, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "A", "metadata": map[string]any{"name": "a"}, "text": text})
	if err != nil {
		return err
	}
	spec := &addonv1beta1.AddOnTemplateSpec{}
	spec.AgentSpec.Workload.Manifests = []workv1.Manifest{{RawExtension: kruntime.RawExtension{Raw: raw}}}
	_, err = template.Render(template.Input{AddOn: "a", Cluster: "a", Namespace: "a", Template: spec,
		Config: &addonv1beta1.AddOnDeploymentConfigSpec{
			CustomizedVariables: []addonv1beta1.CustomizedVariable{{Name: "A", Value: value}},
		}})
	return err
}

// members are some of a YAML object.
func members(n int) (text string) {
	for i := range n {
		text += fmt.Sprintf("m%d: 1, ", i)
	}
	return text
}

// selectorOf has a requirement for each line.
func selectorOf(text string) (selector metav1.LabelSelector) {
	for line := range strings.SplitSeq(text, "\n") {
		selector.MatchExpressions = append(selector.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: line, Operator: metav1.LabelSelectorOpIn, Values: []string{line}})
	}
	return selector
}

func bad(m *placement.Misconfiguration) error {
	if m == nil {
		return nil
	}
	return m
}

// loop is an expression of nested loops over 60 numbers.
func loop(depth int) string {
	expression := "true"
	for i := range depth {
		expression = "[" + strings.Repeat("1,", 59) + "1].all(x" + string(rune('a'+i)) + ", " + expression + ")"
	}
	return expression
}

// A steps meter that is empty stays so.
func TestMeter(t *testing.T) {
	t.Parallel()
	m := budget.NewMeter("it takes too many steps", 10)
	if err := m.Spend(10); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := m.Spend(1); !budget.Is(fmt.Errorf("wrapped: %w", err)) || err.Error() != "it takes too many steps; the limit is 10" {
			t.Errorf("got %v", err)
		}
	}
}
