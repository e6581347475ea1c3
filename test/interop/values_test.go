package interop

import (
	"os"
	"reflect"
	"testing"

	"sigs.k8s.io/yaml"
)

// HC-01 HC-05 HC-08 HC-09: the values with which our charts are tested are those that the charts of Open Cluster Management have. They are
// read through a link, because Go runs a test again only if what changed is in the folder of its module.
func TestValuesOfOCMCharts(t *testing.T) {
	t.Parallel()
	const repository = "open-cluster-management.io/"
	for chart, from := range map[string]struct{ module, file string }{
		"cluster-manager":        {"ocm", "deploy/cluster-manager/chart/cluster-manager/values.yaml"},
		"klusterlet":             {"ocm", "deploy/klusterlet/chart/klusterlet/values.yaml"},
		"cluster-proxy":          {"cluster-proxy", "charts/cluster-proxy/values.yaml"},
		"managed-serviceaccount": {"managed-serviceaccount", "charts/managed-serviceaccount/values.yaml"},
	} {
		for _, file := range filesOf(t, repository+from.module, from.file) {
			theirs, tested := map[string]any{}, map[string]any{}
			for file, values := range map[string]*map[string]any{file: &theirs, "values/" + chart + ".yaml": &tested} {
				content, err := os.ReadFile(file)
				if err == nil {
					err = yaml.UnmarshalStrict(content, values)
				}
				if err != nil {
					t.Fatalf("%s: %v", file, err)
				}
			}
			if !reflect.DeepEqual(tested, theirs) {
				t.Errorf("%s has\n%v\nand deploy/charts/testdata/ocm has\n%v", file, theirs, tested)
			}
		}
	}
}
