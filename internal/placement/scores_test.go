package placement

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// PL-07
func TestWeights(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		option option
		want   []string
	}{
		"by default": {option: withWeights(nil), want: []string{"Balance 1", "Steady 1"}},
		"added": {option: withWeights(map[string]int32{"ResourceAllocatableCPU": 2}),
			want: []string{"Balance 1", "Steady 1", "ResourceAllocatableCPU 2"}},
		"overridden":      {option: withWeights(map[string]int32{"Balance": -3}), want: []string{"Balance -3", "Steady 1"}},
		"off":             {option: withWeights(map[string]int32{"Steady": 0}), want: []string{"Balance 1"}},
		"exactly":         {option: withExactWeights(map[string]int32{"AddOn/usage/cpu": 1}), want: []string{"AddOn/usage/cpu 1"}},
		"exactly nothing": {option: withExactWeights(nil)},
		"memory, not less": {option: withExactWeights(map[string]int32{"ResourceAllocatableMemory": 10}),
			want: []string{"ResourceAllocatableMemory 10"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, p := range newFleet().Explain(t.Context(), newPlacement(test.option)).Prioritizers {
				got = append(got, fmt.Sprintf("%s %d", p.Name, p.Weight))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// PL-08
func TestHighestScoresFirst(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("a", "cpu=1"), newMember("b", "cpu=3"), newMember("c", "cpu=2"), newMember("d", "cpu=2"))
	s.SetScore(usage("a", 50, 0))
	weights := withExactWeights(map[string]int32{"ResourceAllocatableCPU": 2, "AddOn/usage/cpu": -1})
	p := newPlacement(withLimit(3), weights)
	if diff := cmp.Diff(map[string]int64{"a": -250, "b": 200, "c": 0, "d": 0}, scoresOf(s, p)); diff != "" {
		t.Error(diff)
	}
	wantClusters(t, schedule(t, s, p), "b", "c", "d")
	wantClusters(t, schedule(t, s, newPlacement(withLimit(2), weights)), "b", "c") // c comes before d by name
}

// Names of AddOnPlacementScores and of scores may have slashes: placements with different scores share nothing, whatever they look like
// together.
func TestScoresWithSlashes(t *testing.T) {
	t.Parallel()
	score := func(resource, score string) clusterv1beta1.PrioritizerConfig {
		return clusterv1beta1.PrioritizerConfig{Weight: 1, ScoreCoordinate: &clusterv1beta1.ScoreCoordinate{
			Type: clusterv1beta1.ScoreCoordinateTypeAddOn, AddOn: &clusterv1beta1.AddOnScore{ResourceName: resource, ScoreName: score}}}
	}
	for name, test := range map[string]struct {
		other, configs []clusterv1beta1.PrioritizerConfig
	}{
		"of another placement": {[]clusterv1beta1.PrioritizerConfig{score("usage/nvidia.com", "gpu")},
			[]clusterv1beta1.PrioritizerConfig{score("usage", "nvidia.com/gpu")}},
		"of the same placement": {nil,
			[]clusterv1beta1.PrioritizerConfig{score("usage", "nvidia.com/gpu"), score("usage/nvidia.com", "gpu")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFleet(newMember("a"), newMember("b"))
			for cluster, value := range map[string]int32{"a": 10, "b": 80} {
				scores := usage(cluster, value, 0)
				scores.Status.Scores[0].Name = "nvidia.com/gpu"
				s.SetScore(scores)
			}
			by := func(configs []clusterv1beta1.PrioritizerConfig) option {
				return func(p *clusterv1beta1.Placement) {
					withExactWeights(nil)(p)
					p.Spec.PrioritizerPolicy.Configurations = configs
				}
			}
			schedule(t, s, newPlacement(withName("other"), by(test.other)))
			wantClusters(t, schedule(t, s, newPlacement(withLimit(1), by(test.configs))), "b")
		})
	}
}

// PL-09, PL-25
func TestSteady(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("b"))
	p := newPlacement(withLimit(1))
	wantClusters(t, schedule(t, s, p), "b")
	s.SetCluster(newMember("a"))
	wantClusters(t, schedule(t, s, p), "b")
	if diff := cmp.Diff(map[string]int64{"a": 100, "b": 200}, scoresOf(s, p)); diff != "" {
		t.Error(diff)
	}
	s.SetCluster(newMember("b", "taint:down:NoSelect"))
	wantClusters(t, schedule(t, s, p), "a")
}

// PL-25: the placement leaves its cluster only for one that is better by more than 100.
func TestSteadyBound(t *testing.T) {
	t.Parallel()
	for better, want := range map[int32]string{50: "a", 99: "a", 100: "a", 101: "b", 150: "b"} {
		s := newFleet(newMember("a"))
		s.SetScore(usage("a", -60, 0))
		p := newPlacement(withLimit(1), withWeights(map[string]int32{"AddOn/usage/cpu": 1}))
		wantClusters(t, schedule(t, s, p), "a")
		s.SetCluster(newMember("b"))
		s.SetScore(usage("b", -60+better, 0))
		result := schedule(t, s, p)
		if got := clusters(result); !slices.Equal(got, []string{want}) {
			t.Errorf("another cluster is better by %d: got %v, want %s", better, got, want)
		}
	}
}

// Restored decisions count like scheduled ones.
func TestRestore(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("a"), newMember("b"))
	p := newPlacement(withLimit(1))
	s.SetPlacement(p)
	s.Restore(keyOf(p), listed("b", "long-gone"))
	s.Restore(Key{Namespace: "ns", Name: "unknown"}, listed("a"))
	wantClusters(t, schedule(t, s, p), "b")
	if s.snapshot.clusters.get("long-gone") != nil {
		t.Error("a cluster that is gone, and not selected any more, is kept")
	}
}

// PL-10, PL-28: only decisions of other placements count, in relation to the highest count of any cluster.
func TestBalance(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		count, highest int
		want           int64
	}{
		{0, 0, 100}, {0, 4, 100}, {1, 4, 50}, {2, 4, 0}, {3, 4, -50}, {4, 4, -100}, {1, 3, 32}, {2, 3, -32}, {1, 1, -100},
	} {
		if got := balanceScore(test.count, test.highest); got != test.want {
			t.Errorf("%d of %d scores %d, want %d", test.count, test.highest, got, test.want)
		}
	}
	s := newFleet(newMember("a"), newMember("b"), newMember("c"))
	only := withExactWeights(map[string]int32{"Balance": 1})
	for i, selected := range [][]string{{"a", "b"}, {"a"}, {"a", "b", "c"}} {
		q := newPlacement(withName(fmt.Sprint("q", i)))
		s.SetPlacement(q)
		s.Restore(keyOf(q), listed(selected...))
	}
	if diff := cmp.Diff(map[string]int64{"a": -100, "b": -32, "c": 32}, scoresOf(s, newPlacement(only))); diff != "" {
		t.Error(diff)
	}
	// q0 does not count its own.
	if diff := cmp.Diff(map[string]int64{"a": -100, "b": 0, "c": 0}, scoresOf(s, newPlacement(withName("q0"), only))); diff != "" {
		t.Error(diff)
	}
	wantClusters(t, schedule(t, s, newPlacement(withLimit(1), only)), "c")
	s.DeletePlacement(Key{Namespace: "ns", Name: "q1"})
	s.DeletePlacement(Key{Namespace: "ns", Name: "q2"})
	if diff := cmp.Diff(map[string]int64{"a": -100, "b": -100, "c": 100}, scoresOf(s, newPlacement(only))); diff != "" {
		t.Error(diff)
	}
}

