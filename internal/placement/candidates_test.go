package placement

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// PL-01, PL-30
func TestClusterSets(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("a"), newMember("b", fleet.LabelClusterSet+"=other"), newMember("c", fleet.LabelClusterSet+"=unbound"))
	s.SetClusterSet(set("other"))
	s.SetClusterSet(set("unbound"))
	s.SetBinding(binding("ns", "other"))
	s.SetBinding(binding("ns", "no-such-set"))
	s.SetBinding(binding("elsewhere", "unbound"))
	sets := func(names ...string) option {
		return func(p *clusterv1beta1.Placement) { p.Spec.ClusterSets = names }
	}
	wantClusters(t, schedule(t, s, newPlacement()), "a", "b")
	wantClusters(t, schedule(t, s, newPlacement(sets("other"))), "b")
	wantClusters(t, schedule(t, s, newPlacement(sets("other", "unbound"))), "b")
	deleted := newMember("a")
	deleted.DeletionTimestamp = &metav1.Time{Time: start}
	s.SetCluster(deleted)
	wantClusters(t, schedule(t, s, newPlacement()), "b")

	global := set("global")
	global.Spec.ClusterSelector = clusterv1beta2.ManagedClusterSelector{
		SelectorType: clusterv1beta2.LabelSelector, LabelSelector: &metav1.LabelSelector{}}
	s.SetClusterSet(global)
	s.SetBinding(binding("ns", "global"))
	wantClusters(t, schedule(t, s, newPlacement()), "b", "c")
	s.DeleteClusterSet("global")
	wantClusters(t, schedule(t, s, newPlacement()), "b")
	s.DeleteBinding(Key{Namespace: "ns", Name: "other"})
	wantClusters(t, schedule(t, s, newPlacement()))
}

// "Placements drop clusters that were denied (those that nobody has decided on stay selectable)".
func TestDeniedClusters(t *testing.T) {
	t.Parallel()
	decided := func(accepts bool, status metav1.ConditionStatus) *clusterv1.ManagedCluster {
		c := newMember("a")
		c.Spec.HubAcceptsClient = accepts
		c.Status.Conditions = []metav1.Condition{{Type: "HubAcceptedManagedCluster", Status: status}}
		return c
	}
	s := newFleet(newMember("a"), newMember("undecided"))
	wantClusters(t, schedule(t, s, newPlacement()), "a", "undecided")
	s.SetCluster(decided(true, metav1.ConditionTrue))
	wantClusters(t, schedule(t, s, newPlacement()), "a", "undecided")
	// At once, not only when the hub has set the condition.
	s.SetCluster(decided(false, metav1.ConditionTrue))
	wantClusters(t, schedule(t, s, newPlacement()), "undecided")
	s.SetCluster(decided(false, metav1.ConditionFalse))
	wantClusters(t, schedule(t, s, newPlacement()), "undecided")
	s.SetCluster(decided(true, metav1.ConditionFalse))
	wantClusters(t, schedule(t, s, newPlacement()), "a", "undecided")
}

