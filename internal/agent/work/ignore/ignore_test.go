package ignore

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

const deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"default","annotations":{"example.com/a":"1","b":"2"}},
	"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"web","image":"web:1","args":["a","b","c"]},{"name":"proxy","image":"proxy:1"}]}}}}`

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	var object map[string]any
	if err := utiljson.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// WK-08: each way to name fields drops those and no others.
func TestWithout(t *testing.T) {
	t.Parallel()
	jsonPath := func(p string) workv1.IgnoreField { return workv1.IgnoreField{JSONPaths: []string{p}} }
	pointer := func(p string) workv1.IgnoreField { return workv1.IgnoreField{JSONPointers: []string{p}} }
	jq := func(p string) workv1.IgnoreField { return workv1.IgnoreField{JQPathExpressions: []string{p}} }
	const replicas, proxyImage = `"replicas":3,`, `,"image":"proxy:1"`
	for _, test := range []struct {
		field   workv1.IgnoreField
		dropped []string
	}{
		{jsonPath(".spec.replicas"), []string{replicas}},
		{jsonPath("spec.replicas"), []string{replicas}},
		{jsonPath("$.spec.replicas"), []string{replicas}},
		{jsonPath("{.spec.replicas}"), []string{replicas}},
		{jsonPath(".spec['replicas']"), []string{replicas}},
		{jsonPath(`.metadata.annotations.example\.com/a`), []string{`"example.com/a":"1",`}},
		{jsonPath(`.spec.template.spec.containers[?(@.name=="proxy")].image`), []string{proxyImage}},
		{jsonPath(`.spec.template.spec.containers[?(@.args)].image`), []string{`"image":"web:1",`}},
		{jsonPath(`.spec.template.spec.containers[1].image`), []string{proxyImage}},
		{jsonPath(`.spec.template.spec.containers[-1].image`), []string{proxyImage}},
		{jsonPath(`.spec.template.spec.containers[*].image`), []string{`"image":"web:1",`, proxyImage}},
		{jsonPath(`.spec.template.spec.containers[0].args[0:2]`), []string{`"a","b",`}},
		{jsonPath(`..image`), []string{`"image":"web:1",`, proxyImage}},
		{jsonPath(".spec.missing[0].also"), nil},
		{pointer("/spec/replicas"), []string{replicas}},
		{pointer("/metadata/annotations/example.com~1a"), []string{`"example.com/a":"1",`}},
		{pointer("/spec/template/spec/containers/1/image"), []string{proxyImage}},
		{pointer("/spec/missing/0/also"), nil},
		{jq(`.spec.template.spec.containers[] | select(.name == "proxy") | .image`), []string{proxyImage}},
		{jq(".spec.replicas, .metadata.annotations.b"), []string{replicas, `,"b":"2"`}},
	} {
		fields, err := Compile([]workv1.IgnoreField{test.field}, workv1.IgnoreFieldsConditionOnSpokePresent)
		if err != nil {
			t.Errorf("%+v: %v", test.field, err)
			continue
		}
		got, err := fields.Without(t.Context(), decode(t, deployment))
		if err != nil {
			t.Errorf("%+v: %v", test.field, err)
			continue
		}
		want := deployment
		for _, d := range test.dropped {
			if !strings.Contains(want, d) {
				t.Fatalf("%q is not in the object", d)
			}
			want = strings.Replace(want, d, "", 1)
		}
		if diff := cmp.Diff(decode(t, want), got); diff != "" {
			t.Errorf("%+v: %s", test.field, diff)
		}
	}
}

