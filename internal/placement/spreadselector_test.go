package placement

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// PL-13: the selection equals that of an implementation that counts all topologies for each cluster.
func TestSpreadMatchesReference(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 13))
			s := newFleet(topologies(r, 1+r.IntN(150))...)
			p := newPlacement(randomConstraints(r, "a", "b", "c", "d"), withExactWeights(nil))
			if r.IntN(4) > 0 {
				withLimit(int32(r.IntN(100)))(p)
			}
			result := schedule(t, s, p)
			want := referenceSpread(s, s.snapshot.placements[keyOf(p)].spec)
			if diff := cmp.Diff(want, clusters(result)); diff != "" {
				t.Errorf("%+v: %s", p.Spec.SpreadPolicy, diff)
			}
		})
	}
}

// topologies returns clusters with labels and claims that have from one value to one for each cluster.
func topologies(r *rand.Rand, n int) []*clusterv1.ManagedCluster {
	members := make([]*clusterv1.ManagedCluster, n)
	kinds := []int{1 + r.IntN(2), 1 + r.IntN(5), 1 + r.IntN(n), n * n}
	for i := range members {
		var properties []string
		for at, values := range kinds {
			for _, kind := range []string{"", "claim:"} {
				if r.IntN(10) > 0 {
					properties = append(properties, fmt.Sprintf("%s%c=%d", kind, 'a'+at, r.IntN(values)))
				}
			}
		}
		members[i] = newMember(fmt.Sprintf("c%03d", i), properties...)
	}
	return members
}

// randomConstraints are one to four, over labels and claims with any of the keys.
func randomConstraints(r *rand.Rand, keys ...string) option {
	var terms []clusterv1beta1.SpreadConstraintsTerm
	for range 1 + r.IntN(4) {
		terms = append(terms, spreadOver(oneOf(r, clusterv1beta1.TopologyKeyTypeLabel, clusterv1beta1.TopologyKeyTypeClaim), oneOf(r, keys...),
			int32(r.IntN(4)), oneOf(r, clusterv1beta1.DoNotSchedule, clusterv1beta1.ScheduleAnyway)))
	}
	return withSpread(terms...)
}

// referenceSpread selects among all clusters, of which those are better that come first by name.
func referenceSpread(s *Scheduler, p *parsedSpec) []string {
	counts := make([]map[string]int, len(p.constraints))
	var waiting []*cluster
	for _, c := range s.snapshot.clusters.sorted {
		if !slices.ContainsFunc(p.constraints, func(k spreadConstraint) bool { _, known := k.topologyOf(c); return k.strict && !known }) {
			waiting = append(waiting, c)
		}
	}
	for i := range p.constraints {
		counts[i] = map[string]int{}
		for _, c := range waiting {
			if value, known := p.constraints[i].topologyOf(c); known {
				counts[i][value] = 0
			}
		}
	}
	names := []string{}
	for n := p.maxSelected(len(s.snapshot.clusters.sorted)); len(names) < n; {
		best, least := -1, []int(nil)
		for at, c := range waiting {
			if excess, ok := referenceExcess(p, counts, c); ok && (best < 0 || slices.Compare(excess, least) < 0) {
				best, least = at, excess
			}
		}
		if best < 0 {
			break
		}
		for i := range p.constraints {
			if value, known := p.constraints[i].topologyOf(waiting[best]); known {
				counts[i][value]++
			}
		}
		names = append(names, waiting[best].name)
		waiting = slices.Delete(waiting, best, best+1)
	}
	slices.Sort(names)
	if len(names) == 0 {
		return nil
	}
	return names
}

// referenceExcess is by how much one cluster more would exceed maxSkew of each constraint.
func referenceExcess(p *parsedSpec, counts []map[string]int, c *cluster) (excess []int, ok bool) {
	for i, k := range p.constraints {
		value, known := k.topologyOf(c)
		if !known {
			excess = append(excess, math.MaxInt)
			continue
		}
		least := math.MaxInt
		for other, n := range counts[i] {
			if other == value {
				n++
			}
			least = min(least, n)
		}
		over := max(counts[i][value]+1-least-k.maxSkew, 0)
		if over > 0 && k.strict {
			return nil, false
		}
		excess = append(excess, over)
	}
	return excess, true
}

// Candidates of the same topologies are compared as one, and so are those that are the only ones of their topologies.
func TestSpreadBuckets(t *testing.T) {
	t.Parallel()
	const clusters = 90
	s := newFleet(newMember("without"))
	for i := range clusters {
		s.SetCluster(newMember(fmt.Sprintf("c%02d", i), fmt.Sprintf("zone=%d", i%3), fmt.Sprintf("provider=%d", i%3/2),
			fmt.Sprintf("pair=%d", i/2), fmt.Sprintf("claim:id=%d", i)))
	}
	zone, provider := spreadOver("Label", "zone", 1, "ScheduleAnyway"), spreadOver("Label", "provider", 1, "ScheduleAnyway")
	pair, id := spreadOver("Label", "pair", 1, "ScheduleAnyway"), spreadOver("Claim", "id", 1, "ScheduleAnyway")
	strictZone := spreadOver("Label", "zone", 1, "DoNotSchedule")
	for name, test := range map[string]struct {
		terms []clusterv1beta1.SpreadConstraintsTerm
		want  int
	}{
		"zones, and none":              {[]clusterv1beta1.SpreadConstraintsTerm{zone}, 3 + 1},
		"zones":                        {[]clusterv1beta1.SpreadConstraintsTerm{strictZone}, 3},
		"zones and their providers":    {[]clusterv1beta1.SpreadConstraintsTerm{strictZone, provider}, 3},
		"each its own":                 {[]clusterv1beta1.SpreadConstraintsTerm{id}, 1 + 1},
		"each its own, and zones":      {[]clusterv1beta1.SpreadConstraintsTerm{id, strictZone}, 3},
		"pairs":                        {[]clusterv1beta1.SpreadConstraintsTerm{pair}, clusters/2 + 1},
		"each its own zone and a pair": {[]clusterv1beta1.SpreadConstraintsTerm{pair, strictZone}, clusters},
	} {
		spec, invalid := parseSpec(newPlacement(withSpread(test.terms...)))
		if invalid != nil {
			t.Fatal(invalid)
		}
		var candidates []scoredCluster
		for _, c := range s.snapshot.clusters.sorted {
			candidates = append(candidates, scoredCluster{cluster: c})
		}
		if got := len(newSpread(spec.constraints, candidates).waiting); got != test.want {
			t.Errorf("%s: there are %d buckets, want %d", name, got, test.want)
		}
	}
}

