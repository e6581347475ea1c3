package delivery

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// MR-09: agents are sent what is new for them, also of a work that was deleted and made again while the hub did not watch.
func TestChanged(t *testing.T) {
	t.Parallel()
	before := metav1.ObjectMeta{UID: "a", Generation: 1, ResourceVersion: "1"}
	now := metav1.Now()
	for name, test := range map[string]struct {
		after metav1.ObjectMeta
		want  bool
	}{
		"a status":      {metav1.ObjectMeta{UID: "a", Generation: 1, ResourceVersion: "2"}, false},
		"a spec":        {metav1.ObjectMeta{UID: "a", Generation: 2}, true},
		"a deletion":    {metav1.ObjectMeta{UID: "a", Generation: 1, DeletionTimestamp: &now}, true},
		"a label":       {metav1.ObjectMeta{UID: "a", Generation: 1, Labels: map[string]string{"a": "b"}}, true},
		"an annotation": {metav1.ObjectMeta{UID: "a", Generation: 1, Annotations: map[string]string{"a": "b"}}, true},
		"another work":  {metav1.ObjectMeta{UID: "b", Generation: 1}, true},
	} {
		update := event.UpdateEvent{ObjectOld: &workv1.ManifestWork{ObjectMeta: before}, ObjectNew: &workv1.ManifestWork{ObjectMeta: test.after}}
		if got := changed(update); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
