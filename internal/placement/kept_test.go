package placement

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

func memberOf(set, name string, properties ...string) *clusterv1.ManagedCluster {
	return newMember(name, append(properties, fleet.LabelClusterSet+"="+set)...)
}

// newFleetOfTwoSets has the clusters a1 and a2 of the set default, and b1 and b2 of the set b. The namespace ns has bound both sets, and
// placements select all clusters but b2.
func newFleetOfTwoSets() *Scheduler {
	s := newFleet(newMember("a1"), newMember("a2"), memberOf("b", "b1"), memberOf("b", "b2", "phase=next", "taint:down:NoSelect"))
	s.SetClusterSet(set("b"))
	s.SetBinding(binding("ns", "b"))
	return s
}

// keepers make the placement ns/p one that keeps its decisions.
var keepers = map[string]func(*testing.T, *Scheduler){
	"misconfigured": func(t *testing.T, s *Scheduler) {
		t.Helper()
		schedule(t, s, newPlacement(withPredicates(byCEL("broken"))))
	},
	"over budget": func(t *testing.T, s *Scheduler) {
		t.Helper()
		s.evaluations.celBudget = 1
		schedule(t, s, newPlacement(withCostlyCEL(1)))
	},
	"pending": func(_ *testing.T, s *Scheduler) {
		s.SetPlacement(newPlacement(withCostlyCEL(1)))
		s.Schedule(keyOf(newPlacement()))
	},
}

// PL-01, PL-22, PL-26: a placement that keeps its decisions keeps those for clusters that its namespace may still select. Events that
// take one of them away affect it, and what it has given up does not come back.
func TestKeptClustersAreOfBoundSets(t *testing.T) {
	t.Parallel()
	deleted, denied, next := memberOf("b", "b1"), memberOf("b", "b1"), set("b")
	deleted.DeletionTimestamp = &metav1.Time{Time: start}
	denied.Status.Conditions = []metav1.Condition{{Type: "HubAcceptedManagedCluster", Status: metav1.ConditionFalse,
		Reason: "HubClusterAdminDenied"}}
	next.Spec.ClusterSelector = clusterv1beta2.ManagedClusterSelector{SelectorType: clusterv1beta2.LabelSelector,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"phase": "next"}}}
	for what, keep := range keepers {
		for event, test := range map[string]struct {
			happen   func(*Scheduler) []Key
			want     []string
			unneeded bool // whether the event must not affect the placement
		}{
			"one set is unbound": {happen: func(s *Scheduler) []Key { return s.DeleteBinding(Key{Namespace: "ns", Name: "b"}) },
				want: []string{"a1", "a2"}},
			"all sets are unbound": {happen: func(s *Scheduler) []Key {
				return append(s.DeleteBinding(Key{Namespace: "ns", Name: "b"}), s.DeleteBinding(Key{Namespace: "ns", Name: "default"})...)
			}},
			"a set is deleted":               {happen: func(s *Scheduler) []Key { return s.DeleteClusterSet("b") }, want: []string{"a1", "a2"}},
			"a set selects others":           {happen: func(s *Scheduler) []Key { return s.SetClusterSet(next) }, want: []string{"a1", "a2"}},
			"a cluster moves out":            {happen: setting(memberOf("other", "b1")), want: []string{"a1", "a2"}},
			"a cluster is deleted":           {happen: func(s *Scheduler) []Key { return s.DeleteCluster("b1") }, want: []string{"a1", "a2"}},
			"a cluster is being deleted":     {happen: setting(deleted), want: []string{"a1", "a2"}},
			"a cluster is denied":            {happen: setting(denied), want: []string{"a1", "a2"}},
			"a cluster moves to a bound set": {happen: setting(memberOf("default", "b1")), want: []string{"a1", "a2", "b1"}},
			"a cluster that it has changes": {happen: setting(memberOf("b", "b1", "phase=next")), want: []string{"a1", "a2", "b1"},
				unneeded: true},
			"another cluster moves out": {happen: setting(memberOf("other", "b2")), want: []string{"a1", "a2", "b1"}, unneeded: true},
			"another cluster joins":     {happen: setting(newMember("a3")), want: []string{"a1", "a2", "b1"}, unneeded: true},
		} {
			t.Run(what+"/"+event, func(t *testing.T) {
				t.Parallel()
				s, key := newFleetOfTwoSets(), keyOf(newPlacement())
				wantClusters(t, schedule(t, s, newPlacement()), "a1", "a2", "b1")
				keep(t, s)
				expect := func(want ...string) {
					t.Helper()
					result, _ := s.Schedule(key)
					wantClusters(t, result, want...)
					if result.Selected != len(want) || s.Selects(key, "b1") != slices.Contains(want, "b1") {
						t.Errorf("%d are selected, b1 is recorded: %t", result.Selected, s.Selects(key, "b1"))
					}
				}
				expect("a1", "a2", "b1")
				affected := slices.Contains(test.happen(s), key)
				if affected && test.unneeded || !affected && len(test.want) < 3 {
					t.Errorf("it affects the placement: %t", affected)
				}
				expect(test.want...)
				s.SetClusterSet(set("b"))
				s.SetBinding(binding("ns", "b"))
				s.SetBinding(binding("ns", "default"))
				s.SetCluster(memberOf("b", "b1"))
				expect(test.want...)
			})
		}
	}
}

func setting(c *clusterv1.ManagedCluster) func(*Scheduler) []Key {
	return func(s *Scheduler) []Key { return s.SetCluster(c) }
}

// PL-01, PL-26: a misconfigured placement gives up clusters that are not in spec.clusterSets; a pending one does so when it selects others,
// so that it does not have too few meanwhile.
func TestKeptClustersAndClusterSets(t *testing.T) {
	t.Parallel()
	inDefault := func(p *clusterv1beta1.Placement) { p.Spec.ClusterSets = []string{"default"} }
	s := newFleetOfTwoSets()
	schedule(t, s, newPlacement())
	wantClusters(t, schedule(t, s, newPlacement(inDefault, withPredicates(byCEL("broken")))), "a1", "a2")

	wantClusters(t, schedule(t, s, newPlacement()), "a1", "a2", "b1")
	p := newPlacement(inDefault, withCostlyCEL(1))
	s.SetPlacement(p)
	result, _ := s.Schedule(keyOf(p))
	if !result.Pending {
		t.Errorf("%+v", result)
	}
	wantClusters(t, result, "a1", "a2", "b1")
	unbound := newFleetOfTwoSets()
	schedule(t, unbound, newPlacement())
	unbound.SetPlacement(p)
	if affected := unbound.DeleteBinding(Key{Namespace: "ns", Name: "b"}); !slices.Contains(affected, keyOf(p)) {
		t.Errorf("a binding that is only of what it keeps affects %v", affected)
	}
	kept, _ := unbound.Schedule(keyOf(p))
	wantClusters(t, kept, "a1", "a2")
	evaluateAll(s)
	result, _ = s.Schedule(keyOf(p))
	wantClusters(t, result, "a1", "a2")
}

// PL-26: after a restart, a pending placement has the stored decisions for clusters that it may still select.
func TestPendingAfterRestart(t *testing.T) {
	t.Parallel()
	s, p := newFleetOfTwoSets(), newPlacement(withCostlyCEL(1))
	s.SetPlacement(p)
	s.Restore(keyOf(p), listed("a1", "b1", "gone"))
	result, _ := s.Schedule(keyOf(p))
	if !result.Pending {
		t.Errorf("%+v", result)
	}
	wantClusters(t, result, "a1", "b1")
}
