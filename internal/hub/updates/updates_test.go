package updates

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
)

func TestOfSpec(t *testing.T) {
	t.Parallel()
	of := func(uid types.UID, generation int64) *clusterv1.ManagedCluster {
		return &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{UID: uid, Generation: generation}}
	}
	for name, test := range map[string]struct {
		after *clusterv1.ManagedCluster
		want  bool
	}{
		"a status":       {of("1", 1), false},
		"a spec":         {of("1", 2), true},
		"another object": {of("2", 1), true},
	} {
		if got := OfSpec().Update(event.UpdateEvent{ObjectOld: of("1", 1), ObjectNew: test.after}); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
