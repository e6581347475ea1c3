package decided_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	"github.com/capstan-io/capstan/internal/placement/decided"
)

// AM-03, MR-05: a decision whose status is not written yet is not one for nobody.
func TestAll(t *testing.T) {
	t.Parallel()
	type decisions = []clusterv1beta1.PlacementDecision
	scheduled := func(number int32) *clusterv1beta1.Placement {
		return &clusterv1beta1.Placement{Status: clusterv1beta1.PlacementStatus{
			NumberOfSelectedClusters: number, Conditions: []metav1.Condition{{Type: "PlacementSatisfied", Status: metav1.ConditionFalse}}}}
	}
	unwritten, nobody, c1 := clusterv1beta1.PlacementDecision{}, clusterv1beta1.PlacementDecision{}, clusterv1beta1.PlacementDecision{}
	nobody.Status.Decisions = []clusterv1beta1.ClusterDecision{}
	c1.Status.Decisions = []clusterv1beta1.ClusterDecision{{ClusterName: "c1"}}
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
		if got := decided.All(test.placement, test.decisions); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Clusters that the hub is about to set up, and those that are gone or going, are passed over for a moment only.
func TestLasting(t *testing.T) {
	t.Parallel()
	bound := []labels.Selector{labels.SelectorFromSet(labels.Set{"bound": "true"})}
	accepted := []metav1.Condition{{Type: "HubAcceptedManagedCluster", Status: metav1.ConditionTrue}}
	cluster := func(change func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
		c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Labels: map[string]string{"bound": "true"}}}
		c.Spec.HubAcceptsClient, c.Status.Conditions = true, accepted
		change(c)
		return c
	}
	for name, test := range map[string]struct {
		cluster *clusterv1.ManagedCluster
		want    bool
	}{
		"gone":           {nil, false},
		"being deleted":  {cluster(func(c *clusterv1.ManagedCluster) { c.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }), false},
		"being accepted": {cluster(func(c *clusterv1.ManagedCluster) { c.Status.Conditions = nil }), false},
		"in no set":      {cluster(func(c *clusterv1.ManagedCluster) { c.Labels = nil }), true},
		"denied":         {cluster(func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false }), true},
		"not accepted":   {cluster(func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient, c.Status.Conditions = false, nil }), true},
	} {
		passedOver := decided.PassedOver{"c1": decided.WhyPassedOver(test.cluster, "team-a", bound)}
		if passedOver["c1"] == "" || (len(passedOver.Lasting()) == 1) != test.want || len(passedOver) != 1 {
			t.Errorf("%s: of %v lasts %v", name, passedOver, passedOver.Lasting())
		}
	}
}

func TestPassedOver(t *testing.T) {
	t.Parallel()
	for want, passedOver := range map[string]decided.PassedOver{
		"": nil,
		"3 clusters of its decisions passed over: a, b (it is denied), c (it is being deleted)": {"b": "it is denied", "a": "it is denied",
			"c": "it is being deleted"},
	} {
		if got := passedOver.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