// Nothing is compared if all candidates are selected anyway.
func TestSpreadOverAll(t *testing.T) {
	t.Parallel()
	region, zone := spreadOver("Label", "region", 1, "ScheduleAnyway"), spreadOver("Label", "zone", 1, "ScheduleAnyway")
	strict := spreadOver("Label", "region", 9, "DoNotSchedule")
	for name, test := range map[string]struct {
		options  []option
		want     string
		compared bool
	}{
		"no number":               {[]option{withSpread(region, zone)}, "a b c d", false},
		"as many as there are":    {[]option{withSpread(region, zone), withLimit(4)}, "a b c d", false},
		"more than there are":     {[]option{withSpread(region, zone), withLimit(9)}, "a b c d", false},
		"fewer":                   {[]option{withSpread(region, zone), withLimit(3)}, "a b c", true},
		"some must not be chosen": {[]option{withSpread(zone, strict)}, "a b c", true},
	} {
		s := newFleet(newMember("a", "region=eu", "zone=1"), newMember("b", "region=eu", "zone=2"), newMember("c", "region=us", "zone=1"),
			newMember("d"))
		p := newPlacement(append(test.options, withExactWeights(nil))...)
		s.SetPlacement(p)
		result, cycle := s.runCycle(s.snapshot.placements[keyOf(p)])
		if got := strings.Join(clusters(result), " "); got != test.want {
			t.Errorf("%s: selected %s, want %s", name, got, test.want)
		}
		if compared := cycle.spread != nil; compared != test.compared {
			t.Errorf("%s: candidates are compared: %t, want %t", name, compared, test.compared)
		}
	}
}

// P10: the reason of a cluster that its score alone would not have selected names the constraint.
func TestSpreadReasons(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("a1", "region=eu", "claim:cloud=x"), newMember("a2", "region=eu", "claim:cloud=x"),
		newMember("a3", "region=eu", "claim:cloud=y"), newMember("b1", "region=us", "claim:cloud=x"))
	const rank = "matches; nothing prioritizes one cluster over another"
	cloud, region := spreadOver("Claim", "cloud", 1, "DoNotSchedule"), spreadOver("Label", "region", 1, "ScheduleAnyway")
	for name, test := range map[string]struct {
		placement *clusterv1beta1.Placement
		want      map[string]string
	}{
		"region": {newPlacement(withLimit(2), withSpread(region), withExactWeights(nil)), map[string]string{
			"a1": rank, "b1": rank + "; goes before clusters that rank higher, to spread over label region=us (spec.spreadPolicy.spreadConstraints[0])"}},
		"cloud": {newPlacement(withLimit(2), withSpread(region, cloud), withExactWeights(nil)), map[string]string{
			"a1": rank, "a3": rank + "; goes before clusters that rank higher, to spread over claim cloud=y (spec.spreadPolicy.spreadConstraints[1])"}},
		"all the same": {newPlacement(withLimit(4), withSpread(region), withExactWeights(nil)),
			map[string]string{"a1": rank, "a2": rank, "a3": rank, "b1": rank}},
	} {
		got := map[string]string{}
		for _, decision := range schedule(t, s, test.placement).Groups[0].Decisions {
			got[decision.ClusterName] = decision.Reason
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		s.DeletePlacement(keyOf(test.placement))
	}
}

// P10: of several constraints, the reason names the one because of which the cluster is not selected.
func TestReasonsOfSeveralConstraints(t *testing.T) {
	t.Parallel()
	s := newFleet(newMember("a", "region=eu", "zone=1"), newMember("b", "region=eu", "zone=1"), newMember("c", "region=us", "zone=1"),
		newMember("d", "region=us", "zone=2"), newMember("e", "region=us"))
	// Of region eu there may be two more than of us; of zone 1 only one more than of zone 2.
	p := newPlacement(withSpread(spreadOver("Label", "region", 2, "DoNotSchedule"), spreadOver("Label", "zone", 1, "DoNotSchedule")),
		withExactWeights(nil))
	wantClusters(t, schedule(t, s, p), "a", "b", "d")
	explanation := s.Explain(t.Context(), p)
	for cluster, want := range map[string]string{
		"c": "it would exceed maxSkew of spec.spreadPolicy.spreadConstraints[1]: enough clusters with label zone=1 are selected",
		"e": "it has no label zone, which spec.spreadPolicy.spreadConstraints[1] wants",
	} {
		if got := explanation.Why(cluster); got.Reason != want {
			t.Errorf("%s: %q, want %q", cluster, got.Reason, want)
		}
	}
	withLimit(1)(p)
	s.DeletePlacement(keyOf(p))
	if got := s.Explain(t.Context(), p).Why("e").Reason; !strings.Contains(got, "it has no label zone") {
		t.Errorf("its rank does not matter, but why not is %q", got)
	}
}