// Placements that are created one after the other take different clusters.
func TestBalanceSpreadsPlacements(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("a"), newMember("b"), newMember("c"))
	var all []string
	for i := range 6 {
		all = append(all, clusters(schedule(t, s, newPlacement(withName(fmt.Sprint("p", i)), withLimit(1))))...)
	}
	if !slices.Equal(all, []string{"a", "b", "c", "a", "b", "c"}) {
		t.Errorf("took %v", all)
	}
}

// PL-11
func TestResourceAllocatable(t *testing.T) {
	t.Parallel()
	unknown := newMember("e", "cpu=100")
	unknown.Status.Capacity = nil
	s := newFleet(newMember("a", "cpu=1"), newMember("b", "cpu=2500m"), newMember("c", "cpu=4"), newMember("d"), unknown,
		newMember("f", "cpu=1000", "taint:x:NoSelect"))
	want := map[string]int64{"a": -100, "b": 0, "c": 100, "d": 0, "e": 0}
	if diff := cmp.Diff(want, scoresOf(s, newPlacement(withExactWeights(map[string]int32{"ResourceAllocatableCPU": 1})))); diff != "" {
		t.Error(diff)
	}
	s = newFleet(newMember("a", "memory=1Gi"), newMember("b", "memory=1Gi"), newMember("c"))
	want = map[string]int64{"a": 100, "b": 100, "c": 0}
	if diff := cmp.Diff(want, scoresOf(s, newPlacement(withExactWeights(map[string]int32{"ResourceAllocatableMemory": 1})))); diff != "" {
		t.Error(diff)
	}
}

