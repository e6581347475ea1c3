package placement

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

func disabled(p *clusterv1beta1.Placement) {
	p.Annotations = map[string]string{fleet.AnnotationSchedulingDisable: "true"}
}

// canaryFirst has a group for the canary cluster, and groups of two for the others.
func canaryFirst(p *clusterv1beta1.Placement) {
	p.Spec.DecisionStrategy.GroupStrategy = clusterv1beta1.GroupStrategy{
		ClustersPerDecisionGroup: intstr.FromInt32(2),
		DecisionGroups: []clusterv1beta1.DecisionGroup{{GroupName: "canary", ClusterSelector: clusterv1beta1.GroupClusterSelector{
			LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"canary": "yes"}}}}},
	}
}

// divided returns the clusters of a result by groups, each after the name of the group.
func divided(result *Result) (groups [][]string) {
	for _, group := range result.Groups {
		groups = append(groups, append([]string{group.Name}, clusters(&Result{Groups: []Group{group}})...))
	}
	return groups
}

// PL-26, P11: the result of a misconfigured placement has the former groups, also after a restart.
func TestMisconfiguredKeepsGroups(t *testing.T) {
	t.Parallel()
	members := []*clusterv1.ManagedCluster{newMember("a"), newMember("b", "canary=yes"), newMember("c"), newMember("d")}
	s := newFleet(members...)
	decided := schedule(t, s, newPlacement(canaryFirst))
	want := [][]string{{"canary", "b"}, {"", "a", "c"}, {"", "d"}}
	broken := newPlacement(canaryFirst, withPredicates(byCEL("broken")))
	if diff := cmp.Diff(want, divided(schedule(t, s, broken))); diff != "" {
		t.Error(diff)
	}
	for what, test := range map[string]struct {
		found []*clusterv1.ManagedCluster
		want  [][]string
	}{
		"nothing has changed":   {members, want},
		"clusters were deleted": {members[2:], [][]string{{"canary"}, {"", "c"}, {"", "d"}}},
	} {
		restarted := newFleet(test.found...)
		restarted.SetPlacement(broken)
		restarted.Restore(keyOf(broken), decided.Groups)
		if diff := cmp.Diff(test.want, divided(schedule(t, restarted, broken))); diff != "" {
			t.Errorf("after a restart, %s:\n%s", what, diff)
		}
	}
	// Another cluster is the canary now.
	schedule(t, s, newPlacement(canaryFirst))
	s.SetCluster(newMember("b"))
	s.SetCluster(newMember("d", "canary=yes"))
	schedule(t, s, newPlacement(canaryFirst))
	if diff := cmp.Diff([][]string{{"canary", "d"}, {"", "a", "b"}, {"", "c"}}, divided(schedule(t, s, broken))); diff != "" {
		t.Errorf("after groups have changed:\n%s", diff)
	}
	// PL-16
	if diff := cmp.Diff([][]string{{""}},
		divided(schedule(t, s, newPlacement(withName("never-valid"), withPredicates(byCEL("broken")))))); diff != "" {
		t.Error(diff)
	}
}

// PL-21, PL-09, PL-10, PL-04: decisions of other writers count while these decide, and are what the placement has when it is
// enabled again.
func TestUnmanagedPlacements(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("a"), newMember("b"))
	p, balanced := newPlacement(withLimit(1)), newPlacement(withName("balanced"), withExactWeights(map[string]int32{"Balance": 1}))
	wantClusters(t, schedule(t, s, p), "a")
	if s.Restore(keyOf(p), listed("b")); !s.Manages(keyOf(p)) || !s.Selects(keyOf(p), "a") {
		t.Error("decisions of another writer replace those of a managed placement")
	}
	if schedule(t, s, newPlacement(withLimit(1), disabled)); s.Manages(keyOf(p)) {
		t.Error("the scheduler decides for a placement that is disabled")
	}
	s.Restore(keyOf(p), listed("b", "elsewhere"))
	if diff := cmp.Diff(map[string]int64{"a": 100, "b": -100}, scoresOf(s, balanced)); diff != "" {
		t.Errorf("with decisions of a disabled placement:\n%s", diff)
	}
	s.SetCluster(newMember("b", "taint:full:NoSelectIfNew"))
	wantClusters(t, schedule(t, s, p), "b")
}

