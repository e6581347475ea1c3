package managedcluster

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// RG-40
func TestSetSelector(t *testing.T) {
	t.Parallel()
	east := labels.Set{"region": "east", fleet.LabelClusterSet: "eu"}
	for name, test := range map[string]struct {
		selector clusterv1beta2.ManagedClusterSelector
		cluster  labels.Set
		member   bool
		err      string
	}{
		"no type is the exclusive label": {cluster: east, member: true},
		"the exclusive label":            {selector: of(clusterv1beta2.ExclusiveClusterSetLabel, nil), cluster: east, member: true},
		"the label of another set":       {cluster: labels.Set{fleet.LabelClusterSet: "us"}},
		"no label":                       {cluster: labels.Set{}},
		"a label selector":               {selector: of(clusterv1beta2.LabelSelector, match("region", "east")), cluster: east, member: true},
		"a label selector and no match":  {selector: of(clusterv1beta2.LabelSelector, match("region", "west")), cluster: east},
		"an empty one matches all": {selector: of(clusterv1beta2.LabelSelector, &metav1.LabelSelector{}), cluster: labels.Set{},
			member: true},
		"none matches none":              {selector: of(clusterv1beta2.LabelSelector, nil), cluster: east},
		"a label selector without sense": {selector: of(clusterv1beta2.LabelSelector, match("a b", "")), err: "labelSelector"},
		"a label selector of any size": {selector: of(clusterv1beta2.LabelSelector,
			&metav1.LabelSelector{MatchExpressions: make([]metav1.LabelSelectorRequirement, 501)}),
			err: "spec.clusterSelector.labelSelector: entries of matchLabels and matchExpressions: there are 501; the limit is 500"},
		"a type that does not exist": {selector: of("Legacy", nil), err: `"Legacy"`},
		"the exclusive label ignores one": {selector: of(clusterv1beta2.ExclusiveClusterSetLabel, match("region", "west")), cluster: east,
			member: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := &clusterv1beta2.ManagedClusterSet{Spec: clusterv1beta2.ManagedClusterSetSpec{ClusterSelector: test.selector}}
			set.Name = "eu"
			selector, err := SetSelector(set)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("got %v, want an error about %s", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := selector.Matches(test.cluster); got != test.member {
				t.Errorf("member: %t, want %t", got, test.member)
			}
		})
	}
}

func of(kind clusterv1beta2.SelectorType, selector *metav1.LabelSelector) clusterv1beta2.ManagedClusterSelector {
	return clusterv1beta2.ManagedClusterSelector{SelectorType: kind, LabelSelector: selector}
}

func match(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}