// PL-12, P4, P12
func TestAddOnScore(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("a"), newMember("b"), newMember("c"))
	s.SetScore(usage("a", 66, 10*time.Second))
	s.SetScore(usage("b", 55, 0))
	s.SetScore(usage("not-a-cluster-yet", 99, 0))
	p := newPlacement(withLimit(1), withExactWeights(map[string]int32{"AddOn/usage/cpu": 1}))
	wantClusters(t, schedule(t, s, p), "a")
	if !s.NextAdvance().Equal(start.Add(10 * time.Second)) {
		t.Errorf("the next time to look is %s", s.NextAdvance())
	}
	if keys := s.Advance(start.Add(10 * time.Second)); len(keys) != 1 {
		t.Errorf("the score expired, but it affects %v", keys)
	}
	result := schedule(t, s, p)
	wantClusters(t, result, "b")
	if !slices.Equal(result.ExpiredScores, []string{"a"}) {
		t.Errorf("scores of %v have expired, want a", result.ExpiredScores)
	}
	if !s.NextAdvance().IsZero() {
		t.Errorf("nothing expires any more, but time matters at %s", s.NextAdvance())
	}
	if keys := s.SetCluster(newMember("not-a-cluster-yet")); len(keys) != 1 {
		t.Errorf("the best cluster affects %v", keys)
	}
	wantClusters(t, schedule(t, s, p), "not-a-cluster-yet")
	if keys := s.DeleteScore(Key{Namespace: "not-a-cluster-yet", Name: "usage"}); len(keys) != 1 {
		t.Errorf("the score is gone, but it affects %v", keys)
	}
	wantClusters(t, schedule(t, s, p), "b")
}

// PL-12, P10: the reason says that a score is 0 because it has expired, also for clusters that stay in spite of a taint.
func TestExpiredScores(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("a"), newMember("b"), newMember("c"))
	p := newPlacement(withLimit(2), withExactWeights(map[string]int32{"AddOn/usage/cpu": 1}))
	for _, name := range []string{"a", "b"} {
		s.SetScore(usage(name, 9, time.Second))
	}
	schedule(t, s, p)
	s.SetCluster(newMember("a", "taint:full:NoSelectIfNew"))
	s.Advance(start.Add(time.Second))
	result := schedule(t, s, p)
	if !slices.Equal(result.ExpiredScores, []string{"a", "b"}) {
		t.Errorf("expired scores of %q, want a and b", result.ExpiredScores)
	}
	if got := result.Groups[0].Decisions[1].Reason; got != "score 0 = AddOn/usage/cpu 0 (expired)" {
		t.Errorf("the reason is %q", got)
	}
	explanation := s.Explain(t.Context(), p)
	if got := explanation.Prioritizers[0].Expired; !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("explained with the expired scores of %q, want a and b", got)
	}
	if got := explanation.Why("c").Reason; strings.Contains(got, "AddOn/usage/cpu 0 (expired); the") ||
		!strings.Contains(got, "is b with score 0 = AddOn/usage/cpu 0 (expired)") {
		t.Errorf("c is not selected as %q", got)
	}
}

