package managedcluster_test

import (
	"cmp"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
)

// "Those that nobody has decided on stay selectable", "act only on clusters that exist, are accepted".
func TestStanding(t *testing.T) {
	t.Parallel()
	const finalizer = "cluster.open-cluster-management.io/api-resource-cleanup"
	for name, test := range map[string]struct {
		accepts, deleted               bool
		condition                      metav1.ConditionStatus
		reason, name                   string
		finalizers                     []string
		cutOff                         string
		accepted, denied, cut, actedOn bool
		soon                           bool
	}{
		"nobody has decided":                  {},
		"accepted, restored without status":   {accepts: true, soon: true},
		"another finalizer":                   {finalizers: []string{"example.com/x"}},
		"accepted, but not set up yet":        {accepts: true, finalizers: []string{finalizer}, soon: true},
		"set up, and not once more":           {accepts: true, condition: metav1.ConditionFalse, reason: "Error", accepted: true, actedOn: true},
		"accepted again, but not set up yet":  {accepts: true, condition: metav1.ConditionFalse, reason: "HubClusterAdminDenied", soon: true},
		"a name of the hub":                   {name: "kube-system", accepts: true, condition: metav1.ConditionFalse, reason: "Error"},
		"accepted":                            {accepts: true, condition: metav1.ConditionTrue, accepted: true, actedOn: true},
		"accepted and deleted":                {accepts: true, condition: metav1.ConditionTrue, deleted: true, accepted: true},
		"denied, and the hub has not noticed": {condition: metav1.ConditionTrue, denied: true},
		"denied":                              {condition: metav1.ConditionFalse, denied: true},
		"denied before the first condition":   {finalizers: []string{finalizer}, denied: true},
		"cut off":                             {condition: metav1.ConditionFalse, cutOff: "true", denied: true, cut: true},
		"cut off before it was ever accepted": {cutOff: "true", cut: true},
		"cut off once, and accepted again":    {accepts: true, condition: metav1.ConditionTrue, cutOff: "true", accepted: true, actedOn: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cmp.Or(test.name, "c1"), Finalizers: test.finalizers}}
			cluster.Spec.HubAcceptsClient = test.accepts
			if test.deleted {
				now := metav1.Now()
				cluster.DeletionTimestamp = &now
			}
			if test.condition != "" {
				cluster.Status.Conditions = []metav1.Condition{{Type: "HubAcceptedManagedCluster", Status: test.condition, Reason: test.reason}}
			}
			if test.cutOff != "" {
				cluster.Labels = map[string]string{"capstan.io/cut-off": test.cutOff}
			}
			for what, is := range map[string][2]bool{
				"accepted": {managedcluster.Accepted(cluster), test.accepted},
				"denied":   {managedcluster.Denied(cluster), test.denied},
				"cut off":  {managedcluster.CutOff(cluster), test.cut},
				"acted on": {managedcluster.ActedOn(cluster), test.actedOn},
				"soon":     {managedcluster.BeingAccepted(cluster), test.soon},
			} {
				if is[0] != is[1] {
					t.Errorf("%s: %t", what, is[0])
				}
			}
		})
	}
}
