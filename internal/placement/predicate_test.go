package placement

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/budget"
)

// manyValues are v0, v1 and so on.
func manyValues(n int) []string {
	values := make([]string, n)
	for i := range values {
		values[i] = fmt.Sprintf("v%d", i)
	}
	return values
}

// All selectors of users are those of package budget, which match long lists of values fast.
func TestSelectorsWithManyValues(t *testing.T) {
	t.Parallel()
	many := []metav1.LabelSelectorRequirement{{Key: "region", Operator: metav1.LabelSelectorOpNotIn, Values: manyValues(100)}}
	ofLabels, ofClaims := metav1.LabelSelector{MatchExpressions: many}, clusterv1beta1.ClusterClaimSelector{MatchExpressions: many}
	p := newPlacement(withPredicates(clusterv1beta1.ClusterSelector{LabelSelector: ofLabels, ClaimSelector: ofClaims}))
	p.Spec.DecisionStrategy.GroupStrategy.DecisionGroups = []clusterv1beta1.DecisionGroup{{GroupName: "g",
		ClusterSelector: clusterv1beta1.GroupClusterSelector{LabelSelector: ofLabels, ClaimSelector: ofClaims}}}
	spec, invalid := parseSpec(p)
	if invalid != nil {
		t.Fatal(invalid)
	}
	s, set := newFleet(), &clusterv1beta2.ManagedClusterSet{}
	set.Name = "many"
	set.Spec.ClusterSelector = clusterv1beta2.ManagedClusterSelector{SelectorType: clusterv1beta2.LabelSelector, LabelSelector: &ofLabels}
	s.SetClusterSet(set)
	want, err := budget.SelectorOf(&ofLabels)
	if err != nil {
		t.Fatal(err)
	}
	for name, selector := range map[string]labels.Selector{
		"labels of a predicate": spec.profile.predicates[0].labels,
		"claims of a predicate": spec.profile.predicates[0].claims,
		"labels of a group":     spec.groups[0].labels,
		"claims of a group":     spec.groups[0].claims,
		"labels of a set":       s.snapshot.sets["many"].selector,
	} {
		if fmt.Sprintf("%T", selector) != fmt.Sprintf("%T", want) {
			t.Errorf("%s: the selector is a %T, want a %T", name, selector, want)
		}
		for region, matches := range map[string]bool{"v7": false, "v100": true} {
			if selector.Matches(labels.Set{"region": region}) != matches || !selector.Matches(labels.Set{}) {
				t.Errorf("%s: matches region %s: %t, want %t; without a region it has to match", name, region, !matches, matches)
			}
		}
	}
}
