package install

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	chartfiles "github.com/capstan-io/capstan/deploy/charts"
	"github.com/capstan-io/capstan/internal/operator/installer"
)

// CA-16: the values that only the operator takes change it, and nothing where it is not installed. Of each value of the chart it is known
// whether it is one of them.
func TestOperatorValues(t *testing.T) {
	t.Parallel()
	render := func(noOperator bool, given map[string]any) []*unstructured.Unstructured {
		values := map[string]any{"replicaCount": 2, "noOperator": noOperator}
		installer.MergeValues(values, given)
		objects, err := installer.Objects(klusterletOperator, values)
		if err != nil {
			t.Fatalf("%v: %v", given, err)
		}
		return objects
	}
	tested := 0
	for name, value := range map[string]any{
		"affinity":                map[string]any{"nodeAffinity": map[string]any{}},
		"enableSyncLabels":        true,
		"extraVolumeMounts":       []any{map[string]any{"name": "v", "mountPath": "/v"}},
		"extraVolumes":            []any{map[string]any{"name": "v", "emptyDir": map[string]any{}}},
		"hostAliases":             []any{map[string]any{"ip": "192.0.2.1", "hostnames": []any{"hub"}}},
		"images.imagePullPolicy":  "Always",
		"images.imagePullSecrets": []any{"password"},
		"nodeSelector":            map[string]any{"a": "b"},
		"podDisruptionBudget":     map[string]any{"enabled": true},
		"podSecurityContext":      map[string]any{"runAsUser": 1},
		"replicaCount":            3,
		"resources":               map[string]any{"limits": map[string]any{"cpu": "1"}},
		"securityContext":         map[string]any{"runAsUser": 1},
		"tolerations":             []any{map[string]any{"key": "a"}},
	} {
		given := map[string]any{name: value}
		if section, of, nested := strings.Cut(name, "."); nested {
			given = map[string]any{section: map[string]any{of: value}}
		}
		if names := givenToOperator(given); !slices.Equal(names, []string{name}) {
			t.Errorf("of %s, the operator takes %v", name, names)
		}
		if !reflect.DeepEqual(render(true, given), render(true, nil)) {
			t.Errorf("%s changes something without an operator", name)
		}
		if reflect.DeepEqual(render(false, given), render(false, nil)) {
			t.Errorf("%s does not change the operator", name)
		}
		tested++
	}
	if want := len(operatorValues) + len(operatorImageValues); tested != want {
		t.Errorf("%d values are tested, of %d", tested, want)
	}

	content, err := chartfiles.Files.ReadFile("klusterlet/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(content, &values); err != nil {
		t.Fatal(err)
	}
	others := []string{"createNamespace", "images", "klusterlet", "noOperator", "priorityClassName"}
	for name := range values {
		if !slices.Contains(slices.Concat(operatorValues, credentialValues, others), name) {
			t.Errorf("of %s, it is not known what takes it", name)
		}
	}
	ofAll := []string{"imageCredentials", "overrides", "registry", "tag"}
	for name := range values["images"].(map[string]any) {
		if !slices.Contains(slices.Concat(operatorImageValues, ofAll), name) {
			t.Errorf("of images.%s, it is not known what takes it", name)
		}
	}
}
