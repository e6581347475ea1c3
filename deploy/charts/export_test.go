package charts

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Rendered returns what Helm installs of a chart with a values file, or the error with which it refuses the values.
func Rendered(t *testing.T, chart, values string) ([]unstructured.Unstructured, error) {
	t.Helper()
	release := install(chart, values)
	if chart == "capstan-hub" {
		release.release = "multicluster-controlplane" // as the command line calls what it installs
	}
	if _, err := release.files(t); err != nil {
		return nil, err
	}
	return release.objects(t), nil
}

// TriedValues returns the values of which TestValues tries what they change.
func TriedValues(t *testing.T, chart string) []map[string]any {
	t.Helper()
	var tried []map[string]any
	for _, e := range effects(t, chart) {
		tried = append(tried, e.Values)
	}
	return tried
}
