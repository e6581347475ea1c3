package owner

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/event"
)

// AM-02: the add-ons of an entry that was deleted and made again while nobody watched have an owner that is gone, and would go, too.
func TestEntryMadeAnew(t *testing.T) {
	t.Parallel()
	before := entry(map[string]string{"a": "b"})
	after := before.DeepCopy()
	if entryChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) {
		t.Error("nothing has changed")
	}
	after.UID = "later"
	if !entryChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) {
		t.Error("that it was made again goes unseen")
	}
}
