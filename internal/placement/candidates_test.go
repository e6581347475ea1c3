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
	s := newFleet(member("a"), member("b", fleet.LabelClusterSet+"=other"), member("c", fleet.LabelClusterSet+"=unbound"))
	s.SetClusterSet(set("other"))
	s.SetClusterSet(set("unbound"))
	s.SetBinding(binding("ns", "other"))
	s.SetBinding(binding("ns", "no-such-set"))
	s.SetBinding(binding("elsewhere", "unbound"))
	sets := func(names ...string) option {
		return func(p *clusterv1beta1.Placement) { p.Spec.ClusterSets = names }
	}
	wantClusters(t, schedule(t, s, asking()), "a", "b")
	wantClusters(t, schedule(t, s, asking(sets("other"))), "b")
	wantClusters(t, schedule(t, s, asking(sets("other", "unbound"))), "b")
	deleted := member("a")
	deleted.DeletionTimestamp = &metav1.Time{Time: start}
	s.SetCluster(deleted)
	wantClusters(t, schedule(t, s, asking()), "b")

	global := set("global")
	global.Spec.ClusterSelector = clusterv1beta2.ManagedClusterSelector{
		SelectorType: clusterv1beta2.LabelSelector, LabelSelector: &metav1.LabelSelector{}}
	s.SetClusterSet(global)
	s.SetBinding(binding("ns", "global"))
	wantClusters(t, schedule(t, s, asking()), "b", "c")
	s.DeleteClusterSet("global")
	wantClusters(t, schedule(t, s, asking()), "b")
	s.DeleteBinding(Key{Namespace: "ns", Name: "other"})
	wantClusters(t, schedule(t, s, asking()))
}

// "Placements drop clusters that were denied (those that nobody has decided on stay selectable)".
func TestDeniedClusters(t *testing.T) {
	t.Parallel()
	decided := func(accepts bool, status metav1.ConditionStatus) *clusterv1.ManagedCluster {
		c := member("a")
		c.Spec.HubAcceptsClient = accepts
		c.Status.Conditions = []metav1.Condition{{Type: "HubAcceptedManagedCluster", Status: status}}
		return c
	}
	s := newFleet(member("a"), member("undecided"))
	wantClusters(t, schedule(t, s, asking()), "a", "undecided")
	s.SetCluster(decided(true, metav1.ConditionTrue))
	wantClusters(t, schedule(t, s, asking()), "a", "undecided")
	// At once, and not only when the hub has said so in the condition.
	s.SetCluster(decided(false, metav1.ConditionTrue))
	wantClusters(t, schedule(t, s, asking()), "undecided")
	s.SetCluster(decided(false, metav1.ConditionFalse))
	wantClusters(t, schedule(t, s, asking()), "undecided")
	s.SetCluster(decided(true, metav1.ConditionFalse))
	wantClusters(t, schedule(t, s, asking()), "a", "undecided")
}

// PL-02, PL-03
func TestPredicates(t *testing.T) {
	t.Parallel()
	s := newFleet(
		member("a", "region=eu", "claim:platform=aws"),
		member("b", "region=eu", "claim:platform=gcp"),
		member("c", "region=us", "claim:platform=aws"),
		member("d"))
	s.SetScore(usage("b", 70, 0))
	s.SetScore(usage("c", 70, -time.Second)) // expired
	both := byLabels(map[string]string{"region": "eu"})
	both.ClaimSelector = byClaim("platform", metav1.LabelSelectorOpIn, "aws").ClaimSelector
	notIn := clusterv1beta1.ClusterSelector{LabelSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "region", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"eu"}}}}}
	for name, test := range map[string]struct {
		selectors []clusterv1beta1.ClusterSelector
		wanted    string
	}{
		"none":                    {wanted: "a b c d"},
		"labels":                  {selectors: []clusterv1beta1.ClusterSelector{byLabels(map[string]string{"region": "eu"})}, wanted: "a b"},
		"labels that others have": {selectors: []clusterv1beta1.ClusterSelector{notIn}, wanted: "c d"},
		"claims in": {selectors: []clusterv1beta1.ClusterSelector{byClaim("platform", metav1.LabelSelectorOpIn, "aws", "azure")},
			wanted: "a c"},
		"claims not in": {selectors: []clusterv1beta1.ClusterSelector{byClaim("platform", metav1.LabelSelectorOpNotIn, "aws")},
			wanted: "b d"},
		"claims that exist": {selectors: []clusterv1beta1.ClusterSelector{byClaim("platform", metav1.LabelSelectorOpExists)},
			wanted: "a b c"},
		"claims that do not": {selectors: []clusterv1beta1.ClusterSelector{byClaim("platform", metav1.LabelSelectorOpDoesNotExist)},
			wanted: "d"},
		"labels and claims": {selectors: []clusterv1beta1.ClusterSelector{both}, wanted: "a"},
		"either of two": {selectors: []clusterv1beta1.ClusterSelector{both, byLabels(map[string]string{"region": "us"})},
			wanted: "a c"},
		"CEL": {selectors: []clusterv1beta1.ClusterSelector{byCEL(`managedCluster.metadata.name > "b"`)}, wanted: "c d"},
		"CEL that fails for some": {selectors: []clusterv1beta1.ClusterSelector{byCEL(`managedCluster.metadata.labels["region"] == "us"`)},
			wanted: "c"},
		"CEL of scores that are new": {
			selectors: []clusterv1beta1.ClusterSelector{byCEL(`managedCluster.scores("usage").exists(s, s.value > 60)`)}, wanted: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			result := schedule(t, s, asking(matching(test.selectors...)))
			wantClusters(t, result, strings.Fields(test.wanted)...)
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
			s := newFleet(member("a", "taint:"+test.taint))
			if result := schedule(t, s, asking(tolerating(test.toleration))); (result.Selected == 1) != test.tolerated {
				t.Errorf("selected: %d, tolerated: %t", result.Selected, test.tolerated)
			}
		})
	}
}

