package placement

import (
	"slices"
	"strings"
	"testing"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

func withSpread(terms ...clusterv1beta1.SpreadConstraintsTerm) option {
	return func(p *clusterv1beta1.Placement) { p.Spec.SpreadPolicy.SpreadConstraints = terms }
}

func spreadOver(kind clusterv1beta1.TopologyKeyType, key string, maxSkew int32,
	when clusterv1beta1.UnsatisfiableMaxSkewAction) clusterv1beta1.SpreadConstraintsTerm {
	return clusterv1beta1.SpreadConstraintsTerm{TopologyKeyType: kind, TopologyKey: key, MaxSkew: maxSkew, WhenUnsatisfiable: when}
}

// PL-13, P1
func TestSpread(t *testing.T) {
	t.Parallel()
	const label, claim = clusterv1beta1.TopologyKeyTypeLabel, clusterv1beta1.TopologyKeyTypeClaim
	const strict, anyway = clusterv1beta1.DoNotSchedule, clusterv1beta1.ScheduleAnyway
	// By name, which is their rank: five of eu, then two of us, one of ap, and one of no region. Two of eu are on gcp.
	fleet := []string{
		"a1 region=eu claim:platform=aws", "a2 region=eu claim:platform=aws", "a3 region=eu claim:platform=aws",
		"a4 region=eu claim:platform=gcp", "a5 region=eu claim:platform=gcp",
		"b1 region=us claim:platform=aws", "b2 region=us claim:platform=aws", "c1 region=ap claim:platform=aws", "d1",
	}
	for name, test := range map[string]struct {
		options   []option
		want      string
		satisfied bool
	}{
		"by rank alone": {options: []option{withLimit(4)}, want: "a1 a2 a3 a4", satisfied: true},
		"one of each": {options: []option{withLimit(3), withSpread(spreadOver(label, "region", 1, strict))}, want: "a1 b1 c1",
			satisfied: true},
		"maxSkew is 1 by default": {options: []option{withLimit(3), withSpread(spreadOver(label, "region", 0, strict))}, want: "a1 b1 c1",
			satisfied: true},
		"the best of a round": {options: []option{withLimit(4), withSpread(spreadOver(label, "region", 1, strict))}, want: "a1 a2 b1 c1",
			satisfied: true},
		"more skew": {options: []option{withLimit(4), withSpread(spreadOver(label, "region", 3, strict))}, want: "a1 a2 a3 b1",
			satisfied: true},
		"fewer than asked":  {options: []option{withLimit(9), withSpread(spreadOver(label, "region", 1, strict))}, want: "a1 a2 b1 b2 c1"},
		"as many as can be": {options: []option{withSpread(spreadOver(label, "region", 1, strict))}, want: "a1 a2 b1 b2 c1", satisfied: true},
		"as many as asked": {options: []option{withLimit(7), withSpread(spreadOver(label, "region", 1, anyway))}, want: "a1 a2 a3 a4 b1 b2 c1",
			satisfied: true},
		"anyway, but well": {options: []option{withLimit(3), withSpread(spreadOver(label, "region", 1, anyway))}, want: "a1 b1 c1",
			satisfied: true},
		"claims": {options: []option{withLimit(4), withSpread(spreadOver(claim, "platform", 1, strict))}, want: "a1 a2 a4 a5",
			satisfied: true},
		"both": {options: []option{withLimit(4), withSpread(spreadOver(claim, "platform", 1, strict), spreadOver(label, "region", 1, anyway))},
			want: "a1 a4 a5 b1", satisfied: true},
		"a label that no cluster has": {options: []option{withLimit(2), withSpread(spreadOver(label, "zone", 1, strict))}, want: ""},
		"and anyway": {options: []option{withLimit(2), withSpread(spreadOver(label, "zone", 1, anyway))}, want: "a1 a2",
			satisfied: true},
		"the first goes first": {options: []option{withLimit(2),
			withSpread(spreadOver(label, "region", 1, anyway), spreadOver(claim, "platform", 1, anyway))},
			want: "a1 b1", satisfied: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFleet()
			for _, words := range fleet {
				properties := strings.Fields(words)
				s.SetCluster(newMember(properties[0], properties[1:]...))
			}
			result := schedule(t, s, newPlacement(append(test.options, withExactWeights(nil))...))
			wantClusters(t, result, strings.Fields(test.want)...)
			if (result.Satisfied.Status == "True") != test.satisfied {
				t.Errorf("%+v", result.Satisfied)
			}
		})
	}
}

// PL-13: clusters stay if the constraints allow it.
func TestSpreadIsSteady(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("b", "region=eu"), newMember("c", "region=us"))
	p := newPlacement(withLimit(2), withSpread(spreadOver(clusterv1beta1.TopologyKeyTypeLabel, "region", 1, clusterv1beta1.DoNotSchedule)))
	wantClusters(t, schedule(t, s, p), "b", "c")
	if keys := s.SetCluster(newMember("a", "region=eu")); len(keys) != 1 {
		t.Errorf("a candidate more affects %v", keys)
	}
	wantClusters(t, schedule(t, s, p), "b", "c")
	if keys := s.SetCluster(newMember("a", "region=ap")); len(keys) != 1 {
		t.Error("a region more does not affect the placement")
	}
	if keys := s.SetCluster(newMember("c", "region=eu")); !slices.Contains(keys, keyOf(p)) {
		t.Error("a region less does not affect the placement")
	}
	wantClusters(t, schedule(t, s, p), "a", "b")
}
