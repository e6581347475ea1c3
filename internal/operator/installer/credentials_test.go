package installer

import (
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const credential = "hunter2"

// Errors quote no credential, whatever is wrong with it or with another value.
func TestErrorsQuoteNoCredentials(t *testing.T) {
	t.Parallel()
	for chart, test := range map[string]struct {
		install     func(map[string]any) ([]*unstructured.Unstructured, error)
		credentials []string
		// refused is a value that a template refuses.
		refused map[string]any
	}{
		clusterManagerChart: {
			install: func(values map[string]any) ([]*unstructured.Unstructured, error) {
				return Objects(clusterManagerChart, values)
			},
			credentials: []string{"bootstrapTokenSecret", "images.imageCredentials.password", "images.imageCredentials.dockerConfigJson"},
		},
		klusterletChart: {
			install: func(values map[string]any) ([]*unstructured.Unstructured, error) {
				return Objects(klusterletChart, values)
			},
			credentials: []string{"bootstrapHubKubeConfig", "grpcConfig", "externalManagedKubeConfig", "multiHubBootstrapHubKubeConfigs",
				"images.imageCredentials.password", "images.imageCredentials.dockerConfigJson"},
			refused: nested("klusterlet.mode", "Hosted"),
		},
		standaloneChart: {
			install: func(values map[string]any) ([]*unstructured.Unstructured, error) {
				return StandaloneHub{Namespace: "hub", Values: values}.Objects()
			},
			credentials: []string{"apiserver.cakey", "apiserver.ca", "etcd.certkey", "etcd.servers"},
			refused:     map[string]any{"replicas": 2},
		},
	} {
		refused := 0
		for _, path := range test.credentials {
			for _, value := range credentials() {
				for _, other := range []map[string]any{nil, test.refused, {"no-value-of-the-chart": true}} {
					values := nested(path, value)
					MergeValues(values, other)
					if _, err := test.install(values); err != nil {
						refused++
						if strings.Contains(err.Error(), credential) {
							t.Errorf("chart %s: %s: %v", chart, path, err)
						}
					}
				}
			}
		}
		if refused == 0 {
			t.Errorf("chart %s takes all values", chart)
		}
	}
}

// credentials are in the shapes of values of charts, and in others.
func credentials() []any {
	return []any{
		credential, credential + "\n--- {{ : \"", []any{credential}, map[string]any{"key": credential},
		[]any{map[string]any{"name": "one", "kubeConfig": credential}}, []any{map[string]any{"name": 1, "kubeConfig": []any{credential}}},
	}
}

// nested are values with one of a path.
func nested(path string, value any) map[string]any {
	first, rest, more := strings.Cut(path, ".")
	if more {
		value = nested(rest, value)
	}
	return map[string]any{first: value}
}

// A template that fails where text/template quotes values says where it fails, and no value.
func TestFailingTemplateQuotesNoValue(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]string{
		"{{ range .Values.password }}{{ end }}":         "the template fails at fails/templates/a.yaml:1",
		"\n{{ index .Values.password 1 2 }}":            "the template fails at fails/templates/a.yaml:2",
		"{{ .Values.password | fromYaml | toString }}":  "",
		"{{ template .Values.password }}":               "the template fails at fails/templates/a.yaml:1",
		`{{ fail "set name): another one" }}`:           "set name): another one",
		`{{ required "password is required" .nobody }}`: "password is required",
	} {
		chart := &chartv2.Chart{Metadata: &chartv2.Metadata{Name: "fails"},
			Templates: []*common.File{{Name: "templates/a.yaml", Data: []byte(template)}}}
		_, err := engine.Render(chart, common.Values{"Values": map[string]any{"password": credential}})
		switch {
		case err == nil && want != "":
			t.Errorf("%s: renders, want %s", template, want)
		case err != nil && refusal(err).Error() != want:
			t.Errorf("%s: %v, of %v, want %s", template, refusal(err), err, want)
		}
	}
}