// PL-04: those who have a cluster keep it.
func TestNoSelectIfNew(t *testing.T) {
	t.Parallel()
	s := newFleet(member("a"), member("b"))
	wantClusters(t, schedule(t, s, asking()), "a", "b")
	s.SetCluster(member("a", "taint:full:NoSelectIfNew"))
	result := schedule(t, s, asking())
	wantClusters(t, result, "a", "b")
	if reason := result.Groups[0].Decisions[0].Reason; !strings.Contains(reason, "stays in spite of the taint full:NoSelectIfNew") {
		t.Errorf("the reason is %q", reason)
	}
	wantClusters(t, schedule(t, s, asking(named("q"))), "b")
}

// P2 PL-04: a cluster with the taint is selected when no other is left.
func TestPreferNoSelect(t *testing.T) {
	t.Parallel()
	s := newFleet(member("a", "taint:slow:PreferNoSelect"), member("b"), member("c"))
	wantClusters(t, schedule(t, s, asking(limit(2))), "b", "c")
	result := schedule(t, s, asking(limit(3)))
	wantClusters(t, result, "a", "b", "c")
	if decision := result.Groups[0].Decisions[0]; !strings.Contains(decision.Reason, "slow:PreferNoSelect") {
		t.Errorf("the reason is %q", decision.Reason)
	}
	wantClusters(t, schedule(t, s,
		asking(limit(1), named("q"), tolerating(clusterv1beta1.Toleration{Key: "slow", Operator: clusterv1beta1.TolerationOpExists}),
			exactly(nil))), "a")
}

// PL-06, P4
func TestTolerationExpires(t *testing.T) {
	t.Parallel()
	s := newFleet(member("a"), member("b", "taint:gone:NoSelect"))
	ten := int64(10)
	p := asking(limit(1), tolerating(clusterv1beta1.Toleration{Key: "down", Operator: clusterv1beta1.TolerationOpExists,
		TolerationSeconds: &ten}))
	wantClusters(t, schedule(t, s, p), "a")
	if !s.NextTime().IsZero() {
		t.Errorf("nothing expires, but time matters at %s", s.NextTime())
	}
	s.SetCluster(member("a", "taint:down:NoSelect"))
	s.SetCluster(member("b"))
	wantClusters(t, schedule(t, s, p), "a")
	if due := start.Add(10 * time.Second); !s.NextTime().Equal(due) {
		t.Fatalf("time matters at %s, want %s", s.NextTime(), due)
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
func TestScoresWithHeldCluster(t *testing.T) {
	t.Parallel()
	s := newFleet(member("big", "cpu=1000"), member("z", "cpu=1"))
	for i := range 10 {
		s.SetCluster(member(fmt.Sprint("c", i), "cpu=2"))
	}
	s.SetScore(usage("z", -100, 0))
	weights := exactly(map[string]int32{"ResourceAllocatableCPU": 1, "AddOn/usage/cpu": 1})
	p := asking(limit(2), weights)
	wantClusters(t, schedule(t, s, p), "big", "c0")
	s.SetCluster(member("big", "cpu=1000", "taint:full:NoSelectIfNew"))
	wantClusters(t, schedule(t, s, p), "big", "c0")
	if scores := scoresOf(s, p); scores["big"] != 100 || scores["c0"] != -99 || scores["z"] != -200 {
		t.Errorf("with big, scores are %v", scores)
	}
	if scores := scoresOf(s, asking(named("q"), weights)); scores["c0"] != 100 || scores["z"] != -200 {
		t.Errorf("without big, scores are %v", scores)
	}
	// Without big, z is far behind; with it, z is the next.
	if keys := s.SetScore(usage("z", 100, 0)); len(keys) != 1 {
		t.Errorf("a good score affects %v", keys)
	}
	wantClusters(t, schedule(t, s, p), "big", "z")
}
