package rollout

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// PL-15, PL-16, SD-05
func TestSelected(t *testing.T) {
	t.Parallel()
	decision := func(labels map[string]string, names ...string) (d clusterv1beta1.PlacementDecision) {
		d.Labels = labels
		for _, name := range names {
			d.Status.Decisions = append(d.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: name})
		}
		return d
	}
	group := func(index, name string) map[string]string {
		return map[string]string{fleet.LabelDecisionGroupIndex: index, fleet.LabelDecisionGroupName: name}
	}
	got := Selected([]clusterv1beta1.PlacementDecision{
		decision(group("10", ""), "k", "j"),
		decision(group("2", ""), "z", "b"),
		decision(group("0", "canary"), "y"),
		decision(group("2", ""), "a", "y"), // y is on its way from one to the other
		decision(nil, "x"),
		decision(group("not a number", ""), "w"),
		decision(group("1", "")),
	})
	want := []Cluster{
		{Name: "w", State: ToApply},
		{Name: "x", State: ToApply},
		{Name: "y", State: ToApply, Group: Group{Name: "canary"}},
		{Name: "a", State: ToApply, Group: Group{Index: 2}},
		{Name: "b", State: ToApply, Group: Group{Index: 2}},
		{Name: "z", State: ToApply, Group: Group{Index: 2}},
		{Name: "j", State: ToApply, Group: Group{Index: 10}},
		{Name: "k", State: ToApply, Group: Group{Index: 10}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
