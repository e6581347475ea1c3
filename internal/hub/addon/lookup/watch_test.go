package lookup_test

import (
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/hub/addon/lookup"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// AM-09: a work that is given to another add-on is missed by the one that it was of.
func TestLaterByLabels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer synctest.Wait()
		defer queue.ShutDown()
		work := func(addOn string) *workv1.ManifestWork {
			return &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: "work",
				Labels: map[string]string{fleet.LabelAddOnName: addOn}}}
		}
		lookup.LaterByLabels(lookup.OfWork).Update(t.Context(), event.UpdateEvent{ObjectOld: work("a"), ObjectNew: work("b")}, queue)
		got := map[client.ObjectKey]bool{}
		for range 2 {
			request, _ := queue.Get()
			got[request.NamespacedName] = true
		}
		if !got[client.ObjectKey{Namespace: "c1", Name: "a"}] || !got[client.ObjectKey{Namespace: "c1", Name: "b"}] {
			t.Errorf("asked for %v", got)
		}
	})
}

// AM-02: an entry that was deleted and made again while nobody watched is another one.
func TestEntryChanged(t *testing.T) {
	t.Parallel()
	before := &addonv1beta1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: "hello", UID: "a", Generation: 1}}
	after := before.DeepCopy()
	after.Labels = map[string]string{"a": "b"}
	if lookup.EntryChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) {
		t.Error("a label matters")
	}
	after.UID = "b"
	if !lookup.EntryChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) {
		t.Error("an entry that was made again does not matter")
	}
}
