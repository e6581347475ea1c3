package predicates

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func TestUpdates(t *testing.T) {
	t.Parallel()
	marked := Either(func(o client.Object) bool { return o.GetLabels()["marked"] != "" })
	for name, test := range map[string]struct {
		before, after                     metav1.ObjectMeta
		recreated, generation, markedness bool
	}{
		"nothing": {metav1.ObjectMeta{UID: "a", Generation: 1}, metav1.ObjectMeta{UID: "a", Generation: 1}, false, false, false},
		"spec":    {metav1.ObjectMeta{UID: "a", Generation: 1}, metav1.ObjectMeta{UID: "a", Generation: 2}, false, true, false},
		"again":   {metav1.ObjectMeta{UID: "a", Generation: 1}, metav1.ObjectMeta{UID: "b", Generation: 1}, true, true, false},
		"marked":  {metav1.ObjectMeta{UID: "a"}, metav1.ObjectMeta{UID: "a", Labels: map[string]string{"marked": "x"}}, false, false, true},
		"no more": {metav1.ObjectMeta{UID: "a", Labels: map[string]string{"marked": "x"}}, metav1.ObjectMeta{UID: "a"}, false, false, true},
	} {
		e := event.UpdateEvent{ObjectOld: &corev1.Secret{ObjectMeta: test.before}, ObjectNew: &corev1.Secret{ObjectMeta: test.after}}
		if got := Recreated().Update(e); got != test.recreated {
			t.Errorf("%s: recreated %t", name, got)
		}
		if got := Generation().Update(e); got != test.generation {
			t.Errorf("%s: generation %t", name, got)
		}
		if got := marked.Update(e); got != test.markedness {
			t.Errorf("%s: either %t", name, got)
		}
	}
	if marked.Create(event.CreateEvent{Object: &corev1.Secret{}}) || !Generation().Create(event.CreateEvent{Object: &corev1.Secret{}}) {
		t.Error("what comes is matched otherwise than before")
	}
}
