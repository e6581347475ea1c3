package placement

import (
	"slices"
	"testing"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
)

// PL-24: filters and scorers are measured once for all placements of a class, Balance and Steady for each.
func TestPluginsAreTimed(t *testing.T) {
	t.Parallel()
	var began, done []string
	s := benchmarkFleet(20, 0)
	s.framework.options.Timer = func(kind PluginType, name string) func() {
		began = append(began, string(kind)+" "+name)
		return func() { done = append(done, string(kind)+" "+name) }
	}
	schedule := func(i int, more ...option) {
		p := benchmarkPlacement(i)
		for _, o := range more {
			o(p)
		}
		s.SetPlacement(p)
		s.Schedule(keyOf(p))
	}
	schedule(1)
	want := []string{"Filter Predicate", "Filter TaintToleration", "Prioritizer AddOn", "Prioritizer ResourceAllocatableCPU",
		"Prioritizer Balance,Steady"}
	if !slices.Equal(began, want) || len(done) != len(want) {
		t.Errorf("began %q, done %q, want %q", began, done, want)
	}
	began = nil
	schedule(2)
	if want = []string{"Prioritizer Balance,Steady"}; !slices.Equal(began, want) {
		t.Errorf("for another placement of the same selection began %q, want %q", began, want)
	}
	schedule(3, withPredicates(byCEL("true")))
	evaluateAll(s)
	schedule(4, withSpread(spreadOver(clusterv1beta1.TopologyKeyTypeLabel, "region", 1, clusterv1beta1.DoNotSchedule)))
	for _, plugin := range []string{"CEL ", "Prioritizer Spread"} {
		if !slices.Contains(began, plugin) {
			t.Errorf("%q is not among %q", plugin, began)
		}
	}
}
