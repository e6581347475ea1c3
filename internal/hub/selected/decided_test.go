package selected_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/hub/selected"
)

// scheduled is a placement whose status says how many clusters it selects.
func scheduled(number int32) *clusterv1beta1.Placement {
	return &clusterv1beta1.Placement{Status: clusterv1beta1.PlacementStatus{
		NumberOfSelectedClusters: number, Conditions: []metav1.Condition{{Type: "PlacementSatisfied", Status: metav1.ConditionFalse}}}}
}

// AM-03, MR-05: a decision whose status is not written yet is not one for nobody.
func TestDecided(t *testing.T) {
	t.Parallel()
	type decisions = []clusterv1beta1.PlacementDecision
	unwritten, nobody, c1 := clusterv1beta1.PlacementDecision{}, clusterv1beta1.PlacementDecision{}, decision("c1")[0]
	nobody.Status.Decisions = []clusterv1beta1.ClusterDecision{}
	for name, test := range map[string]struct {
		placement *clusterv1beta1.Placement
		decisions decisions
		want      bool
	}{
		"no decision": {scheduled(0), nil, false},
		"clusters, the placement says nothing yet": {&clusterv1beta1.Placement{}, decisions{c1}, true},
		"nobody, the placement says nothing yet":   {&clusterv1beta1.Placement{}, decisions{nobody}, true},
		"nobody any more":                          {scheduled(1), decisions{nobody}, true},
		"not written":                              {&clusterv1beta1.Placement{}, decisions{unwritten}, false},
		"not written again":                        {scheduled(1), decisions{unwritten}, false},
		"one of two is not written again":          {scheduled(2), decisions{c1, unwritten}, false},
		"the status is left out for nobody":        {scheduled(0), decisions{unwritten}, true},
		"and in a group without clusters":          {scheduled(1), decisions{c1, unwritten}, true},
	} {
		if got := selected.Decided(test.placement, test.decisions); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// What Decided reads of a placement is watched.
func TestPlacementChanged(t *testing.T) {
	t.Parallel()
	edited := scheduled(1)
	edited.Generation = 2
	for name, test := range map[string]struct {
		before, after *clusterv1beta1.Placement
		want          bool
	}{
		"nothing":        {scheduled(2), scheduled(2), false},
		"scheduled":      {&clusterv1beta1.Placement{}, scheduled(0), true},
		"fewer clusters": {scheduled(2), scheduled(1), true},
		"more clusters":  {scheduled(1), scheduled(2), false},
		"the spec":       {scheduled(1), edited, true},
	} {
		if got := selected.PlacementChanged().Update(event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.after}); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
