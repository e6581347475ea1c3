package interop

import (
	"os"
	"regexp"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/internal/rights/rightstest"
)

var templateLine = regexp.MustCompile(`(?m)^\{\{.*$`)

// HC-02 HC-06: the rules with which our operators are tested are those that the charts of Open Cluster Management give theirs.
func TestRightsOfOCMCharts(t *testing.T) {
	t.Parallel()
	for chart, want := range map[string][]rbacv1.PolicyRule{
		"cluster-manager": rightstest.ClusterManager(), "klusterlet": rightstest.Klusterlet(),
	} {
		for _, file := range filesOf(t, "open-cluster-management.io/ocm", "deploy/"+chart+"/chart/"+chart+"/templates/cluster_role.yaml") {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			role := &rbacv1.ClusterRole{}
			if err := yaml.UnmarshalStrict(templateLine.ReplaceAll(content, nil), role); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if !equality.Semantic.DeepEqual(role.Rules, want) {
				t.Errorf("%s has the rules\n%v\nand the tests have\n%v", file, role.Rules, want)
			}
		}
	}
}