// PL-02, PL-03
func TestPredicates(t *testing.T) {
	t.Parallel()
	s := newFleet(
		newMember("a", "region=eu", "claim:platform=aws"),
		newMember("b", "region=eu", "claim:platform=gcp"),
		newMember("c", "region=us", "claim:platform=aws"),
		newMember("d"))
	s.SetScore(usage("b", 70, 0))
	s.SetScore(usage("c", 70, -time.Second)) // expired
	both := byLabels(map[string]string{"region": "eu"})
	both.ClaimSelector = byClaim("platform", metav1.LabelSelectorOpIn, "aws").ClaimSelector
	notIn := clusterv1beta1.ClusterSelector{LabelSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "region", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"eu"}}}}}
	for name, test := range map[string]struct {
		selectors []clusterv1beta1.ClusterSelector
		want      string
	}{
		"none":                    {want: "a b c d"},
		"labels":                  {selectors: []clusterv1beta1.ClusterSelector{byLabels(map[string]string{"region": "eu"})}, want: "a b"},
		"labels that others have": {selectors: []clusterv1beta1.ClusterSelector{notIn}, want: "c d"},
		"claims in": {selectors: []clusterv1beta1.ClusterSelector{byClaim("platform", metav1.LabelSelectorOpIn, "aws", "azure")},
			want: "a c"},
		"claims not in": {selectors: []clusterv1beta1.ClusterSelector{byClaim("platform", metav1.LabelSelectorOpNotIn, "aws")},
			want: "b d"},
		"claims that exist": {selectors: []clusterv1beta1.ClusterSelector{byClaim("platform", metav1.LabelSelectorOpExists)},
			want: "a b c"},
		"claims that do not": {selectors: []clusterv1beta1.ClusterSelector{byClaim("platform", metav1.LabelSelectorOpDoesNotExist)},
			want: "d"},
		"labels and claims": {selectors: []clusterv1beta1.ClusterSelector{both}, want: "a"},
		"either of two": {selectors: []clusterv1beta1.ClusterSelector{both, byLabels(map[string]string{"region": "us"})},
			want: "a c"},
		"CEL": {selectors: []clusterv1beta1.ClusterSelector{byCEL(`managedCluster.metadata.name > "b"`)}, want: "c d"},
		"CEL that fails for some": {selectors: []clusterv1beta1.ClusterSelector{byCEL(`managedCluster.metadata.labels["region"] == "us"`)},
			want: "c"},
		"CEL of scores that are new": {
			selectors: []clusterv1beta1.ClusterSelector{byCEL(`managedCluster.scores("usage").exists(s, s.value > 60)`)}, want: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			result := schedule(t, s, newPlacement(withPredicates(test.selectors...)))
			wantClusters(t, result, strings.Fields(test.want)...)
			if result.Funnel.InClusterSets != 4 || result.Funnel.Matched != result.Selected || result.Funnel.Fleet != 4 {
				t.Errorf("the funnel is %+v", result.Funnel)
			}
		})
	}
}

// PL-04
func TestTolerations(t *testing.T) {
	t.Parallel()
	exists, equal := clusterv1beta1.TolerationOpExists, clusterv1beta1.TolerationOpEqual
	seconds := func(n int64) *int64 { return &n }
	for name, test := range map[string]struct {
		taint      string
		toleration clusterv1beta1.Toleration
		tolerated  bool
	}{
		"none":       {taint: "k=v:NoSelect", toleration: clusterv1beta1.Toleration{Key: "other", Operator: exists}},
		"same value": {taint: "k=v:NoSelect", toleration: clusterv1beta1.Toleration{Key: "k", Value: "v"}, tolerated: true},
		"same value, by name": {taint: "k=v:NoSelect", toleration: clusterv1beta1.Toleration{Key: "k", Value: "v", Operator: equal},
			tolerated: true},
		"other value": {taint: "k=v:NoSelect", toleration: clusterv1beta1.Toleration{Key: "k", Value: "w"}},
		"any value":   {taint: "k=v:NoSelect", toleration: clusterv1beta1.Toleration{Key: "k", Operator: exists}, tolerated: true},
		"any key":     {taint: "k=v:NoSelect", toleration: clusterv1beta1.Toleration{Operator: exists}, tolerated: true},
		"same effect": {taint: "k:NoSelectIfNew",
			toleration: clusterv1beta1.Toleration{Operator: exists, Effect: clusterv1.TaintEffectNoSelectIfNew}, tolerated: true},
		"other effect": {taint: "k:NoSelectIfNew",
			toleration: clusterv1beta1.Toleration{Operator: exists, Effect: clusterv1.TaintEffectNoSelect}},
		"PreferNoSelect as such": {taint: "k:PreferNoSelect", toleration: clusterv1beta1.Toleration{Key: "other", Operator: exists},
			tolerated: true},
		"for a while": {taint: "k:NoSelect", toleration: clusterv1beta1.Toleration{Operator: exists, TolerationSeconds: seconds(1)},
			tolerated: true},
		"for all time": {taint: "k:NoSelect",
			toleration: clusterv1beta1.Toleration{Operator: exists, TolerationSeconds: seconds(math.MaxInt64)}, tolerated: true},
		"never": {taint: "k:NoSelect",
			toleration: clusterv1beta1.Toleration{Operator: exists, TolerationSeconds: seconds(math.MinInt64)}},
		"no longer": {taint: "k:NoSelect", toleration: clusterv1beta1.Toleration{Operator: exists, TolerationSeconds: seconds(0)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFleet(newMember("a", "taint:"+test.taint))
			if result := schedule(t, s, newPlacement(withTolerations(test.toleration))); (result.Selected == 1) != test.tolerated {
				t.Errorf("selected: %d, tolerated: %t", result.Selected, test.tolerated)
			}
		})
	}
}