// P7
func TestTieBreakHash(t *testing.T) {
	t.Parallel()
	first := map[string]int{}
	for i := range 60 {
		s := New(Options{TieBreak: TieBreakHash})
		s.SetClusterSet(set("default"))
		s.SetBinding(binding("ns", "default"))
		for _, name := range []string{"a", "b", "c"} {
			s.SetCluster(newMember(name))
		}
		p := newPlacement(withName(fmt.Sprint("p", i)), withLimit(1))
		selected := clusters(schedule(t, s, p))[0]
		if again := clusters(schedule(t, s, p))[0]; again != selected {
			t.Errorf("the tie breaks to %s, then to %s", selected, again)
		}
		first[selected]++
	}
	for _, name := range []string{"a", "b", "c"} {
		if first[name] < 8 {
			t.Errorf("60 placements take %v", first)
		}
	}
}

// P10
func TestReasons(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("a"))
	s.SetScore(usage("a", 7, 0))
	for want, p := range map[string]*clusterv1beta1.Placement{
		"matches, and all that match are selected":              newPlacement(),
		"matches; nothing prioritizes one cluster over another": newPlacement(withLimit(1), withExactWeights(nil)),
		"score -14 = -2×AddOn/usage/cpu 7": newPlacement(withLimit(1),
			withExactWeights(map[string]int32{"AddOn/usage/cpu": -2})),
		"score 107 = Balance 100 + Steady 0 + AddOn/usage/cpu 7": newPlacement(withName("new"), withLimit(1),
			withWeights(map[string]int32{"AddOn/usage/cpu": 1})),
	} {
		result := schedule(t, s, p)
		decision := result.Groups[0].Decisions[0]
		if decision.Reason != want {
			t.Errorf("the reason is %q, want %q", decision.Reason, want)
		}
		if decision.Score != 0 {
			t.Errorf("the score is %d, and not left out (AR-01)", decision.Score)
		}
		s.DeletePlacement(keyOf(p))
	}
}

// PL-20: the scores are those of the selection, as many as an event has room for.
func TestScores(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("c", "taint:slow:PreferNoSelect"), newMember("b"), newMember("a"), newMember("d", "taint:down:NoSelect"))
	p := newPlacement(withLimit(1))
	for _, steady := range []int64{0, 100} {
		want := []ClusterScore{{ClusterName: "a", Score: 100 + steady}, {ClusterName: "b", Score: 100}, {ClusterName: "c", Score: 100}}
		if diff := cmp.Diff(want, schedule(t, s, p).Scores); diff != "" {
			t.Error(diff)
		}
	}
	s.SetCluster(newMember("a", "taint:full:NoSelectIfNew"))
	s.SetCluster(newMember("d"))
	want := []ClusterScore{{ClusterName: "a", Score: 200}, {ClusterName: "b", Score: 100}, {ClusterName: "c", Score: 100},
		{ClusterName: "d", Score: 100}}
	if diff := cmp.Diff(want, schedule(t, s, p).Scores); diff != "" {
		t.Error(diff)
	}
	// Each takes 14 characters at least.
	s = newFleet()
	for i := range 2000 {
		s.SetCluster(newMember(fmt.Sprintf("cluster%04d", i), fmt.Sprintf("half=%d", i%2), fmt.Sprintf("some=%d", i%20)))
	}
	for key, step := range map[string]int{"": 1, "half": 2, "some": 20} {
		q := newPlacement(withName("q"+key), withLimit(1))
		if key != "" {
			withPredicates(byLabels(map[string]string{key: "0"}))(q)
		}
		scores := schedule(t, s, q).Scores
		if n := len(scores); n != 72 || scores[1].ClusterName != fmt.Sprintf("cluster%04d", step) {
			t.Errorf("%d scores of every %dth cluster, want 72: %v", n, step, scores)
		}
	}
}

// A cluster that reports an impossible amount scores like one that reports none, and the others as without it.
func TestAmountsOutOfRange(t *testing.T) {
	t.Parallel()
	want := scoresOf(newFleet(newMember("a", "cpu=1"), newMember("b", "cpu=2"), newMember("liar")),
		newPlacement(withExactWeights(map[string]int32{"ResourceAllocatableCPU": 1})))
	for _, amount := range []string{"1e400", "1e31", "-1e400", "0e400"} {
		got := scoresOf(newFleet(newMember("a", "cpu=1"), newMember("b", "cpu=2"), newMember("liar", "cpu="+amount)),
			newPlacement(withExactWeights(map[string]int32{"ResourceAllocatableCPU": 1})))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", amount, diff)
		}
	}
}
