package placement

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// PL-15
func TestDecisionGroups(t *testing.T) {
	t.Parallel()
	rule := func(name, region string) clusterv1beta1.DecisionGroup {
		return clusterv1beta1.DecisionGroup{GroupName: name, ClusterSelector: clusterv1beta1.GroupClusterSelector{
			LabelSelector: byLabels(map[string]string{"region": region}).LabelSelector}}
	}
	onAWS := clusterv1beta1.DecisionGroup{GroupName: "aws", ClusterSelector: clusterv1beta1.GroupClusterSelector{
		ClaimSelector: byClaim("platform", "In", "aws").ClaimSelector}}
	for name, test := range map[string]struct {
		rules []clusterv1beta1.DecisionGroup
		size  intstr.IntOrString
		want  string
	}{
		"one by default":         {want: ":a,b,c,d,e"},
		"100%":                   {size: intstr.FromString("100%"), want: ":a,b,c,d,e"},
		"of two":                 {size: intstr.FromInt32(2), want: ":a,b :c,d :e"},
		"of two as text":         {size: intstr.FromString("2"), want: ":a,b :c,d :e"},
		"rounded up":             {size: intstr.FromString("25%"), want: ":a,b :c,d :e"},
		"more than there are":    {size: intstr.FromInt32(9), want: ":a,b,c,d,e"},
		"less than one":          {size: intstr.FromInt32(-1), want: ":a,b,c,d,e"},
		"named":                  {rules: []clusterv1beta1.DecisionGroup{rule("canary", "us")}, want: "canary:b,d :a,c,e"},
		"the first that matches": {rules: []clusterv1beta1.DecisionGroup{onAWS, rule("canary", "us")}, want: "aws:a,b canary:d :c,e"},
		"named and cut to size": {rules: []clusterv1beta1.DecisionGroup{rule("eu", "eu")}, size: intstr.FromString("40%"),
			want: "eu:a,c eu:e :b,d"},
		"named but empty": {rules: []clusterv1beta1.DecisionGroup{rule("ap", "ap")}, want: ":a,b,c,d,e"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFleet(newMember("a", "region=eu", "claim:platform=aws"), newMember("b", "region=us", "claim:platform=aws"),
				newMember("c", "region=eu"), newMember("d", "region=us"), newMember("e", "region=eu"))
			p := newPlacement()
			p.Spec.DecisionStrategy.GroupStrategy = clusterv1beta1.GroupStrategy{DecisionGroups: test.rules, ClustersPerDecisionGroup: test.size}
			if got := groupsOf(schedule(t, s, p)); got != test.want {
				t.Errorf("groups are %s, want %s", got, test.want)
			}
		})
	}
}

// PL-15, PL-16: there is a group even without clusters.
func TestNoDecisionGroups(t *testing.T) {
	t.Parallel()
	p := newPlacement()
	p.Spec.DecisionStrategy.GroupStrategy.ClustersPerDecisionGroup = intstr.FromString("10%")
	if got := groupsOf(schedule(t, newFleet(), p)); got != ":" {
		t.Errorf("groups are %s", got)
	}
}

// A selected cluster that moves to another group affects the placement.
func TestGroupsAreUpdated(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("a", "region=eu"), newMember("b", "region=eu"))
	p := newPlacement(withExactWeights(nil), withLimit(2))
	p.Spec.DecisionStrategy.GroupStrategy.DecisionGroups = []clusterv1beta1.DecisionGroup{{GroupName: "canary",
		ClusterSelector: clusterv1beta1.GroupClusterSelector{LabelSelector: byLabels(map[string]string{"region": "us"}).LabelSelector}}}
	schedule(t, s, p)
	if keys := s.SetCluster(newMember("b", "region=us")); len(keys) != 1 {
		t.Errorf("affected: %v", keys)
	}
	if got := groupsOf(schedule(t, s, p)); got != "canary:b :a" {
		t.Errorf("groups are %s", got)
	}
}

// PL-14
func TestSortByScore(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("a", "cpu=1"), newMember("b", "cpu=3"), newMember("c", "cpu=2"), newMember("d", "cpu=2"))
	p := newPlacement(withExactWeights(map[string]int32{"ResourceAllocatableCPU": 1}))
	if got := groupsOf(schedule(t, s, p)); got != ":a,b,c,d" {
		t.Errorf("by name: %s", got)
	}
	p = newPlacement(withExactWeights(map[string]int32{"ResourceAllocatableCPU": 1}))
	p.Spec.SortBy = clusterv1beta1.SortByScore
	p.Spec.ScoreRateLimit = "30s"
	result := schedule(t, s, p)
	if got := groupsOf(result); got != ":b,c,d,a" {
		t.Errorf("by score: %s", got)
	}
	if score := result.Groups[0].Decisions[0].Score; score != 100 || result.ScoreRateLimit.Seconds() != 30 {
		t.Errorf("the score of b is %d, limited to one in %s", score, result.ScoreRateLimit)
	}
}

func groupsOf(result *Result) string {
	var groups []string
	for _, group := range result.Groups {
		groups = append(groups, fmt.Sprintf("%s:%s", group.Name, strings.Join(clusters(&Result{Groups: []Group{group}}), ",")))
	}
	return strings.Join(groups, " ")
}
