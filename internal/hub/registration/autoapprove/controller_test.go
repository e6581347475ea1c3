package autoapprove

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
)

// The requests of a cluster are looked at again when what they were withheld for is over, and not whenever it changes.
func TestIsReleased(t *testing.T) {
	t.Parallel()
	cluster := func(accepted bool, labels map[string]string, conditions ...metav1.Condition) *clusterv1.ManagedCluster {
		c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Labels: labels}}
		c.Spec.HubAcceptsClient, c.Status.Conditions = accepted, conditions
		return c
	}
	decided := metav1.Condition{Type: "HubAcceptedManagedCluster", Status: metav1.ConditionFalse}
	available := metav1.Condition{Type: "ManagedClusterConditionAvailable", Status: metav1.ConditionTrue}
	unknown := metav1.Condition{Type: "ManagedClusterConditionAvailable", Status: metav1.ConditionUnknown}
	cut := map[string]string{"capstan.io/cut-off": "true"}
	for name, test := range map[string]struct {
		before, after *clusterv1.ManagedCluster
		want          bool
	}{
		"lost":                        {cluster(true, nil, available), cluster(true, nil, unknown), true},
		"found":                       {cluster(true, nil, unknown), cluster(true, nil, available), false},
		"a heartbeat":                 {cluster(true, nil, available), cluster(true, nil, available), false},
		"denied while lost":           {cluster(true, nil, decided, unknown), cluster(false, nil, decided, unknown), false},
		"accepted again":              {cluster(false, nil, decided, unknown), cluster(true, nil, decided, unknown), true},
		"accepted after the cut-off":  {cluster(false, cut), cluster(true, cut), true},
		"no longer cut off":           {cluster(false, cut), cluster(false, nil), true},
		"no longer cut off, denied":   {cluster(false, cut, decided), cluster(false, nil, decided), false},
		"accepted for the first time": {cluster(false, nil), cluster(true, nil), false},
	} {
		if got := isReleased().Update(event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.after}); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if isReleased().Create(event.CreateEvent{Object: cluster(true, nil)}) {
		t.Error("a new cluster is one that its requests waited for")
	}
	if !isReleased().Delete(event.DeleteEvent{Object: cluster(true, nil)}) {
		t.Error("a cluster that has gone still withholds its requests")
	}
}