// PL-04: placements that have selected a cluster keep it.
func TestNoSelectIfNew(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("a"), newMember("b"))
	wantClusters(t, schedule(t, s, newPlacement()), "a", "b")
	s.SetCluster(newMember("a", "taint:full:NoSelectIfNew"))
	result := schedule(t, s, newPlacement())
	wantClusters(t, result, "a", "b")
	if reason := result.Groups[0].Decisions[0].Reason; !strings.Contains(reason, "stays in spite of the taint full:NoSelectIfNew") {
		t.Errorf("the reason is %q", reason)
	}
	wantClusters(t, schedule(t, s, newPlacement(withName("q"))), "b")
}

// P2 PL-04: a cluster with the taint is selected when no other is left.
func TestPreferNoSelect(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("a", "taint:slow:PreferNoSelect"), newMember("b"), newMember("c"))
	wantClusters(t, schedule(t, s, newPlacement(withLimit(2))), "b", "c")
	result := schedule(t, s, newPlacement(withLimit(3)))
	wantClusters(t, result, "a", "b", "c")
	if decision := result.Groups[0].Decisions[0]; !strings.Contains(decision.Reason, "slow:PreferNoSelect") {
		t.Errorf("the reason is %q", decision.Reason)
	}
	wantClusters(t, schedule(t, s,
		newPlacement(withLimit(1), withName("q"),
			withTolerations(clusterv1beta1.Toleration{Key: "slow", Operator: clusterv1beta1.TolerationOpExists}),
			withExactWeights(nil))), "a")
}

// PL-06, P4
func TestTolerationExpires(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("a"), newMember("b", "taint:gone:NoSelect"))
	ten := int64(10)
	p := newPlacement(withLimit(1), withTolerations(clusterv1beta1.Toleration{Key: "down", Operator: clusterv1beta1.TolerationOpExists,
		TolerationSeconds: &ten}))
	wantClusters(t, schedule(t, s, p), "a")
	if !s.NextAdvance().IsZero() {
		t.Errorf("nothing expires, but time matters at %s", s.NextAdvance())
	}
	s.SetCluster(newMember("a", "taint:down:NoSelect"))
	s.SetCluster(newMember("b"))
	wantClusters(t, schedule(t, s, p), "a")
	if due := start.Add(10 * time.Second); !s.NextAdvance().Equal(due) {
		t.Fatalf("time matters at %s, want %s", s.NextAdvance(), due)
	}
	if keys := s.Advance(start.Add(9 * time.Second)); len(keys) > 0 {
		t.Errorf("too early, %v are affected", keys)
	}
	if keys := s.Advance(start.Add(10 * time.Second)); len(keys) != 1 {
		t.Fatalf("%v are affected, want the placement", keys)
	}
	wantClusters(t, schedule(t, s, p), "b")
}

// PL-04, PL-11: a cluster that only one placement may keep is a candidate of that one alone, and the scores of the others
// depend on it there.
func TestScoresWithNoSelectIfNew(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("big", "cpu=1000"), newMember("z", "cpu=1"))
	for i := range 10 {
		s.SetCluster(newMember(fmt.Sprint("c", i), "cpu=2"))
	}
	s.SetScore(usage("z", -100, 0))
	weights := withExactWeights(map[string]int32{"ResourceAllocatableCPU": 1, "AddOn/usage/cpu": 1})
	p := newPlacement(withLimit(2), weights)
	wantClusters(t, schedule(t, s, p), "big", "c0")
	s.SetCluster(newMember("big", "cpu=1000", "taint:full:NoSelectIfNew"))
	wantClusters(t, schedule(t, s, p), "big", "c0")
	if scores := scoresOf(s, p); scores["big"] != 100 || scores["c0"] != -99 || scores["z"] != -200 {
		t.Errorf("with big, scores are %v", scores)
	}
	if scores := scoresOf(s, newPlacement(withName("q"), weights)); scores["c0"] != 100 || scores["z"] != -200 {
		t.Errorf("without big, scores are %v", scores)
	}
	// Without big, z is far behind; with it, z is the next.
	if keys := s.SetScore(usage("z", 100, 0)); len(keys) != 1 {
		t.Errorf("a good score affects %v", keys)
	}
	wantClusters(t, schedule(t, s, p), "big", "z")
}