// WK-08: an expression that cannot be used is named, with the list that it is in.
func TestErrors(t *testing.T) {
	t.Parallel()
	for want, field := range map[string]workv1.IgnoreField{
		`jsonPaths ".spec["`:               {JSONPaths: []string{".spec["}},
		"it names no field":                {JSONPaths: []string{"{}"}},
		"a step cannot be used":            {JSONPaths: []string{".a[0:9:2]"}},
		"begins with a slash":              {JSONPointers: []string{"spec/replicas"}},
		"is the whole object":              {JSONPointers: []string{""}},
		`jqPathExpressions ".spec |"`:      {JQPathExpressions: []string{".spec |"}},
		"cannot iterate over":              {JQPathExpressions: []string{".spec.replicas[]"}},
		"cannot have functions of its own": {JQPathExpressions: []string{"def f: f; f"}},
		"metadata.name and":                {JSONPaths: []string{".metadata"}},
		"it does not leave an object":      {JQPathExpressions: []string{"."}},
		`jqPathExpressions "input"`:        {JQPathExpressions: []string{"input"}},
		"expected an object but got":       {JQPathExpressions: []string{".spec.replicas | .a"}},
	} {
		fields, err := Compile([]workv1.IgnoreField{field}, workv1.IgnoreFieldsConditionOnSpokePresent)
		if err == nil {
			_, err = fields.Without(t.Context(), decode(t, deployment))
		}
		var bad *Error
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "ignoreFields: j") {
			t.Errorf("%+v: %v, want %s", field, err, want)
		}
	}
}

// Of more expressions than a manifest may have none is compiled, and it is the same error to a condition.
func TestTooMany(t *testing.T) {
	t.Parallel()
	_, err := Compile([]workv1.IgnoreField{{JSONPointers: strings.Split(strings.Repeat("/a ", 60)+"/a", " ")},
		{JQPathExpressions: strings.Split(strings.Repeat(".a ", 60)+".a", " ")}})
	if bad := (*Error)(nil); !errors.As(err, &bad) ||
		err.Error() != "updateStrategy.serverSideApply.ignoreFields: expressions: there are 122; the limit is 100" {
		t.Errorf("got %v", err)
	}
}

// WK-08: entries count by their condition, and OnSpokePresent is the default.
func TestConditions(t *testing.T) {
	t.Parallel()
	entries := []workv1.IgnoreField{
		{JSONPaths: []string{".spec.replicas"}},
		{Condition: workv1.IgnoreFieldsConditionOnSpokeChange, JSONPaths: []string{".metadata.annotations"}},
	}
	present, err := Compile(entries, workv1.IgnoreFieldsConditionOnSpokePresent)
	if err != nil {
		t.Fatal(err)
	}
	changed, err := Compile(entries, workv1.IgnoreFieldsConditionOnSpokeChange)
	if err != nil {
		t.Fatal(err)
	}
	object := decode(t, deployment)
	for name, test := range map[string]struct {
		fields Fields
		want   string
	}{"OnSpokePresent": {present, `[[3]]`}, "OnSpokeChange": {changed, `[[{"b":"2","example.com/a":"1"}]]`}} {
		got, err := json.Marshal(test.fields.Values(t.Context(), object))
		if err != nil || string(got) != test.want {
			t.Errorf("%s: %s (%v)", name, got, err)
		}
	}
	if none, err := Compile(entries); err != nil || !none.Empty() || present.Empty() {
		t.Errorf("entries of no condition: %+v (%v)", none, err)
	}
}

// Whatever the expressions are, an object loses fields at most, and not what identifies it; that which was given stays as it is.
func FuzzWithout(f *testing.F) {
	f.Add(".spec.replicas", "/metadata/annotations/example.com~1a", `.spec.template.spec.containers[] | select(.name == "proxy") | .image`)
	f.Add(`.metadata.annotations.example\.com/a`, "/spec/paused", ".metadata | .name")
	f.Add("$..image", "/spec/template/spec/containers/0", ".. | numbers")
	f.Fuzz(func(t *testing.T, jsonPath, pointer, jq string) {
		entry := workv1.IgnoreField{JSONPaths: []string{jsonPath}, JSONPointers: []string{pointer}, JQPathExpressions: []string{jq}}
		fields, err := Compile([]workv1.IgnoreField{entry}, workv1.IgnoreFieldsConditionOnSpokePresent)
		if err != nil {
			return
		}
		object, before := decode(t, deployment), decode(t, deployment)
		left, err := fields.Without(t.Context(), object)
		if diff := cmp.Diff(before, object); diff != "" {
			t.Errorf("the object has changed: %s", diff)
		}
		if err != nil {
			return
		}
		encoded, err := json.Marshal(left)
		if err != nil || len(encoded) > len(deployment) || sameIdentity(before, left) != nil {
			t.Errorf("it has become %s: %v", encoded, err)
		}
	})
}