// PL-10: "a decision written by hand versus Balance": users who write decisions in a namespace, of no placement or of one that they have
// disabled, do not keep the placements of others away from clusters outside of the bound sets.
func TestIneligibleDecisionsDoNotCount(t *testing.T) {
	t.Parallel()
	of := func(edit option) *clusterv1beta1.Placement {
		return newPlacement(edit, func(p *clusterv1beta1.Placement) { p.Namespace = "tenant" })
	}
	for name, p := range map[string]*clusterv1beta1.Placement{"of no placement": of(withName("orphan")), "of a disabled one": of(disabled)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFleet(newMember("a"), newMember("b"), newMember("elsewhere", "cluster.open-cluster-management.io/clusterset=another"))
			balanced := newPlacement(withName("balanced"), withExactWeights(map[string]int32{"Balance": 1}))
			if p.Annotations != nil {
				s.SetPlacement(p)
			}
			expect := func(when string, found []Key, want map[string]int64) {
				t.Helper()
				if !slices.Contains(found, keyOf(p)) {
					t.Errorf("%s: its decisions are not restored again, but those of %v", when, found)
				}
				s.Restore(keyOf(p), listed("b", "elsewhere", "invented"))
				if diff := cmp.Diff(want, scoresOf(s, balanced)); diff != "" {
					t.Errorf("%s:\n%s", when, diff)
				}
			}
			even, full := map[string]int64{"a": 100, "b": 100}, map[string]int64{"a": 100, "b": -100}
			expect("without a binding", []Key{keyOf(p)}, even)
			expect("with a binding", s.SetBinding(binding("tenant", "default")), full)
			if count := s.snapshot.clusters.get("elsewhere").decisions; count != 0 {
				t.Errorf("a cluster of another set has %d decisions", count)
			}
			if s.snapshot.clusters.get("invented") != nil {
				t.Error("decisions of clusters that do not exist add clusters")
			}
			expect("when the cluster leaves the set", s.SetCluster(newMember("b", "cluster.open-cluster-management.io/clusterset=another")),
				map[string]int64{"a": 100})
			expect("when it comes back", s.SetCluster(newMember("b")), full)
			expect("when the set goes", s.DeleteClusterSet("default"), map[string]int64{})
			expect("when it comes back", s.SetClusterSet(set("default")), full)
			expect("without the binding again", s.DeleteBinding(Key{Namespace: "tenant", Name: "default"}), even)

			s.snapshot.trustDecisions = true
			expect("on a hub that trusts decisions", []Key{keyOf(p)}, full)
		})
	}
}

// PL-10: decisions of a placement that does not exist count; it has them when it is created.
func TestOrphanedDecisions(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("a"), newMember("b"))
	p, balanced := newPlacement(withLimit(1)), newPlacement(withName("balanced"), withExactWeights(map[string]int32{"Balance": 1}))
	if s.Restore(keyOf(p), listed("b")); s.Manages(keyOf(p)) {
		t.Error("the scheduler decides for a placement that is not there")
	}
	if diff := cmp.Diff(map[string]int64{"a": 100, "b": -100}, scoresOf(s, balanced)); diff != "" {
		t.Errorf("with decisions of no placement:\n%s", diff)
	}
	wantClusters(t, schedule(t, s, p), "b")
	s.DeletePlacement(keyOf(p))
	s.Restore(keyOf(p), listed("a"))
	if diff := cmp.Diff(map[string]int64{"a": -100, "b": 100}, scoresOf(s, balanced)); diff != "" {
		t.Errorf("with decisions that outlive their placement:\n%s", diff)
	}
	s.Restore(keyOf(p), nil)
	if diff := cmp.Diff(map[string]int64{"a": 100, "b": 100}, scoresOf(s, balanced)); diff != "" || len(s.snapshot.orphans) > 0 {
		t.Errorf("without decisions, %d orphans:\n%s", len(s.snapshot.orphans), diff)
	}
}
