package admission_test

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/admission"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

func clusterSet(kind clusterv1beta2.SelectorType, selector *metav1.LabelSelector) *clusterv1beta2.ManagedClusterSet {
	return &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "prod"}, Spec: clusterv1beta2.ManagedClusterSetSpec{
		ClusterSelector: clusterv1beta2.ManagedClusterSelector{SelectorType: kind, LabelSelector: selector}}}
}

// WH-16: users are warned of a set that has no members whatever clusters there are, and of a selector that is not used.
func TestManagedClusterSetWarnings(t *testing.T) {
	t.Parallel()
	const byLabel, exclusive = clusterv1beta2.LabelSelector, clusterv1beta2.ExclusiveClusterSetLabel
	matching := func(operator metav1.LabelSelectorOperator) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: operator}}}
	}
	invalid := clusterSet(byLabel, matching("Like"))
	relabelled := invalid.DeepCopy()
	relabelled.Labels = map[string]string{"a": "b"}
	const none = `no cluster is in the set: spec.clusterSelector.labelSelector: "Like" is not a valid label selector operator`
	for _, test := range []struct {
		name     string
		set, old *clusterv1beta2.ManagedClusterSet
		want     string
	}{
		{name: "by the exclusive label", set: clusterSet(exclusive, nil)},
		{name: "by default", set: clusterSet("", nil)},
		{name: "by labels", set: clusterSet(byLabel, matching("Exists"))},
		{name: "all", set: clusterSet(byLabel, &metav1.LabelSelector{})},
		{name: "an unknown operator", set: invalid, want: none},
		{name: "an unknown operator from now on", set: invalid, old: clusterSet(exclusive, nil), want: none},
		{name: "an unknown operator that was there", set: relabelled, old: invalid},
		{name: "corrected", set: clusterSet(exclusive, nil), old: invalid},
		{name: "labels that are not used", set: clusterSet(exclusive, matching("Exists")),
			want: "spec.clusterSelector.labelSelector is not used: spec.clusterSelector.selectorType has to be LabelSelector for that"},
		{name: "no labels", set: clusterSet(byLabel, nil),
			want: "no cluster is in the set: spec.clusterSelector.labelSelector is missing; an empty one, {}, selects all clusters"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var want []string
			if test.want != "" {
				want = []string{test.want}
			}
			if got := admission.ManagedClusterSetWarnings(test.set, test.old); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// WH-16: who deletes a set learns who uses it, of many a few.
func TestManagedClusterSetDeletionWarnings(t *testing.T) {
	t.Parallel()
	with := func(set *clusterv1beta2.ManagedClusterSet, empty metav1.ConditionStatus, message string) *clusterv1beta2.ManagedClusterSet {
		set.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionClusterSetEmpty, Status: empty, Message: message}}
		return set
	}
	exclusive := func() *clusterv1beta2.ManagedClusterSet {
		return clusterSet(clusterv1beta2.ExclusiveClusterSetLabel, nil)
	}
	bound := func(to string) string {
		return "ManagedClusterSet prod is bound to " + to + ": Placements there do not select its clusters any more; what they have put on " +
			"these clusters goes, unless another bound set has the clusters"
	}
	const members = "ManagedClusterSet prod has members (2 ManagedClusters selected): they keep the label " +
		"cluster.open-cluster-management.io/clusterset=prod, and are in a set of this name again if one is created"
	for _, test := range []struct {
		name       string
		set        *clusterv1beta2.ManagedClusterSet
		namespaces []string
		want       []string
	}{
		{name: "new", set: exclusive()},
		{name: "empty", set: with(exclusive(), "True", "No ManagedCluster selected")},
		{name: "bound", set: exclusive(), namespaces: []string{"a"}, want: []string{bound("namespace a")}},
		{name: "bound to some", set: exclusive(), namespaces: []string{"c", "a", "b"}, want: []string{bound("namespaces a, b, c")}},
		{name: "bound to many", set: exclusive(), namespaces: []string{"e", "c", "d", "a", "b"},
			want: []string{bound("namespaces a, b, c and 2 more")}},
		{name: "with members", set: with(exclusive(), "False", "2 ManagedClusters selected"), want: []string{members}},
		{name: "both", set: with(exclusive(), "False", "2 ManagedClusters selected"), namespaces: []string{"a"},
			want: []string{bound("namespace a"), members}},
		{name: "members by their own labels", set: with(clusterSet(clusterv1beta2.LabelSelector, &metav1.LabelSelector{}), "False",
			"2 ManagedClusters selected")},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := admission.ManagedClusterSetDeletionWarnings(test.set, test.namespaces); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
