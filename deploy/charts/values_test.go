package charts

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// all are the charts.
var all = []string{"capstan-hub", "cluster-gateway-addon-manager", "cluster-manager", "cluster-proxy", "klusterlet",
	"managed-serviceaccount", "resource-usage-collect-addon"}

// effect is what a values file changes of what is installed by default.
type effect struct {
	Values map[string]any `json:"values"`
	// Shows has a value, or nil for none, by the name of an object and a JSON pointer into it, with a space between. A # ends the pointer to
	// a value in base64, into which the rest points.
	Shows map[string]any `json:"shows"`
}

func effects(t *testing.T, chart string) []effect {
	t.Helper()
	data, err := os.ReadFile("testdata/" + chart + ".values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var effects []effect
	if err := yaml.UnmarshalStrict(data, &effects); err != nil {
		t.Fatal(err)
	}
	return effects
}

// HC-01 HC-02 HC-03 HC-04 HC-05 HC-06 HC-08 HC-09 HC-10 HC-11 CG-08 CP-11 CP-12 MS-07 MS-08 SC-24: each value does what its
// documentation says, and no value is without a test.
func TestValues(t *testing.T) {
	t.Parallel()
	for _, chart := range all {
		t.Run(chart, func(t *testing.T) {
			t.Parallel()
			byDefault := install(chart, "").objects(t)
			tried := map[string]bool{}
			for _, e := range effects(t, chart) {
				leaves("", e.Values, tried)
				values, err := yaml.Marshal(e.Values)
				if err != nil {
					t.Fatal(err)
				}
				e.check(t, string(values), install(chart, string(values)).objects(t), byDefault)
			}
			defaults := map[string]any{}
			decode(t, chart+"/values.yaml", &defaults)
			known := map[string]bool{}
			leaves("", defaults, known)
			for name := range known {
				if !isTried(name, tried) {
					t.Errorf("nothing in testdata/%s.values.yaml tries %s", chart, name)
				}
			}
		})
	}
}

func (e effect) check(t *testing.T, values string, changed, byDefault objects) {
	t.Helper()
	differs := false
	for where, want := range e.Shows {
		name, pointer, _ := strings.Cut(where, " ")
		got := at(changed, name, pointer)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s is %v, want %v", values, where, show(got), show(want))
		}
		differs = differs || !reflect.DeepEqual(at(byDefault, name, pointer), want)
	}
	if !differs {
		t.Errorf("%s: all of %v is so by default", values, e.Shows)
	}
}

func show(value any) string {
	data, _ := json.Marshal(value)
	return string(data)
}

// at returns what a JSON pointer leads to in an object, or nil.
func at(in objects, name, pointer string) any {
	for _, object := range in {
		if path.Join(object.GetKind(), object.GetNamespace(), object.GetName()) == name {
			outer, inner, encoded := strings.Cut(pointer, "#")
			found := follow(object.Object, strings.Split(outer, "/")[1:])
			if encoded {
				found = follow(decoded(found), strings.Split(inner, "/")[1:])
			}
			return found
		}
	}
	return nil
}

// decoded returns the YAML that a value of a Secret is.
func decoded(value any) (into any) {
	text, _ := value.(string)
	data, err := base64.StdEncoding.DecodeString(text)
	if err == nil {
		err = yaml.Unmarshal(data, &into)
	}
	if err != nil {
		return nil
	}
	return into
}

func follow(value any, steps []string) any {
	if len(steps) == 0 {
		return value
	}
	step := strings.NewReplacer("~1", "/", "~0", "~").Replace(steps[0])
	switch value := value.(type) {
	case map[string]any:
		return follow(value[step], steps[1:])
	case []any:
		if index, err := strconv.Atoi(step); err == nil && index < len(value) {
			return follow(value[index], steps[1:])
		}
	}
	return nil
}

// leaves adds the paths of all values that are not objects with fields.
func leaves(prefix string, values map[string]any, to map[string]bool) {
	for name, value := range values {
		nested, ok := value.(map[string]any)
		if !ok || len(nested) == 0 {
			to[prefix+name] = true
			continue
		}
		leaves(prefix+name+".", nested, to)
	}
}

// isTried tells whether a value, or a field of it, is among those that are tried.
func isTried(name string, tried map[string]bool) bool {
	for other := range tried {
		if other == name || strings.HasPrefix(other, name+".") {
			return true
		}
	}
	return false
}

func decode(t *testing.T, file string, into any) {
	t.Helper()
	data, err := Files.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", file, err))
	}
}
