package replicaset

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/hub/selected"
)

// What a fleet has when the hub starts enqueues no sets, which are enqueued themselves; what comes later does.
func TestStart(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		object client.Object
		matter func(event.UpdateEvent) bool
	}{
		"a work":                           {&workv1.ManifestWork{}, matters},
		"a cluster with values":            {&clusterv1.ManagedCluster{}, hasOtherValues},
		"a cluster that the hub acts upon": {&clusterv1.ManagedCluster{}, selected.ClusterChanged().Update},
	} {
		matched := updates(test.matter)
		for _, initial := range []bool{true, false} {
			if got := matched.Create(event.CreateEvent{Object: test.object, IsInInitialList: initial}); got == initial {
				t.Errorf("%s, in the first list: %t, is matched: %t", name, initial, got)
			}
		}
		if !matched.Delete(event.DeleteEvent{Object: test.object}) {
			t.Errorf("%s that goes is not matched", name)
		}
	}
}
